/* What the sampler keeps of a target. */
#include "sampler/target.h"

#include "base/clock.h"
#include "guest-introspection/linux/linux_guest.h"

#include <string.h>

void sampler_target_init(struct sampler_target *target, const struct sampler_target_ops *ops)
{
	memset(target, 0, sizeof(*target));
	target->ops = ops;
	pthread_mutex_init(&target->sessions_lock, NULL);
}

void sampler_target_deinit(struct sampler_target *target)
{
	linux_guest_destroy(atomic_load(&target->guest));
	pthread_mutex_destroy(&target->sessions_lock);
}

void sampler_target_wait(struct sampler_target *target)
{
	while (atomic_load(&target->capturing))
		sleep_ns(20 * NS_PER_MICROSECOND);
}

/* A capture that begins later finds `next`. */
static void publish(void *context, struct guest_knowledge *next)
{
	struct sampler_target *target = context;

	if (atomic_exchange(&target->knowledge, next))
		sampler_target_wait(target);
}

struct linux_guest *sampler_target_guest(struct sampler_target *target)
{
	struct linux_guest *guest = atomic_load(&target->guest), *other = NULL;

	if (guest)
		return guest;
	guest = linux_guest_create(target->ops->memory(target), target->ops->vcpu_count(target),
				   publish, target);
	if (!guest || atomic_compare_exchange_strong(&target->guest, &other, guest))
		return guest;
	linux_guest_destroy(guest);
	return other;
}
