/* guestprof top on a terminal, with traces that a test writes: what is shown, keys, sizes, ends. */
#include "tests/unit/pty_screen.h"
#include "tests/unit/trace_file.h"

#include <fcntl.h>

#define SECOND UINT64_C(1000000000)
#define TIMEOUT .timeout = 300

/* A trace that grows: what is in `file` is appended. */
struct growing {
	struct file file;
	char path[64];
	int fd;
};

static void append(struct growing *growing)
{
	const size_t size = growing->file.used * 8;

	cr_assert_eq(write(growing->fd, growing->file.words, size), (ssize_t)size);
	growing->file.used = 0;
}

static void add_task(struct file *file, uint64_t time, uint64_t process, const uint64_t *stack,
		     size_t depth)
{
	add_sample(file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
						      FXT_SAMPLE_THREAD,
					     .process = process,
					     .thread = process,
					     .timestamp = time,
					     .mode = FXT_MODE_GUEST_KERNEL,
					     .stack = stack,
					     .depth = depth});
}

/* Two processes, three functions: hash and sort, which main calls. */
static void begin_trace(struct growing *growing)
{
	static const uint64_t hash[] = {KERNEL + 8, KERNEL + 0x208},
			      sort[] = {KERNEL + 0x108, KERNEL + 0x208};

	snprintf(growing->path, sizeof(growing->path), "/tmp/top-test.XXXXXX");
	growing->fd = mkstemp(growing->path);
	cr_assert_geq(growing->fd, 0);
	begin(&growing->file);
	add_metadata(&growing->file, FXT_SESSION,
		     (struct fxt_argument[]){fxt_argument_u64(FXT_SESSION_VCPUS, 1),
					     fxt_argument_u64(FXT_SESSION_PERIOD, 1000000),
					     fxt_argument_text(FXT_SESSION_TICK_SOURCE, "timer")},
		     3);
	add_symbol(&growing->file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "hash_it");
	add_symbol(&growing->file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, "sort_it");
	add_symbol(&growing->file, FXT_SYMBOL_KERNEL, KERNEL + 0x200, 0x100, "the_main");
	add_process_name(&growing->file, 7, "maker");
	add_process_name(&growing->file, 8, "tester");
	add_thread_name(&growing->file, 7, 7, "maker");
	for (uint64_t i = 1; i <= 40; i++)
		add_task(&growing->file, SECOND + i, i <= 30 ? 7 : 8, i <= 30 ? hash : sort, 2);
	append(growing);
}

static void end_trace(struct growing *growing)
{
	close(growing->fd);
	unlink(growing->path);
}

static void start_sized(struct pty *pty, const struct growing *growing, int rows, int columns)
{
	const char *const argv[] = {pty_guestprof(), "top",         "--interval",
				    "0.1",           growing->path, NULL};

	pty_start(pty, argv, "vt100", rows, columns);
}

static void start(struct pty *pty, const struct growing *growing)
{
	start_sized(pty, growing, 24, 80);
}

Test(top, shows_functions_threads_and_vcpus_and_quits, TIMEOUT)
{
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	pty_wait_for_row(&pty, "hash_it", "75.00 %   75.00 %        30");
	pty_wait_for_row(&pty, "the_main", " 0.00 %  100.00 %");
	pty_wait_for(&pty, "1000 Hz");
	pty_wait_for_row(&pty, "vCPU 0", "kernel 100.0 %");
	pty_wait_for_row(&pty, "maker (tid 7)", "75.00 %");
	pty_keys(&pty, "t");
	pty_wait_for(&pty, "tester (pid 8)");
	pty_keys(&pty, "v");
	pty_wait_for(&pty, "VCPU ");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}

Test(top, sorts_finds_and_filters, TIMEOUT)
{
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, "s");
	pty_wait_for(&pty, "[TOTAL]");
	pty_wait_for_order(&pty, "the_main", "hash_it");
	pty_keys(&pty, "s");
	pty_wait_for(&pty, "[SELF]");
	pty_wait_for_order(&pty, "hash_it", "the_main");
	/* Part of a name, whatever the case. */
	pty_keys(&pty, "/SORT\r");
	pty_wait_for(&pty, "only /SORT");
	pty_wait_without(&pty, "hash_it");
	pty_wait_for_row(&pty, "sort_it", "25.00 %");
	pty_keys(&pty, "x");
	pty_wait_for(&pty, "hash_it");
	/* A process: shares are of its time. */
	pty_keys(&pty, "p8\r");
	pty_wait_for(&pty, "only pid 8");
	pty_wait_without(&pty, "hash_it");
	pty_wait_for_row(&pty, "sort_it", "100.00 %");
	pty_keys(&pty, "xnake\r");
	pty_wait_for(&pty, "only name ake");
	pty_wait_without(&pty, "sort_it");
	pty_wait_for_row(&pty, "hash_it", "100.00 %");
	/* Nonsense is told, and the filter before it stays. */
	pty_keys(&pty, "pnobody\r");
	pty_wait_for(&pty, "--pid nobody");
	pty_wait_for(&pty, "hash_it");
	/* A question that is not answered changes nothing. */
	pty_keys(&pty, "/zzz\033");
	pty_wait_for(&pty, "only name ake");
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}

Test(top, looks_into_callers_and_callees, TIMEOUT)
{
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, "j\r"); /* the second one */
	pty_wait_for(&pty, "CALLERS of sort_it (25.0 % of the time)");
	pty_wait_for_row(&pty, "   the_main", "100.00 %        10");
	pty_keys(&pty, "j\r");
	pty_wait_for(&pty, "CALLERS of the_main");
	pty_keys(&pty, "r");
	pty_wait_for(&pty, "CALLEES of the_main (100.0 % of the time)");
	pty_wait_for_row(&pty, "+ hash_it", " 75.00 %        30");
	pty_wait_for_row(&pty, "+ sort_it", " 25.00 %        10");
	pty_keys(&pty, "\033");
	pty_wait_for(&pty, "CALLERS of sort_it");
	pty_keys(&pty, "\033");
	pty_wait_for(&pty, "FUNCTION");
	pty_keys(&pty, "t\r"); /* a thread: the functions of its process */
	pty_wait_for(&pty, "only pid 7");
	pty_wait_without(&pty, "sort_it");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}

Test(top, follows_a_trace_that_grows_and_holds_still_when_paused, TIMEOUT)
{
	static const uint64_t late[] = {KERNEL + 0x308};
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, " ");
	pty_wait_for(&pty, "PAUSED");
	add_symbol(&growing.file, FXT_SYMBOL_KERNEL, KERNEL + 0x300, 0x100, "late_one");
	add_task(&growing.file, 2 * SECOND, 7, late, 1);
	append(&growing);
	for (int i = 0; i < 10; i++) /* ten pictures' time */
		cr_assert(pty_read(&pty, 100));
	pty_keys(&pty, "s");
	pty_wait_for(&pty, "[TOTAL]");
	cr_assert(!pty_shows(&pty, "late_one"));
	pty_keys(&pty, " ");
	pty_wait_for(&pty, "late_one");
	pty_wait_without(&pty, "PAUSED");
	/* What is older than the window goes. */
	add_task(&growing.file, 60 * SECOND, 7, late, 1);
	append(&growing);
	pty_wait_without(&pty, "hash_it");
	add_metadata(
		&growing.file, FXT_SESSION_END,
		(struct fxt_argument[]){fxt_argument_text(FXT_SESSION_END_REASON, "powered off")},
		1);
	append(&growing);
	pty_wait_for(&pty, "ended: powered off");
	pty_wait_for(&pty, "late_one");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}

Test(top, names_that_control_terminals_are_escaped, TIMEOUT)
{
	static const uint64_t stack[] = {KERNEL + 0x308};
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	add_symbol(&growing.file, FXT_SYMBOL_KERNEL, KERNEL + 0x300, 0x100, "evil\033[2J\a\n\x9b");
	add_process_name(&growing.file, 9, "bad\rone");
	add_task(&growing.file, 2 * SECOND, 9, stack, 1);
	append(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "evil\\x1b[2J\\x07\\x0a\\x9b");
	pty_keys(&pty, "t");
	pty_wait_for(&pty, "bad\\x0done");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}

/* Every size, also while it runs; what does not fit is cut. */
Test(top, fits_any_size, TIMEOUT)
{
	static const int sizes[][2] = {{24, 80}, {10, 40}, {5, 20}, {3, 10}, {1, 1}, {50, 180}};
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	start_sized(&pty, &growing, 6, 30);
	pty_wait_for(&pty, "hash_it");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		pty_set_size(&pty, sizes[i][0], sizes[i][1]);
		pty_wait_for(&pty, sizes[i][0] >= 24  ? "hash_it"
				   : sizes[i][0] >= 5 ? "guestprof top"
				   : sizes[i][1] > 1  ? "too small"
						      : "t");
		pty_keys(&pty, "jjhhccttvvf");
	}
	pty_keys(&pty, "f");
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}

Test(top, signals_give_the_terminal_back, TIMEOUT)
{
	static const int signals[][2] = {{SIGTERM, 16},
					 {SIGINT, 16},
					 {SIGHUP, 16},
					 {SIGSEGV, 128 + SIGSEGV},
					 {SIGABRT, 134}};
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		start(&pty, &growing);
		pty_wait_for(&pty, "hash_it");
		kill(pty.child, signals[i][0]);
		cr_assert_eq(pty_end(&pty), signals[i][1], "signal %d", signals[i][0]);
	}
	/* Ctrl-C. */
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, "\003");
	cr_assert_eq(pty_end(&pty), 16);
	end_trace(&growing);
}

/* A terminal with a second screen: what was on the first comes back, also after a crash. */
Test(top, what_was_on_the_terminal_before_comes_back, TIMEOUT)
{
	static const int ends[] = {0, SIGTERM, SIGSEGV, SIGQUIT};
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		time_t deadline = pty_deadline();

		const char *const argv[] = {pty_guestprof(), "top", growing.path, NULL};

		pty_start(&pty, argv, "xterm", 24, 80);
		pty.raw = true;
		while (pty.bytes < 500 && time(NULL) < deadline)
			pty_read(&pty, 100);
		if (ends[i])
			kill(pty.child, ends[i]);
		else
			pty_keys(&pty, "q");
		pty_end(&pty);
		cr_assert(strstr(pty.tail, "\033[?1049l"), "end %d", ends[i]);
		cr_assert(strstr(pty.tail, "25h"), "the cursor is there");
	}
	end_trace(&growing);
}

Test(top, a_terminal_that_goes_away_ends_it, TIMEOUT)
{
	static struct growing growing;
	static struct pty pty;
	int status;

	begin_trace(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	close(pty.fd);
	cr_assert_eq(waitpid(pty.child, &status, 0), pty.child);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 16);
	end_trace(&growing);
}

/* What it says instead of a picture, in one line, and its exit code. */
static void refuses(const char *const *argv, const char *terminal, const char *words, int code)
{
	static struct pty pty;

	pty_start(&pty, argv, terminal, 24, 200);
	pty_wait_for(&pty, words);
	cr_assert_eq(pty_end(&pty), code, "%s", words);
	for (int row = 1; row < pty.rows; row++)
		cr_assert_eq(strspn(pty.cells[row], " "), (size_t)PTY_COLUMNS, "%s",
			     pty.cells[row]);
}

Test(top, what_cannot_be_shown_is_told_in_one_line, TIMEOUT)
{
	const char *program = pty_guestprof();
	static struct growing growing;

	begin_trace(&growing);
	refuses((const char *const[]){program, "top", growing.path, NULL}, NULL, "TERM is not set",
		1);
	refuses((const char *const[]){program, "top", growing.path, NULL}, "dumb",
		"TERM=dumb cannot move its cursor", 1);
	refuses((const char *const[]){program, "top", growing.path, NULL}, "no-such-terminal",
		"TERM=no-such-terminal is not known", 1);
	refuses((const char *const[]){program, "top", "/no/such/file", NULL}, "vt100",
		"cannot open the trace /no/such/file", 1);
	refuses((const char *const[]){program, "top", "/dev/null", NULL}, "vt100",
		"not a regular file", 1);
	refuses((const char *const[]){program, "top", NULL}, "vt100", "give a kernel", 2);
	refuses((const char *const[]){program, "top", "a", "b", NULL}, "vt100",
		"'b' is one argument too many", 2);
	refuses((const char *const[]){program, "top", "--window", "no", "a", NULL}, "vt100",
		"--window no", 2);
	refuses((const char *const[]){program, "top", "--pid", "x", growing.path, NULL}, "vt100",
		"--pid x", 2);
	refuses((const char *const[]){program, "top", "-F", "0", "-k", "/dev/null", NULL}, "vt100",
		"-F 0 takes no samples", 2);
	end_trace(&growing);
}

Test(top, a_file_that_is_no_trace_or_becomes_damaged_is_told_on_the_screen, TIMEOUT)
{
	static const uint64_t nothing[2] = {0x4};
	static struct growing growing;
	static struct pty pty;

	begin_trace(&growing);
	start(&pty, &growing);
	pty_wait_for(&pty, "hash_it");
	cr_assert_eq(write(growing.fd, nothing, sizeof(nothing)), (ssize_t)sizeof(nothing));
	pty_wait_for(&pty, "is damaged from byte");
	pty_wait_for(&pty, "hash_it");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	cr_assert_eq(ftruncate(growing.fd, 0), 0);
	cr_assert_eq(pwrite(growing.fd, "a text, no trace", 16, 0), 16);
	start(&pty, &growing);
	pty_wait_for(&pty, "not a trace");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end_trace(&growing);
}
