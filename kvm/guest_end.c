#include "kvm/guest_end.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"

#include <errno.h>
#include <sys/eventfd.h>

gp_status_t guest_end_init(struct guest_end_event *event, struct error *error)
{
	event->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return event->fd < 0 ? error_set_errno(error, errno, "cannot create an eventfd") : GP_OK;
}

void guest_end_deinit(struct guest_end_event *event)
{
	close_fd(&event->fd);
}

void guest_end_request(struct guest_end_event *event, enum guest_end end)
{
	int running = GUEST_RUNNING;

	if (atomic_compare_exchange_strong(&event->end, &running, end) && event->fd >= 0)
		io_signal(event->fd);
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
