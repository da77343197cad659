#include "base/progress.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE_NS NS_PER_SECOND
#define REDRAW_NS (200 * NS_PER_MILLISECOND)
#define TEXT_MAX 128

/* Some work cannot report how far it is: sorting, compressing, writing. When there has been no
 * report for a second, a thread shows for how long. */
static struct {
	pthread_mutex_t lock; /* for all that follows */
	const char *program;
	bool shown; /* standard error is a terminal */
	bool drawn;
	uint64_t next_ns;
	uint64_t told_ns;    /* time of the last report */
	bool ended;          /* all of it was done then */
	char text[TEXT_MAX]; /* without the program's name */
	bool has_thread;
	pthread_t thread;
	int wake_fd; /* readable: the thread is to end */
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1};

static void draw(const char *text, size_t size)
{
	struct winsize window;
	size_t width = 79;

	if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &window) && window.ws_col > 1)
		width = window.ws_col - 1u; /* the last column may wrap */
	line.drawn = true;
	fprintf(stderr, "\r\033[K%.*s", (int)(size < width ? size : width), text);
}

static size_t cut(int size, size_t capacity)
{
	return (size_t)size < capacity ? (size_t)size : capacity - 1;
}

/* What is shown while there is no report. */
static void draw_silence(uint64_t now)
{
	unsigned long long seconds = (now - line.told_ns) / PATIENCE_NS;
	char text[2 * TEXT_MAX];
	int size;

	if (line.ended || !*line.text)
		size = snprintf(text, sizeof(text), "%s: %s: %llu s", line.program,
				line.ended ? "sorting and writing" : "working", seconds);
	else
		size = snprintf(text, sizeof(text), "%s: %s (for %llu s)", line.program, line.text,
				seconds);
	draw(text, cut(size, sizeof(text)));
}

static void *watch(void *context)
{
	struct pollfd waiting = {.fd = line.wake_fd, .events = POLLIN};

	(void)context;
	while (!poll(&waiting, 1, REDRAW_NS / NS_PER_MILLISECOND)) {
		uint64_t now = monotonic_ns();

		pthread_mutex_lock(&line.lock);
		if (line.shown && now - line.told_ns >= PATIENCE_NS && now >= line.next_ns) {
			line.next_ns = now + REDRAW_NS;
			draw_silence(now);
		}
		pthread_mutex_unlock(&line.lock);
	}
	return NULL;
}

/* Signals are for the main thread. Without a thread there is a little less to see. */
static void start_thread(void)
{
	sigset_t all, before;

	line.wake_fd = eventfd(0, EFD_CLOEXEC);
	if (line.wake_fd < 0)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	line.has_thread = !pthread_create(&line.thread, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void end_thread(void)
{
	if (line.has_thread && !eventfd_write(line.wake_fd, 1)) {
		pthread_join(line.thread, NULL);
		line.has_thread = false;
	}
	if (line.wake_fd >= 0)
		close(line.wake_fd);
	line.wake_fd = -1;
}

void progress_begin(const char *program)
{
	progress_end();
	line.program = program;
	line.shown = isatty(STDERR_FILENO);
	line.told_ns = monotonic_ns();
	line.next_ns = line.told_ns + PATIENCE_NS;
	line.ended = false;
	line.text[0] = 0;
	if (line.shown)
		start_thread();
}

void progress_draw(const char *text, size_t size)
{
	pthread_mutex_lock(&line.lock);
	draw(text, size);
	pthread_mutex_unlock(&line.lock);
}

static void tell(const char *what, uint64_t done, uint64_t all)
{
	uint64_t now = monotonic_ns();
	char text[2 * TEXT_MAX];
	int size;

	if (all)
		snprintf(line.text, sizeof(line.text), "%s: %u %%", what,
			 (unsigned)(100 * ((double)(done < all ? done : all) / (double)all)));
	else if (done)
		snprintf(line.text, sizeof(line.text), "%s: %llu", what, (unsigned long long)done);
	else
		snprintf(line.text, sizeof(line.text), "%s", what);
	line.told_ns = now;
	line.ended = all && done >= all;
	if (now < line.next_ns)
		return;
	line.next_ns = now + REDRAW_NS;
	size = snprintf(text, sizeof(text), "%s: %s", line.program, line.text);
	draw(text, cut(size, sizeof(text)));
}

void progress_tell(const char *what, uint64_t done, uint64_t all)
{
	pthread_mutex_lock(&line.lock);
	if (line.shown)
		tell(what, done, all);
	pthread_mutex_unlock(&line.lock);
}

void progress_end(void)
{
	end_thread();
	if (line.drawn)
		fputs("\r\033[K", stderr);
	line.drawn = line.shown = false;
}

bool progress_has_place(int console, int errors)
{
	struct stat shown, other;

	if (!isatty(errors) || fstat(errors, &shown) || fstat(console, &other))
		return false;
	if (isatty(console))
		return shown.st_rdev != other.st_rdev;
	return S_ISREG(other.st_mode) || S_ISCHR(other.st_mode);
}
