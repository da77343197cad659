#include "vmm/sandbox.h"

#include "vmm/devices/console.h"

#include "base/container.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER 0
#endif

/* What the arguments of an allowed call are held to. */
enum restriction {
	ANY,
	NOT_EXECUTABLE, /* argument 2 is a protection without PROT_EXEC */
	THIS_PROCESS,   /* argument 0 is our own process id */
	EMPTY_PATH,     /* argument 3 has AT_EMPTY_PATH: a descriptor is meant */
};

struct rule {
	int call;
	enum restriction restriction;
};

static const struct rule common_rules[] = {
	{SCMP_SYS(futex), ANY},               /* mutexes, joins */
	{SCMP_SYS(rt_sigreturn), ANY},        /* the end of every signal handler */
	{SCMP_SYS(rt_sigprocmask), ANY},      /* around raise() and thread exit */
	{SCMP_SYS(rt_sigaction), ANY},        /* abort() */
	{SCMP_SYS(exit), ANY},                /* a thread ends */
	{SCMP_SYS(exit_group), ANY},          /* the process ends */
	{SCMP_SYS(restart_syscall), ANY},     /* a sleep goes on after a stop */
	{SCMP_SYS(mmap), NOT_EXECUTABLE},     /* malloc */
	{SCMP_SYS(mprotect), NOT_EXECUTABLE}, /* malloc grows an arena */
	{SCMP_SYS(munmap), ANY},              /* free, a thread's stack */
	{SCMP_SYS(mremap), ANY},              /* realloc */
	{SCMP_SYS(madvise), ANY},             /* free, a thread's stack */
	{SCMP_SYS(brk), ANY},                 /* malloc */
	{SCMP_SYS(clock_gettime), ANY},       /* time stamps where the vDSO has no clock */
	{SCMP_SYS(gettimeofday), ANY},        /* the same */
	{SCMP_SYS(time), ANY},                /* the same, for the guest's CMOS clock */
	{SCMP_SYS(clock_nanosleep), ANY},     /* waiting */
	{SCMP_SYS(nanosleep), ANY},           /* waiting */
	{SCMP_SYS(sched_yield), ANY},         /* waiting */
	{SCMP_SYS(getpid), ANY},              /* abort() */
	{SCMP_SYS(gettid), ANY},              /* abort() */
	{SCMP_SYS(tgkill), THIS_PROCESS},     /* abort(), kicking a vCPU */
	{SCMP_SYS(read), ANY},                /* eventfds, timers, input */
	{SCMP_SYS(write), ANY},               /* eventfds, output, the last words of abort() */
	{SCMP_SYS(close), ANY},               /* releasing what was opened before */
};

static const struct rule vcpu_rules[] = {
	{SCMP_SYS(timerfd_settime), ANY}, /* console output is due soon */
	{SCMP_SYS(timer_settime), ANY},   /* the next tick, with jitter */
};

static const struct rule event_loop_rules[] = {
	{SCMP_SYS(epoll_wait), ANY},      /* the loop */
	{SCMP_SYS(epoll_pwait), ANY},     /* the loop, in other C libraries */
	{SCMP_SYS(epoll_ctl), ANY},       /* pausing input, ending a watch */
	{SCMP_SYS(preadv), ANY},          /* disks */
	{SCMP_SYS(pwritev), ANY},         /* disks */
	{SCMP_SYS(fdatasync), ANY},       /* disks: flush */
	{SCMP_SYS(getrandom), ANY},       /* the entropy device */
	{SCMP_SYS(poll), ANY},            /* would a write of console output block */
	{SCMP_SYS(ppoll), ANY},           /* the same, in other C libraries */
	{SCMP_SYS(timerfd_settime), ANY}, /* console output is due soon */
};

static const struct rule reader_rules[] = {
	{SCMP_SYS(writev), ANY},            /* the trace file */
	{SCMP_SYS(pwrite64), ANY},          /* the trace file: fixing up its beginning */
	{SCMP_SYS(pread64), ANY},           /* the trace file: looking back */
	{SCMP_SYS(lseek), ANY},             /* the trace file */
	{SCMP_SYS(ftruncate), ANY},         /* the trace file: a record cut by a full disk */
	{SCMP_SYS(fsync), ANY},             /* the trace file */
	{SCMP_SYS(fdatasync), ANY},         /* the trace file */
	{SCMP_SYS(fstat), ANY},             /* stdio chooses its buffer */
	{SCMP_SYS(newfstatat), EMPTY_PATH}, /* fstat() since glibc 2.33 */
	{SCMP_SYS(recvmsg), ANY},           /* files from the helper that finds programs' symbols */
	{SCMP_SYS(poll), ANY},              /* waiting for data or the end */
	{SCMP_SYS(ppoll), ANY},             /* the same */
	{SCMP_SYS(epoll_wait), ANY},        /* the same */
	{SCMP_SYS(epoll_pwait), ANY},       /* the same */
	{SCMP_SYS(timerfd_settime), ANY},   /* how often */
	{SCMP_SYS(sysinfo), ANY},           /* qsort() of symbols: how much memory there is */
};

/* Main is given these and the reader's: it finishes the trace file. */
static const struct rule main_rules[] = {
	{SCMP_SYS(rt_sigtimedwait), ANY},            /* waiting for SIGINT, SIGTERM */
	{SCMP_SYS(rt_sigsuspend), ANY},              /* the same */
	{SCMP_SYS(pause), ANY},                      /* the same */
	{SCMP_SYS(epoll_ctl), ANY},                  /* taking the loop down */
	{SCMP_SYS(timer_settime), ANY},              /* stopping the session */
	{SCMP_SYS(timer_getoverrun), ANY},           /* the session's last count */
	{SCMP_SYS(timer_delete), ANY},               /* the session's end */
	{SCMP_SYS(munlock), ANY},                    /* giving back its memory */
	{SCMP_SYS(rt_tgsigqueueinfo), THIS_PROCESS}, /* a perf event's last signal */
	{SCMP_SYS(getrusage), ANY},                  /* what the run cost */
	{SCMP_SYS(sigaltstack), ANY},                /* giving back a signal stack */
};

static const struct rule disk_files_rules[] = {
	{SCMP_SYS(pread64), ANY},           /* the disk; is it the file that is wanted */
	{SCMP_SYS(lseek), ANY},             /* the same, in libraries */
	{SCMP_SYS(fadvise64), ANY},         /* the same */
	{SCMP_SYS(fstat), ANY},             /* how large they are */
	{SCMP_SYS(newfstatat), EMPTY_PATH}, /* fstat() since glibc 2.33 */
	{SCMP_SYS(pwrite64), ANY},          /* the file that was found */
	{SCMP_SYS(ftruncate), ANY},         /* the same, after another one */
};

/* ioctl() is allowed for these requests only. For vCPU threads: to their own vCPU. */
static const uint32_t vcpu_requests[] = {
	KVM_RUN,          /* the guest runs */
	KVM_GET_REGS,     /* samples where KVM_CAP_SYNC_REGS is missing */
	KVM_GET_SREGS,    /* the same: CR3, segments */
	KVM_GET_MP_STATE, /* is the vCPU halted */
};

/* console_restore(), in every thread: it may be the one that ends the process. */
static const uint32_t terminal_requests[] = {TCGETS, TCSETS, TCSETSW, TCSETSF};

static const uint32_t main_requests[] = {
	TIOCGWINSZ,             /* the width of a progress line */
	PERF_EVENT_IOC_DISABLE, /* stopping a session of perf events */
	KVM_GET_REGS,           /* what stood at the end */
	KVM_GET_SREGS,          /* the same: CR3 for the symbol snapshot */
	KVM_GET_MSRS,           /* the same */
	KVM_GET_MP_STATE,       /* the same */
};

/* Tried by libraries on their own account, without harm when refused. */
static const int refused_calls[] = {
	SCMP_SYS(open),   /* malloc: /proc/sys/vm/overcommit_memory */
	SCMP_SYS(openat), /* the same; a time zone, a message catalogue */
};

static const char *const thread_names[] = {
	[SANDBOX_VCPU] = "vCPU", [SANDBOX_EVENT_LOOP] = "event loop", [SANDBOX_READER] = "reader",
	[SANDBOX_MAIN] = "main", [SANDBOX_DISK_FILES] = "disk files",
};

/* Read by the signal handler, on the thread that wrote it. */
static _Thread_local const char *volatile this_thread = "unconfined";

bool sandbox_is_supported(void)
{
	return !UNDER_SANITIZER;
}

static gp_status_t refuse_under_sanitizer(struct error *error)
{
	return error_set(error, GP_ERR_NOT_SUPPORTED,
			 "built with a sanitizer, which cannot be confined: there is no sandbox");
}

static size_t append_text(char *line, size_t size, size_t capacity, const char *text)
{
	while (*text && size < capacity)
		line[size++] = *text++;
	return size;
}

/* snprintf() may allocate; a handler must not. */
static size_t append_number(char *line, size_t size, size_t capacity, unsigned number)
{
	char digits[12];
	size_t at = sizeof(digits) - 1;

	digits[at] = 0;
	do
		digits[--at] = (char)('0' + number % 10);
	while ((number /= 10) > 0);
	return append_text(line, size, capacity, digits + at);
}

/* SECCOMP_RET_TRAP: the call was not made. */
static void report_violation(int signal_number, siginfo_t *info, void *context)
{
	char line[256];
	size_t size = 0;
	ssize_t written;

	(void)signal_number;
	(void)context;
	console_restore();
	size = append_text(line, size, sizeof(line), "guestprof: sandbox: the ");
	size = append_text(line, size, sizeof(line), this_thread);
	size = append_text(line, size, sizeof(line), " thread made system call ");
	size = append_number(line, size, sizeof(line), (unsigned)info->si_syscall);
	size = append_text(line, size, sizeof(line),
			   ", which it may not; ended. If the guest is trusted, report this and "
			   "use --no-sandbox\n");
	written = write(STDERR_FILENO, line, size);
	(void)written;
	_exit(SANDBOX_VIOLATION_EXIT);
}

static gp_status_t drop_capabilities(struct error *error)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	/* Only with CAP_SETPCAP, and only what the kernel knows; without privileges there is
	 * nothing that no_new_privs would let us gain back. */
	for (int capability = 0; capability < 64; capability++)
		prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, none))
		return error_set_errno(error, errno, "cannot drop capabilities");
	return GP_OK;
}

gp_status_t sandbox_enter_process(struct error *error)
{
	struct sigaction action = {.sa_sigaction = report_violation, .sa_flags = SA_SIGINFO};
	struct rlimit no_core = {0, 0};

	if (!sandbox_is_supported())
		return refuse_under_sanitizer(error);
	if (sigaction(SIGSYS, &action, NULL))
		return error_set_errno(error, errno, "cannot watch for sandbox violations");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return error_set_errno(error, errno, "cannot set no_new_privs");
	/* Guest memory is in ours: no dump of it. Who may trace us stays as the system has it: the
	 * owner of a machine may attach to it. */
	if (setrlimit(RLIMIT_CORE, &no_core))
		return error_set_errno(error, errno, "cannot forbid core dumps");
	return GP_OK;
}

static int add_rule(scmp_filter_ctx filter, const struct rule *rule)
{
	struct scmp_arg_cmp argument = {0};

	switch (rule->restriction) {
	case ANY:
		return seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rule->call, 0, NULL);
	case NOT_EXECUTABLE:
		argument = SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
		break;
	case THIS_PROCESS:
		argument = SCMP_A0_64(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)getpid());
		break;
	case EMPTY_PATH:
		argument = SCMP_A3_64(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH);
		break;
	}
	return seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rule->call, 1, &argument);
}

static int add_rules(scmp_filter_ctx filter, const struct rule *rules, size_t count)
{
	int failed = 0;

	for (size_t i = 0; i < count && !failed; i++)
		failed = add_rule(filter, &rules[i]);
	return failed;
}

/* The kernel looks at 32 bits of the descriptor and of the request. */
static int add_requests(scmp_filter_ctx filter, const uint32_t *requests, size_t count, int fd)
{
	int failed = 0;

	for (size_t i = 0; i < count && !failed; i++) {
		const struct scmp_arg_cmp arguments[] = {
			SCMP_A1_64(SCMP_CMP_MASKED_EQ, UINT32_MAX, requests[i]),
			SCMP_A0_64(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)fd),
		};

		failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl),
						fd < 0 ? 1 : 2, arguments);
	}
	return failed;
}

static int build_filter(scmp_filter_ctx filter, enum sandbox_thread kind,
			const struct sandbox_fds *fds)
{
	int failed = add_rules(filter, common_rules, ARRAY_SIZE(common_rules));

	for (size_t i = 0; i < ARRAY_SIZE(refused_calls) && !failed; i++)
		failed = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), refused_calls[i], 0,
						NULL);
	if (!failed)
		failed = add_requests(filter, terminal_requests, ARRAY_SIZE(terminal_requests), -1);
	if (failed)
		return failed;
	switch (kind) {
	case SANDBOX_VCPU:
		failed = add_rules(filter, vcpu_rules, ARRAY_SIZE(vcpu_rules));
		if (!failed)
			failed = add_requests(filter, vcpu_requests, ARRAY_SIZE(vcpu_requests),
					      fds ? fds->vcpu_fd : -1);
		break;
	case SANDBOX_EVENT_LOOP:
		failed = add_rules(filter, event_loop_rules, ARRAY_SIZE(event_loop_rules));
		break;
	case SANDBOX_MAIN:
		failed = add_rules(filter, main_rules, ARRAY_SIZE(main_rules));
		if (!failed)
			failed = add_requests(filter, main_requests, ARRAY_SIZE(main_requests), -1);
		if (failed)
			break;
		/* fallthrough */
	case SANDBOX_READER:
		failed = add_rules(filter, reader_rules, ARRAY_SIZE(reader_rules));
		break;
	case SANDBOX_DISK_FILES:
		failed = add_rules(filter, disk_files_rules, ARRAY_SIZE(disk_files_rules));
		break;
	}
	return failed;
}

static int set_attributes(scmp_filter_ctx filter)
{
	int failed = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	/* Kernels before 5.16 would otherwise slow down memory access in every filtered thread,
	 * guest mode included (Speculative Store Bypass). */
	if (!failed)
		failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
	/* A tree instead of a list: KVM_RUN is called often. */
	if (!failed)
		failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	return failed;
}

gp_status_t sandbox_enter_thread(enum sandbox_thread kind, const struct sandbox_fds *fds,
				 struct error *error)
{
	scmp_filter_ctx filter;
	sigset_t violation;
	gp_status_t status;
	int failed;

	if (!sandbox_is_supported())
		return refuse_under_sanitizer(error);
	status = drop_capabilities(error);
	if (status)
		return status;
	filter = seccomp_init(SCMP_ACT_TRAP);
	if (!filter)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the sandbox");
	this_thread = thread_names[kind];
	sigemptyset(&violation);
	sigaddset(&violation, SIGSYS);
	pthread_sigmask(SIG_UNBLOCK, &violation, NULL);
	failed = set_attributes(filter);
	if (!failed)
		failed = build_filter(filter, kind, fds);
	if (!failed)
		failed = seccomp_load(filter);
	seccomp_release(filter);
	if (!failed)
		return GP_OK;
	return error_set(error,
			 failed == -ENOSYS || failed == -EINVAL ? GP_ERR_NOT_SUPPORTED
								: GP_ERR_INTERNAL,
			 "cannot confine the %s thread: %s; --no-sandbox goes without",
			 thread_names[kind], strerror(-failed));
}

bool sandbox_disk_reader(uint64_t memory_bytes)
{
	struct rlimit memory = {memory_bytes, memory_bytes};
	struct error error;

	return !sandbox_is_supported() ||
	       (!setrlimit(RLIMIT_AS, &memory) && !sandbox_enter_process(&error) &&
		!sandbox_enter_thread(SANDBOX_DISK_FILES, NULL, &error));
}
