#include "kvm/guest_end.h"

#include "base/container.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

gp_status_t guest_end_init(struct guest_end_event *event, struct error *error)
{
	event->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return event->fd < 0 ? error_set_errno(error, errno, "cannot create an eventfd") : GP_OK;
}

void guest_end_deinit(struct guest_end_event *event)
{
	if (event->fd >= 0)
		close(event->fd);
	event->fd = -1;
}

void guest_end_request(struct guest_end_event *event, enum guest_end end)
{
	int running = GUEST_RUNNING;
	uint64_t one = 1;

	if (!atomic_compare_exchange_strong(&event->end, &running, end) || event->fd < 0)
		return;
	/* It fails only when the counter is full, and that wakes the waiter as well. */
	ssize_t written = write(event->fd, &one, sizeof(one));
	(void)written;
}

const char *guest_end_string(enum guest_end end)
{
	static const char *const texts[] = {
		[GUEST_RUNNING] = "running",
		[GUEST_POWERED_OFF] = "powered off",
		[GUEST_RESET] = "reset",
		[GUEST_TRIPLE_FAULT] = "triple fault",
		[GUEST_TEXT_SEEN] = "text seen",
		[GUEST_DURATION] = "duration over",
		[GUEST_SIGNALLED] = "ended by a signal",
		[GUEST_USER_QUIT] = "quit by the user",
		[GUEST_TIMED_OUT] = "timed out",
		[GUEST_ERROR] = "error",
		[GUEST_VMM_EXITED] = "VMM exited",
		[GUEST_VMM_KILLED] = "VMM was killed",
	};

	return (unsigned)end < ARRAY_SIZE(texts) ? texts[end] : "unknown";
}
