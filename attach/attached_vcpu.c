#include "attach/attached_vcpu.h"

#include "base/cleanup.h"
#include "attach/remote_memory.h"
#include "attach/vcpu_thread.h"
#include "base/clock.h"
#include "base/io.h"
#include "sampler/capture.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A vCPU that was sent a signal leaves the guest within microseconds; a VMM at work may take
 * longer, and is not waited for. */
#define FRESH_TRIES 100
#define FRESH_WAIT_NS 20000

static void count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* A vCPU with page tables that is in real mode begins anew: at the reset vector, in the firmware.
 * Only the first one: others are started like that by their guest. */
static void watch_for_reset(struct attached_vcpu *vcpu, const struct guest_cpu *cpu)
{
	if (cpu->cr0 & X86_CR0_PAGING)
		vcpu->paged = true;
	else if (vcpu->index == 0 && vcpu->paged && !(cpu->cr0 & X86_CR0_PROTECTED) &&
		 !run_page_in_smm(&vcpu->page))
		guest_end_request(vcpu->end, GUEST_RESET);
}

/* ptrace. The sample is taken while the thread is stopped. */

/* A signal kills a whole process; when a thread just ends, its VMM may go on without this vCPU. */
static void see_end(struct attached_vcpu *vcpu, const struct vcpu_stopped *stopped)
{
	atomic_store(&vcpu->gone, true);
	if (stopped->killed)
		guest_end_request(vcpu->end, GUEST_VMM_KILLED);
}

/* False: not stopped, this time. */
static bool stop_and(struct attached_vcpu *vcpu,
		     void (*look)(struct attached_vcpu *vcpu, enum sampler_vcpu_state state,
				  const struct guest_cpu *cpu, void *context),
		     void *context)
{
	struct vcpu_stopped stopped;
	struct guest_cpu cpu;
	enum vcpu_stop stop = vcpu_thread_stop(vcpu->vmm_thread, vcpu->vmm_fd, &stopped);
	bool known;

	if (stop == VCPU_ENDED)
		see_end(vcpu, &stopped);
	if (stop == VCPU_ENDED || stop == VCPU_NOT_STOPPED)
		return false;
	/* In KVM_RUN that has returned because of us they are of now. In the VMM they are what
	 * the vCPU left the guest with; no other thread writes there. */
	known = run_page_registers(&vcpu->page, &cpu);
	if (!known)
		count(&vcpu->stale);
	if (stopped.signal)
		count(&vcpu->signals);
	look(vcpu, stop == VCPU_STOPPED_IN_RUN ? SAMPLER_VCPU_RUNNING : SAMPLER_VCPU_IN_VMM,
	     known ? &cpu : NULL, context);
	if (!vcpu_thread_release(&stopped))
		see_end(vcpu, &stopped);
	return true;
}

/* The fallback. */

static bool kick_by_signal(struct attached_vcpu *vcpu, struct guest_cpu *cpu)
{
	run_page_poison(&vcpu->page);
	if (syscall(SYS_tgkill, vcpu->vmm, vcpu->vmm_thread, vcpu->kick_signal)) {
		if (errno == ESRCH)
			atomic_store(&vcpu->gone, true);
		return false;
	}
	for (int i = 0; i < FRESH_TRIES; i++) {
		if (run_page_read_fresh(&vcpu->page, cpu))
			return true;
		sleep_ns(FRESH_WAIT_NS);
	}
	count(&vcpu->stale);
	return false;
}

/* Sampling. */

static void capture(struct attached_vcpu *vcpu, enum sampler_vcpu_state state,
		    const struct guest_cpu *cpu, void *context)
{
	(void)context;
	if (state == SAMPLER_VCPU_IN_VMM)
		count(&vcpu->in_vmm);
	if (cpu)
		watch_for_reset(vcpu, cpu);
	remote_memory_stop_begins();
	sampler_capture(vcpu->target, vcpu->index, state, cpu);
	remote_memory_stop_ends();
}

/* Its thread sleeps in KVM_RUN, or somebody holds it there. */
static void sample_asleep(struct attached_vcpu *vcpu)
{
	switch (vcpu_thread_hold(vcpu->stat_fd)) {
	case VCPU_TRACED:
		count(&vcpu->missed);
		return;
	case VCPU_STOPPED:
		capture(vcpu, SAMPLER_VCPU_IN_VMM, NULL, NULL);
		return;
	case VCPU_FREE:
		count(&vcpu->halted);
		capture(vcpu, SAMPLER_VCPU_HALTED, NULL, NULL);
		return;
	}
}

static void sample(struct attached_vcpu *vcpu)
{
	struct guest_cpu cpu;

	switch (vcpu_thread_activity(vcpu->activity_fd, vcpu->vmm_fd, NULL)) {
	case VCPU_GONE:
		atomic_store(&vcpu->gone, true);
		return;
	case VCPU_SLEEPS:
		sample_asleep(vcpu);
		return;
	case VCPU_VMM_SLEEPS:
		capture(vcpu, SAMPLER_VCPU_IN_VMM, NULL, NULL);
		return;
	case VCPU_RUNS:
		break;
	}
	if (!vcpu->kick_signal) {
		if (!stop_and(vcpu, capture, NULL))
			count(&vcpu->missed);
	} else if (kick_by_signal(vcpu, &cpu)) {
		capture(vcpu, SAMPLER_VCPU_RUNNING, &cpu, NULL);
	} else {
		count(&vcpu->missed);
	}
}

static void *attached_vcpu_main(void *argument)
{
	struct attached_vcpu *vcpu = argument;
	struct pollfd stop = {.fd = vcpu->stop_fd, .events = POLLIN};
	char name[16];
	sigset_t open;

	atomic_store(&vcpu->tick_thread, gettid());
	snprintf(name, sizeof(name), "kick %u", vcpu->index);
	pthread_setname_np(pthread_self(), name);
	sigfillset(&open);
	for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++)
		sigdelset(&open, signal);
	while (!atomic_load(&vcpu->gone)) {
		if (ppoll(&stop, 1, NULL, &open) > 0)
			break;
		if (!vcpu->kicked)
			continue;
		vcpu->kicked = 0;
		if (sampler_is_due(vcpu->target, vcpu->index))
			sample(vcpu);
	}
	sampler_vcpu_ended(vcpu->target, vcpu->index);
	/* Nobody sends ticks to a thread that will not see them. */
	atomic_store(&vcpu->tick_thread, 0);
	return NULL;
}

gp_status_t attached_vcpu_start(struct attached_vcpu *vcpu, struct error *error)
{
	sigset_t all, old;
	int failed;

	/* What looking around came upon is no tick's fate. */
	atomic_store(&vcpu->stale, 0);
	atomic_store(&vcpu->signals, 0);
	vcpu->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (vcpu->stop_fd < 0)
		return error_set_errno(error, errno, "cannot create an eventfd");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&vcpu->thread, NULL, attached_vcpu_main, vcpu);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed)
		return error_set_errno(error, failed, "cannot start a thread for vCPU %u",
				       vcpu->index);
	vcpu->started = true;
	/* Sessions ask for it at once. */
	while (!atomic_load(&vcpu->tick_thread) && !atomic_load(&vcpu->gone))
		sleep_ns(50 * NS_PER_MICROSECOND);
	return GP_OK;
}

void attached_vcpu_stop(struct attached_vcpu *vcpu)
{
	if (vcpu->started) {
		io_signal(vcpu->stop_fd);
		pthread_join(vcpu->thread, NULL);
		vcpu->started = false;
	}
	run_page_deinit(&vcpu->page);
	close_fd(&vcpu->activity_fd);
	close_fd(&vcpu->stat_fd);
	close_fd(&vcpu->stop_fd);
}

/* Before sampling. */

struct peek {
	struct guest_cpu *cpu;
	bool taken;
};

static void attached_vcpu_take(struct attached_vcpu *vcpu, enum sampler_vcpu_state state,
			       const struct guest_cpu *cpu, void *context)
{
	struct peek *peek = context;

	(void)vcpu;
	if (!cpu || state != SAMPLER_VCPU_RUNNING)
		return;
	*peek->cpu = *cpu;
	peek->taken = true;
}

bool attached_vcpu_peek(struct attached_vcpu *vcpu, bool wake, struct guest_cpu *cpu)
{
	struct peek peek = {.cpu = cpu};

	switch (vcpu_thread_activity(vcpu->activity_fd, vcpu->vmm_fd, NULL)) {
	case VCPU_RUNS:
		break;
	case VCPU_SLEEPS:
		if (!wake)
			return false;
		break;
	case VCPU_VMM_SLEEPS:
	case VCPU_GONE:
		return false;
	}
	if (vcpu->kick_signal)
		return kick_by_signal(vcpu, cpu);
	return stop_and(vcpu, attached_vcpu_take, &peek) && peek.taken;
}
