#include "analysis/profile.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/sorting.h"
#include "analysis/stacks.h"

#include <stdlib.h>
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

/* Flat tables. */

struct sorting {
	struct table_row row;
	const struct frame *frame;
};

static int table_compare_rows(const void *left, const void *right)
{
	const struct sorting *a = left, *b = right;
	int order;

	if (a->row.self != b->row.self)
		return a->row.self < b->row.self ? 1 : -1;
	if (a->row.total != b->row.total)
		return a->row.total < b->row.total ? 1 : -1;
	order = strcmp(a->frame->name, b->frame->name);
	if (order)
		return order;
	return a->row.frame < b->row.frame ? -1 : a->row.frame > b->row.frame;
}

static gp_status_t table_no_memory(struct error *error)
{
	return error_set(error, GP_ERR_NO_MEMORY, "no memory for the table");
}

static gp_status_t table_make(struct sorting *sorting, size_t count, struct table *table,
			      struct error *error)
{
	struct table_row *rows = calloc(count ? count : 1, sizeof(*rows));

	if (!rows)
		return table_no_memory(error);
	if (count)
		qsort(sorting, count, sizeof(*sorting), table_compare_rows);
	for (size_t i = 0; i < count; i++)
		rows[i] = sorting[i].row;
	*table = (struct table){rows, count};
	return GP_OK;
}

gp_status_t table_of_functions(const struct call_tree *tree, const struct frames *frames,
			       struct table *table, struct error *error)
{
	AUTO_FREE struct call_tree_sum *sums =
		calloc(frames->count ? frames->count : 1, sizeof(*sums));
	AUTO_FREE struct sorting *sorting =
		calloc(frames->count ? frames->count : 1, sizeof(*sorting));
	gp_status_t status;
	size_t count = 0;

	if (!sums || !sorting)
		return table_no_memory(error);
	status = call_tree_add_up(tree, sums, frames->count, error);
	if (status)
		return status;
	for (size_t i = 0; i < frames->count; i++)
		if (sums[i].total && frames->entries[i].kind < FRAME_PROCESS)
			sorting[count++] =
				(struct sorting){.row = {(uint32_t)i, sums[i].self, sums[i].total},
						 .frame = &frames->entries[i]};
	return table_make(sorting, count, table, error);
}

gp_status_t table_of_owners(const struct call_tree *tree, const struct frames *frames,
			    struct table *table, struct error *error)
{
	AUTO_FREE struct sorting *sorting = calloc(tree->count, sizeof(*sorting));
	size_t count = 0;

	if (!sorting)
		return table_no_memory(error);
	for (uint32_t node = tree->nodes[CALL_TREE_ROOT].first_child; node;
	     node = tree->nodes[node].next_sibling) {
		const struct call_tree_node *owner = &tree->nodes[node];

		sorting[count++] =
			(struct sorting){.row = {owner->frame, owner->total, owner->total},
					 .frame = &frames->entries[owner->frame]};
	}
	return table_make(sorting, count, table, error);
}

void table_deinit(struct table *table)
{
	free(table->rows);
	*table = (struct table){0};
}
