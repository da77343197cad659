#include "attach/vcpu_thread.h"

#include "attach/proc_file.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a thread that was killed while it was stopped is waited for. */
#define DEATH_LOOKS 50
#define DEATH_LOOK_NS 1000000

static int open_of_thread(const char *proc, pid_t pid, pid_t thread, const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%d/task/%d/%s", proc, (int)pid, (int)thread, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int vcpu_thread_open(const char *proc, pid_t pid, pid_t thread)
{
	return open_of_thread(proc, pid, thread, "syscall");
}

int vcpu_thread_open_stat(const char *proc, pid_t pid, pid_t thread)
{
	return open_of_thread(proc, pid, thread, "stat");
}

enum vcpu_hold vcpu_thread_hold(int stat_fd)
{
	char text[128]; /* the state is its third field, behind a name of at most 64 bytes */
	ssize_t length = pread(stat_fd, text, sizeof(text) - 1, 0);
	const char *fields;

	if (length <= 0)
		return VCPU_FREE;
	text[length] = 0;
	fields = proc_stat_fields(text);
	if (!fields)
		return VCPU_FREE;
	return *fields == 't' ? VCPU_TRACED : *fields == 'T' ? VCPU_STOPPED : VCPU_FREE;
}

/* fs/proc/base.c, proc_pid_syscall(): "running", or "-1 sp pc", or the call's number, its six
 * arguments, sp and pc. */
enum vcpu_activity vcpu_thread_activity(int activity_fd, int vcpu_fd, int *found)
{
	char text[256];
	uint64_t fd, request, sp, pc;
	int64_t number;
	ssize_t length = pread(activity_fd, text, sizeof(text) - 1, 0);

	if (length <= 0)
		return VCPU_GONE;
	text[length] = 0;
	if (!strncmp(text, "running", 7))
		return VCPU_RUNS;
	/* KVM's own threads in the process are copies of one that was in KVM_RUN when they were
	 * made, and have no user mode to return to: no pc. */
	if (sscanf(text, "%" SCNd64 " %" SCNx64 " %" SCNx64 " %*x %*x %*x %*x %" SCNx64 " %" SCNx64,
		   &number, &fd, &request, &sp, &pc) != 5 ||
	    number != SYS_ioctl || (uint32_t)request != KVM_RUN || !pc ||
	    (vcpu_fd >= 0 && fd != (uint64_t)vcpu_fd))
		return VCPU_VMM_SLEEPS;
	if (found)
		*found = (int)fd;
	return VCPU_SLEEPS;
}

/* What the registers at a stop say: behind a system call they still hold its number, arguments and
 * result (arch/x86/entry/common.c; user mode and interrupts have orig_rax -1). */
static enum vcpu_stop where(const struct vcpu_stopped *stopped, int vcpu_fd, int *fd)
{
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, stopped->thread, NULL, &registers))
		return VCPU_STOPPED_IN_VMM;
	if (registers.orig_rax != SYS_ioctl || (uint32_t)registers.rsi != KVM_RUN ||
	    (int64_t)registers.rax != -EINTR || (vcpu_fd >= 0 && (int)registers.rdi != vcpu_fd))
		return VCPU_STOPPED_IN_VMM;
	*fd = (int)registers.rdi;
	return VCPU_STOPPED_IN_RUN;
}

/* A thread that dies while we trace it is kept until we ask how it ended, and its whole process
 * with it: nobody else sees that end before. */
static void let_die(pid_t thread, bool *killed)
{
	for (unsigned look = 0; look < DEATH_LOOKS; look++) {
		int status;
		pid_t ended = waitpid(thread, &status, __WALL | WNOHANG);

		if (ended == thread && !WIFSTOPPED(status)) {
			*killed = WIFSIGNALED(status);
			return;
		}
		if (ended < 0 && errno != EINTR)
			return;
		sleep_ns(DEATH_LOOK_NS);
	}
}

enum vcpu_stop vcpu_thread_stop(pid_t thread, int vcpu_fd, struct vcpu_stopped *stopped)
{
	int status;

	*stopped = (struct vcpu_stopped){.thread = thread, .vcpu_fd = -1};
	if (ptrace(PTRACE_SEIZE, thread, NULL, NULL))
		return errno == ESRCH ? VCPU_ENDED : VCPU_NOT_STOPPED;
	if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL)) {
		let_die(thread, &stopped->killed);
		return VCPU_ENDED;
	}
	while (waitpid(thread, &status, __WALL) < 0)
		if (errno != EINTR)
			return VCPU_ENDED;
	if (!WIFSTOPPED(status)) {
		stopped->killed = WIFSIGNALED(status);
		return VCPU_ENDED;
	}
	/* A signal came first (ptrace(2), "Signal-delivery-stop"): its delivery goes on when the
	 * thread does. Every other stop of a seized thread is an event. */
	if (!(status >> 16))
		stopped->signal = WSTOPSIG(status);
	return where(stopped, vcpu_fd, &stopped->vcpu_fd);
}

bool vcpu_thread_release(struct vcpu_stopped *stopped)
{
	if (!ptrace(PTRACE_DETACH, stopped->thread, NULL, (void *)(intptr_t)stopped->signal))
		return true;
	let_die(stopped->thread, &stopped->killed);
	return false;
}
