/* An epoll loop: descriptors and what to do when they become readable.
 *
 * The machine runs one for its devices (virtio queues, console input, deadlines). All
 * callbacks run on the thread that calls event_loop_run(). Watches are added before it
 * runs.
 */
#ifndef VMM_DEVICES_EVENT_LOOP_H
#define VMM_DEVICES_EVENT_LOOP_H

#include "base/error.h"

#include <stdbool.h>

#define EVENT_LOOP_WATCHES_MAX 64

struct event_watch {
	int fd;
	void *context;
	/* Required. The descriptor is readable (or hung up). Must not block for long. Returns
	 * false to be watched no more (end of input). */
	bool (*readable)(void *context, int fd);
};

struct event_loop {
	int epoll_fd;
	int stop_fd; /* eventfd */
	unsigned count;
	struct event_watch watches[EVENT_LOOP_WATCHES_MAX];
	/* What epoll waits for: the watch's fd, or for a regular file an eventfd of ours that is
	 * always readable. -1 once the watch has ended. */
	int polled_fds[EVENT_LOOP_WATCHES_MAX];
};

gp_status_t event_loop_init(struct event_loop *loop, struct error *error);
void event_loop_deinit(struct event_loop *loop);

/* The descriptor stays the caller's to close. Before event_loop_run() only. A regular file,
 * which epoll refuses, is treated as always readable. */
gp_status_t event_loop_add(struct event_loop *loop, const struct event_watch *watch,
			   struct error *error);

/* Stops and resumes looking at `fd`, for a callback that cannot take more input now. On the
 * loop's thread, or before it runs. A descriptor that is not watched is ignored. */
void event_loop_pause(struct event_loop *loop, int fd);
void event_loop_resume(struct event_loop *loop, int fd);

/* Runs until event_loop_stop(). */
gp_status_t event_loop_run(struct event_loop *loop, struct error *error);

/* Any thread, also in a signal handler. A stop before event_loop_run() makes it return at
 * once. */
void event_loop_stop(struct event_loop *loop);

#endif
