/* No kick is lost, at rates far above what is promised and with a guest that does nothing but
 * leave. */
#include "tests/kvm/guest_machine.h"

#include <pthread.h>
#include <stdatomic.h>

struct kicked {
	struct guest_machine guest;
	gp_sampler_t *session;
	enum guest_end end;
	_Atomic bool ended;
};

static void *run_machine(void *argument)
{
	struct kicked *kicked = argument;

	kicked->end = guest_machine_run(&kicked->guest, 0, NULL);
	atomic_store(&kicked->ended, true);
	return NULL;
}

static gp_sampler_totals_t totals_of(const gp_sampler_t *session)
{
	gp_sampler_totals_t totals;

	cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
	return totals;
}

/* A lost kick shows as a tick that never becomes a record: with one more timer round the vCPU would
 * stop again and hide it, so each round arms the timer for very few ticks and then stops: what is
 * owed then must have been written, by a stop that itself is nothing but a kick. */
static void kick_in_rounds(const char *command_line, unsigned rounds)
{
	struct kicked kicked = {0};
	uint64_t ticks_before = 0;
	pthread_t thread;

	guest_machine_create(&kicked.guest, (struct guest_setup){.command_line = command_line});
	kicked.session = open_session(&kicked.guest, 20 * MICROSECOND, 0, 1 << 22, 8);
	cr_assert_eq(pthread_create(&thread, NULL, run_machine, &kicked), 0);
	for (unsigned round = 0; round < rounds; round++) {
		gp_sampler_totals_t totals;

		cr_assert_eq(gp_sampler_start(kicked.session, 0), GP_OK);
		sleep_ns(round % 7 * 10 * MICROSECOND);
		cr_assert_eq(gp_sampler_stop(kicked.session, 0), GP_OK);
		totals = totals_of(kicked.session);
		cr_assert_eq(totals.ticks, totals.full + totals.partial + totals.dropped,
			     "round %u: %llu ticks, %llu + %llu + %llu", round,
			     (unsigned long long)totals.ticks, (unsigned long long)totals.full,
			     (unsigned long long)totals.partial,
			     (unsigned long long)totals.dropped);
		cr_assert_geq(totals.ticks, ticks_before);
		ticks_before = totals.ticks;
	}
	cr_assert_gt(ticks_before, rounds / 2);
	machine_request_end(kicked.guest.machine, GUEST_SIGNALLED);
	pthread_join(thread, NULL);
	cr_assert_eq(kicked.end, GUEST_SIGNALLED);
	gp_sampler_close(kicked.session);
	guest_machine_destroy(&kicked.guest);
}

Test(kick, no_lost_kick, .timeout = 120)
{
	require_kvm();
	kick_in_rounds("run=exits rounds=0", 3000);
	kick_in_rounds("run=tree rounds=0", 500);
	kick_in_rounds("end=halt", 500);
}

/* Each tick leads to a stop before many more have come, also while the guest only exits. Counted in
 * ticks: were kicks lost, runs of ticks would pile up until another one gets through. */
Test(kick, every_tick_gets_its_record_while_the_guest_floods_us, .timeout = 120)
{
	struct kicked kicked = {0};
	struct session_data data = {0};
	struct session_counts counts;
	pthread_t thread;

	require_kvm();
	guest_machine_create(&kicked.guest,
			     (struct guest_setup){.command_line = "run=exits rounds=0"});
	kicked.session = open_session(&kicked.guest, 50 * MICROSECOND, 0, 1 << 26, 8);
	cr_assert_eq(gp_sampler_start(kicked.session, 0), GP_OK);
	cr_assert_eq(pthread_create(&thread, NULL, run_machine, &kicked), 0);
	for (unsigned i = 0; i < 5000 && totals_of(kicked.session).ticks < 10000; i++)
		sleep_ns(5 * MILLISECOND);
	cr_assert_eq(gp_sampler_stop(kicked.session, 0), GP_OK);
	counts = check_session(kicked.session, 1, &data, NULL, NULL);
	cr_assert_geq(counts.totals.ticks, 10000);
	cr_assert_eq(counts.totals.dropped, 0);
	cr_assert_gt(counts.totals.full, 100);
	machine_request_end(kicked.guest.machine, GUEST_SIGNALLED);
	pthread_join(thread, NULL);
	gp_sampler_close(kicked.session);
	guest_machine_destroy(&kicked.guest);
	free(data.bytes);
}

/* The end of a machine is a kick as well: many machines, ended at any moment of a loop of exits. */
Test(kick, a_stop_request_always_ends_the_vcpu, .timeout = 120)
{
	require_kvm();
	for (unsigned i = 0; i < 100; i++) {
		struct kicked kicked = {0};
		pthread_t thread;

		guest_machine_create(&kicked.guest,
				     (struct guest_setup){.command_line = "run=exits rounds=0"});
		cr_assert_eq(pthread_create(&thread, NULL, run_machine, &kicked), 0);
		sleep_ns(i * 37 * MICROSECOND);
		machine_request_end(kicked.guest.machine, GUEST_SIGNALLED);
		pthread_join(thread, NULL);
		cr_assert_eq(kicked.end, GUEST_SIGNALLED);
		guest_machine_destroy(&kicked.guest);
	}
}
