/* Ticks from perf events on the vCPU's tick thread, see perf_event_open(2): every `period` of the
 * event the kernel signals the thread through the event's descriptor (F_SETSIG).
 *
 * The software event cpu-clock counts the time the thread runs, in the guest or not. Hardware
 * events count in guest mode only (exclude_host).
 */
#include "sampler/tick.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static gp_status_t status_of_open(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return GP_ERR_ACCESS_DENIED;
	case ENOENT:
	case ENODEV:
	case EOPNOTSUPP:
	case EINVAL:
	case ENOSYS:
		return GP_ERR_NOT_SUPPORTED;
	default:
		return GP_ERR_NO_RESOURCES;
	}
}

static int open_event(const struct sampler_vcpu *vcpu, pid_t thread)
{
	const struct gp_sampler *session = vcpu->session;
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.sample_period = session->period_ns,
		.disabled = 1,
	};

	switch (session->kind) {
	case GP_TICK_CYCLES:
		attributes.type = PERF_TYPE_HARDWARE;
		attributes.config = PERF_COUNT_HW_CPU_CYCLES;
		attributes.exclude_host = 1;
		break;
	case GP_TICK_INSTRUCTIONS:
		attributes.type = PERF_TYPE_HARDWARE;
		attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
		attributes.exclude_host = 1;
		break;
	default:
		attributes.type = PERF_TYPE_SOFTWARE;
		attributes.config = PERF_COUNT_SW_CPU_CLOCK;
		break;
	}
	return (int)syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void ignore_signal(int signal)
{
	(void)signal;
}

/* A thread whose queue of signals is full gets SIGIO instead, whose default is to end the
 * process (fcntl(2), F_SETSIG). */
static bool survive_sigio(void)
{
	struct sigaction old, action = {.sa_handler = ignore_signal, .sa_flags = SA_RESTART};

	if (sigaction(SIGIO, NULL, &old))
		return false;
	return old.sa_handler != SIG_DFL || !sigaction(SIGIO, &action, NULL);
}

static gp_status_t tick_perf_start(struct sampler_vcpu *vcpu, pid_t thread)
{
	struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = thread};
	int fd = open_event(vcpu, thread);
	gp_status_t status;

	if (fd < 0)
		return status_of_open(errno);
	status = GP_ERR_NO_RESOURCES;
	if (!survive_sigio() || !tick_bind_descriptor(fd, vcpu->tick_value))
		goto failed;
	if (fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) || fcntl(fd, F_SETSIG, TICK_SIGNAL) ||
	    fcntl(fd, F_SETOWN_EX, &owner) || ioctl(fd, PERF_EVENT_IOC_RESET, 0) ||
	    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))
		goto failed;
	vcpu->perf_fd = fd;
	return GP_OK;
failed:
	tick_bind_descriptor(fd, 0);
	close(fd);
	return status;
}

static void tick_perf_last(struct sampler_vcpu *vcpu)
{
	ioctl(vcpu->perf_fd, PERF_EVENT_IOC_DISABLE, 0);
	/* The thread may sleep, and then the event would never come. */
	tick_send(vcpu);
}

static void tick_perf_stop(struct sampler_vcpu *vcpu)
{
	tick_bind_descriptor(vcpu->perf_fd, 0);
	close(vcpu->perf_fd);
}

static uint64_t tick_perf_signalled(struct sampler_vcpu *vcpu, const siginfo_t *info)
{
	(void)vcpu;
	(void)info;
	return 1;
}

const struct tick_source tick_perf_source = {
	.start = tick_perf_start,
	.last = tick_perf_last,
	.stop = tick_perf_stop,
	.signalled = tick_perf_signalled,
};
