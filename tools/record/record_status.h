/* How far a recording is, while it runs: a line on standard error, redrawn in place, and the text
 * of Ctrl-A s.
 *
 * The guest's console is often the same terminal, and belongs to the guest: a line drawn there from
 * outside would land in the middle of its text. So the line is shown only where it cannot: see
 * progress_has_place(). Elsewhere Ctrl-A s shows the same when it is asked for, in the
 * console's own stream.
 */
#ifndef TOOLS_RECORD_RECORD_STATUS_H
#define TOOLS_RECORD_RECORD_STATUS_H

#include "recording/recorder.h"

#include <guestprof/sampler.h>

#define RECORD_STATUS_NS UINT64_C(500000000)

/* One for each thread that asks: rates are since the last time. */
struct record_status {
	const gp_sampler_t *session;
	const struct recorder *recorder;
	unsigned vcpus;
	/* Private. */
	uint64_t begin_ns;
	uint64_t last_ns;
	uint64_t last_samples;
	uint64_t last_modes[RECORD_MODES];
};

/* Before the guest runs. `session` NULL: only the time is shown. */
void record_status_init(struct record_status *status, const gp_sampler_t *session,
			const struct recorder *recorder, unsigned vcpus);

/* Writes one line without its end to `text`, cut to `size`; returns its length. No system call but
 * the clock's, no allocation. */
size_t record_status_text(struct record_status *status, char *text, size_t size);

/* Draws it over the one before; progress_end() takes it away. */
void record_status_draw(struct record_status *status);

#endif
