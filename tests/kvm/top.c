/* guestprof top with tiny guests, on a terminal of its own: what it shows while they run, and how
 * everything ends. */
#include "tests/unit/pty_screen.h"

#include "tests/kvm/guest_machine.h"

#include <sys/prctl.h>

#define TIMEOUT .timeout = 300

static char guest[512];
static char trace[64];

static void begin(void)
{
	int fd;

	require_kvm();
	guest_path("long4", guest);
	snprintf(trace, sizeof(trace), "/tmp/top-test.XXXXXX");
	fd = mkstemp(trace);
	cr_assert_geq(fd, 0);
	close(fd);
}

static void end(void)
{
	unlink(trace);
}

/* Boots the guest with a command line; `more`: two further arguments, or NULL. */
static void boot(struct pty *pty, const char *command_line, const char *const *more)
{
	const char *argv[] = {pty_guestprof(),
			      "top",
			      "--interval",
			      "0.2",
			      "-k",
			      guest,
			      "-m",
			      "16M",
			      "--symbols",
			      guest,
			      "-p",
			      command_line,
			      more ? more[0] : NULL,
			      more ? more[1] : NULL,
			      NULL};

	pty_start(pty, argv, "vt100", 24, 80);
}

static pid_t child_of(pid_t parent)
{
	char path[64], text[64] = "";
	FILE *children;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	children = fopen(path, "r");
	if (!children)
		cr_skip_test("this kernel does not list a process's children");
	if (!fgets(text, sizeof(text), children))
		text[0] = 0;
	fclose(children);
	return (pid_t)atoi(text);
}

/* Whether the trace can be read and is whole. */
static bool is_complete(void)
{
	char command[1200];
	int code;

	snprintf(command, sizeof(command),
		 "'%s' report '%s' 2>/dev/null | grep -q '^# ended: ' && "
		 "! '%s' report '%s' | grep -q INCOMPLETE",
		 pty_guestprof(), trace, pty_guestprof(), trace);
	code = system(command);
	return WIFEXITED(code) && WEXITSTATUS(code) == 0;
}

Test(top, shows_a_guest_that_runs, TIMEOUT)
{
	static struct pty pty;

	begin();
	boot(&pty, "rounds=0", NULL);
	pty_wait_for(&pty, "leaf_70");
	pty_wait_for_order(&pty, "leaf_70", "leaf_20");
	pty_wait_for_order(&pty, "leaf_20", "leaf_8");
	pty_wait_for_row(&pty, "vCPU 0", "kernel");
	pty_keys(&pty, "jjjj");
	pty_keys(&pty, "/leaf_8\r");
	pty_wait_without(&pty, "leaf_70");
	pty_keys(&pty, "\r");
	pty_wait_for(&pty, "CALLERS of leaf_8");
	pty_wait_for_order(&pty, "  branch_c", "  branch_b");
	pty_wait_for_order(&pty, "  branch_b", "  branch_a");
	pty_keys(&pty, "c");
	pty_wait_for(&pty, "guest started");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	cr_assert(pty_shows(&pty, "the trace was not saved"));
	end();
}

Test(top, keeps_the_trace_that_was_asked_for, TIMEOUT)
{
	static struct pty pty;

	begin();
	/* What was there before is not shown. */
	cr_assert_eq(truncate(trace, 100000), 0);
	boot(&pty, "rounds=0", (const char *const[]){"-o", trace});
	pty_wait_for(&pty, "leaf_70");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	cr_assert(pty_shows(&pty, trace));
	cr_assert(is_complete());
	end();
}

Test(top, a_guest_that_ends_leaves_its_last_picture, TIMEOUT)
{
	static struct pty pty;

	begin();
	boot(&pty, tree_for(SECOND), NULL);
	pty_wait_for(&pty, "ended: powered off");
	pty_wait_for(&pty, "leaf_70");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end();
}

Test(top, a_signal_ends_the_recording_in_order, TIMEOUT)
{
	static struct pty pty;
	pid_t child;

	begin();
	boot(&pty, "rounds=0", (const char *const[]){"-o", trace});
	pty_wait_for(&pty, "leaf_70");
	child = child_of(pty.child);
	cr_assert_gt(child, 0);
	kill(pty.child, SIGTERM);
	cr_assert_eq(pty_end(&pty), 16);
	cr_assert_eq(kill(child, 0), -1, "nothing is left of the recording");
	cr_assert(is_complete());
	end();
}

/* The recording outlives the display by the time it takes to end. */
Test(top, a_killed_display_ends_the_recording, TIMEOUT)
{
	static struct pty pty;
	time_t deadline;
	int status;

	begin();
	boot(&pty, "rounds=0", (const char *const[]){"-o", trace});
	pty_wait_for(&pty, "leaf_70");
	kill(pty.child, SIGKILL);
	cr_assert_eq(waitpid(pty.child, &status, 0), pty.child);
	for (deadline = pty_deadline(); !is_complete() && time(NULL) < deadline;)
		pty_read(&pty, 200);
	cr_assert(is_complete());
	close(pty.fd);
	end();
}

Test(top, a_killed_recording_is_told_and_does_no_harm, TIMEOUT)
{
	static struct pty pty;

	begin();
	boot(&pty, "rounds=0", NULL);
	pty_wait_for(&pty, "leaf_70");
	kill(child_of(pty.child), SIGKILL);
	pty_wait_for(&pty, "ended, exit code 137");
	pty_wait_for(&pty, "leaf_70");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 137);
	end();
}

Test(top, what_cannot_be_recorded_is_told_without_a_picture, TIMEOUT)
{
	const char *argv[] = {pty_guestprof(), "top", "-k", "/etc/passwd", NULL};
	static struct pty pty;

	begin();
	pty_start(&pty, argv, "vt100", 24, 120);
	pty_wait_for(&pty, "/etc/passwd is not a kernel");
	cr_assert_eq(pty_end(&pty), 2);
	cr_assert(!pty_shows(&pty, "guestprof top"));
	/* One that fails while it runs has a picture, and its reason. */
	boot(&pty, "rounds=5 end=unemulatable", NULL);
	pty_wait_for(&pty, "ended");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 20);
	cr_assert(pty_shows(&pty, "RIP 0x"));
	end();
}

/* Where the trace is in memory: its size, and what of it is there. */
static bool find_memory(pid_t process, struct stat *memory)
{
	char path[64], link[64];

	for (int fd = 3; fd < 64; fd++) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)process, fd);
		length = readlink(path, link, sizeof(link) - 1);
		if (length <= 0)
			continue;
		link[length] = 0;
		if (strstr(link, "memfd:guestprof trace"))
			return !stat(path, memory);
	}
	return false;
}

Test(top, a_trace_that_is_not_kept_does_not_grow, TIMEOUT)
{
	static struct pty pty;
	struct stat memory = {0};

	begin();
	boot(&pty, "rounds=0", (const char *const[]){"-F", "20000"});
	pty_wait_for(&pty, "leaf_70");
	for (time_t deadline = pty_deadline(); time(NULL) < deadline;) {
		pty_read(&pty, 100);
		cr_assert(find_memory(pty.child, &memory));
		if (memory.st_size > (6 << 20))
			break;
	}
	cr_assert_gt(memory.st_size, 6 << 20);
	cr_assert_lt(memory.st_blocks * 512, 4 << 20);
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	end();
}

/* Another guestprof runs the guest: for top it is one VMM like any other. */
static pid_t start_vmm(void)
{
	pid_t pid = fork();
	int null;

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	execl(pty_guestprof(), "guestprof", "record", "-k", guest, "-m", "16M", "-p",
	      "run=tree rounds=0", "-o", trace, (char *)NULL);
	_exit(127);
}

/* It grows while the guest gets on. */
static off_t trace_size(void)
{
	struct stat file;

	cr_assert(!stat(trace, &file));
	return file.st_size;
}

static void wait_for_growth(off_t size)
{
	for (time_t deadline = pty_deadline(); trace_size() <= size && time(NULL) < deadline;)
		sleep_ns(10 * MILLISECOND);
	cr_assert_gt(trace_size(), size);
}

Test(top, shows_a_machine_that_another_process_runs_and_leaves_it_running, TIMEOUT)
{
	static struct pty pty;
	char vmm[16];
	const char *argv[] = {pty_guestprof(), "top", "--interval", "0.2", "attach",
			      "--symbols",     guest, vmm,          NULL};
	int status;
	pid_t pid;

	begin();
	pid = start_vmm();
	wait_for_growth(16 << 10); /* its first samples */
	snprintf(vmm, sizeof(vmm), "%d", (int)pid);
	for (int round = 0; round < 2; round++) {
		pty_start(&pty, argv, "vt100", 24, 80);
		pty_wait_for(&pty, vmm); /* in the title */
		pty_wait_for(&pty, "leaf_70");
		pty_wait_for_order(&pty, "leaf_70", "leaf_20");
		pty_wait_for_order(&pty, "leaf_20", "leaf_8");
		pty_wait_for_row(&pty, "vCPU 0", "kernel");
		pty_keys(&pty, "q");
		cr_assert_eq(pty_end(&pty), 0);
		cr_assert(pty_shows(&pty, "the trace was not saved"));
		/* As before: nobody is attached, and the guest gets on. */
		cr_assert_eq(waitpid(pid, &status, WNOHANG), 0, "the VMM has ended");
		wait_for_growth(trace_size());
	}
	kill(pid, SIGTERM);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 16, "%#x", (unsigned)status);
	cr_assert(is_complete());
	end();
}

Test(top, a_machine_that_ends_is_told_with_its_last_picture, TIMEOUT)
{
	static struct pty pty;
	char vmm[16];
	const char *argv[] = {pty_guestprof(), "top", "--interval", "0.2", "attach",
			      "--symbols",     guest, vmm,          NULL};
	pid_t pid;

	begin();
	pid = start_vmm();
	wait_for_growth(16 << 10); /* its first samples */
	snprintf(vmm, sizeof(vmm), "%d", (int)pid);
	pty_start(&pty, argv, "vt100", 24, 80);
	pty_wait_for(&pty, "leaf_70");
	kill(pid, SIGKILL);
	pty_wait_for(&pty, "ended: VMM was killed");
	pty_wait_for(&pty, "leaf_70");
	pty_keys(&pty, "q");
	cr_assert_eq(pty_end(&pty), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	end();
}

Test(top, a_machine_that_cannot_be_attached_to_is_told_without_a_picture, TIMEOUT)
{
	const char *argv[] = {pty_guestprof(), "top", "attach", "no-such-machine", NULL};
	static struct pty pty;

	begin();
	pty_start(&pty, argv, "vt100", 24, 200);
	pty_wait_for(&pty, "no virtual machine is called 'no-such-machine'");
	cr_assert_eq(pty_end(&pty), 21);
	cr_assert(!pty_shows(&pty, "FUNCTION"));
	end();
}
