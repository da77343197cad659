/* Ticks from POSIX timers on CLOCK_MONOTONIC, one per vCPU, signalling its tick thread.
 *
 * Without jitter the kernel repeats the timer: it adds the interval to the expiry, not to the time
 * at which that was handled, so that there is no drift. With jitter each tick arms the next one, at
 * an absolute time around its nominal one: no drift either.
 */
#include "sampler/tick.h"

#include "base/clock.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003): enough to be out of step with a guest. */
static uint64_t next_random(struct sampler_vcpu *vcpu)
{
	uint64_t x = vcpu->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	vcpu->random = x;
	return x;
}

/* Arms the tick at next_tick_ns, displaced by at most half the jitter to either side. */
static int arm_displaced(struct sampler_vcpu *vcpu)
{
	uint64_t spread = vcpu->session->period_ns / 100 * vcpu->session->jitter_percent;
	uint64_t when = vcpu->next_tick_ns - spread / 2 + next_random(vcpu) % (spread + 1);
	struct itimerspec once = {.it_value = timespec_of(when)};

	return timer_settime(vcpu->timer, TIMER_ABSTIME, &once, NULL);
}

static gp_status_t tick_timer_start(struct sampler_vcpu *vcpu, pid_t thread)
{
	const struct gp_sampler *session = vcpu->session;
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TICK_SIGNAL};
	/* vCPUs tick one after the other, not all at once, so that they do not queue up for
	 * the host's CPUs. */
	uint64_t first = session->period_ns * (vcpu->index + 1) / session->vcpu_count;
	struct itimerspec interval = {.it_value = timespec_of(first ? first : 1),
				      .it_interval = timespec_of(session->period_ns)};
	int failed;

	event.sigev_notify_thread_id = thread;
	event.sigev_value.sival_ptr = (void *)(uintptr_t)vcpu->tick_value;
	if (timer_create(CLOCK_MONOTONIC, &event, &vcpu->timer))
		return GP_ERR_NO_RESOURCES;
	if (session->jitter_percent) {
		vcpu->random = (boot_ns() ^ (uint64_t)(vcpu->index + 1) << 32) | 1;
		vcpu->next_tick_ns = monotonic_ns() + session->period_ns + first;
		failed = arm_displaced(vcpu);
	} else {
		failed = timer_settime(vcpu->timer, 0, &interval, NULL);
	}
	if (!failed)
		return GP_OK;
	timer_delete(vcpu->timer);
	return GP_ERR_NO_RESOURCES;
}

static void tick_timer_last(struct sampler_vcpu *vcpu)
{
	struct itimerspec once = {.it_value = {.tv_nsec = 1}};

	/* What waits for this signal would wait for ever. */
	if (timer_settime(vcpu->timer, 0, &once, NULL))
		tick_send(vcpu);
}

static void tick_timer_stop(struct sampler_vcpu *vcpu)
{
	timer_delete(vcpu->timer);
}

static uint64_t tick_timer_signalled(struct sampler_vcpu *vcpu, const siginfo_t *info)
{
	uint64_t period = vcpu->session->period_ns, now, count = 1;
	struct itimerspec plain = {timespec_of(period), timespec_of(period)};

	if (!vcpu->session->jitter_percent)
		return 1 + (info->si_overrun > 0 ? (uint64_t)info->si_overrun : 0);
	/* Nominal times that have passed while the thread could not look are ticks as well. */
	now = monotonic_ns();
	vcpu->next_tick_ns += period;
	if (vcpu->next_tick_ns + period <= now) {
		uint64_t missed = (now - vcpu->next_tick_ns) / period;

		count += missed;
		vcpu->next_tick_ns += missed * period;
	}
	/* No tick arms the next one then: rather in step than silent. */
	if (arm_displaced(vcpu))
		timer_settime(vcpu->timer, 0, &plain, NULL);
	/* Once more in case stopping began in between: its signal must be the last. */
	if (atomic_load(&vcpu->stopping))
		tick_timer_last(vcpu);
	return count;
}

const struct tick_source tick_timer_source = {
	.start = tick_timer_start,
	.last = tick_timer_last,
	.stop = tick_timer_stop,
	.signalled = tick_timer_signalled,
};
