#include "progress.h"

#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS UINT64_C(1000000000)
#define REDRAW_NS UINT64_C(200000000)

static struct {
	const char *program;
	bool shown; /* somebody looks */
	bool drawn;
	uint64_t next_ns;
} line;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void progress_begin(const char *program)
{
	line.program = program;
	line.drawn = false;
	line.shown = isatty(STDERR_FILENO);
	line.next_ns = now_ns() + PATIENCE_NS;
}

void progress_draw(const char *text, size_t size)
{
	struct winsize window;
	size_t width = 79;

	if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &window) && window.ws_col > 1)
		width = window.ws_col - 1u; /* the last column may wrap */
	line.drawn = true;
	fprintf(stderr, "\r\033[K%.*s", (int)(size < width ? size : width), text);
}

void progress_tell(const char *what, uint64_t done, uint64_t all)
{
	char text[128];
	uint64_t now;
	int size;

	if (!line.shown)
		return;
	now = now_ns();
	if (now < line.next_ns)
		return;
	line.next_ns = now + REDRAW_NS;
	if (all)
		size = snprintf(
			text, sizeof(text), "%s: %s: %u %%", line.program, what,
			(unsigned)(100 * ((double)(done < all ? done : all) / (double)all)));
	else if (done)
		size = snprintf(text, sizeof(text), "%s: %s: %llu", line.program, what,
				(unsigned long long)done);
	else
		size = snprintf(text, sizeof(text), "%s: %s", line.program, what);
	progress_draw(text, (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1);
}

void progress_end(void)
{
	if (line.drawn)
		fputs("\r\033[K", stderr);
	line.drawn = line.shown = false;
}

gp_status_t progress_open_trace(const char *path, struct trace *trace, struct error *error)
{
	return trace_open_watched(path, progress_tell, trace, error);
}
