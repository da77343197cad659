#include "vmm/devices/console.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/io.h"
#include "vmm/devices/terminal_filter.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

/* Bytes taken from the buffer at a time. */
#define CHUNK_SIZE 1024
/* A pipe that poll(2) calls writable takes this much without blocking (PIPE_BUF), a
 * terminal at least this. */
#define WRITE_MAX_PIPE 4096
#define WRITE_MAX_TERMINAL 256
/* How often the loop's thread writes before it looks after other devices. */
#define WRITES_PER_FLUSH 64
#define INPUT_SIZE 256
#define NOTE_MAX 160
#define STATUS_MAX 200
#define FINISH_MILLISECONDS 1000
#define ESCAPE_KEY 0x01 /* Ctrl-A */

static const char help_text[] =
	"\r\n[guestprof: Ctrl-A x quits, Ctrl-A s shows how far it is, Ctrl-A a sends Ctrl-A]\r\n";

struct console {
	struct console_config config;
	bool output_is_terminal;
	bool input_is_terminal;
	int flush_fd; /* timerfd: output waits */
	int room_fd;  /* eventfd: the guest took input */

	pthread_mutex_t lock;
	/* Ring of output: `used` bytes from `first` on. */
	uint8_t *buffer;
	size_t first;
	size_t used;
	bool flush_armed;
	/* Once a byte was dropped everything is until the buffer was written out: there is
	 * one gap at a time, and it is at the buffer's end. */
	uint64_t gap;
	_Atomic uint64_t dropped;
	/* --until, by Knuth, Morris and Pratt: `border[n]` is the length of the longest proper
	 * prefix of the text that ends its first n + 1 bytes. */
	uint8_t *until;
	uint16_t *border;
	size_t until_matched;
	bool until_seen;
	char line[CONSOLE_LINE_MAX];
	size_t line_size;
	uint64_t line_ns;
	bool line_begun;

	/* The loop's thread, then console_finish(). */
	struct terminal_filter filter;
	uint8_t out[TERMINAL_FILTER_OUTPUT(CHUNK_SIZE) + NOTE_MAX];
	size_t out_first;
	size_t out_size;
	bool output_failed;

	struct serial *serial;
	struct event_loop *loop;
	uint8_t input[INPUT_SIZE];
	size_t input_first;
	size_t input_size;
	bool escape_pending;
};

/* What console_restore() puts back; one terminal per process. */
static struct termios saved_mode;
static atomic_int saved_fd = -1;

void console_restore(void)
{
	int saved_errno = errno;
	int fd = atomic_exchange(&saved_fd, -1);

	if (fd >= 0)
		tcsetattr(fd, TCSANOW, &saved_mode);
	errno = saved_errno;
}

/* All keys go to the guest, Ctrl-C too. Output processing stays on: messages of our own end
 * in \n. */
static gp_status_t set_raw_mode(int fd, struct error *error)
{
	struct termios mode;

	if (tcgetattr(fd, &mode))
		return error_set_errno(error, errno, "cannot read the terminal's mode");
	if (atomic_load(&saved_fd) < 0)
		saved_mode = mode;
	cfmakeraw(&mode);
	mode.c_oflag |= OPOST;
	atomic_store(&saved_fd, fd);
	if (tcsetattr(fd, TCSANOW, &mode)) {
		atomic_store(&saved_fd, -1);
		return error_set_errno(error, errno, "cannot set the terminal to raw mode");
	}
	return GP_OK;
}

static gp_status_t prepare_until(struct console *console, struct error *error)
{
	size_t size = console->config.until_size;
	size_t length = 0;

	if (size == 0)
		return GP_OK;
	if (size > CONSOLE_UNTIL_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the text to wait for has %zu bytes; at most %d", size,
				 CONSOLE_UNTIL_MAX);
	console->until = malloc(size);
	console->border = malloc(size * sizeof(*console->border));
	if (!console->until || !console->border)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the console");
	memcpy(console->until, console->config.until, size);
	console->border[0] = 0;
	for (size_t i = 1; i < size; i++) {
		while (length > 0 && console->until[i] != console->until[length])
			length = console->border[length - 1];
		if (console->until[i] == console->until[length])
			length++;
		console->border[i] = (uint16_t)length;
	}
	return GP_OK;
}

static gp_status_t console_prepare(struct console *console, struct error *error)
{
	int input = console->config.input_fd;
	gp_status_t status = prepare_until(console, error);

	if (status)
		return status;
	console->buffer = malloc(CONSOLE_BUFFER_SIZE);
	if (!console->buffer)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the console");
	console->flush_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	console->room_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (console->flush_fd < 0 || console->room_fd < 0)
		return error_set_errno(error, errno, "cannot set up the console");
	console->output_is_terminal =
		console->config.output_fd >= 0 && isatty(console->config.output_fd);
	if (input < 0 || !isatty(input))
		return GP_OK;
	/* In the background a read or a change of mode would stop this process. */
	if (tcgetpgrp(input) != getpgrp()) {
		console->config.input_fd = -1;
		return GP_OK;
	}
	console->input_is_terminal = true;
	return set_raw_mode(input, error);
}

gp_status_t console_create(const struct console_config *config, struct console **out,
			   struct error *error)
{
	struct console *console = calloc(1, sizeof(*console));
	gp_status_t status;

	if (!console)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the console");
	console->config = *config;
	console->flush_fd = console->room_fd = -1;
	pthread_mutex_init(&console->lock, NULL);
	status = console_prepare(console, error);
	if (status)
		console_destroy(console);
	else
		*out = console;
	return status;
}

void console_destroy(struct console *console)
{
	if (!console)
		return;
	console_finish(console);
	close_fd(&console->flush_fd);
	close_fd(&console->room_fd);
	free(console->buffer);
	free(console->until);
	free(console->border);
	pthread_mutex_destroy(&console->lock);
	free(console);
}

/* ---- output, the guest's side ---- */

static void match_until(struct console *console, uint8_t byte)
{
	size_t matched = console->until_matched;

	while (matched > 0 && console->until[matched] != byte)
		matched = console->border[matched - 1];
	if (console->until[matched] == byte)
		matched++;
	if (matched == console->config.until_size) {
		console->until_seen = true;
		guest_end_request(console->config.end, GUEST_TEXT_SEEN);
	}
	console->until_matched = matched;
}

static void tell_line(struct console *console)
{
	size_t size = console->line_size;

	if (size > 0 && console->line[size - 1] == '\r')
		size--;
	console->config.line(console->config.line_context, console->line_ns, console->line, size);
	console->line_size = 0;
	console->line_begun = false;
}

static void collect_line(struct console *console, uint8_t byte)
{
	if (!console->line_begun) {
		console->line_ns = boot_ns();
		console->line_begun = true;
	}
	if (byte == '\n') {
		tell_line(console);
		return;
	}
	if (console->line_size < sizeof(console->line))
		console->line[console->line_size++] = (char)byte;
}

static void arm_flush(struct console *console, long nanoseconds)
{
	struct itimerspec when = {.it_value.tv_nsec = nanoseconds};

	timerfd_settime(console->flush_fd, 0, &when, NULL);
	console->flush_armed = true;
}

static void append(struct console *console, const uint8_t *bytes, size_t size)
{
	if (console->config.output_fd < 0)
		return;
	for (size_t i = 0; i < size; i++) {
		if (console->gap > 0 || console->used == CONSOLE_BUFFER_SIZE) {
			console->gap += size - i;
			atomic_fetch_add(&console->dropped, size - i);
			break;
		}
		console->buffer[(console->first + console->used++) % CONSOLE_BUFFER_SIZE] =
			bytes[i];
	}
	if (!console->flush_armed)
		arm_flush(console, CONSOLE_FLUSH_MILLISECONDS * 1000000L);
}

void console_write(struct console *console, const uint8_t *bytes, size_t size)
{
	pthread_mutex_lock(&console->lock);
	for (size_t i = 0; i < size; i++) {
		if (console->until && !console->until_seen)
			match_until(console, bytes[i]);
		if (console->config.line)
			collect_line(console, bytes[i]);
	}
	append(console, bytes, size);
	pthread_mutex_unlock(&console->lock);
}

static void write_from_serial(void *context, const uint8_t *bytes, size_t size)
{
	console_write(context, bytes, size);
}

struct serial_output console_output(struct console *console)
{
	return (struct serial_output){write_from_serial, console};
}

uint64_t console_dropped_bytes(const struct console *console)
{
	return atomic_load(&console->dropped);
}

/* ---- output, the host's side ---- */

/* Fills `out` from the buffer; false when there is nothing to write. */
static bool take_chunk(struct console *console)
{
	uint8_t chunk[CHUNK_SIZE];
	size_t size = 0;
	uint64_t gap = 0;

	pthread_mutex_lock(&console->lock);
	while (size < sizeof(chunk) && console->used > 0) {
		chunk[size++] = console->buffer[console->first];
		console->first = (console->first + 1) % CONSOLE_BUFFER_SIZE;
		console->used--;
	}
	if (console->used == 0) {
		console->first = 0; /* touches less memory */
		gap = console->gap;
		console->gap = 0;
	}
	if (size == 0 && gap == 0)
		console->flush_armed = false;
	pthread_mutex_unlock(&console->lock);

	console->out_first = 0;
	if (console->output_is_terminal) {
		console->out_size = terminal_filter(&console->filter, chunk, size, console->out);
	} else {
		memcpy(console->out, chunk, size);
		console->out_size = size;
	}
	if (gap > 0)
		console->out_size += (size_t)snprintf(
			(char *)console->out + console->out_size, NOTE_MAX,
			"\r\n[guestprof: %" PRIu64 " bytes of console output are missing here: "
			"their reader was too slow]\r\n",
			gap);
	return size > 0 || gap > 0;
}

enum write_result { WRITE_ALL, WRITE_MORE, WRITE_BLOCKED };

/* One write at most, and none that would block: waits up to `milliseconds` for room. */
static enum write_result write_some(struct console *console, int milliseconds)
{
	struct pollfd poll_fd = {.fd = console->config.output_fd, .events = POLLOUT};
	size_t most = console->output_is_terminal ? WRITE_MAX_TERMINAL : WRITE_MAX_PIPE;
	size_t size;
	ssize_t written;
	int ready;

	if (console->out_size == 0 && !take_chunk(console))
		return WRITE_ALL;
	if (console->output_failed) {
		atomic_fetch_add(&console->dropped, console->out_size);
		console->out_size = 0;
		return WRITE_MORE;
	}
	if (console->out_size == 0)
		return WRITE_MORE; /* the filter holds all of it back */
	ready = poll(&poll_fd, 1, milliseconds);
	if (ready <= 0)
		return ready < 0 && errno == EINTR ? WRITE_MORE : WRITE_BLOCKED;
	size = console->out_size < most ? console->out_size : most;
	written = write(console->config.output_fd, console->out + console->out_first, size);
	if (written < 0 && errno == EINTR)
		return WRITE_MORE;
	if (written < 0 && errno == EAGAIN)
		return WRITE_BLOCKED;
	if (written < 0) {
		/* Nobody reads any more, or the disk is full: the machine goes on. */
		console->output_failed = true;
		return WRITE_MORE;
	}
	console->out_first += (size_t)written;
	console->out_size -= (size_t)written;
	return WRITE_MORE;
}

static bool flush_is_due(void *context, int fd)
{
	struct console *console = context;
	enum write_result result = WRITE_MORE;
	uint64_t expirations;

	if (read(fd, &expirations, sizeof(expirations)) != sizeof(expirations))
		return true;
	for (unsigned i = 0; i < WRITES_PER_FLUSH && result == WRITE_MORE; i++)
		result = write_some(console, 0);
	if (result != WRITE_ALL) {
		pthread_mutex_lock(&console->lock);
		arm_flush(console,
			  result == WRITE_BLOCKED ? CONSOLE_FLUSH_MILLISECONDS * 1000000L : 1);
		pthread_mutex_unlock(&console->lock);
	}
	return true;
}

void console_finish(struct console *console)
{
	enum write_result result = WRITE_MORE;

	/* A prompt has no line end. */
	if (console->line_size > 0)
		tell_line(console);
	/* Ends: nothing is added any more, and every round takes or gives up. */
	while (console->buffer && console->config.output_fd >= 0 && result == WRITE_MORE)
		result = write_some(console, FINISH_MILLISECONDS);
	if (result == WRITE_ALL && console->filter.passed_attributes) {
		static const char plain[] = "\033[0m";
		ssize_t written = write(console->config.output_fd, plain, sizeof(plain) - 1);

		(void)written;
		console->filter.passed_attributes = false;
	}
	if (console->input_is_terminal)
		console_restore();
}

/* ---- input ---- */

static void show(struct console *console, const char *text, size_t size)
{
	pthread_mutex_lock(&console->lock);
	append(console, (const uint8_t *)text, size);
	pthread_mutex_unlock(&console->lock);
}

/* To a terminal only: in a file that keeps the guest's output it would be out of place. */
static void show_status(struct console *console)
{
	char status[STATUS_MAX], text[STATUS_MAX + 20];
	size_t size;

	if (!console->config.status || !console->output_is_terminal)
		return;
	size = console->config.status(console->config.status_context, status, sizeof(status));
	size = (size_t)snprintf(text, sizeof(text), "\r\n[guestprof: %.*s]\r\n", (int)size, status);
	show(console, text, size);
}

/* Applies one key to the escape; true when `*key` is (now) what the guest gets. */
static bool key_is_for_guest(struct console *console, uint8_t *key)
{
	if (!console->escape_pending) {
		console->escape_pending = *key == ESCAPE_KEY;
		return !console->escape_pending;
	}
	console->escape_pending = false;
	switch (*key) {
	case 'x':
	case 'X':
		guest_end_request(console->config.end, GUEST_USER_QUIT);
		return false;
	case 'h':
	case '?':
		show(console, help_text, sizeof(help_text) - 1);
		return false;
	case 's':
	case 'S':
		show_status(console);
		return false;
	case 'a':
	case ESCAPE_KEY:
		*key = ESCAPE_KEY;
		return true;
	default:
		return false;
	}
}

static void give_input(struct console *console)
{
	size_t taken = serial_receive(console->serial, console->input + console->input_first,
				      console->input_size);

	console->input_first += taken;
	console->input_size -= taken;
}

static bool input_is_readable(void *context, int fd)
{
	struct console *console = context;
	ssize_t size;

	if (console->input_size > 0) {
		event_loop_pause(console->loop, fd);
		return true;
	}
	size = read(fd, console->input, sizeof(console->input));
	if (size < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (size <= 0)
		return false;
	console->input_first = 0;
	for (ssize_t i = 0; i < size; i++) {
		uint8_t key = console->input[i];

		if (!console->input_is_terminal || key_is_for_guest(console, &key))
			console->input[console->input_size++] = key;
	}
	give_input(console);
	if (console->input_size > 0)
		event_loop_pause(console->loop, fd);
	return true;
}

static bool room_is_there(void *context, int fd)
{
	struct console *console = context;
	uint64_t count;

	if (read(fd, &count, sizeof(count)) != sizeof(count))
		return true;
	give_input(console);
	if (console->input_size == 0)
		event_loop_resume(console->loop, console->config.input_fd);
	return true;
}

static void signal_room(void *context)
{
	const struct console *console = context;

	io_signal(console->room_fd);
}

gp_status_t console_connect(struct console *console, struct serial *serial, struct event_loop *loop,
			    struct error *error)
{
	const struct event_watch watches[] = {
		{console->flush_fd, console, flush_is_due},
		{console->room_fd, console, room_is_there},
		{console->config.input_fd, console, input_is_readable},
	};

	console->serial = serial;
	console->loop = loop;
	serial_set_input(serial, &(struct serial_input){signal_room, console});
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++) {
		gp_status_t status =
			watches[i].fd < 0 ? GP_OK : event_loop_add(loop, &watches[i], error);

		if (status)
			return status;
	}
	return GP_OK;
}
