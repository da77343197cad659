/* A tiny guest that runs on a thread of its own while a test opens and closes sessions on it. */
#ifndef TESTS_KVM_BACKGROUND_H
#define TESTS_KVM_BACKGROUND_H

#include "tests/kvm/guest_machine.h"

#include <pthread.h>

struct running {
	struct guest_machine guest;
	pthread_t thread;
	enum guest_end end;
};

static inline void *run_machine(void *argument)
{
	struct running *running = argument;
	/* The test ends it; this only keeps a defect from hanging the run. */
	struct machine_limits limits = {.timeout_ns = 4 * HANG_LIMIT};

	running->end = machine_run(running->guest.machine, &limits, NULL);
	return NULL;
}

static inline void run_in_background(struct running *running, struct guest_setup setup)
{
	guest_machine_create(&running->guest, setup);
	cr_assert_eq(pthread_create(&running->thread, NULL, run_machine, running), 0);
}

/* How it ended is in running->end: GUEST_SIGNALLED unless it ended by itself before. */
static inline void end_in_background(struct running *running)
{
	machine_request_end(running->guest.machine, GUEST_SIGNALLED);
	pthread_join(running->thread, NULL);
}

static inline uint64_t ticks_of(const gp_sampler_t *session, unsigned vcpu)
{
	gp_sampler_totals_t totals;

	cr_assert_eq(gp_sampler_totals(session, vcpu, &totals), GP_OK);
	return totals.ticks;
}

/* Waits for ticks, not for time; the limit is for a defect. */
static inline void wait_for_ticks(const gp_sampler_t *session, unsigned vcpu, uint64_t wanted)
{
	for (unsigned i = 0; i < 15000 && ticks_of(session, vcpu) < wanted; i++)
		sleep_ns(2 * MILLISECOND);
	cr_assert_geq(ticks_of(session, vcpu), wanted);
}

#endif
