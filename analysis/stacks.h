/* Samples added to a call tree (analysis/call_tree.h) by their addresses as they lie in the trace.
 * Most stacks come again and again: one whose callers were seen before is found in one look-up, and
 * only its leaf, which is seldom at the same place, is looked up by itself.
 *
 *     stacks_init(&stacks, &trace, &frames, &tree, &error);
 *     while (trace_next_sample(&trace, &sample, &ticks))
 *             stacks_add(&stacks, owners, owner_count, &sample, ticks);
 *     stacks_deinit(&stacks);
 *
 * Memory: fixed. What it remembers points into the trace, which stays open meanwhile. One thread
 * at a time.
 */
#ifndef ANALYSIS_STACKS_H
#define ANALYSIS_STACKS_H

#include "analysis/call_tree.h"

struct stacks {
	const struct trace *trace;
	struct frames *frames;
	struct call_tree *tree;
	struct stacks_known *known;
};

gp_status_t stacks_init(struct stacks *stacks, const struct trace *trace, struct frames *frames,
			struct call_tree *tree, struct error *error);

/* Allowed on a zeroed one, and twice. */
void stacks_deinit(struct stacks *stacks);

/* Adds the ticks of a sample with a stack, below its owners, outermost first. Returns its leaf's
 * node; the root when there is no memory, then frames->failed or tree->failed is set. */
uint32_t stacks_add(struct stacks *stacks, const uint32_t *owners, size_t owner_count,
		    const struct fxt_sample *sample, uint64_t ticks);

#endif
