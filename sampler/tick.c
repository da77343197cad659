/* Ticks: a signal to the vCPU's own tick thread for each; its handler notes the tick and asks for
 * the vCPU to stop. */
#include "sampler/tick.h"

#include "base/clock.h"
#include "sampler/records.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A signal may be delivered after its source was closed: it was queued before. So it carries no
 * pointer but the number of a slot here and that slot's generation. Stopping a session
 * empties its slots, then waits until no handler is inside one. */
#define SLOT_COUNT 1024
#define SLOT_BITS 16
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)

/* Descriptors that tick; a signal of one carries only its number. A late signal of a closed
 * descriptor whose number is in use again counts as one tick too many, with no other harm. */
#define DESCRIPTORS 65536

static struct tick_slot {
	_Atomic(struct sampler_vcpu *) vcpu;
	_Atomic uint64_t generation;
	_Atomic unsigned handlers_inside;
} slots[SLOT_COUNT];
static _Atomic uint64_t descriptor_values[DESCRIPTORS];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static bool handler_installed; /* under slots_lock */

/* Tick thread, in the signal handler, which does not interrupt itself. */
static void note_ticks(struct sampler_vcpu *vcpu, uint64_t count, bool in_guest)
{
	struct pending_run run = {boot_ns(), count, in_guest};
	unsigned head = vcpu->head;
	unsigned previous = (head + PENDING_RUNS - 1) % PENDING_RUNS;
	unsigned next = (head + 1) % PENDING_RUNS;

	atomic_fetch_add_explicit(&vcpu->ticks, count, memory_order_relaxed);
	/* While the runs are being read the newest one may be gone already, unless it came after
	 * those. */
	if (head != vcpu->tail && (!vcpu->producing || head != vcpu->read_head) &&
	    vcpu->runs[previous].in_guest == in_guest) {
		run.count += vcpu->runs[previous].count;
		vcpu->runs[previous] = run;
		return;
	}
	if (next == vcpu->tail) {
		vcpu->overflowed += count;
		vcpu->overflowed_last = run.last;
		return;
	}
	vcpu->runs[head] = run;
	atomic_signal_fence(memory_order_release);
	vcpu->head = next;
}

static void tick(struct sampler_vcpu *vcpu, const siginfo_t *info)
{
	struct sampler_target *target = vcpu->session->target;
	uint64_t count;

	if (atomic_load_explicit(&vcpu->stopping, memory_order_acquire)) {
		/* The last signal: nobody counts it. Where the handler did not interrupt the
		 * producer it is the producer. */
		if (!vcpu->producing && !atomic_load_explicit(&vcpu->quiet, memory_order_relaxed))
			records_finish(vcpu);
		return;
	}
	count = vcpu->session->source->signalled(vcpu, info);
	note_ticks(vcpu, count, target->ops->kick(target, vcpu->index));
}

static void handle_tick(int signal, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	struct sampler_vcpu *vcpu;
	struct tick_slot *slot;
	uint64_t value;

	(void)signal;
	(void)context;
	if (info->si_code == SI_TIMER)
		value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
	else if (info->si_code == POLL_IN && info->si_fd >= 0 && info->si_fd < DESCRIPTORS)
		value = atomic_load(&descriptor_values[info->si_fd]);
	else
		return; /* somebody else's */
	if (!value || (value & SLOT_MASK) >= SLOT_COUNT)
		return;
	slot = &slots[value & SLOT_MASK];
	atomic_fetch_add(&slot->handlers_inside, 1);
	vcpu = atomic_load(&slot->vcpu);
	if (vcpu && atomic_load(&slot->generation) == value >> SLOT_BITS)
		tick(vcpu, info);
	atomic_fetch_sub(&slot->handlers_inside, 1);
	errno = saved_errno;
}

/* Without the handler a tick would end the process, so none may come before it is there. */
static bool install_handler(void)
{
	struct sigaction action = {.sa_sigaction = handle_tick,
				   .sa_flags = SA_SIGINFO | SA_RESTART};
	bool installed;

	sigemptyset(&action.sa_mask);
	pthread_mutex_lock(&slots_lock);
	if (!handler_installed)
		handler_installed = !sigaction(TICK_SIGNAL, &action, NULL);
	installed = handler_installed;
	pthread_mutex_unlock(&slots_lock);
	return installed;
}

void tick_send(const struct sampler_vcpu *vcpu)
{
	const struct sampler_target *target = vcpu->session->target;
	pid_t thread = target->ops->tick_thread(target, vcpu->index);
	/* Signals that a process queues for itself may say that they are those of a timer. */
	siginfo_t info = {.si_signo = TICK_SIGNAL, .si_code = SI_TIMER};

	info.si_value.sival_ptr = (void *)(uintptr_t)vcpu->tick_value;
	if (thread)
		syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, TICK_SIGNAL, &info);
}

bool tick_bind_descriptor(int fd, uint64_t value)
{
	if (fd < 0 || fd >= DESCRIPTORS)
		return false;
	atomic_store(&descriptor_values[fd], value);
	return true;
}

static bool take_slot(struct sampler_vcpu *vcpu)
{
	bool taken = false;

	pthread_mutex_lock(&slots_lock);
	for (unsigned i = 0; i < SLOT_COUNT && !taken; i++) {
		if (atomic_load(&slots[i].vcpu))
			continue;
		uint64_t generation = atomic_fetch_add(&slots[i].generation, 1) + 1;

		vcpu->tick_value = generation << SLOT_BITS | i;
		atomic_store(&slots[i].vcpu, vcpu);
		taken = true;
	}
	pthread_mutex_unlock(&slots_lock);
	return taken;
}

static void pause_briefly(void)
{
	sleep_ns(50 * NS_PER_MICROSECOND);
}

static void give_slot_back(const struct sampler_vcpu *vcpu)
{
	struct tick_slot *slot = &slots[vcpu->tick_value & SLOT_MASK];

	atomic_store(&slot->vcpu, NULL);
	while (atomic_load(&slot->handlers_inside))
		pause_briefly();
}

gp_status_t tick_start(struct sampler_vcpu *vcpu)
{
	const struct gp_sampler *session = vcpu->session;
	pid_t thread = session->target->ops->tick_thread(session->target, vcpu->index);
	gp_status_t status;

	if (vcpu->excluded || !thread || atomic_load(&vcpu->ended))
		return GP_OK; /* not asked for, or gone; its data stays */
	if (!install_handler())
		return GP_ERR_NO_RESOURCES;
	atomic_store(&vcpu->stopping, false);
	atomic_store(&vcpu->quiet, false);
	if (!take_slot(vcpu))
		return GP_ERR_NO_RESOURCES;
	atomic_store(&vcpu->armed, true);
	status = session->source->start(vcpu, thread);
	if (!status)
		return GP_OK;
	atomic_store(&vcpu->armed, false);
	give_slot_back(vcpu);
	/* Between the question above and here the vCPU may have ended. */
	return session->target->ops->tick_thread(session->target, vcpu->index) ? status : GP_OK;
}

void tick_stop(struct sampler_vcpu *vcpu)
{
	const struct gp_sampler *session = vcpu->session;
	enum { ASK_AGAIN = 50 };

	if (!atomic_load(&vcpu->armed))
		return;
	atomic_store(&vcpu->stopping, true);
	for (unsigned i = 0; !atomic_load(&vcpu->quiet) && !atomic_load(&vcpu->ended) &&
			     session->target->ops->tick_thread(session->target, vcpu->index);
	     i++) {
		/* One more signal, so that the tick thread looks, also when its vCPU sleeps in KVM;
		 * and again, should something on its way swallow one, as sanitizers do. */
		if (i % ASK_AGAIN == 0)
			session->source->last(vcpu);
		pause_briefly();
	}
	session->source->stop(vcpu);
	give_slot_back(vcpu);
	atomic_store(&vcpu->armed, false);
}
