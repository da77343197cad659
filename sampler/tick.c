/* Ticks: one CLOCK_MONOTONIC timer per vCPU and session, whose signal goes to the vCPU's own
 * tick thread. */
#include "sampler/session.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define TICK_SIGNAL (SIGRTMIN + 2)

#define NS_PER_SECOND UINT64_C(1000000000)

/* A signal may be delivered after its timer was deleted: it was queued before. So it carries no
 * pointer but the number of a slot here and that slot's generation. Closing a session
 * empties its slots, then waits until no handler is inside one. */
#define SLOT_COUNT 1024
#define SLOT_BITS 16

static struct tick_slot {
	_Atomic(struct sampler_vcpu *) vcpu;
	_Atomic uint64_t generation;
	_Atomic unsigned handlers_inside;
} slots[SLOT_COUNT];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;

uint64_t boot_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* Tick thread, in the signal handler, which does not interrupt itself. */
static void note_ticks(struct sampler_vcpu *vcpu, uint64_t count, bool in_guest)
{
	unsigned head = vcpu->head;
	unsigned next = (head + 1) % PENDING_RUNS;

	atomic_fetch_add_explicit(&vcpu->ticks, count, memory_order_relaxed);
	if (next == vcpu->tail) {
		vcpu->unread_drops += count;
		return;
	}
	vcpu->runs[head] = (struct pending_run){boot_time_ns(), count, in_guest};
	atomic_signal_fence(memory_order_release);
	vcpu->head = next;
}

static void tick(struct sampler_vcpu *vcpu, int overrun)
{
	struct sampler_target *target = vcpu->session->target;

	if (atomic_load_explicit(&vcpu->stopping, memory_order_acquire)) {
		/* The last signal: nobody counts it. Where the handler did not interrupt the
		 * producer it is the producer. */
		if (!vcpu->producing)
			capture_finish(vcpu);
		return;
	}
	note_ticks(vcpu, 1 + (overrun > 0 ? (uint64_t)overrun : 0),
		   target->ops->kick(target, vcpu->index));
}

static void handle_tick(int signal, siginfo_t *info, void *context)
{
	uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
	struct tick_slot *slot;
	struct sampler_vcpu *vcpu;
	int saved_errno = errno;

	(void)signal;
	(void)context;
	if (info->si_code != SI_TIMER || (value & ((1u << SLOT_BITS) - 1)) >= SLOT_COUNT)
		return;
	slot = &slots[value & ((1u << SLOT_BITS) - 1)];
	atomic_fetch_add(&slot->handlers_inside, 1);
	vcpu = atomic_load(&slot->vcpu);
	if (vcpu && atomic_load(&slot->generation) == value >> SLOT_BITS)
		tick(vcpu, info->si_overrun);
	atomic_fetch_sub(&slot->handlers_inside, 1);
	errno = saved_errno;
}

static void install_handler(void)
{
	struct sigaction action = {.sa_sigaction = handle_tick,
				   .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaction(TICK_SIGNAL, &action, NULL);
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
	nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void give_slot_back(const struct sampler_vcpu *vcpu)
{
	struct tick_slot *slot = &slots[vcpu->tick_value & ((1u << SLOT_BITS) - 1)];

	atomic_store(&slot->vcpu, NULL);
	while (atomic_load(&slot->handlers_inside))
		pause_briefly();
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_SECOND),
				 .tv_nsec = (long)(ns % NS_PER_SECOND)};
}

gp_status_t tick_start(struct sampler_vcpu *vcpu)
{
	const struct gp_sampler *session = vcpu->session;
	pid_t thread = session->target->ops->tick_thread(session->target, vcpu->index);
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TICK_SIGNAL};
	/* vCPUs tick one after the other, not all at once, so that they do not queue up for
	 * the host's CPUs. */
	uint64_t first = session->period_ns * (vcpu->index + 1) / session->vcpu_count;
	struct itimerspec interval = {.it_value = timespec_of(first ? first : 1),
				      .it_interval = timespec_of(session->period_ns)};

	if (!thread || atomic_load(&vcpu->ended))
		return GP_OK; /* this vCPU is gone; its data stays */
	pthread_once(&handler_once, install_handler);
	atomic_store(&vcpu->stopping, false);
	atomic_store(&vcpu->quiet, false);
	if (!take_slot(vcpu))
		return GP_ERR_NO_RESOURCES;
	event.sigev_notify_thread_id = thread;
	event.sigev_value.sival_ptr = (void *)(uintptr_t)vcpu->tick_value;
	if (timer_create(CLOCK_MONOTONIC, &event, &vcpu->timer)) {
		give_slot_back(vcpu);
		return GP_ERR_NO_RESOURCES;
	}
	/* A relative first expiry; the kernel adds the interval to the expiry, not to the time it
	 * was handled, so that there is no drift. */
	if (timer_settime(vcpu->timer, 0, &interval, NULL)) {
		timer_delete(vcpu->timer);
		give_slot_back(vcpu);
		return GP_ERR_NO_RESOURCES;
	}
	vcpu->has_timer = true;
	return GP_OK;
}

void tick_stop(struct sampler_vcpu *vcpu)
{
	const struct sampler_target *target = vcpu->session->target;
	struct itimerspec once = {.it_value = {.tv_nsec = 1}};

	if (!vcpu->has_timer)
		return;
	atomic_store(&vcpu->stopping, true);
	/* One more signal, so that the tick thread looks, also when its vCPU sleeps in KVM. */
	timer_settime(vcpu->timer, 0, &once, NULL);
	while (!atomic_load(&vcpu->quiet) && !atomic_load(&vcpu->ended) &&
	       target->ops->tick_thread(target, vcpu->index))
		pause_briefly();
	timer_delete(vcpu->timer);
	vcpu->has_timer = false;
	give_slot_back(vcpu);
}
