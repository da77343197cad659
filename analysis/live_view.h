/* What a live display shows of a snapshot (trace/live.h): functions, threads, vCPUs and rates
 * over the window, and the callers or callees of one function.
 *
 * A view is made anew for each picture, with the names known then, so that a sample taken before
 * its names were found is named as soon as they are. Its time and memory are bounded by the
 * snapshot's size. Names are the guest's, untrusted. One thread at a time.
 */
#ifndef ANALYSIS_LIVE_VIEW_H
#define ANALYSIS_LIVE_VIEW_H

#include "trace/live.h"
#include "analysis/profile.h"

struct live_thread {
	uint32_t process; /* frames */
	uint32_t thread;
	uint64_t ticks; /* in which it ran */
};

struct live_vcpu {
	uint64_t vcpu;
	uint64_t ticks;
	uint64_t modes[FRAMES_MODES];
};

/* For all vCPUs; the filter does not count. */
struct live_rates {
	double seconds; /* that the window really spans */
	uint64_t ticks; /* in it: of stacks and partial samples */
	uint64_t dropped;
	double ticks_per_second;
	double dropped_per_second;
};

struct live_view {
	struct trace *trace; /* over the snapshot's bytes */
	struct frames frames;
	struct call_tree tree; /* of the samples that the filter takes, finished */
	struct table functions;
	struct live_thread *threads; /* the busiest first */
	size_t thread_count;
	struct live_vcpu *vcpus; /* by number */
	size_t vcpu_count;
	struct live_vcpu all; /* their sum */
	struct live_rates rates;
	struct profile_totals totals; /* of the filter */
};

/* The snapshot must stay as it is until live_view_deinit(). `filter` NULL: everything; its times
 * are not looked at. An empty snapshot gives an empty view. GP_ERR_NO_MEMORY, or what
 * trace_open_bytes() says. */
gp_status_t live_view_init(struct live_view *view, const struct live_snapshot *snapshot,
			   struct filter *filter, struct error *error);
void live_view_deinit(struct live_view *view);

enum live_direction {
	LIVE_CALLERS, /* who called it, the direct caller first */
	LIVE_CALLEES, /* what it called */
};

/* All samples with that function, as a tree whose first node below the root is the function.
 * A function that is on a stack more than once counts once: its callers are those of the innermost,
 * its callees those of the outermost call. Finished and sorted, to be deinited by the caller. */
gp_status_t live_view_function(const struct live_view *view, uint32_t frame,
			       enum live_direction direction, struct call_tree *tree,
			       struct error *error);

#endif
