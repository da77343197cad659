/* Where the line of a running recording may be drawn, and what it says. */
#include "recording/record_watch.h"
#include "tools/record/record_status.h"

#include "fxt/sample.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct terminal {
	int master;
	int slave;
};

static struct terminal open_terminal(void)
{
	struct terminal terminal;

	if (openpty(&terminal.master, &terminal.slave, NULL, NULL, NULL))
		cr_skip_test("this machine has no pseudo-terminals");
	return terminal;
}

Test(record_status, has_no_place_on_the_consoles_own_terminal)
{
	struct terminal one = open_terminal(), other = open_terminal();

	cr_assert(!record_status_has_place(one.slave, one.slave));
	cr_assert(!record_status_has_place(dup(one.slave), one.slave));
	cr_assert(record_status_has_place(other.slave, one.slave));
}

Test(record_status, has_no_place_where_a_pipe_may_lead_to_the_same_terminal)
{
	struct terminal terminal = open_terminal();
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert(!record_status_has_place(ends[1], terminal.slave));
}

Test(record_status, has_a_place_when_the_console_goes_to_a_file_or_nowhere)
{
	struct terminal terminal = open_terminal();
	char name[] = "/tmp/record-status-XXXXXX";
	int file = mkstemp(name), null = open("/dev/null", O_WRONLY);

	unlink(name);
	cr_assert(record_status_has_place(file, terminal.slave));
	cr_assert(record_status_has_place(null, terminal.slave));
	cr_assert(!record_status_has_place(-1, terminal.slave), "no console, no guess");
	cr_assert(!record_status_has_place(file, null), "nobody looks");
}

Test(record_status, is_cut_to_its_room)
{
	struct record_status status;
	char text[64];
	size_t length;

	record_status_init(&status, NULL, NULL, 1);
	memset(text, 'x', sizeof(text));
	cr_assert_eq(record_status_text(&status, text, 3), 3);
	cr_assert_eq(text[3], 'x');
	length = record_status_text(&status, text, sizeof(text));
	cr_assert_geq(length, 5);
	cr_assert_arr_eq(text + length - 2, " s", 2);
	cr_assert_eq(text[length], 'x');
}

static size_t add(uint64_t *words, size_t used, size_t room, uint64_t flags, uint64_t mode)
{
	struct fxt_sample sample = {.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
					     FXT_SAMPLE_MODE | flags,
				    .timestamp = 1,
				    .mode = mode,
				    .continuation = 1};

	return used + fxt_sample_encode(&sample, words + used, room - used);
}

Test(record_watch, counts_full_samples_by_mode_and_stops_at_what_is_cut)
{
	struct namer namer;
	struct record_watch watch = {.namer = &namer,
				     .leaves = leaf_code_create(&namer, NULL, NULL, NULL)};
	uint64_t words[128];
	size_t used = 0, whole;

	namer_init(&namer, &(struct namer_config){0});
	used = add(words, used, 128, 0, FXT_MODE_GUEST_USER);
	used = add(words, used, 128, FXT_SAMPLE_CONTINUATION, FXT_MODE_GUEST_USER);
	used = add(words, used, 128, 0, FXT_MODE_HALTED);
	used = add(words, used, 128, 0, FXT_MODE_HALTED);
	used = add(words, used, 128, 0, 77);
	whole = used;
	used = add(words, used, 128, 0, FXT_MODE_GUEST_KERNEL);
	record_watch_see(&watch, words, used - 1);
	cr_assert_arr_eq(watch.modes, ((uint64_t[RECORD_MODES]){1, 1, 0, 2, 0, 0}),
			 sizeof(watch.modes));
	record_watch_see(&watch, words + whole, used - whole);
	cr_assert_eq(watch.modes[FXT_MODE_GUEST_KERNEL], 1);
	words[0] = 0;
	record_watch_see(&watch, words, used);
	cr_assert_eq(watch.modes[FXT_MODE_GUEST_USER], 1, "a record of no size ends it");
	leaf_code_destroy(watch.leaves);
	namer_deinit(&namer);
}
