#include "analysis/profile.h"

#include "base/container.h"
#include "analysis/stacks.h"

#include <string.h>

void profile_count(struct profile_totals *totals, const struct fxt_sample *sample, uint64_t ticks,
		   bool taken)
{
	if (!taken) {
		totals->filtered += ticks;
		return;
	}
	totals->samples++;
	totals->ticks += ticks;
	totals->modes[sample->mode < FRAMES_MODES ? sample->mode : 0] += ticks;
	if (!sample_is_running(sample))
		return;
	totals->running += ticks;
	totals->squares += ticks * ticks;
	totals->ends[sample->stack_end < FRAMES_ENDS ? sample->stack_end : 0] += ticks;
}

/* As stacks_add(), with the functions that were inlined, which no address tells. */
static uint32_t add_inlined(struct stacks *stacks, const uint32_t *owners, size_t owner_count,
			    const struct fxt_sample *sample, uint64_t ticks)
{
	uint32_t path[CALL_TREE_DEPTH_MAX];
	size_t depth = owner_count;

	memcpy(path, owners, owner_count * sizeof(*owners));
	depth += frames_of_stack(stacks->frames, stacks->trace, sample, true, path + depth,
				 CALL_TREE_DEPTH_MAX - depth);
	return stacks->frames->failed ? CALL_TREE_ROOT
				      : call_tree_add(stacks->tree, path, depth, ticks);
}

static void profile_add_sample(struct stacks *stacks, const struct profile_options *options,
			       struct profile_totals *totals, const struct fxt_sample *sample,
			       uint64_t ticks)
{
	struct frames *frames = stacks->frames;
	uint32_t path[ARRAY_SIZE(options->owners) + 1];
	bool running = sample_is_running(sample);
	size_t depth = 0;
	uint32_t node;

	if (!running && !options->idle)
		return;
	for (; depth < options->owner_count; depth++)
		path[depth] =
			frames_of_owner(frames, stacks->trace, sample, options->owners[depth]);
	if (!running)
		path[depth++] = frames_of_owner(frames, stacks->trace, sample, OWNER_MODE);
	if (frames->failed)
		return;
	if (!running) {
		call_tree_add(stacks->tree, path, depth, ticks);
		return;
	}
	node = (options->inlined ? add_inlined : stacks_add)(stacks, path, depth, sample, ticks);
	if (node && frames->entries[stacks->tree->nodes[node].frame].is_unnamed)
		totals->unnamed += ticks;
}

gp_status_t profile_read(struct trace *trace, const struct profile_options *options,
			 struct frames *frames, struct call_tree *tree,
			 struct profile_totals *totals, struct error *error)
{
	struct profile_totals counted = {0};
	struct fxt_sample sample;
	struct stacks stacks;
	uint64_t ticks;

	if (options->owner_count > ARRAY_SIZE(options->owners))
		return error_set(error, GP_ERR_INVALID_ARGS, "more owners of samples than 4");
	if (stacks_init(&stacks, trace, frames, tree, error))
		return GP_ERR_NO_MEMORY;
	tree->leading = options->owner_count;
	trace_rewind(trace);
	while (trace_next_sample(trace, &sample, &ticks)) {
		bool taken =
			!options->filter || filter_takes(options->filter, trace, frames, &sample);

		profile_count(&counted, &sample, ticks, taken);
		if (taken)
			profile_add_sample(&stacks, options, &counted, &sample, ticks);
	}
	stacks_deinit(&stacks);
	if (!trace->reading || frames->failed)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the names of functions");
	if (call_tree_finish(tree, error))
		return GP_ERR_NO_MEMORY;
	if (totals)
		*totals = counted;
	return GP_OK;
}
