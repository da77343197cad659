/* The recorder over a target that is only threads: what is in its file, when, and what stays of it
 * when writing fails. */
#include "trace/trace.h"
#include "recording/recorder.h"
#include "tests/unit/fake_target.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct fake_target fake;
static struct trace trace;
static gp_sampler_t *session;
static struct symbol_table symbols;
static char path[64];
static int file = -1;

static void open_all(void)
{
	static const char name[] = "fake_loop";
	gp_sampler_config_t config = {.size = sizeof(config),
				      .period_ns = 500000,
				      .max_depth = 16,
				      .ring_bytes = 1 << 20};

	fake_target_init(&fake, 2);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	/* Names half of what the vCPUs do: their program counter grows by one with each stop. */
	symbol_table_init(&symbols);
	cr_assert_eq(symbol_table_add(&symbols, FAKE_PC, 8, 'T', name, sizeof(name) - 1), GP_OK);
	symbol_table_finish(&symbols);
	file = memfd_create("recorder", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
}

static void close_all(void)
{
	gp_sampler_close(session);
	fake_target_deinit(&fake);
	symbol_table_deinit(&symbols);
	close(file);
}

TestSuite(recorder, .init = open_all, .fini = close_all, .timeout = 60);

static struct recorder_config config_for(int fd)
{
	return (struct recorder_config){.target = &fake.target,
					.session = session,
					.fd = fd,
					.about = {.period_ns = 500000,
						  .tick_source = "timer",
						  .depth = 16,
						  .memory_bytes = 1 << 20,
						  .kernel = "no kernel",
						  .command_line = NULL},
					.names = {.tables = &symbols, .table_count = 1}};
}

static off_t file_size(void)
{
	struct stat status;

	cr_assert_eq(fstat(file, &status), 0);
	return status.st_size;
}

static void wait_for_size(off_t wanted)
{
	for (unsigned i = 0; i < 10000 && file_size() < wanted; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	cr_assert_geq(file_size(), wanted);
}

static void look(void)
{
	struct error error = {0};

	cr_assert_eq(trace_open(path, &trace, &error), GP_OK, "%s", error.text);
}

Test(recorder, the_head_is_there_first_and_the_file_grows)
{
	struct recorder_config config = config_for(file);
	struct recorder_summary summary;
	struct recorder *recorder;
	struct error error = {0};
	off_t head;

	cr_assert_eq(recorder_start(&config, &recorder, &error), GP_OK, "%s", error.text);
	look();
	cr_assert_eq(trace.info.period_ns, 500000);
	cr_assert_eq(trace.info.depth, 16);
	cr_assert_eq(trace.info.vcpus, 2);
	cr_assert_eq(trace.info.memory_bytes, 1 << 20);
	cr_assert_str_eq(trace.info.tick_source, "timer");
	cr_assert_str_eq(trace.info.kernel, "no kernel");
	cr_assert_str_empty(trace.info.command_line);
	cr_assert_eq(trace.info.stacks, 0);
	cr_assert(!trace.info.cut && !trace.info.complete);
	trace_close(&trace);
	head = file_size();
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_size(head + 4096);
	/* Whole records at any moment: a killed recorder leaves a readable file. */
	for (int i = 0; i < 5; i++) {
		look();
		cr_assert(!trace.info.broken && !trace.info.bad_records);
		cr_assert(!trace.info.complete);
		cr_assert_gt(trace.info.stacks, 0);
		trace_close(&trace);
		wait_for_size(file_size() + 1024);
	}
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	recorder_finish(recorder, "tested", &summary);
	cr_assert_eq(summary.problem.status, GP_OK, "%s", summary.problem.text);
	cr_assert_eq(summary.file_bytes, (uint64_t)file_size());
}

Test(recorder, the_end_says_why_and_the_totals_are_those_of_the_samples)
{
	struct recorder_config config = config_for(file);
	struct recorder_summary summary;
	struct recorder *recorder;
	struct fxt_sample sample;
	uint64_t ticks, weight = 0, named = 0;

	cr_assert_eq(recorder_start(&config, &recorder, NULL), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_size(8192);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	recorder_finish(recorder, "tested", &summary);
	look();
	cr_assert(trace.info.complete);
	cr_assert_str_eq(trace.info.end_reason, "tested");
	cr_assert_eq(trace.info.stacks, summary.totals.full);
	cr_assert_eq(trace.info.partials, summary.totals.partial);
	cr_assert_eq(trace.info.dropped_records, summary.totals.dropped);
	while (trace_next_sample(&trace, &sample, &ticks)) {
		const struct trace_symbol *symbol;

		weight += ticks;
		if (!sample.depth)
			continue;
		symbol = trace_find_symbol(&trace, &sample, 0);
		cr_assert_eq(symbol != NULL, sample.stack[0] < FAKE_PC + 8);
		if (!symbol)
			continue;
		cr_assert_eq(symbol->name_bytes, 9);
		cr_assert_arr_eq(symbol->name, "fake_loop", 9);
		named++;
	}
	cr_assert_eq(weight + summary.totals.dropped, summary.totals.ticks);
	cr_assert_gt(named, 0);
	cr_assert_eq(trace.symbols[TRACE_SYMBOLS_FILE].count, 1, "each name once");
	cr_assert_gt(summary.addresses, 8);
	cr_assert_eq(summary.unnamed, summary.addresses - 7, "%llu of %llu",
		     (unsigned long long)summary.unnamed, (unsigned long long)summary.addresses);
	cr_assert(!summary.kernel_found && !summary.symbols_found && !summary.panicked);
	cr_assert_neq(summary.no_names.status, GP_OK);
	cr_assert_str_not_empty(summary.no_names.text);
	trace_close(&trace);
}

Test(recorder, console_lines_are_in_the_file_and_what_has_no_room_is_told)
{
	struct recorder_config config = config_for(file);
	struct recorder_summary summary;
	struct recorder *recorder;
	uint64_t lines = 0, lost;

	cr_assert_eq(recorder_start(&config, &recorder, NULL), GP_OK);
	look();
	cr_assert_eq(trace.info.console_lines, 0);
	trace_close(&trace);
	recorder_note_line(recorder, 5, "guest started", 13);
	wait_for_size(file_size() + 8);
	/* While it runs: a killed recorder's file says as much. More than one turn can take. */
	do {
		recorder_note_line(recorder, 6 + lines, "too much", 8);
		look();
		lost = trace.info.console_lost;
		trace_close(&trace);
		for (int i = 0; i < 10000; i++, lines++)
			recorder_note_line(recorder, 6 + lines, "too much", 8);
		lines++;
	} while (!lost);
	recorder_finish(recorder, "tested", &summary);
	cr_assert_eq(summary.console.lines + summary.console.lost, lines + 1);
	look();
	cr_assert(trace.info.complete && !trace.info.bad_records);
	cr_assert_eq(trace.info.console_lines, summary.console.lines);
	cr_assert_eq(trace.info.console_lost, summary.console.lost);
	cr_assert_eq(trace.info.console_cut, 0);
	trace_close(&trace);
}

/* A disk that is full at any moment: the limit on the size of files makes write() fail. */
Test(recorder, a_failed_write_leaves_whole_records_and_says_so)
{
	static const off_t limits[] = {3000, 4096, 5555, 10000};
	off_t head = 0;

	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit limit, old;
		struct recorder_config config = config_for(file);
		struct recorder_summary summary;
		struct recorder *recorder;

		/* Each time a session of its own: the trace's head is read once. */
		gp_sampler_close(session);
		gp_sampler_config_t sampling = {
			.size = sizeof(sampling), .period_ns = 500000, .max_depth = 16};
		cr_assert_eq(gp_sampler_create(&fake.target, 0, &sampling, &session), GP_OK);
		config.session = session;
		cr_assert_eq(ftruncate(file, 0), 0);
		lseek(file, 0, SEEK_SET);
		cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
		limit = (struct rlimit){(rlim_t)limits[i], old.rlim_max};
		cr_assert_eq(recorder_start(&config, &recorder, NULL), GP_OK);
		head = file_size();
		cr_assert_lt(head, limits[0]);
		cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
		/* More than fits, whatever a record's size. */
		for (uint64_t ticks = 0; ticks * 64 < (uint64_t)limits[i] * 2;) {
			gp_sampler_totals_t totals;

			nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
			cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
			ticks = totals.ticks;
		}
		cr_assert_eq(gp_sampler_stop(session, 0), GP_OK, "sampling goes on without a file");
		recorder_finish(recorder, "tested", &summary);
		cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
		cr_assert_neq(summary.problem.status, GP_OK);
		cr_assert(strstr(summary.problem.text, "ends early"), "%s", summary.problem.text);
		cr_assert_eq(summary.totals.ticks,
			     summary.totals.full + summary.totals.partial + summary.totals.dropped);
		cr_assert_leq(file_size(), limits[i]);
		cr_assert_eq((uint64_t)file_size(), summary.file_bytes);
		look();
		cr_assert(!trace.info.cut && !trace.info.broken && !trace.info.bad_records,
			  "limit %lld: %zu of %zu", (long long)limits[i], trace.info.good_bytes,
			  trace.info.bytes);
		cr_assert(!trace.info.complete);
		cr_assert_eq(trace.info.vcpus, 2);
		trace_close(&trace);
	}
}

Test(recorder, a_compressed_file_is_smaller_and_readable_on_the_way)
{
	struct recorder_config config = config_for(file);
	struct recorder_summary summary;
	struct recorder *recorder;

	config.compress = true;
	cr_assert_eq(recorder_start(&config, &recorder, NULL), GP_OK);
	look();
	cr_assert_eq(trace.info.vcpus, 2, "the head is there first");
	trace_close(&trace);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	/* Twice: at the first, and at one of those in regular intervals. */
	for (uint64_t seen = 0, stacks = 0; seen < 2;) {
		look();
		cr_assert(!trace.info.broken && !trace.info.bad_records && !trace.info.complete);
		seen += trace.info.stacks > stacks;
		stacks = trace.info.stacks;
		trace_close(&trace);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	recorder_finish(recorder, "tested", &summary);
	cr_assert_eq(summary.problem.status, GP_OK, "%s", summary.problem.text);
	cr_assert_eq(summary.file_bytes, (uint64_t)file_size());
	look();
	cr_assert(trace.info.complete);
	cr_assert_eq(trace.info.stacks, summary.totals.full);
	cr_assert_eq(trace.info.partials, summary.totals.partial);
	cr_assert_lt((uint64_t)file_size() * 2, trace.size);
	trace_close(&trace);
}

Test(recorder, a_failed_write_of_compressed_records_leaves_whole_ones)
{
	struct recorder_config config = config_for(file);
	struct recorder_summary summary;
	struct recorder *recorder;
	struct rlimit limit, old;

	config.compress = true;
	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(recorder_start(&config, &recorder, NULL), GP_OK);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = (struct rlimit){(rlim_t)file_size() + 6000, old.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	/* Twenty times what fits. */
	for (uint64_t ticks = 0; ticks * 64 < 20 * 6000;) {
		gp_sampler_totals_t totals;

		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
		ticks = totals.ticks;
	}
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	recorder_finish(recorder, "tested", &summary);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
	cr_assert(strstr(summary.problem.text, "ends early"), "%s", summary.problem.text);
	cr_assert_eq(summary.file_bytes, (uint64_t)file_size());
	cr_assert_leq((rlim_t)file_size(), limit.rlim_cur);
	look();
	cr_assert(!trace.info.cut && !trace.info.broken && !trace.info.bad_records);
	cr_assert(!trace.info.complete);
	trace_close(&trace);
}

Test(recorder, a_file_that_cannot_be_written_at_all_fails_the_start)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct recorder_config config = config_for(full);
	struct recorder *recorder = NULL;
	struct error error = {0};

	if (full < 0)
		cr_skip_test("/dev/full: %s", strerror(errno));
	cr_assert_neq(recorder_start(&config, &recorder, &error), GP_OK);
	cr_assert_null(recorder);
	cr_assert_neq(error.status, GP_OK);
	cr_assert(strstr(error.text, "after 0 bytes"), "%s", error.text);
	close(full);
}

static gp_status_t refuse_thread(void *context, struct error *error)
{
	(void)context;
	return error_set(error, GP_ERR_ACCESS_DENIED, "no sandbox for this thread");
}

Test(recorder, a_reader_thread_that_may_not_run_is_a_problem_not_a_hang)
{
	struct recorder_config config = config_for(file);
	struct recorder_summary summary;
	struct recorder *recorder;

	config.on_thread_start = refuse_thread;
	cr_assert_eq(recorder_start(&config, &recorder, NULL), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	recorder_finish(recorder, "tested", &summary);
	cr_assert_eq(summary.problem.status, GP_ERR_ACCESS_DENIED);
	cr_assert_str_eq(summary.problem.text, "no sandbox for this thread");
	look();
	cr_assert(!trace.info.complete, "an end without the samples before it is no end");
	trace_close(&trace);
}
