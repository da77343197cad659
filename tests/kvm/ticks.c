/* Tick sources, jitter and filters on a real machine. */
#include "tests/kvm/background.h"

#include <math.h>

static void end_signalled(struct running *running)
{
	end_in_background(running);
	cr_assert_eq(running->end, GUEST_SIGNALLED);
	guest_machine_destroy(&running->guest);
}

static gp_sampler_config_t config_of(uint64_t period)
{
	return (gp_sampler_config_t){.size = sizeof(gp_sampler_config_t),
				     .period_ns = period,
				     .max_depth = 16,
				     .ring_bytes = 4 * MIB};
}

static gp_sampler_t *open_with(struct running *running, const gp_sampler_config_t *config)
{
	gp_sampler_t *session = NULL;

	cr_assert_eq(gp_sampler_create(machine_target(running->guest.machine), 0, config, &session),
		     GP_OK);
	return session;
}

static gp_status_t check_start(struct running *running, gp_sampler_t *session)
{
	gp_status_t status = gp_sampler_start(session, 0);

	if (status == GP_ERR_ACCESS_DENIED || status == GP_ERR_NOT_SUPPORTED) {
		gp_sampler_close(session);
		end_signalled(running);
	}
	return status;
}

Test(ticks, cpu_clock_samples_a_guest_that_computes)
{
	struct running running;
	struct session_data data = {0};
	struct session_counts counts;
	gp_sampler_config_t config = config_of(MILLISECOND);
	gp_sampler_t *session;
	gp_status_t status;

	config.source = GP_TICK_CPU_CLOCK;
	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_with(&running, &config);
	status = check_start(&running, session);
	if (status)
		cr_skip_test("perf_event_open is refused: %s", gp_status_string(status));
	wait_for_ticks(session, 0, 100);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, NULL, NULL);
	cr_assert_gt(counts.data.full, 10);
	cr_assert_gt(counts.ends[FXT_STACK_END_ROOT], 0);
	/* Again on the same session. */
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_ticks(session, 0, counts.totals.ticks + 20);
	gp_sampler_close(session);
	end_signalled(&running);
	free(data.bytes);
}

/* Its clock stands while the vCPU's thread sleeps; stopping does not wait for it. */
Test(ticks, cpu_clock_is_silent_while_the_guest_is_halted)
{
	struct running running;
	gp_sampler_config_t timer = config_of(MILLISECOND), clock = config_of(MILLISECOND);
	gp_sampler_t *by_timer, *by_clock;
	uint64_t before, ticks;
	gp_status_t status;

	timer.flags = clock.flags = GP_SAMPLER_SHARED;
	clock.source = GP_TICK_CPU_CLOCK;
	run_in_background(&running, (struct guest_setup){.command_line = "rounds=1 end=halt"});
	by_clock = open_with(&running, &clock);
	status = check_start(&running, by_clock);
	if (status)
		cr_skip_test("perf_event_open is refused: %s", gp_status_string(status));
	/* Let it come to its end; then only the clock may run. */
	sleep_ns(300 * MILLISECOND);
	before = ticks_of(by_clock, 0);
	sleep_ns(300 * MILLISECOND);
	ticks = ticks_of(by_clock, 0) - before;
	cr_assert_leq(ticks, 30, "%llu ticks in 300 ms of a halted vCPU",
		      (unsigned long long)ticks);
	by_timer = open_with(&running, &timer);
	cr_assert_eq(gp_sampler_start(by_timer, 0), GP_OK);
	wait_for_ticks(by_timer, 0, 50);
	gp_sampler_close(by_timer);
	cr_assert_eq(gp_sampler_stop(by_clock, 0), GP_OK);
	gp_sampler_close(by_clock);
	end_signalled(&running);
}

/* With a PMU they tick; without one the error says so and the machine goes on. */
Test(ticks, hardware_events_tick_or_say_why_not)
{
	static const gp_tick_source_t sources[] = {GP_TICK_CYCLES, GP_TICK_INSTRUCTIONS};
	struct running running;
	gp_sampler_config_t config;
	gp_sampler_t *session;

	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	for (unsigned i = 0; i < 2; i++) {
		gp_status_t status;

		config = config_of(1000000);
		config.source = sources[i];
		session = open_with(&running, &config);
		status = gp_sampler_start(session, 0);
		cr_assert(!status || status == GP_ERR_NOT_SUPPORTED ||
				  status == GP_ERR_ACCESS_DENIED,
			  "%s", gp_status_string(status));
		if (status)
			cr_assert_eq(gp_sampler_stop(session, 0), GP_ERR_BAD_STATE);
		else if (!kvm_is_emulated())
			wait_for_ticks(session, 0, 5);
		gp_sampler_close(session);
	}
	config = config_of(MILLISECOND);
	session = open_with(&running, &config);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_ticks(session, 0, 10);
	gp_sampler_close(session);
	end_signalled(&running);
}

/* Times of the samples, partial ones included. */
struct times {
	uint64_t *at;
	size_t count, room;
};

static struct times sample_times(const struct session_data *data)
{
	struct times times = {.room = data->size / 32};
	struct fxt_reader reader;
	struct fxt_record record;

	times.at = calloc(times.room, sizeof(*times.at));
	cr_assert_eq(fxt_reader_init(&reader, data->bytes, data->size, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;

		if (record.kind == FXT_KIND_BLOB && fxt_blob_is_sample(&record.blob) &&
		    !fxt_sample_decode(&record.blob, &sample) && times.count < times.room)
			times.at[times.count++] = sample.timestamp;
	}
	fxt_reader_deinit(&reader);
	return times;
}

/* `spread`: the standard deviation of the distance of the samples to an even raster, in periods. */
static void measure(uint32_t jitter, double *mean_error, double *spread)
{
	enum { TICKS = 600 };
	const uint64_t period = 4 * MILLISECOND;
	struct running running;
	struct session_data data = {0};
	gp_sampler_config_t config = config_of(period);
	gp_sampler_t *session;
	struct times times;
	double sum = 0, squares = 0, phase, turn = 0;

	config.jitter_percent = jitter;
	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_with(&running, &config);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_ticks(session, 0, TICKS);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, NULL, NULL);
	gp_sampler_close(session);
	end_signalled(&running);
	times = sample_times(&data);
	cr_assert_geq(times.count, TICKS);
	/* The rate that the ticks came with: n - 1 intervals from the first to the last. */
	*mean_error = (double)(times.at[times.count - 1] - times.at[0]) /
			      (double)(times.count - 1) / (double)period -
		      1;
	for (size_t i = 0; i < times.count; i++) {
		phase = (double)(times.at[i] - times.at[0]) / (double)period;
		turn = phase - round(phase);
		sum += turn;
		squares += turn * turn;
	}
	sum /= (double)times.count;
	*spread = sqrt(squares / (double)times.count - sum * sum);
	free(times.at);
	free(data.bytes);
}

/* A tick is displaced evenly within 80 % of the period: a standard deviation of 0.8 / sqrt(12),
 * that is 0.23 periods. Half of it is asked for: what a busy host adds only makes it more. */
Test(ticks, jitter_spreads_the_ticks_and_keeps_the_rate)
{
	double error, spread;

	measure(80, &error, &spread);
	cr_assert(fabs(error) < 0.02, "the rate is off by %.2f %%", error * 100);
	cr_assert_gt(spread, 0.12, "spread %.3f periods", spread);
}

Test(ticks, without_jitter_the_rate_is_exact)
{
	double error, spread;

	measure(0, &error, &spread);
	cr_assert(fabs(error) < 0.02, "the rate is off by %.2f %%", error * 100);
}

Test(ticks, a_vcpu_that_the_filter_leaves_out_gives_nothing)
{
	static const uint32_t only[] = {1};
	struct running running;
	struct session_data data = {0};
	gp_sampler_config_t config = config_of(MILLISECOND);
	gp_sampler_totals_t none;
	struct fxt_reader reader;
	struct fxt_record record;
	gp_sampler_t *session;
	unsigned seen = 0;

	config.vcpus = only;
	config.vcpu_count = 1;
	run_in_background(&running, (struct guest_setup){.command_line = "run=smp cpus=2 rounds=0",
							 .vcpus = 2});
	session = open_with(&running, &config);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_ticks(session, 1, 50);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_totals(session, 0, &none), GP_OK);
	cr_assert(!none.ticks && !none.full && !none.partial && !none.dropped);
	check_session(session, 2, &data, NULL, NULL);
	cr_assert_eq(fxt_reader_init(&reader, data.bytes, data.size, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;

		if (record.kind != FXT_KIND_BLOB || fxt_sample_decode(&record.blob, &sample))
			continue;
		cr_assert_eq(sample.vcpu, 1);
		seen++;
	}
	cr_assert_geq(seen, 50);
	fxt_reader_deinit(&reader);
	gp_sampler_close(session);
	end_signalled(&running);
	free(data.bytes);
}

/* Nobody can tell what such a guest runs: no tick is of the process wanted, none is lost. */
Test(ticks, a_task_filter_passes_over_what_it_does_not_know)
{
	static const uint64_t ids[] = {1};
	struct running running;
	gp_sampler_config_t config = config_of(MILLISECOND);
	gp_sampler_totals_t totals;
	gp_sampler_t *session;
	char why[256] = "";

	config.processes = ids;
	config.process_count = 1;
	run_in_background(&running, (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_with(&running, &config);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_ticks(session, 0, 50);
	cr_assert_eq(gp_sampler_learn_guest(session, 0, why, sizeof(why)), GP_ERR_NOT_FOUND);
	cr_assert(strstr(why, "no Linux kernel"), "%s", why);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
	cr_assert_geq(totals.ticks, 50);
	cr_assert_eq(totals.filtered, totals.ticks);
	cr_assert(!totals.full && !totals.partial && !totals.dropped);
	gp_sampler_close(session);
	end_signalled(&running);
}

Test(ticks, filters_that_cannot_be_are_refused)
{
	static const uint32_t too_large[] = {0, 2};
	static const uint64_t ids[257] = {1};
	static const char *const no_names[] = {""};
	struct guest_machine guest;
	gp_sampler_config_t config = config_of(MILLISECOND);
	gp_sampler_t *session = NULL;

	guest_machine_create(&guest, (struct guest_setup){.vcpus = 2});
	config.vcpus = too_large;
	config.vcpu_count = 2;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &session),
		     GP_ERR_INVALID_ARGS);
	config.vcpus = NULL;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &session),
		     GP_ERR_INVALID_ARGS);
	config = config_of(MILLISECOND);
	config.processes = ids;
	config.process_count = 257;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &session),
		     GP_ERR_INVALID_ARGS);
	config = config_of(MILLISECOND);
	config.names = no_names;
	config.name_count = 1;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &session),
		     GP_ERR_INVALID_ARGS);
	config = config_of(MILLISECOND);
	config.jitter_percent = 10;
	config.source = GP_TICK_CPU_CLOCK;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &session),
		     GP_ERR_INVALID_ARGS);
	config.jitter_percent = 0;
	config.source = 99;
	cr_assert_eq(gp_sampler_create(machine_target(guest.machine), 0, &config, &session),
		     GP_ERR_INVALID_ARGS);
	cr_assert_null(session);
	guest_machine_destroy(&guest);
}
