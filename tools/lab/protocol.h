/* What the two ends of the lab say to each other.
 *
 * Four virtio-serial ports join them. Three carry the command's streams (pump.h); the control port
 * carries frames, so that a command which does not read its input cannot keep a signal from it, and
 * an end of file is something that was said and not something that was guessed from a closed port.
 *
 *	 0        4        8            8 + length
 *	+--------+--------+------------+
 *	| kind   | length | payload    |   little-endian; both ends are x86-64
 *	+--------+--------+------------+
 *
 * Not safe for several threads.
 */
#ifndef TOOLS_LAB_PROTOCOL_H
#define TOOLS_LAB_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The streams' ports are LAB_PORT_STREAM + 0, 1 and 2, for stdin, stdout and stderr. */
#define LAB_PORT_CONTROL 1
#define LAB_PORT_STREAM 2
#define LAB_STREAMS 3

/* Tags of the 9p shares. */
#define LAB_SHARE_ROOT "hostroot"
#define LAB_SHARE_DIRECTORY "hostdirectory"

/* The console line with which L1 says why it cannot go on. */
#define LAB_FAILURE_MARK "guestprof-lab failed: "

#define LAB_FRAME_MAX (4u << 20)

enum lab_frame_kind {
	/* to L1 */
	LAB_REQUEST = 1, /* struct lab_request and its strings */
	LAB_SIGNAL,      /* uint32_t: a signal for the command */
	LAB_WINDOW,      /* struct lab_window */
	LAB_INPUT_END,   /* uint64_t: the bytes of the input, all of which have been sent */
	LAB_CLOSE,       /* uint32_t: 1 or 2: that stream has no reader any more */
	/* from L1 */
	LAB_STARTED,      /* the command runs */
	LAB_INPUT_CLOSED, /* the command closed its input */
	LAB_EXITED,       /* struct lab_exit; comes last */
	LAB_FAILED,       /* text: why the lab cannot run the command */
};

struct lab_exit {
	uint32_t code, zero;
	uint64_t bytes[2]; /* of stdout and stderr */
};

struct lab_window {
	uint16_t rows, columns;
};

/* Followed by NUL-terminated strings: the directory, the arguments, the environment. */
struct lab_request {
	uint32_t argument_count, environment_count;
	uint8_t terminal;        /* a pty is the command's terminal */
	uint8_t terminal_errors; /* its stderr too */
	uint8_t writable;        /* mount LAB_SHARE_DIRECTORY on the directory */
	uint8_t zero;
	struct lab_window window;
};
_Static_assert(sizeof(struct lab_request) == 16 && sizeof(struct lab_exit) == 24,
	       "both ends agree on the layout");

struct lab_frame {
	uint32_t kind, length;
	/* In the reader's buffer, valid until the next lab_reader_fill(). */
	const uint8_t *payload;
};

/* Zero-initialise, then set fd. Release with lab_reader_deinit(). */
struct lab_reader {
	int fd;
	uint8_t *buffer;
	size_t start, used, capacity;
	bool ended; /* the other end is gone, or talks nonsense */
};

/* Reads what is there without blocking. False when the port has ended. */
bool lab_reader_fill(struct lab_reader *reader);

/* The next whole frame; false when there is none yet. */
bool lab_reader_next(struct lab_reader *reader, struct lab_frame *frame);

void lab_reader_deinit(struct lab_reader *reader);

/* Zero-initialise, then set fd. Release with lab_writer_deinit(). */
struct lab_writer {
	int fd;
	uint8_t *buffer;
	size_t sent, used, capacity;
};

/* Queues a frame. False when there is no memory or it is too long. */
bool lab_writer_put(struct lab_writer *writer, enum lab_frame_kind kind, const void *payload,
		    size_t length);

/* Sends what can be sent without blocking. False when the other end is gone. */
bool lab_writer_flush(struct lab_writer *writer);

/* True while something waits for the port to take more. */
static inline bool lab_writer_pending(const struct lab_writer *writer)
{
	return writer->sent < writer->used;
}

void lab_writer_deinit(struct lab_writer *writer);

#endif
