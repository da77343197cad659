#include "vmm/devices/event_loop.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The epoll key of stop_fd; watches use their index. */
#define STOP_KEY UINT32_MAX

static gp_status_t add_to_epoll(const struct event_loop *loop, int fd, uint32_t key)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = key};

	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

gp_status_t event_loop_init(struct event_loop *loop, struct error *error)
{
	struct event_loop made = {.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
				  .stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

	int failed = made.epoll_fd < 0 || made.stop_fd < 0
			     ? -errno
			     : add_to_epoll(&made, made.stop_fd, STOP_KEY);

	if (failed) {
		event_loop_deinit(&made);
		return error_set_errno(error, -failed, "cannot set up the event loop");
	}
	*loop = made;
	return GP_OK;
}

void event_loop_deinit(struct event_loop *loop)
{
	for (unsigned i = 0; i < loop->count; i++) {
		if (loop->polled_fds[i] >= 0 && loop->polled_fds[i] != loop->watches[i].fd)
			close(loop->polled_fds[i]);
	}
	loop->count = 0;
	close_fd(&loop->stop_fd);
	close_fd(&loop->epoll_fd);
}

gp_status_t event_loop_add(struct event_loop *loop, const struct event_watch *watch,
			   struct error *error)
{
	unsigned key = loop->count;
	int polled = watch->fd;
	int failed;

	if (key == EVENT_LOOP_WATCHES_MAX)
		return error_set(error, GP_ERR_NO_RESOURCES,
				 "too many devices: the event loop has room for %d descriptors",
				 EVENT_LOOP_WATCHES_MAX);
	failed = add_to_epoll(loop, polled, key);
	/* epoll_ctl(2): EPERM is a descriptor that cannot be waited for, such as a regular file,
	 * because it is always ready. So is an eventfd that nobody reads. */
	if (failed == -EPERM) {
		polled = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		failed = polled < 0 ? -errno : add_to_epoll(loop, polled, key);
		if (failed && polled >= 0)
			close(polled);
	}
	if (failed)
		return error_set_errno(error, -failed, "cannot watch descriptor %d", watch->fd);
	loop->watches[key] = *watch;
	loop->polled_fds[key] = polled;
	loop->count++;
	return GP_OK;
}

static void set_events(struct event_loop *loop, int fd, uint32_t events)
{
	for (unsigned i = 0; i < loop->count; i++) {
		struct epoll_event event = {.events = events, .data.u32 = i};

		if (loop->watches[i].fd == fd && loop->polled_fds[i] >= 0)
			epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, loop->polled_fds[i], &event);
	}
}

void event_loop_pause(struct event_loop *loop, int fd)
{
	/* Without EPOLLIN a hang-up would still be reported, again and again; edge-triggered it
	 * is reported at most once more. */
	set_events(loop, fd, EPOLLET);
}

void event_loop_resume(struct event_loop *loop, int fd)
{
	set_events(loop, fd, EPOLLIN);
}

static void end_watch(struct event_loop *loop, unsigned key)
{
	int polled = loop->polled_fds[key];

	loop->polled_fds[key] = -1;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, polled, NULL);
	if (polled != loop->watches[key].fd)
		close(polled);
}

gp_status_t event_loop_run(struct event_loop *loop, struct error *error)
{
	for (;;) {
		struct epoll_event events[16];
		int count = epoll_wait(loop->epoll_fd, events, ARRAY_SIZE(events), -1);

		if (count < 0 && errno != EINTR)
			return error_set_errno(error, errno, "the event loop cannot wait");
		for (int i = 0; i < count; i++) {
			uint32_t key = events[i].data.u32;
			const struct event_watch *watch;

			if (key == STOP_KEY)
				return GP_OK;
			watch = &loop->watches[key];
			/* An earlier callback of this round may have ended it. */
			if (loop->polled_fds[key] >= 0 &&
			    !watch->readable(watch->context, watch->fd))
				end_watch(loop, key);
		}
	}
}

void event_loop_stop(struct event_loop *loop)
{
	io_signal(loop->stop_fd);
}
