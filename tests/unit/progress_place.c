/* Where the line of a running recording may be drawn. */
#include "base/progress.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
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

Test(progress_place, has_no_place_on_the_consoles_own_terminal)
{
	struct terminal one = open_terminal(), other = open_terminal();

	cr_assert(!progress_has_place(one.slave, one.slave));
	cr_assert(!progress_has_place(dup(one.slave), one.slave));
	cr_assert(progress_has_place(other.slave, one.slave));
}

Test(progress_place, has_no_place_where_a_pipe_may_lead_to_the_same_terminal)
{
	struct terminal terminal = open_terminal();
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert(!progress_has_place(ends[1], terminal.slave));
}

Test(progress_place, has_a_place_when_the_console_goes_to_a_file_or_nowhere)
{
	struct terminal terminal = open_terminal();
	char name[] = "/tmp/progress-place-XXXXXX";
	int file = mkstemp(name), null = open("/dev/null", O_WRONLY);

	unlink(name);
	cr_assert(progress_has_place(file, terminal.slave));
	cr_assert(progress_has_place(null, terminal.slave));
	cr_assert(!progress_has_place(-1, terminal.slave), "no console, no guess");
	cr_assert(!progress_has_place(file, null), "nobody looks");
}
