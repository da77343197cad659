#include "tools/lab/qemu_races.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* On the first CPU no guest may run. When any CPU of QEMU's loads x87 state (FXRSTOR, XRSTOR: the
 * kernel does so whenever a program enters KVM_RUN or leaves it), QEMU's cpu_clear_ignne() reads,
 * changes and writes flags of the *first* CPU, without a lock: what VMRUN or #VMEXIT changes there
 * meanwhile, such as whether nested paging is on, is undone. The guest or this kernel then dies of
 * page faults. Seen in QEMU 7.2; the code is the same in 10.x. A CPU that runs no guest never
 * changes those flags. */
bool qemu_races_keep_off_the_first_cpu(void)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return false;
	CPU_CLR(0, &cpus);
	return sched_setaffinity(0, sizeof(cpus), &cpus) == 0;
}

/* Linux keeps rare conditions in its code: the first user of one patches jumps in, the last takes
 * them out, while other CPUs run that code (static keys; arch/x86/kernel/alternative.c,
 * text_poke_bp()). QEMU 7.2 translates code without a lock against such writes, and may go on
 * executing what is not there any more: a breakpoint, whose handler finds nothing to do, for ever,
 * on every CPU that comes past. KVM has such conditions where CPUs always come past: whether there
 * is a VM (in schedule()), a local APIC that is switched off or that KVM does not emulate; perf has
 * one in schedule(), too. So there is one of each, from a time on when there is one CPU only. */
enum { VM, VM_WITH_APICS, VCPU, VCPU_WITH_APIC, PERF_EVENT, HELD };

static gp_status_t make_users(int fds[static HELD], struct error *error)
{
	AUTO_CLOSE int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE,
					.size = sizeof(event),
					.config = PERF_COUNT_SW_DUMMY,
					.disabled = 1};

	if (kvm < 0)
		return error_set_errno(error, errno, "cannot open /dev/kvm");
	for (int i = VM; i <= VM_WITH_APICS; i++) {
		fds[i] = ioctl(kvm, KVM_CREATE_VM, 0);
		if (fds[i] < 0)
			return error_set_errno(error, errno, "KVM cannot make a VM");
	}
	if (ioctl(fds[VM_WITH_APICS], KVM_CREATE_IRQCHIP))
		return error_set_errno(error, errno, "KVM cannot make interrupt controllers");
	for (int i = VM; i <= VM_WITH_APICS; i++) {
		fds[VCPU + i] = ioctl(fds[i], KVM_CREATE_VCPU, 0);
		if (fds[VCPU + i] < 0)
			return error_set_errno(error, errno, "KVM cannot make a vCPU");
	}
	fds[PERF_EVENT] = (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
	if (fds[PERF_EVENT] < 0)
		return error_set_errno(error, errno, "cannot open a perf event");
	return GP_OK;
}

/* Descriptors that are in a socket live as long as the socket, and no process has them: the command
 * sees no virtual machines but its own. */
static gp_status_t put_out_of_sight(const int fds[static HELD], struct error *error)
{
	int sockets[2]; /* never closed */

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return error_set_errno(error, errno, "cannot make a pair of sockets");
	if (!io_send(sockets[0], "", 1, fds, HELD))
		return error_set_errno(error, errno, "cannot send descriptors");
	return GP_OK;
}

static gp_status_t start_cpu(unsigned number, struct error *error)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/online", number);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(error, errno, "cannot open %s", path);
	if (write(fd, "1", 1) != 1)
		error_set_errno(error, errno, "cannot start CPU %u", number);
	else
		error->status = GP_OK;
	close(fd);
	return error->status;
}

gp_status_t qemu_races_start_cpus(struct error *error)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	int fds[HELD] = {-1, -1, -1, -1, -1};
	gp_status_t status = make_users(fds, error);

	if (!status)
		status = put_out_of_sight(fds, error);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	for (long i = 1; !status && i < cpus; i++)
		status = start_cpu((unsigned)i, error);
	return status;
}
