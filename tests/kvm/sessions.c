/* The life of sampler sessions on a real machine: states, several at once, reading, closing, vCPUs
 * that end. */
#include "tests/kvm/background.h"

#include <stdatomic.h>

Test(sessions, states_are_told)
{
	struct running running;
	gp_sampler_t *session;
	gp_sampler_totals_t totals;

	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_session(&running.guest, MILLISECOND, 0, 0, 16);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_ERR_BAD_STATE);
	cr_assert_eq(gp_sampler_start(session, 1), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_ERR_BAD_STATE);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_ERR_BAD_STATE);
	cr_assert_eq(gp_sampler_totals(session, 1, &totals), GP_ERR_OUT_OF_RANGE);
	gp_sampler_close(session);
	gp_sampler_close(NULL);
	end_in_background(&running);
	guest_machine_destroy(&running.guest);
}

Test(sessions, start_and_stop_in_cycles_count_on)
{
	struct running running;
	struct session_data data = {0};
	gp_sampler_t *session;

	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_session(&running.guest, 300 * MICROSECOND, 0, 0, 16);
	for (unsigned cycle = 0; cycle < 20; cycle++) {
		uint64_t before = ticks_of(session, 0), stopped;

		cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
		wait_for_ticks(session, 0, before + 3);
		cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
		stopped = ticks_of(session, 0);
		sleep_ns(2 * MILLISECOND);
		cr_assert_eq(ticks_of(session, 0), stopped, "it ticks while it is stopped");
		check_session(session, 1, &data, NULL, NULL);
	}
	gp_sampler_close(session);
	end_in_background(&running);
	guest_machine_destroy(&running.guest);
	free(data.bytes);
}

Test(sessions, two_shared_ones_with_periods_of_their_own)
{
	struct running running;
	struct session_data fast_data = {0}, slow_data = {0};
	struct session_counts fast_counts, slow_counts;
	gp_sampler_t *fast, *slow;

	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	fast = open_session(&running.guest, MILLISECOND, GP_SAMPLER_SHARED, 0, 16);
	slow = open_session(&running.guest, 7 * MILLISECOND, GP_SAMPLER_SHARED, 0, 3);
	cr_assert_eq(gp_sampler_start(slow, 0), GP_OK);
	cr_assert_eq(gp_sampler_start(fast, 0), GP_OK);
	wait_for_ticks(slow, 0, 40);
	cr_assert_eq(gp_sampler_stop(fast, 0), GP_OK);
	cr_assert_eq(gp_sampler_stop(slow, 0), GP_OK);
	fast_counts = check_session(fast, 1, &fast_data, NULL, NULL);
	slow_counts = check_session(slow, 1, &slow_data, NULL, NULL);
	cr_assert_gt(fast_counts.totals.ticks, 5 * slow_counts.totals.ticks);
	cr_assert_gt(slow_counts.ends[FXT_STACK_END_DEPTH], 0, "its depth limit is not its own");
	cr_assert_eq(fast_counts.ends[FXT_STACK_END_DEPTH], 0);
	gp_sampler_close(fast);
	gp_sampler_close(slow);
	end_in_background(&running);
	guest_machine_destroy(&running.guest);
	free(fast_data.bytes);
	free(slow_data.bytes);
}

Test(sessions, an_exclusive_one_is_alone)
{
	struct guest_machine guest;
	gp_sampler_config_t config = {
		.size = sizeof(config), .period_ns = MILLISECOND, .max_depth = 16};
	gp_sampler_t *first, *second = NULL;

	guest_machine_create(&guest, (struct guest_setup){0});
	first = open_session(&guest, MILLISECOND, 0, 0, 16);
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &second),
		     GP_ERR_ALREADY_EXISTS);
	config.flags = GP_SAMPLER_SHARED;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &second),
		     GP_ERR_ALREADY_EXISTS);
	cr_assert_null(second);
	gp_sampler_close(first);
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &second), GP_OK);
	config.flags = 0;
	first = NULL;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &first),
		     GP_ERR_ALREADY_EXISTS);
	gp_sampler_close(second);
	guest_machine_destroy(&guest);
}

Test(sessions, a_small_buffer_is_told_the_size_and_takes_nothing)
{
	struct running running;
	gp_sampler_t *session;
	uint64_t small[2] = {0, 0};
	uint8_t *buffer;
	size_t asked, needed, actual;

	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_session(&running.guest, MILLISECOND, 0, 0, 16);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_ticks(session, 0, 10);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_read(session, 0, NULL, 0, &asked), GP_OK);
	cr_assert_eq(gp_sampler_read(session, 0, small, sizeof(small), &needed),
		     GP_ERR_INVALID_ARGS);
	cr_assert_eq(needed, asked);
	cr_assert_eq(small[0], 0);
	buffer = malloc(needed);
	cr_assert_eq(gp_sampler_read(session, 0, buffer, needed - 1, &actual), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_sampler_read(session, 0, buffer, needed, &actual), GP_OK);
	cr_assert_eq(actual, needed);
	cr_assert_eq(gp_sampler_read(session, 0, buffer, needed, &actual), GP_OK);
	cr_assert_eq(actual, 0, "the same data twice");
	free(buffer);
	gp_sampler_close(session);
	end_in_background(&running);
	guest_machine_destroy(&running.guest);
}

Test(sessions, closing_one_that_runs_again_and_again)
{
	struct running running;

	run_in_background(&running, (struct guest_setup){.command_line = "run=smp cpus=2 rounds=0",
							 .vcpus = 2});
	for (unsigned i = 0; i < 50; i++) {
		gp_sampler_t *session =
			open_session(&running.guest, 50 * MICROSECOND, 0, 65536, 16);

		cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
		wait_for_ticks(session, 0, i % 5);
		gp_sampler_close(session);
	}
	end_in_background(&running);
	cr_assert_eq(running.end, GUEST_SIGNALLED);
	guest_machine_destroy(&running.guest);
}

Test(sessions, data_outlives_the_vcpu)
{
	struct guest_machine guest;
	struct session_data data = {0};
	struct session_counts counts;
	gp_sampler_t *session, *late;

	guest_machine_create(&guest, (struct guest_setup){.command_line = tree_for(SECOND / 4)});
	session = open_session(&guest, 500 * MICROSECOND, GP_SAMPLER_SHARED, 0, 16);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	sleep_ns(2 * MILLISECOND);
	cr_assert_eq(guest_machine_run(&guest, 0, NULL), GUEST_POWERED_OFF);
	/* The vCPU is gone; the session still counts as started. */
	cr_assert_eq(gp_sampler_start(session, 0), GP_ERR_BAD_STATE);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, NULL, NULL);
	cr_assert_gt(counts.data.full, 0);
	/* Sessions on it can still be had; they stay empty. */
	late = open_session(&guest, 500 * MICROSECOND, GP_SAMPLER_SHARED, 0, 16);
	cr_assert_eq(gp_sampler_start(late, 0), GP_OK);
	cr_assert_eq(gp_sampler_stop(late, 0), GP_OK);
	cr_assert_eq(ticks_of(late, 0), 0);
	gp_sampler_close(late);
	gp_sampler_close(session);
	guest_machine_destroy(&guest);
	free(data.bytes);
}

/* A vCPU that ends by itself while the machine has not been told to stop yet. */
Test(sessions, a_session_on_a_vcpu_that_just_ended)
{
	for (unsigned i = 0; i < 30; i++) {
		struct running running;
		gp_sampler_t *session;

		run_in_background(&running, (struct guest_setup){.command_line = "end=triple"});
		sleep_ns(i * 200 * MICROSECOND);
		session = open_session(&running.guest, 100 * MICROSECOND, 0, 65536, 16);
		cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
		cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
		gp_sampler_close(session);
		pthread_join(running.thread, NULL);
		cr_assert_eq(running.end, GUEST_TRIPLE_FAULT);
		guest_machine_destroy(&running.guest);
	}
}

static void see_deepest(void *context, const struct fxt_sample *sample)
{
	size_t *deepest = context;

	if (sample->depth > *deepest)
		*deepest = sample->depth;
}

/* A second's worth of ticks at the promised rate, and nobody reads: rings of the default size hold
 * them, on four vCPUs and with the deepest stacks that they are made for. */
Test(sessions, a_reader_may_stall_for_a_second)
{
	enum { HZ = 4000, DEPTH = 64 };
	static const struct guest_setup setups[] = {
		{.command_line = "run=nested depth=80 rounds=0"},
		{.command_line = "run=smp cpus=4 rounds=0", .vcpus = 4},
	};

	for (size_t i = 0; i < ARRAY_SIZE(setups); i++) {
		unsigned vcpus = setups[i].vcpus ? setups[i].vcpus : 1;
		struct session_data data = {0};
		struct session_counts counts;
		struct running running;
		gp_sampler_t *session;
		size_t deepest = 0;

		run_in_background(&running, setups[i]);
		session = open_session(&running.guest, SECOND / HZ, 0, 0, DEPTH);
		cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
		for (unsigned vcpu = 0; vcpu < vcpus; vcpu++)
			wait_for_ticks(session, vcpu, HZ);
		cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
		counts = check_session(session, vcpus, &data, see_deepest, &deepest);
		cr_assert_eq(counts.totals.dropped, 0);
		cr_assert_eq(counts.data.dropped, 0);
		cr_assert_geq(counts.totals.ticks, (uint64_t)HZ * vcpus);
		if (vcpus == 1)
			cr_assert_eq(deepest, DEPTH);
		gp_sampler_close(session);
		end_in_background(&running);
		guest_machine_destroy(&running.guest);
		free(data.bytes);
	}
}
