/* Ticks: the signal that each is, and the sources that send it. */
#ifndef SAMPLER_TICK_H
#define SAMPLER_TICK_H

#include "sampler/sampler_vcpu.h"

#define TICK_SIGNAL (SIGRTMIN + 2)

extern const struct tick_source tick_timer_source;
extern const struct tick_source tick_perf_source;

/* Starts the vCPU's tick source. Statuses of gp_sampler_start(). */
gp_status_t tick_start(struct sampler_vcpu *vcpu);

/* Stops it and waits until its tick thread has written all that is pending. */
void tick_stop(struct sampler_vcpu *vcpu);

/* For sources whose signals carry a descriptor instead of a value: signals of `fd` are those of
 * tick_value `value` (0: nobody's any more). False: too large a descriptor. */
bool tick_bind_descriptor(int fd, uint64_t value);

/* For sources: one signal to the vCPU's tick thread, which finds its handler as one of a timer
 * does. May fail (a queue that is full), as any signal. */
void tick_send(const struct sampler_vcpu *vcpu);

#endif
