/* The QEMU process that is the lab's machine, and the descriptors that lead into it. */
#include "tools/lab/lab.h"
#include "tools/lab/protocol.h"

#include "base/cleanup.h"
#include "base/container.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64

struct arguments {
	char *list[ARGUMENTS_MAX + 1];
	unsigned count;
	bool failed;
};

static void add_one(struct arguments *arguments, char *text)
{
	if (!text || arguments->count == ARGUMENTS_MAX) {
		arguments->failed = true;
		free(text);
		return;
	}
	arguments->list[arguments->count++] = text;
	arguments->list[arguments->count] = NULL;
}

static void add(struct arguments *arguments, const char *option, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* An option and its value; NULL: it has none. */
static void add(struct arguments *arguments, const char *option, const char *format, ...)
{
	char *value = NULL;
	va_list values;

	add_one(arguments, strdup(option));
	if (!format)
		return;
	va_start(values, format);
	add_one(arguments, vasprintf(&value, format, values) < 0 ? NULL : value);
	va_end(values);
}

static void arguments_deinit(struct arguments *arguments)
{
	for (unsigned i = 0; i < arguments->count; i++)
		free(arguments->list[i]);
}

/* In QEMU's option syntax a comma within a value is written twice. */
static bool escape_commas(const char *from, char *to, size_t size)
{
	size_t used = 0;

	for (; *from; from++) {
		if (used + 3 > size)
			return false;
		if (*from == ',')
			to[used++] = ',';
		to[used++] = *from;
	}
	to[used] = 0;
	return true;
}

/* For printf '%b' in L1's script: everything unusual as \0OOO. */
static bool escape_octal(const char *from, char *to, size_t size)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789/._+-";
	size_t used = 0;

	for (; *from; from++) {
		if (used + 6 > size)
			return false;
		if (strchr(plain, *from))
			to[used++] = *from;
		else
			used += (size_t)snprintf(to + used, size - used, "\\0%03o",
						 (unsigned char)*from);
	}
	to[used] = 0;
	return true;
}

static bool add_share(struct arguments *arguments, const char *path, const char *tag, bool writable)
{
	char escaped[2 * PATH_MAX];

	if (!escape_commas(path, escaped, sizeof(escaped)))
		return false;
	/* "none": as mapped to this user, whose lack of the right to chown is not an error. */
	add(arguments, "-fsdev", "local,id=%s,path=%s,security_model=none,multidevs=remap%s", tag,
	    escaped, writable ? "" : ",readonly=on");
	add(arguments, "-device", "virtio-9p-pci,fsdev=%s,mount_tag=%s", tag, tag);
	return true;
}

/* All that QEMU can emulate. KVM in the lab does not notice that its guest has executed XSETBV
 * (QEMU 7.2), so that CPUID tells the guest other sizes of that area than those in use. Linux 6
 * turns XSAVE off then; 5.10 and 7 crash of it, and want GUESTPROF_LAB_CPU=max,-xsave
 * (docs/design/lab.md). */
static const char *cpu_model(void)
{
	const char *wanted = getenv("GUESTPROF_LAB_CPU");

	return wanted && *wanted ? wanted : "max";
}

static gp_status_t make_arguments(const struct lab_machine_config *config,
				  const int fds[static LAB_FDS], struct arguments *arguments,
				  struct error *error)
{
	/* The kernel takes 2047 bytes in all. */
	char agent[1600];

	if (!escape_octal(config->agent, agent, sizeof(agent)))
		return error_set(error, GP_ERR_INVALID_ARGS, "the path %s is too long",
				 config->agent);
	add(arguments, config->qemu, NULL);
	add(arguments, "-nodefaults", NULL);
	add(arguments, "-no-user-config", NULL);
	add(arguments, "-no-reboot", NULL);
	add(arguments, "-display", "none");
	add(arguments, "-accel", "tcg,thread=multi,tb-size=512");
	add(arguments, "-cpu", "%s", cpu_model());
	/* The first one is not for the command: see qemu_races.c. */
	add(arguments, "-smp", "%u", config->cpus + 1);
	add(arguments, "-m", "%lluM", (unsigned long long)config->memory_mib);
	/* reserve=off: more memory than the host would promise is fine until it is used. */
	add(arguments, "-object", "memory-backend-ram,id=ram,size=%lluM,reserve=off",
	    (unsigned long long)config->memory_mib);
	add(arguments, "-machine", "pc,memory-backend=ram");
	add(arguments, "-kernel", "%s", config->kernel);
	add(arguments, "-initrd", "%s", config->initramfs);
	/* tsc=reliable: QEMU's TSC is one for all CPUs but does not say so; without it the kernel
	 * takes the HPET, each reading of which waits for QEMU's global lock. A lab under load
	 * then did nothing but serve its own timers.
	 * maxcpus: the others are started once the kernel has patched its code: qemu_races.c.
	 * softlockup_panic, watchdog_thresh: a lab whose CPU does not get on for a minute never
	 * does (docs/booting.md); so it ends, and another one can be tried. */
	add(arguments, "-append",
	    "console=ttyS0 %s mitigations=off tsc=reliable maxcpus=1 softlockup_panic=1 "
	    "watchdog_thresh=30 panic=-1 guestprof.agent=%s",
	    config->verbose ? "loglevel=7" : "quiet", agent);
	add(arguments, "-chardev", "socket,id=console,fd=%d", fds[LAB_CONSOLE]);
	add(arguments, "-serial", "chardev:console");
	add(arguments, "-device", "virtio-serial-pci,max_ports=8");
	for (unsigned i = LAB_CONTROL; i < LAB_CONSOLE; i++) {
		add(arguments, "-chardev", "socket,id=port%u,fd=%d", i, fds[i]);
		add(arguments, "-device", "virtserialport,chardev=port%u,nr=%u", i,
		    i + LAB_PORT_CONTROL);
	}
	if (!add_share(arguments, "/", LAB_SHARE_ROOT, false) ||
	    (config->directory &&
	     !add_share(arguments, config->directory, LAB_SHARE_DIRECTORY, true)))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the path of this directory is too long");
	if (arguments->failed)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to start QEMU");
	return GP_OK;
}

static _Noreturn void become_qemu(char *const *arguments, const int fds[static LAB_FDS],
				  pid_t parent)
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Ctrl-C on the terminal is for the command inside; this process passes it on. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have died before that took effect. */
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null < 0 || dup2(null, 0) < 0 || dup2(fds[LAB_MESSAGES], 1) < 0 ||
	    dup2(fds[LAB_MESSAGES], 2) < 0)
		_exit(127);
	for (unsigned i = 0; i < LAB_MESSAGES; i++)
		fcntl(fds[i], F_SETFD, 0);
	execv(arguments[0], arguments);
	dprintf(2, "cannot run %s: %s\n", arguments[0], strerror(errno));
	_exit(127);
}

static void close_all(int fds[static LAB_FDS])
{
	for (unsigned i = 0; i < LAB_FDS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

gp_status_t lab_machine_start(const struct lab_machine_config *config, struct lab_machine *machine,
			      struct error *error)
{
	struct arguments arguments = {0};
	int theirs[LAB_FDS];
	gp_status_t status = GP_OK;
	pid_t parent = getpid();

	machine->process = 0;
	for (unsigned i = 0; i < LAB_FDS; i++)
		machine->fds[i] = theirs[i] = -1;
	for (unsigned i = 0; !status && i < LAB_FDS; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
			status = error_set_errno(error, errno, "cannot make a socket pair");
		} else {
			machine->fds[i] = pair[0];
			theirs[i] = pair[1];
			fcntl(pair[0], F_SETFL, O_NONBLOCK);
		}
	}
	if (!status)
		status = make_arguments(config, theirs, &arguments, error);
	if (!status) {
		machine->process = fork();
		if (!machine->process)
			become_qemu(arguments.list, theirs, parent);
		if (machine->process < 0)
			status = error_set_errno(error, errno, "cannot start QEMU");
	}
	arguments_deinit(&arguments);
	close_all(theirs);
	if (status)
		lab_machine_stop(machine);
	return status;
}

void lab_machine_stop(struct lab_machine *machine)
{
	if (machine->process > 0) {
		kill(machine->process, SIGKILL);
		while (waitpid(machine->process, NULL, 0) < 0 && errno == EINTR)
			;
	}
	machine->process = 0;
	close_all(machine->fds);
}
