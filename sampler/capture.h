/* Taking samples: what a target calls, on the tick thread of a vCPU. */
#ifndef SAMPLER_CAPTURE_H
#define SAMPLER_CAPTURE_H

#include "sampler/target.h"

/* True when a tick of this vCPU waits for its stack. Cheap. A vCPU that stops for another reason
 * need not call sampler_capture() when this is false. */
bool sampler_is_due(struct sampler_target *target, unsigned vcpu);

/* Takes the sample of a stopped vCPU, for every session that is due; never twice at a time for one
 * vCPU. Allocates nothing, takes no lock, makes no system call.
 *
 * `state` is what the vCPU does, as far as the target knows: for one that is SAMPLER_VCPU_RUNNING
 * vcpu_state() may be asked, which may make a system call. `cpu` NULL: its registers cannot be had
 * without disturbing it; the record then has the time and the state only. In the VMM `cpu` is what
 * the vCPU left the guest with. */
void sampler_capture(struct sampler_target *target, unsigned vcpu, enum sampler_vcpu_state state,
		     const struct guest_cpu *cpu);

/* The tick thread of this vCPU is about to end: what its sessions still owe is written. Last. */
void sampler_vcpu_ended(struct sampler_target *target, unsigned vcpu);

#endif
