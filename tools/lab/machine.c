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

static void add(struct arguments *arguments, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void add(struct arguments *arguments, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	if (arguments->count == ARGUMENTS_MAX ||
	    vasprintf(&arguments->list[arguments->count], format, values) < 0)
		arguments->failed = true;
	else
		arguments->list[++arguments->count] = NULL;
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
	add(arguments, "-fsdev");
	/* "none": as mapped to this user, whose lack of the right to chown is not an error. */
	add(arguments, "local,id=%s,path=%s,security_model=none,multidevs=remap%s", tag, escaped,
	    writable ? "" : ",readonly=on");
	add(arguments, "-device");
	add(arguments, "virtio-9p-pci,fsdev=%s,mount_tag=%s", tag, tag);
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
				  const int ports[static 5], struct arguments *arguments,
				  struct error *error)
{
	static const char *const names[] = {LAB_PORT_CONTROL, LAB_PORT_INPUT, LAB_PORT_OUTPUT,
					    LAB_PORT_ERRORS};
	/* The kernel takes 2047 bytes in all. */
	char agent[1600];

	if (!escape_octal(config->agent, agent, sizeof(agent)))
		return error_set(error, GP_ERR_INVALID_ARGS, "the path %s is too long",
				 config->agent);
	add(arguments, "%s", config->qemu);
	add(arguments, "-nodefaults");
	add(arguments, "-no-user-config");
	add(arguments, "-no-reboot");
	add(arguments, "-display");
	add(arguments, "none");
	add(arguments, "-accel");
	add(arguments, "tcg,thread=multi,tb-size=512");
	add(arguments, "-cpu");
	add(arguments, "%s", cpu_model());
	add(arguments, "-smp");
	/* The first one is not for the command: see qemu_races.c. */
	add(arguments, "%u", config->cpus + 1);
	add(arguments, "-m");
	add(arguments, "%lluM", (unsigned long long)config->memory_mib);
	/* reserve=off: more memory than the host would promise is fine until it is used. */
	add(arguments, "-object");
	add(arguments, "memory-backend-ram,id=ram,size=%lluM,reserve=off",
	    (unsigned long long)config->memory_mib);
	add(arguments, "-machine");
	add(arguments, "pc,memory-backend=ram");
	add(arguments, "-kernel");
	add(arguments, "%s", config->kernel);
	add(arguments, "-initrd");
	add(arguments, "%s", config->initramfs);
	add(arguments, "-append");
	/* tsc=reliable: QEMU's TSC is one for all CPUs but does not say so; without it the kernel
	 * takes the HPET, each reading of which waits for QEMU's global lock. A lab under load
	 * then did nothing but serve its own timers.
	 * maxcpus: the others are started once the kernel has patched its code: qemu_races.c.
	 * softlockup_panic, watchdog_thresh: a lab whose CPU does not get on for a minute never
	 * does (docs/design/lab.md); so it ends, and another one can be tried. */
	add(arguments,
	    "console=ttyS0 %s mitigations=off tsc=reliable maxcpus=1 softlockup_panic=1 "
	    "watchdog_thresh=30 panic=-1 guestprof.agent=%s",
	    config->verbose ? "loglevel=7" : "quiet", agent);
	add(arguments, "-chardev");
	add(arguments, "socket,id=console,fd=%d", ports[4]);
	add(arguments, "-serial");
	add(arguments, "chardev:console");
	add(arguments, "-device");
	add(arguments, "virtio-serial-pci,max_ports=8");
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		add(arguments, "-chardev");
		add(arguments, "socket,id=port%u,fd=%d", i, ports[i]);
		add(arguments, "-device");
		add(arguments, "virtserialport,chardev=port%u,name=%s", i, names[i]);
	}
	if (!add_share(arguments, "/", LAB_SHARE_ROOT, false) ||
	    (config->directory &&
	     !add_share(arguments, config->directory, LAB_SHARE_DIRECTORY, true)))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the path of this directory is too "
				 "long");
	if (arguments->failed)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to start QEMU");
	return GP_OK;
}

static _Noreturn void become_qemu(char *const *arguments, const int ports[static 5], int messages,
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
	if (null < 0 || dup2(null, 0) < 0 || dup2(messages, 1) < 0 || dup2(messages, 2) < 0)
		_exit(127);
	for (unsigned i = 0; i < 5; i++)
		fcntl(ports[i], F_SETFD, 0);
	execv(arguments[0], arguments);
	dprintf(2, "cannot run %s: %s\n", arguments[0], strerror(errno));
	_exit(127);
}

gp_status_t lab_machine_start(const struct lab_machine_config *config, struct lab_machine *machine,
			      struct error *error)
{
	struct arguments arguments = {0};
	int ours[6], theirs[6], made = 0;
	gp_status_t status = GP_OK;
	pid_t parent = getpid(), child = -1;

	for (; made < 6; made++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
			status = error_set_errno(error, errno, "cannot make a socket pair");
			break;
		}
		ours[made] = pair[0];
		theirs[made] = pair[1];
		fcntl(pair[0], F_SETFL, O_NONBLOCK);
	}
	if (status == GP_OK)
		status = make_arguments(config, theirs, &arguments, error);
	if (status == GP_OK) {
		child = fork();
		if (child == 0)
			become_qemu(arguments.list, theirs, theirs[5], parent);
		if (child < 0)
			status = error_set_errno(error, errno, "cannot start QEMU");
	}
	arguments_deinit(&arguments);
	for (int i = 0; i < made; i++) {
		close(theirs[i]);
		if (status != GP_OK)
			close(ours[i]);
	}
	if (status != GP_OK)
		return status;
	*machine = (struct lab_machine){
		.process = child,
		.control = ours[0],
		.input = ours[1],
		.output = ours[2],
		.errors = ours[3],
		.console = ours[4],
		.messages = ours[5],
	};
	return GP_OK;
}

void lab_machine_stop(struct lab_machine *machine)
{
	int *const fds[] = {&machine->control, &machine->input,   &machine->output,
			    &machine->errors,  &machine->console, &machine->messages};

	if (machine->process > 0) {
		kill(machine->process, SIGKILL);
		while (waitpid(machine->process, NULL, 0) < 0 && errno == EINTR)
			;
		machine->process = 0;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
