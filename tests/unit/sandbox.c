/* The sandbox, in child processes: allowed work goes on, forbidden calls are reported. */
#include "vmm/sandbox.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define CANNOT_CONFINE 99

static char said[4096]; /* the child's standard error */

static int scratch_fd(void)
{
	char path[] = "/tmp/sandbox-XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	return fd;
}

/* Runs `work` in a confined child; returns its exit code, or minus the signal. `work`
 * gets a temporary file, opened before. */
static int run_confined(enum sandbox_thread kind, const struct sandbox_fds *fds,
			int (*work)(int fd))
{
	int pipes[2], status, file = scratch_fd();
	size_t size = 0;
	ssize_t got;
	pid_t child;

	if (!sandbox_is_supported())
		cr_skip_test("built with a sanitizer: there is no sandbox");
	cr_assert_eq(pipe(pipes), 0);
	fflush(NULL);
	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		struct error error;

		dup2(pipes[1], STDERR_FILENO);
		if (sandbox_enter_process(&error) || sandbox_enter_thread(kind, fds, &error)) {
			dprintf(STDERR_FILENO, "%s", error.text);
			_exit(CANNOT_CONFINE);
		}
		_exit(work(file));
	}
	close(pipes[1]);
	while ((got = read(pipes[0], said + size, sizeof(said) - 1 - size)) > 0)
		size += (size_t)got;
	said[size] = 0;
	close(pipes[0]);
	close(file);
	cr_assert_eq(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_CONFINE)
		cr_skip_test("this kernel cannot confine: %s", said);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int common_work(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct timespec moment = {.tv_nsec = 1000};
	void *blocks[64];

	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < 64; i++) {
		blocks[i] = malloc(i << 14);
		if (!blocks[i])
			return 1;
		memset(blocks[i], 1, i << 14);
	}
	for (size_t i = 0; i < 64; i++)
		free(blocks[i]);
	if (clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL))
		return 2;
	/* Opening is refused without an end of everything. */
	if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EPERM)
		return 3;
	return 0;
}

static int vcpu_work(int fd)
{
	struct itimerspec when = {.it_value.tv_sec = 100};

	/* Reaches the kernel, which finds that this is no timer. */
	if (timerfd_settime(fd, 0, &when, NULL) != -1 || errno != EINVAL)
		return 4;
	return common_work();
}

static int event_loop_work(int fd)
{
	char bytes[4] = "abc";
	struct iovec part = {bytes, 3};
	struct epoll_event event;

	if (pwritev(fd, &part, 1, 0) != 3 || preadv(fd, &part, 1, 0) != 3 || fdatasync(fd))
		return 5;
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return 6;
	if (epoll_wait(fd, &event, 1, 0) != -1 || errno != EINVAL)
		return 7;
	return common_work();
}

static int reader_work(int fd)
{
	if (dprintf(fd, "text") != 4 || ftruncate(fd, 2) || fsync(fd) || lseek(fd, 0, SEEK_SET))
		return 8;
	return common_work();
}

static int main_work(int fd)
{
	struct termios mode;
	sigset_t none;
	struct timespec moment = {.tv_nsec = 1};

	if (tcgetattr(fd, &mode) != -1 || errno != ENOTTY)
		return 9;
	sigemptyset(&none);
	if (sigtimedwait(&none, NULL, &moment) != -1 || errno != EAGAIN)
		return 10;
	return reader_work(fd);
}

Test(sandbox, allowed_work_goes_on)
{
	cr_expect_eq(run_confined(SANDBOX_VCPU, NULL, vcpu_work), 0, "%s", said);
	cr_expect_eq(run_confined(SANDBOX_EVENT_LOOP, NULL, event_loop_work), 0, "%s", said);
	cr_expect_eq(run_confined(SANDBOX_READER, NULL, reader_work), 0, "%s", said);
	cr_expect_eq(run_confined(SANDBOX_MAIN, NULL, main_work), 0, "%s", said);
}

static int make_socket(int fd)
{
	(void)fd;
	return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}

static int execute(int fd)
{
	(void)fd;
	return execl("/bin/true", "true", (char *)NULL);
}

static int make_process(int fd)
{
	(void)fd;
	return fork() == 0;
}

static int map_code(int fd)
{
	(void)fd;
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED;
}

static int make_memory_code(int fd)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)fd;
	return mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

static int signal_another(int fd)
{
	(void)fd;
	return (int)syscall(SYS_tgkill, getppid(), getppid(), 0);
}

static int push_terminal_input(int fd)
{
	return ioctl(fd, TIOCSTI, "x");
}

static int make_vm(int fd)
{
	return ioctl(fd, KVM_CREATE_VM, 0);
}

Test(sandbox, a_forbidden_call_is_reported)
{
	static int (*const works[])(int) = {
		make_socket,      execute,        make_process,        map_code,
		make_memory_code, signal_another, push_terminal_input, make_vm,
	};

	for (enum sandbox_thread kind = SANDBOX_VCPU; kind <= SANDBOX_MAIN; kind++) {
		for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
			int code = run_confined(kind, NULL, works[i]);

			cr_expect_eq(code, SANDBOX_VIOLATION_EXIT, "thread kind %u, work %zu: %d",
				     kind, i, code);
			cr_expect_not_null(strstr(said, "guestprof: sandbox: the "), "%s", said);
		}
	}
}

Test(sandbox, the_report_names_thread_and_call)
{
	char wanted[100];

	cr_assert_eq(run_confined(SANDBOX_EVENT_LOOP, NULL, make_socket), SANDBOX_VIOLATION_EXIT);
	snprintf(wanted, sizeof(wanted), "the event loop thread made system call %d,",
		 (int)SYS_socket);
	cr_assert_not_null(strstr(said, wanted), "%s", said);
}

static int get_registers(int fd)
{
	struct kvm_regs regs;

	return ioctl(fd, KVM_GET_REGS, &regs) == -1 && errno == ENOTTY ? 0 : 1;
}

Test(sandbox, a_vcpu_thread_reaches_only_its_own_vcpu)
{
	int fd = eventfd(0, 0);
	struct sandbox_fds fds = {fd};

	/* The child's temporary file is another descriptor. */
	cr_assert_eq(run_confined(SANDBOX_VCPU, NULL, get_registers), 0, "%s", said);
	cr_assert_eq(run_confined(SANDBOX_VCPU, &fds, get_registers), SANDBOX_VIOLATION_EXIT);
	close(fd);
}

/* Before the threads' filters: what the process itself gave up. */
Test(sandbox, privileges_are_gone)
{
	int status;
	pid_t child;

	if (!sandbox_is_supported())
		cr_skip_test("built with a sanitizer: there is no sandbox");
	child = fork();
	if (child == 0) {
		if (sandbox_enter_process(NULL))
			_exit(1);
		if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
			_exit(2);
		struct rlimit core;

		if (getrlimit(RLIMIT_CORE, &core) || core.rlim_cur || core.rlim_max)
			_exit(3);
		/* Needs CAP_SYS_ADMIN. */
		if (sethostname("x", 1) != -1 || errno != EPERM)
			_exit(4);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "step %d", WEXITSTATUS(status));
}
