/* The event loop: callbacks while readable, end of a watch, pause, regular files, stop. */
#include "vmm/devices/event_loop.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct seen {
	struct event_loop *loop;
	unsigned calls;
	unsigned stop_after;
	bool keep_watching;
};

static bool count_and_read(void *context, int fd)
{
	struct seen *seen = context;
	char byte;
	ssize_t size = read(fd, &byte, 1);

	seen->calls++;
	if (seen->calls >= seen->stop_after)
		event_loop_stop(seen->loop);
	return size > 0 && seen->keep_watching;
}

Test(event_loop, calls_while_readable_and_ends_a_watch, .timeout = 10)
{
	struct event_loop loop;
	int ended[2], kept[2];

	cr_assert_eq(event_loop_init(&loop, NULL), GP_OK);
	cr_assert_eq(pipe(ended) | pipe(kept), 0);
	struct seen once = {&loop, 0, 100, false};
	struct seen all = {&loop, 0, 3, true};
	cr_assert_eq(
		event_loop_add(&loop, &(struct event_watch){ended[0], &once, count_and_read}, NULL),
		GP_OK);
	cr_assert_eq(
		event_loop_add(&loop, &(struct event_watch){kept[0], &all, count_and_read}, NULL),
		GP_OK);
	cr_assert_eq(write(ended[1], "abc", 3), 3);
	cr_assert_eq(write(kept[1], "abc", 3), 3);
	cr_assert_eq(event_loop_run(&loop, NULL), GP_OK);
	cr_assert_eq(once.calls, 1);
	cr_assert_eq(all.calls, 3);
	event_loop_deinit(&loop);
	for (int i = 0; i < 2; i++)
		close(ended[i]), close(kept[i]);
}

Test(event_loop, a_regular_file_is_always_readable, .timeout = 10)
{
	char path[] = "/tmp/event-loop-XXXXXX";
	int fd = mkstemp(path);
	struct event_loop loop;

	cr_assert_geq(fd, 0);
	unlink(path);
	cr_assert_eq(write(fd, "abc", 3), 3);
	lseek(fd, 0, SEEK_SET);
	cr_assert_eq(event_loop_init(&loop, NULL), GP_OK);
	/* Three bytes and the end of the file. */
	struct seen seen = {&loop, 0, 4, true};
	cr_assert_eq(event_loop_add(&loop, &(struct event_watch){fd, &seen, count_and_read}, NULL),
		     GP_OK);
	cr_assert_eq(event_loop_run(&loop, NULL), GP_OK);
	cr_assert_eq(seen.calls, 4);
	event_loop_deinit(&loop);
	close(fd);
}

struct pausing {
	struct event_loop *loop;
	int paused_fd;
	unsigned calls;
	unsigned ticks;
};

static bool pause_itself(void *context, int fd)
{
	struct pausing *pausing = context;

	pausing->calls++;
	if (pausing->calls == 2)
		event_loop_stop(pausing->loop);
	event_loop_pause(pausing->loop, fd);
	return true;
}

static bool resume_later(void *context, int fd)
{
	struct pausing *pausing = context;
	uint64_t value;

	cr_assert_eq(read(fd, &value, sizeof(value)), sizeof(value));
	cr_assert_eq(pausing->calls, 1, "called while paused");
	if (++pausing->ticks == 3)
		event_loop_resume(pausing->loop, pausing->paused_fd);
	else
		cr_assert_eq(write(fd, &value, sizeof(value)), sizeof(value));
	return true;
}

Test(event_loop, a_paused_watch_is_silent_even_when_hung_up, .timeout = 10)
{
	struct event_loop loop;
	int pipes[2], tick = eventfd(0, 0);
	uint64_t one = 1;

	cr_assert_eq(event_loop_init(&loop, NULL), GP_OK);
	cr_assert_eq(pipe(pipes), 0);
	struct pausing pausing = {&loop, pipes[0], 0, 0};
	/* The paused descriptor first: epoll reports in the order of readiness. */
	cr_assert_eq(event_loop_add(&loop, &(struct event_watch){pipes[0], &pausing, pause_itself},
				    NULL),
		     GP_OK);
	cr_assert_eq(
		event_loop_add(&loop, &(struct event_watch){tick, &pausing, resume_later}, NULL),
		GP_OK);
	cr_assert_eq(write(pipes[1], "a", 1), 1);
	cr_assert_eq(write(tick, &one, sizeof(one)), sizeof(one));
	cr_assert_eq(event_loop_run(&loop, NULL), GP_OK);
	cr_assert_eq(pausing.calls, 2);
	cr_assert_eq(pausing.ticks, 3);
	event_loop_deinit(&loop);
	close(pipes[0]);
	close(pipes[1]);
	close(tick);
}

Test(event_loop, says_when_it_is_full)
{
	struct event_loop loop;
	struct error error;
	int fds[EVENT_LOOP_WATCHES_MAX + 1];

	cr_assert_eq(event_loop_init(&loop, NULL), GP_OK);
	for (unsigned i = 0; i < EVENT_LOOP_WATCHES_MAX; i++) {
		fds[i] = eventfd(0, 0);
		cr_assert_eq(event_loop_add(&loop, &(struct event_watch){.fd = fds[i]}, &error),
			     GP_OK);
	}
	fds[EVENT_LOOP_WATCHES_MAX] = eventfd(0, 0);
	cr_assert_eq(event_loop_add(&loop, &(struct event_watch){.fd = fds[EVENT_LOOP_WATCHES_MAX]},
				    &error),
		     GP_ERR_NO_RESOURCES);
	event_loop_deinit(&loop);
	for (unsigned i = 0; i <= EVENT_LOOP_WATCHES_MAX; i++)
		close(fds[i]);
}
