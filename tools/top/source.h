/* What `guestprof top` shows: a trace that grows, and who writes it.
 *
 * A recording runs as a process of its own, the same as without a display, and writes its trace to
 * a file, or to memory when none is to be kept. While the display waits for a key, the trace is
 * followed (trace/live.h) and what the recording prints is taken. So the display needs nothing of
 * the recorder but its file: it cannot slow the guest down or bring it to an end, the recording
 * stays in its sandbox, and any file that grows can be shown. A trace in memory
 * is given back as it is read.
 *
 * top_source_open() or top_source_record(), then top_source_follow() and top_source_look() in turn,
 * then top_source_close().
 */
#ifndef TOOLS_TOP_SOURCE_H
#define TOOLS_TOP_SOURCE_H

#include "trace/live.h"
#include "base/terminal_lines.h"

#include <stdbool.h>
#include <sys/types.h>

/* Writes a trace: what a subcommand such as `record` does once its options are known. */
struct top_recorder {
	/* In the new process: without input, its output and messages go to the display. Writes a
	 * byte to `ready_fd` when the trace is open and what was in it is gone. Returns its exit
	 * code; SIGTERM ends it properly. */
	int (*run)(void *context, const char *trace, int ready_fd);
	void *context;
	const char *trace; /* the file; NULL: in memory, not kept */
};

struct top_state {
	bool is_recording;    /* a process of ours writes */
	bool has_ended;       /* it has; of a file: it is complete */
	bool was_told_to;     /* end, by top_source_close() */
	int exit_code;        /* of the recording, once it has ended; 128 + signal when killed */
	uint64_t silent_ns;   /* since the trace has last grown */
	struct error problem; /* of the trace */
	struct terminal_lines console;
	struct terminal_lines messages;
};

/* Whether an exit code of record or attach means that it did not work, not that the guest ended
 * some way. */
static inline bool top_is_failure(int exit_code)
{
	return exit_code == 1 || exit_code == 2 || exit_code >= 20;
}

struct top_source;

/* A file: one that is still being written, or that is whole. */
gp_status_t top_source_open(const char *path, uint64_t window_ns, struct top_source **out,
			    struct error *error);

/* Starts a recording and waits until its trace is open. When it ends before that, `state` has its
 * exit code and messages, *out is NULL, and GP_OK is returned. */
gp_status_t top_source_record(const struct top_recorder *recorder, uint64_t window_ns,
			      struct top_state *state, struct top_source **out,
			      struct error *error);

/* Follows until `until_ns` of CLOCK_MONOTONIC, at least once; earlier when `fd` has something to
 * read, or a signal came. Returns what poll() says of `fd`. */
short top_source_follow(struct top_source *source, int fd, uint64_t until_ns);

/* Copies what is known now. */
gp_status_t top_source_look(struct top_source *source, struct live_snapshot *snapshot,
			    struct top_state *state, struct error *error);

/* Ends a recording, within half a minute, and gives its last state. NULL is ignored. */
void top_source_close(struct top_source *source, struct top_state *state);

#endif
