/* A minute of ticks: they keep absolute time. A test of its own because it takes that minute. */
#include "tests/kvm/background.h"

/* If each tick were counted from the one before, with however little delay, the ticks would walk
 * away: 5 us each are 300 ms after this minute. What is compared is the smallest lateness among the
 * ticks of the first and of the last second, which a busy host does not change much: only a second
 * in which no tick at all came in time could. */
Test(minute, ticks_keep_absolute_time, .timeout = 120)
{
	enum { SECONDS = 60, HZ = 1000 };
	const uint64_t period = SECOND / HZ;
	int64_t smallest[2] = {INT64_MAX, INT64_MAX};
	struct running running;
	struct session_data data = {0};
	struct session_counts counts;
	struct fxt_reader reader;
	struct fxt_record record;
	uint64_t first = 0, number = 0, ticks;
	gp_sampler_t *session;

	/* A vCPU that sleeps costs the rest of the tests nothing. */
	run_in_background(&running, (struct guest_setup){.command_line = "rounds=1 end=halt"});
	session = open_session(&running.guest, period, 0, 16 * MIB, 16);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	for (unsigned i = 0; i < SECONDS; i++) {
		sleep_ns(SECOND);
		read_session(session, &data);
	}
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, NULL, NULL);
	ticks = counts.totals.ticks;
	cr_assert_geq(ticks, (SECONDS - 1) * HZ);
	cr_assert_eq(counts.totals.dropped, 0, "the count of records is the number of a tick");
	cr_assert_eq(fxt_reader_init(&reader, data.bytes, data.size, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;
		int64_t late;

		if (record.kind != FXT_KIND_BLOB || fxt_sample_decode(&record.blob, &sample) ||
		    !(sample.flags & FXT_SAMPLE_TIMESTAMP))
			continue;
		if (!number)
			first = sample.timestamp;
		late = (int64_t)(sample.timestamp - first - number * period);
		if (number < HZ && late < smallest[0])
			smallest[0] = late;
		if (number >= ticks - HZ && late < smallest[1])
			smallest[1] = late;
		number++;
	}
	cr_assert_eq(number, ticks);
	cr_assert_lt(llabs(smallest[1] - smallest[0]), (int64_t)period,
		     "after %llu ticks they are off by %lld ns", (unsigned long long)ticks,
		     (long long)(smallest[1] - smallest[0]));
	fxt_reader_deinit(&reader);
	gp_sampler_close(session);
	end_in_background(&running);
	guest_machine_destroy(&running.guest);
	free(data.bytes);
}
