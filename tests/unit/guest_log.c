/* Console lines on their way into the trace: what becomes a record, and what only a number. */
#include "recording/guest_log.h"

#include "fxt/reader.h"
#include "fxt/writer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct guest_log guest_log;
static struct guest_log_totals totals;
/* The preamble makes a trace of what was taken. */
static uint64_t words[GUEST_LOG_WAITING_WORDS + 256];
static size_t preamble, taken;
static struct fxt_reader reader;

static void set_up(void)
{
	cr_assert(guest_log_init(&guest_log));
	preamble = fxt_write_preamble(words, 256);
}

static void tear_down(void)
{
	guest_log_deinit(&guest_log);
}

TestSuite(guest_log, .init = set_up, .fini = tear_down);

static void take(void)
{
	taken = guest_log_take(&guest_log, words + preamble, &totals);
	cr_assert_eq(fxt_reader_init(&reader, words, (preamble + taken) * 8, NULL), GP_OK);
}

/* The next log record's text as a string, "" at the end. */
static const char *next_text(uint64_t *time)
{
	static char text[GUEST_LOG_TEXT_MAX + 1];
	struct fxt_record record;

	while (fxt_reader_next(&reader, &record)) {
		if (record.kind != FXT_KIND_LOG)
			continue;
		cr_assert_eq(record.log.thread.process, FXT_VCPU_PROCESS);
		memcpy(text, record.log.text.text, record.log.text.length);
		text[record.log.text.length] = 0;
		*time = fxt_reader_nanoseconds(&reader, record.log.timestamp);
		return text;
	}
	cr_assert(!reader.broken && !reader.cut && !reader.bad_records);
	fxt_reader_deinit(&reader);
	return "";
}

Test(guest_log, lines_come_out_as_they_went_in_with_their_times)
{
	uint64_t time = 0;

	guest_log_put(&guest_log, 11, "first", 5);
	guest_log_put(&guest_log, 22, "\033[1msecond\377", 11);
	take();
	cr_assert_str_eq(next_text(&time), "first");
	cr_assert_eq(time, 11);
	cr_assert_str_eq(next_text(&time), "\033[1msecond\377");
	cr_assert_eq(time, 22);
	cr_assert_str_empty(next_text(&time));
	cr_assert_eq(totals.lines, 2);
	cr_assert_eq(totals.cut + totals.lost, 0);
	take();
	cr_assert_eq(taken, 0, "each is taken once");
	fxt_reader_deinit(&reader);
}

Test(guest_log, lines_with_nothing_to_see_are_passed_over)
{
	guest_log_put(&guest_log, 1, "", 0);
	guest_log_put(&guest_log, 1, " \t\r", 3);
	take();
	cr_assert_eq(taken, 0);
	cr_assert_eq(totals.lines + totals.lost, 0);
	fxt_reader_deinit(&reader);
}

Test(guest_log, a_long_line_is_cut_and_counted)
{
	static char text[70000];
	uint64_t time;

	memset(text, 'x', sizeof(text));
	guest_log_put(&guest_log, 1, text, GUEST_LOG_TEXT_MAX);
	guest_log_put(&guest_log, 2, text, GUEST_LOG_TEXT_MAX + 1);
	/* More than the 16 bits that a record has for it. */
	guest_log_put(&guest_log, 3, text, sizeof(text));
	take();
	for (int i = 0; i < 3; i++)
		cr_assert_eq(strlen(next_text(&time)), GUEST_LOG_TEXT_MAX);
	cr_assert_str_empty(next_text(&time));
	cr_assert_eq(totals.lines, 3);
	cr_assert_eq(totals.cut, 2);
}

Test(guest_log, what_the_reader_is_too_slow_for_is_counted)
{
	uint64_t put = 0, time, got = 0;

	for (; put < GUEST_LOG_WAITING_WORDS; put++)
		guest_log_put(&guest_log, put, "line", 4);
	take();
	while (*next_text(&time))
		cr_assert_eq(time, got++, "the first ones stay");
	cr_assert_eq(totals.lines, got);
	cr_assert_eq(totals.lines + totals.lost, put);
	cr_assert_gt(totals.lost, 0);
	/* There is room again. */
	guest_log_put(&guest_log, 1, "later", 5);
	take();
	cr_assert_str_eq(next_text(&time), "later");
	cr_assert_str_empty(next_text(&time));
}

Test(guest_log, a_session_has_a_limit)
{
	static char text[GUEST_LOG_TEXT_MAX];
	size_t all = 0;

	memset(text, 'x', sizeof(text));
	do {
		for (int i = 0; i < 50; i++)
			guest_log_put(&guest_log, 1, text, sizeof(text));
		all += guest_log_take(&guest_log, words, &totals);
	} while (!totals.lost);
	cr_assert_leq(all, GUEST_LOG_SESSION_WORDS);
	cr_assert_gt(all, GUEST_LOG_SESSION_WORDS - 100, "and not before it");
}
