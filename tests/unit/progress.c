/* The line that says how far long work is: when it is there, and when it is not. */
#include "base/progress.h"

#include "trace/trace.h"
#include "fxt/sample.h"
#include "fxt/writer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The clock of the code under test. */
static _Atomic uint64_t now_ms = 5000;
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){(time_t)(now_ms / 1000), (long)(now_ms % 1000) * 1000000};
	return 0;
}

/* What was printed since the last time, with standard error led to a terminal or a pipe. */
static int reading_end = -1, saved_errors = -1;

static void lead(int writing_end)
{
	saved_errors = dup(STDERR_FILENO);
	cr_assert_geq(dup2(writing_end, STDERR_FILENO), 0);
}

static void lead_to_terminal(unsigned short columns)
{
	struct winsize size = {.ws_row = 24, .ws_col = columns};
	int writing_end;

	if (openpty(&reading_end, &writing_end, NULL, NULL, &size))
		cr_skip_test("this machine has no pseudo-terminals");
	lead(writing_end);
}

static const char *printed(void)
{
	static char text[4096];
	struct pollfd waiting = {.fd = reading_end, .events = POLLIN};
	size_t used = 0;

	fflush(stderr);
	while (poll(&waiting, 1, used ? 0 : 50) > 0) {
		ssize_t got = read(reading_end, text + used, sizeof(text) - 1 - used);

		if (got <= 0)
			break;
		used += (size_t)got;
	}
	text[used] = 0;
	return text;
}

static void restore(void)
{
	if (saved_errors >= 0)
		dup2(saved_errors, STDERR_FILENO);
}

TestSuite(progress, .fini = restore);

Test(progress, short_work_has_no_line)
{
	lead_to_terminal(80);
	progress_begin("guestprof test");
	now_ms += 999;
	progress_tell("working", 99, 100);
	progress_end();
	cr_assert_str_empty(printed());
}

Test(progress, long_work_has_one_that_is_redrawn_and_taken_away)
{
	lead_to_terminal(80);
	progress_begin("guestprof test");
	now_ms += 1000;
	progress_tell("working", 50, 200);
	cr_assert_str_eq(printed(), "\r\033[Kguestprof test: working: 25 %");
	now_ms += 199;
	progress_tell("working", 60, 200);
	cr_assert_str_empty(printed(), "not more often than can be read");
	now_ms += 1;
	progress_tell("more work", 300, 200);
	cr_assert_str_eq(printed(), "\r\033[Kguestprof test: more work: 100 %");
	now_ms += 200;
	progress_tell("counting", 7, 0);
	cr_assert_str_eq(printed(), "\r\033[Kguestprof test: counting: 7");
	now_ms += 200;
	progress_tell("unpacking", 0, 0);
	cr_assert_str_eq(printed(), "\r\033[Kguestprof test: unpacking");
	progress_end();
	cr_assert_str_eq(printed(), "\r\033[K");
	progress_end();
	now_ms += 5000;
	progress_tell("working", 1, 2);
	cr_assert_str_empty(printed(), "it has ended");
}

Test(progress, fits_on_a_narrow_terminal)
{
	lead_to_terminal(20);
	progress_begin("guestprof test");
	now_ms += 1000;
	progress_tell("working", 50, 200);
	cr_assert_str_eq(printed(), "\r\033[Kguestprof test: wor");
}

Test(progress, there_is_none_in_a_pipe)
{
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	reading_end = ends[0];
	lead(ends[1]);
	progress_begin("guestprof test");
	now_ms += 10000;
	progress_tell("working", 50, 200);
	progress_end();
	cr_assert_str_empty(printed());
}

/* What is drawn by itself comes within half a second. */
static const char *printed_soon(void)
{
	struct pollfd waiting = {.fd = reading_end, .events = POLLIN};

	poll(&waiting, 1, 5000);
	return printed();
}

Test(progress, work_that_tells_nothing_shows_for_how_long)
{
	lead_to_terminal(80);
	progress_begin("guestprof test");
	now_ms += 500;
	progress_tell("reading", 200, 200);
	cr_assert_str_empty(printed());
	now_ms += 1100;
	cr_assert_str_eq(printed_soon(), "\r\033[Kguestprof test: sorting and writing: 1 s");
	now_ms += 1000;
	cr_assert_str_eq(printed_soon(), "\r\033[Kguestprof test: sorting and writing: 2 s");
	now_ms += 200;
	progress_tell("reading", 50, 200);
	cr_assert_str_eq(printed(), "\r\033[Kguestprof test: reading: 25 %");
	now_ms += 4000;
	cr_assert_str_eq(printed_soon(), "\r\033[Kguestprof test: reading: 25 % (for 4 s)");
	progress_end();
	cr_assert_str_eq(printed(), "\r\033[K");
	now_ms += 4000;
	usleep(300000);
	cr_assert_str_empty(printed(), "it has ended");
}

Test(progress, work_that_never_tells_anything_is_shown_too)
{
	lead_to_terminal(80);
	progress_begin("guestprof test");
	now_ms += 1000;
	cr_assert_str_eq(printed_soon(), "\r\033[Kguestprof test: working: 1 s");
	progress_end();
}

/* A trace that is read tells by itself. */
enum { SAMPLES = 5000, SAMPLE_WORDS = FXT_SAMPLE_WORDS(0) };

static int write_trace(void)
{
	static uint64_t words[256 + SAMPLES * SAMPLE_WORDS];
	size_t used = fxt_write_preamble(words, 256);
	int fd = memfd_create("trace", MFD_CLOEXEC);

	for (uint64_t i = 1; i <= SAMPLES; i++) {
		struct fxt_sample sample = {.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
						     FXT_SAMPLE_MODE,
					    .timestamp = i,
					    .mode = FXT_MODE_HALTED};

		used += fxt_sample_encode(&sample, words + used, SAMPLE_WORDS);
	}
	cr_assert_eq(write(fd, words, used * 8), (ssize_t)(used * 8));
	return fd;
}

Test(progress, a_trace_tells_how_far_it_is_read)
{
	static struct trace trace;
	struct fxt_sample sample;
	char path[64];
	uint64_t ticks;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", write_trace());
	lead_to_terminal(80);
	progress_begin("guestprof test");
	now_ms += 1000;
	cr_assert_eq(trace_open_watched(path, progress_tell, &trace, NULL), GP_OK);
	cr_assert(strstr(printed(), "guestprof test: looking through the trace: "));
	now_ms += 1000;
	while (trace_next_sample(&trace, &sample, &ticks))
		continue;
	cr_assert(strstr(printed(), "guestprof test: reading its samples: "));
	now_ms += 1000;
	cr_assert_str_eq(printed_soon(), "\r\033[Kguestprof test: sorting and writing: 1 s");
	progress_end();
	trace_close(&trace);
}
