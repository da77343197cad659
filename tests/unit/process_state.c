/* Whether a process goes on, and who traces it, in a /proc that is made for it. */
#include "attach/process_state.h"
#include "tests/unit/fake_proc.h"

TestSuite(process_state, .init = make_root, .fini = remove_root);

#define TEXT(text) text, sizeof(text) - 1

/* Process 42 with a second thread, 43, which waits in `waits_in`. */
static void make_process(const char *stat, const char *own_wait, const char *waits_in)
{
	make_directory("42");
	make_file("42/stat", stat, strlen(stat));
	make_directory("42/task");
	make_directory("42/task/42");
	make_directory("42/task/43");
	make_file("42/task/42/wchan", own_wait, strlen(own_wait));
	make_file("42/task/43/wchan", waits_in, strlen(waits_in));
}

static void is(enum process_state state, const char *stat, const char *own_wait,
	       const char *waits_in)
{
	make_process(stat, own_wait, waits_in);
	cr_assert_eq(process_state(root, 42), state, "%s: %s", stat,
		     process_state_name(process_state(root, 42)));
	remove_root();
	cr_assert(!mkdir(root, 0755));
}

Test(process_state, is_told_from_the_letter_behind_the_name)
{
	is(PROCESS_GOES_ON, "42 (qemu) S 1 42", "poll_schedule_timeout", "0");
	is(PROCESS_GOES_ON, "42 (qemu) R 1 42", "0", "0");
	is(PROCESS_STOPPED, "42 (qemu) T 1 42", "do_signal_stop", "do_signal_stop");
	is(PROCESS_HELD, "42 (qemu) t 1 42", "ptrace_stop", "0");
	is(PROCESS_GOES_ON, "42 (a) T (b) S 1 42", "0", "0");
	is(PROCESS_GOES_ON, "", "0", "0");
	is(PROCESS_GOES_ON, "42 (qemu)", "0", "0");
}

Test(process_state, a_freezer_is_told_from_what_threads_wait_in)
{
	/* Its first thread sleeps where it was. */
	is(PROCESS_FROZEN, "42 (qemu) D 1 42", "hrtimer_nanosleep", "__refrigerator");
	is(PROCESS_FROZEN, "42 (qemu) D 1 42", "__refrigerator", "0");
	is(PROCESS_GOES_ON, "42 (qemu) D 1 42", "folio_wait_bit", "0");
	is(PROCESS_FROZEN, "42 (qemu) S 1 42", "do_freezer_trap", "0");
	is(PROCESS_FROZEN, "42 (qemu) S 1 42", "get_signal", "0");
}

Test(process_state, a_process_that_is_gone_is_not_held)
{
	cr_assert_eq(process_state(root, 42), PROCESS_GOES_ON);
	cr_assert_eq(process_lasting_tracer(root, 42), 0);
}

Test(process_state, a_tracer_counts_when_it_stays)
{
	make_process("42 (qemu) S 1 42", "0", "0");
	make_file("42/task/42/status", TEXT("Name:\tqemu\nTracerPid:\t0\n"));
	make_file("42/task/43/status", TEXT("Name:\tqemu\nTracerPid:\t0\n"));
	cr_assert_eq(process_lasting_tracer(root, 42), 0);
	make_file("42/task/43/status", TEXT("Name:\tqemu\nTracerPid:\t9\n"));
	cr_assert_eq(process_lasting_tracer(root, 42), 9);
}
