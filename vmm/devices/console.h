/* The host's side of the guest's serial console: terminal, file or pipe.
 *
 * Output: console_write() (any thread, never blocks) puts bytes in a bounded buffer, which
 * the event loop's thread writes out at most CONSOLE_FLUSH_MILLISECONDS later, so that a
 * vCPU pays no system call per byte and never waits for a stalled reader. When the reader
 * is so slow that the buffer fills, bytes are dropped, counted, and a line in the output
 * says how many. To a file or pipe bytes go as they are; to a terminal the guest's control
 * bytes are made visible, except for \n \r \t \b BEL and the escape sequences for colour,
 * cursor movement and erasing.
 *
 * Input: from a terminal in the foreground, set to raw mode (Ctrl-C goes to the guest) with
 * Ctrl-A as escape: x quits (GUEST_USER_QUIT), a sends Ctrl-A, h lists these. From a file
 * or pipe bytes go as they are; at its end the guest simply gets no more. The guest reads
 * at its own pace: what does not fit waits in the source.
 */
#ifndef VMM_DEVICES_CONSOLE_H
#define VMM_DEVICES_CONSOLE_H

#include "base/error.h"
#include "vmm/devices/event_loop.h"
#include "kvm/guest_end.h"
#include "vmm/devices/serial.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONSOLE_BUFFER_SIZE (256 * 1024)
#define CONSOLE_FLUSH_MILLISECONDS 10
#define CONSOLE_LINE_MAX 1024
#define CONSOLE_UNTIL_MAX 1024

struct console_config {
	int input_fd;  /* -1: none */
	int output_fd; /* -1: output is looked at (until, line) and goes nowhere */
	/* Optional. These bytes in the guest's output, also across writes, give
	 * GUEST_TEXT_SEEN. 1..CONSOLE_UNTIL_MAX bytes. */
	const void *until;
	size_t until_size;
	struct guest_end_event *end;
	/* Optional. A line of output is complete, or the machine has ended in it. `text` is without
	 * its line end, cut at CONSOLE_LINE_MAX, the guest's bytes as they are; `boot_ns` is the
	 * host's CLOCK_BOOTTIME of its first byte. On a vCPU's thread with locks held: be short;
	 * the last, unfinished one from console_finish(). */
	void (*line)(void *context, uint64_t boot_ns, const char *text, size_t size);
	void *line_context;
	/* Optional. What Ctrl-A s shows: one line without its end, into `text`; returns its length.
	 * On the loop's thread. */
	size_t (*status)(void *context, char *text, size_t size);
	void *status_context;
};

struct console;

/* Sets a terminal to raw mode. The descriptors stay the caller's. */
gp_status_t console_create(const struct console_config *config, struct console **out,
			   struct error *error);
/* As console_finish(), then frees. NULL is ignored. */
void console_destroy(struct console *console);

/* Before the machine runs: adds the console's descriptors to `loop` and makes it the feeder of
 * `serial` (which must have been initialised with console_output()). */
gp_status_t console_connect(struct console *console, struct serial *serial, struct event_loop *loop,
			    struct error *error);

/* For serial_init(). */
struct serial_output console_output(struct console *console);

/* Any thread; does not block. */
void console_write(struct console *console, const uint8_t *bytes, size_t size);

/* The machine has ended: writes out what is buffered (gives up when the reader takes nothing
 * for a second) and restores the terminal. Not while the loop runs. */
void console_finish(struct console *console);

/* Bytes of output lost because of a slow reader. Any thread. */
uint64_t console_dropped_bytes(const struct console *console);

/* Restores the terminal's mode if a console changed it. Async-signal-safe; any thread; more than
 * once. For exit and signal handlers. */
void console_restore(void);

#endif
