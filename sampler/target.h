/* What can be sampled: a set of vCPUs that somebody else runs.
 *
 * The sampler does not know whether they belong to our own VMM or to another process. A
 * target gives it a thread per vCPU to send ticks to, a way to ask for that vCPU to stop, and
 * the guest's memory; the sampler gives the target sampler_capture() (sampler/capture.h).
 *
 *   tick signal, on the vCPU's tick thread
 *     -> the sampler notes the tick and calls ops->kick()      returns at once
 *   later, on that same thread, the vCPU stopped
 *     -> the target calls sampler_capture()                    no lock, no allocation
 *   and goes on running the vCPU, whatever happened.
 */
#ifndef SAMPLER_TARGET_H
#define SAMPLER_TARGET_H

#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/guest_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Sessions on one target at a time. */
#define SAMPLER_SESSIONS_MAX 8

struct sampler_target;
struct gp_sampler;
struct linux_guest;
struct guest_knowledge;

/* What a stopped vCPU was doing; numbered as in a sample record (fxt/sample.h). */
enum sampler_vcpu_state {
	SAMPLER_VCPU_RUNNING = 0, /* executing guest instructions */
	SAMPLER_VCPU_HALTED = 3,  /* HLT or the like: waits for an interrupt */
	SAMPLER_VCPU_IN_VMM = 4,  /* between two guest instructions: its VMM is at work for it */
	SAMPLER_VCPU_NOT_STARTED = 5, /* waits for INIT and SIPI */
};

struct sampler_target_ops {
	/* Required. How many vCPUs there are; does not change during a session. Any thread. */
	unsigned (*vcpu_count)(const struct sampler_target *target);
	/* Required. Kernel thread id of the thread that stops vCPU `vcpu` and calls
	 * sampler_capture() for it; 0 when that thread has ended. Any thread. */
	pid_t (*tick_thread)(const struct sampler_target *target, unsigned vcpu);
	/* Required. Asks for the vCPU to stop soon. Called in a signal handler on the vCPU's tick
	 * thread. Returns whether the vCPU is executing the guest (true) or its VMM is busy on its
	 * behalf, emulating a device for example (false). */
	bool (*kick)(struct sampler_target *target, unsigned vcpu);
	/* Required. The guest's memory; valid as long as the target. Any thread. */
	const struct guest_memory *(*memory)(const struct sampler_target *target);
	/* Optional. What the stopped vCPU does. Called on its tick thread, within
	 * sampler_capture(), and only when the registers leave it open (at a HLT, at the reset
	 * vector), because it may cost a system call. Without it every vCPU counts as running. */
	enum sampler_vcpu_state (*vcpu_state)(struct sampler_target *target, unsigned vcpu);
};

/* Embedded in what implements it. */
struct sampler_target {
	const struct sampler_target_ops *ops;
	/* The rest is the sampler's. */
	pthread_mutex_t sessions_lock; /* create, close */
	_Atomic(struct gp_sampler *) sessions[SAMPLER_SESSIONS_MAX];
	/* vCPUs whose tick thread is inside sampler_capture(): a session is freed only when
	 * this is zero after it was taken off the list. */
	_Atomic unsigned capturing;
	/* What is known of the guest (guest-introspection/linux/linux_guest.h), and the part of it
	 * that captures use. Both NULL until somebody asks. */
	_Atomic(struct linux_guest *) guest;
	_Atomic(struct guest_knowledge *) knowledge;
};

void sampler_target_init(struct sampler_target *target, const struct sampler_target_ops *ops);

/* All sessions must have been closed. */
void sampler_target_deinit(struct sampler_target *target);

/* For the sampler: returns when all captures that had begun before the call have ended. */
void sampler_target_wait(struct sampler_target *target);

/* What is known of the guest that the target runs: made at the first call, freed with the target.
 * NULL: no memory. Any thread, never with a vCPU stopped. */
struct linux_guest *sampler_target_guest(struct sampler_target *target);

#endif
