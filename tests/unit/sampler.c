/* The sampler API over a target that is only threads: arguments, states, accounting. */
#include "tests/unit/fake_target.h"

#include <criterion/criterion.h>
#include <signal.h>

static const gp_sampler_config_t good = {
	.size = sizeof(good), .period_ns = 1000000, .max_depth = 16, .ring_bytes = 65536};

static struct fake_target fake;

static void open_target(void)
{
	fake_target_init(&fake, 2);
}

static void close_target(void)
{
	fake_target_deinit(&fake);
}

TestSuite(sampler, .init = open_target, .fini = close_target, .timeout = 60);

static void wait_for_stops(unsigned vcpu, uint64_t wanted)
{
	for (unsigned i = 0; i < 10000 && atomic_load(&fake.vcpus[vcpu].stops) < wanted; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	cr_assert_geq(atomic_load(&fake.vcpus[vcpu].stops), wanted);
}

static void refuse(gp_sampler_config_t config)
{
	gp_sampler_t *session = NULL;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_ERR_INVALID_ARGS);
	cr_assert_null(session);
}

Test(sampler, config_outside_its_limits_is_refused)
{
	gp_sampler_config_t config = good;
	gp_sampler_t *session = NULL;

	cr_assert_eq(gp_sampler_create(NULL, 0, &good, &session), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_sampler_create(&fake.target, 1, &good, &session), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, NULL, &session), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &good, NULL), GP_ERR_INVALID_ARGS);
	config.size--;
	refuse(config);
	config = good;
	config.period_ns = GP_SAMPLER_PERIOD_MIN_NS - 1;
	refuse(config);
	config.period_ns = GP_SAMPLER_PERIOD_MAX_NS + 1;
	refuse(config);
	config = good;
	config.max_depth = 0;
	refuse(config);
	config.max_depth = GP_SAMPLER_DEPTH_MAX + 1;
	refuse(config);
	config = good;
	config.flags = 2;
	refuse(config);
	config = good;
	config.ring_bytes = 2048;
	refuse(config);
	config.ring_bytes = 65537;
	refuse(config);
}

/* The next version's configuration has further fields; zeros there ask for nothing. */
Test(sampler, a_longer_config_is_taken_when_the_rest_is_zero)
{
	struct {
		gp_sampler_config_t config;
		uint64_t later[2];
	} longer = {.config = good};
	gp_sampler_t *session = NULL;

	longer.config.size = sizeof(longer);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &longer.config, &session), GP_OK);
	gp_sampler_close(session);
	session = NULL;
	longer.later[1] = 1;
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &longer.config, &session),
		     GP_ERR_INVALID_ARGS);
	longer.later[1] = 0;
	longer.config.size = SIZE_MAX;
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &longer.config, &session),
		     GP_ERR_INVALID_ARGS);
	cr_assert_null(session);
}

Test(sampler, each_vcpu_ticks_and_every_tick_is_accounted_for)
{
	struct fake_counts counts = {0};
	gp_sampler_totals_t sum;
	gp_sampler_t *session;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &good, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_stops(0, 20);
	wait_for_stops(1, 20);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert(fake_totals_add_up(session, 2, &sum));
	cr_assert_null(fake_count_records(session, &counts));
	cr_assert_geq(counts.full, 40);
	cr_assert_eq(counts.full, sum.full);
	cr_assert_eq(counts.partial, sum.partial);
	cr_assert_eq(counts.orphans, 0);
	gp_sampler_close(session);
}

Test(sampler, a_ring_that_nobody_reads_drops_and_counts)
{
	gp_sampler_config_t config = good;
	struct fake_counts counts = {0};
	gp_sampler_totals_t sum;
	gp_sampler_t *session;

	config.ring_bytes = 4096;
	config.period_ns = 100000;
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_stops(0, 200);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert(fake_totals_add_up(session, 2, &sum));
	cr_assert_gt(sum.dropped, 0);
	/* The count of drops may need the room that the first read makes. */
	cr_assert_null(fake_count_records(session, &counts));
	cr_assert_eq(counts.full, sum.full);
	if (counts.dropped < sum.dropped) {
		size_t size;
		uint64_t rest[512];

		cr_assert_eq(gp_sampler_read(session, 0, rest, sizeof(rest), &size), GP_OK);
		cr_assert_gt(size, 0);
	}
	gp_sampler_close(session);
}

Test(sampler, a_vcpu_that_ends_leaves_its_data)
{
	gp_sampler_totals_t first, again;
	struct fake_counts counts = {0};
	gp_sampler_t *session;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &good, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_stops(0, 5);
	fake_vcpu_end(&fake.vcpus[0]);
	cr_assert_eq(gp_sampler_totals(session, 0, &first), GP_OK);
	wait_for_stops(1, atomic_load(&fake.vcpus[1].stops) + 5);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_totals(session, 0, &again), GP_OK);
	cr_assert_eq(first.ticks, again.ticks, "an ended vCPU ticks");
	cr_assert_eq(first.ticks, first.full + first.partial + first.dropped);
	cr_assert_null(fake_count_records(session, &counts));
	cr_assert_geq(counts.full, 10);
	gp_sampler_close(session);
}

Test(sampler, no_more_sessions_than_there_are_places)
{
	gp_sampler_config_t config = good;
	gp_sampler_t *sessions[SAMPLER_SESSIONS_MAX], *more = NULL;

	config.flags = GP_SAMPLER_SHARED;
	for (int i = 0; i < SAMPLER_SESSIONS_MAX; i++)
		cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &sessions[i]), GP_OK);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &more), GP_ERR_NO_RESOURCES);
	cr_assert_null(more);
	for (int i = 0; i < SAMPLER_SESSIONS_MAX; i++)
		gp_sampler_close(sessions[i]);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &more), GP_OK);
	gp_sampler_close(more);
}

Test(sampler, a_signal_of_somebody_else_is_no_tick)
{
	gp_sampler_totals_t totals;
	gp_sampler_config_t config = good;
	gp_sampler_t *session;

	config.period_ns = GP_SAMPLER_PERIOD_MAX_NS;
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	for (int i = 0; i < 10; i++)
		pthread_kill(fake.vcpus[0].thread, SIGRTMIN + 2);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
	cr_assert_eq(totals.ticks, 0);
	gp_sampler_close(session);
}

Test(sampler, sessions_that_come_and_go)
{
	uint64_t ticks = 0;
	const char *wrong = fake_stress(30, &ticks);

	cr_assert_null(wrong, "%s", wrong);
	cr_assert_gt(ticks, 0);
}

/* Full samples of the whole session, whose modes are all `mode`. */
static void check_mode(uint64_t mode, bool with_stack)
{
	static uint8_t data[1 << 20];
	gp_sampler_t *session;
	gp_sampler_totals_t totals;
	struct fxt_reader reader;
	struct fxt_record record;
	uint64_t full = 0;
	size_t size;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &good, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_stops(0, atomic_load(&fake.vcpus[0].stops) + 5);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_read(session, 0, data, sizeof(data), &size), GP_OK);
	cr_assert_eq(fxt_reader_init(&reader, data, size, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;

		if (record.kind != FXT_KIND_BLOB || !fxt_blob_is_sample(&record.blob))
			continue;
		cr_assert_null(fxt_sample_decode(&record.blob, &sample));
		/* The last tick before a stop may have found nobody to look. */
		if (sample.vcpu != 0 || (sample.flags & FXT_SAMPLE_CONTINUATION) ||
		    sample.mode == FXT_MODE_UNKNOWN)
			continue;
		cr_assert_eq(sample.mode, mode, "%d", (int)sample.mode);
		cr_assert_eq((sample.flags & FXT_SAMPLE_STACK) != 0, with_stack);
		cr_assert_eq(sample.depth != 0, with_stack);
		full++;
	}
	fxt_reader_deinit(&reader);
	cr_assert_geq(full, 4);
	cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
	cr_assert_eq(totals.ticks, totals.full + totals.partial + totals.dropped);
	gp_sampler_close(session);
}

Test(sampler, a_target_may_say_what_a_vcpu_does_with_registers_or_without)
{
	fake.in_guest = true;
	fake.state = SAMPLER_VCPU_HALTED;
	fake.without_registers = true;
	check_mode(FXT_MODE_HALTED, false);
	fake.state = SAMPLER_VCPU_IN_VMM;
	check_mode(FXT_MODE_IN_VMM, false);
	fake.without_registers = false;
	check_mode(FXT_MODE_IN_VMM, true);
	fake.state = SAMPLER_VCPU_HALTED;
	check_mode(FXT_MODE_HALTED, true);
	fake.state = SAMPLER_VCPU_NOT_STARTED;
	check_mode(FXT_MODE_NOT_STARTED, true);
}
