/* The latest part of a trace that is still being written: fed with the file's bytes as they come,
 * it keeps the samples of the last seconds and what is needed to understand them, in memory that
 * does not grow.
 *
 *     live_create(NULL, &live, &error);
 *     live_feed(live, bytes, size, &error);          as often as there are new bytes
 *     live_snapshot(live, &snapshot, &error);        a short trace of its own: live_view.h reads it
 *     live_snapshot_deinit(&snapshot); live_destroy(live);
 *
 * What it keeps is itself a trace: the beginning of the file, the names, and the last samples, in
 * the order of the file. So whatever reads a trace reads this too, and names that come seconds
 * after the samples they are for are found, as in a finished file. When the memory is full, or the
 * window has passed twice, old samples go, and of the names those that are told again later; then,
 * if there are still too many, those of processes without samples in the window, the oldest first.
 *
 * The bytes are untrusted. One thread at a time.
 */
#ifndef TRACE_LIVE_H
#define TRACE_LIVE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_WINDOW_NS UINT64_C(5000000000)
#define LIVE_BYTES ((size_t)16 << 20)
#define LIVE_BYTES_MIN ((size_t)2 << 20)

struct live_config {
	uint64_t window_ns; /* samples older than the newest by more go */
	size_t bytes;       /* memory, at least LIVE_BYTES_MIN; a quarter of it is for samples */
};

/* Since the beginning of the file. */
struct live_counts {
	uint64_t bytes;
	uint64_t stacks;
	uint64_t partials;
	uint64_t dropped;
	uint64_t first_ns; /* of the samples */
	uint64_t newest_ns;
	bool ended; /* session_end was there */
};

struct live;

/* `config` NULL: LIVE_WINDOW_NS and LIVE_BYTES. GP_ERR_INVALID_ARGS, GP_ERR_NO_MEMORY. */
gp_status_t live_create(const struct live_config *config, struct live **out, struct error *error);
void live_destroy(struct live *live);

/* The file's next bytes, cut anywhere. GP_ERR_IO_DATA_INTEGRITY: this is no trace, or damaged from
 * here on (the error says where); GP_ERR_NO_MEMORY. After an error what came before can still be
 * looked at; feeding again gives the same error. */
gp_status_t live_feed(struct live *live, const void *bytes, size_t size, struct error *error);

/* What is kept now, copied. */
struct live_snapshot {
	void *bytes; /* whole records */
	size_t size;
	size_t capacity;
	uint64_t window_ns;
	struct live_counts counts;
};

/* Into `snapshot`, which is all zero or has been used here before; its memory is used again.
 * GP_ERR_NO_MEMORY: it is untouched. */
gp_status_t live_snapshot(const struct live *live, struct live_snapshot *snapshot,
			  struct error *error);
void live_snapshot_deinit(struct live_snapshot *snapshot);

#endif
