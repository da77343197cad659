#include "profile/profile.h"

#include "base/container.h"

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

static void add_sample(struct trace *trace, const struct profile_options *options,
		       struct frames *frames, struct call_tree *tree, struct profile_totals *totals,
		       const struct fxt_sample *sample, uint64_t ticks)
{
	uint32_t path[CALL_TREE_DEPTH_MAX];
	bool running = sample_is_running(sample);
	size_t depth = 0;

	if (!running && !options->idle)
		return;
	for (; depth < options->owner_count; depth++)
		path[depth] = frames_of_owner(frames, trace, sample, options->owners[depth]);
	if (!running)
		path[depth++] = frames_of_owner(frames, trace, sample, OWNER_MODE);
	for (size_t i = running ? sample->depth : 0; i > 0; i--) {
		path[depth++] = frames_of_address(frames, trace, sample, i - 1);
		/* What is left of the stack must still fit. */
		if (options->inlined)
			depth += frames_of_inlined(frames, trace, sample, i - 1, path + depth,
						   CALL_TREE_DEPTH_MAX - depth - (i - 1));
	}
	if (frames->failed)
		return;
	if (running && frames->entries[path[depth - 1]].is_unnamed)
		totals->unnamed += ticks;
	call_tree_add(tree, path, depth, ticks);
}

gp_status_t profile_read(struct trace *trace, const struct profile_options *options,
			 struct frames *frames, struct call_tree *tree,
			 struct profile_totals *totals, struct error *error)
{
	struct profile_totals counted = {0};
	struct fxt_sample sample;
	uint64_t ticks;

	if (options->owner_count > ARRAY_SIZE(options->owners))
		return error_set(error, GP_ERR_INVALID_ARGS, "more owners of samples than 4");
	tree->leading = options->owner_count;
	trace_rewind(trace);
	while (trace_next_sample(trace, &sample, &ticks)) {
		bool taken =
			!options->filter || filter_takes(options->filter, trace, frames, &sample);

		profile_count(&counted, &sample, ticks, taken);
		if (taken)
			add_sample(trace, options, frames, tree, &counted, &sample, ticks);
	}
	if (!trace->reading || frames->failed)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the names of functions");
	if (call_tree_finish(tree, error))
		return GP_ERR_NO_MEMORY;
	if (totals)
		*totals = counted;
	return GP_OK;
}
