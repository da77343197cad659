#include "analysis/live_view.h"

#include "base/hash_table.h"

#include <stdlib.h>
#include <string.h>

static gp_status_t no_memory(struct error *error)
{
	return error_set(error, GP_ERR_NO_MEMORY, "no memory for a live view");
}

/* Tables that grow while samples are read. */
struct sums {
	struct hash_table threads; /* struct live_thread */
	struct hash_table vcpus;   /* struct live_vcpu */
};

static bool add_vcpu(struct live_view *view, struct sums *sums, const struct fxt_sample *sample,
		     uint64_t ticks)
{
	uint64_t mode = sample->mode < FRAMES_MODES ? sample->mode : 0;
	struct live_vcpu *vcpu;
	uint32_t number;

	if (!hash_table_add(&sums->vcpus, &sample->vcpu, &number))
		return false;
	vcpu = (struct live_vcpu *)sums->vcpus.entries + number;
	vcpu->ticks += ticks;
	vcpu->modes[mode] += ticks;
	view->all.ticks += ticks;
	view->all.modes[mode] += ticks;
	return true;
}

static bool add_running(struct live_view *view, struct sums *sums, const struct fxt_sample *sample,
			uint64_t ticks)
{
	struct live_thread key = {
		.process = frames_of_owner(&view->frames, view->trace, sample, OWNER_PROCESS),
		.thread = frames_of_owner(&view->frames, view->trace, sample, OWNER_THREAD),
	};
	uint32_t path[CALL_TREE_DEPTH_MAX], number;
	size_t depth = 0;

	for (size_t i = sample->depth; i > 0; i--)
		path[depth++] = frames_of_address(&view->frames, view->trace, sample, i - 1);
	if (view->frames.failed || !hash_table_add(&sums->threads, &key, &number))
		return false;
	((struct live_thread *)sums->threads.entries)[number].ticks += ticks;
	if (view->frames.entries[path[depth - 1]].is_unnamed)
		view->totals.unnamed += ticks;
	call_tree_add(&view->tree, path, depth, ticks);
	return true;
}

static bool add_samples(struct live_view *view, struct sums *sums, uint64_t since,
			struct filter *filter)
{
	struct fxt_sample sample;
	uint64_t ticks;

	while (trace_next_sample(view->trace, &sample, &ticks)) {
		bool taken;

		if (sample.timestamp < since || !ticks)
			continue;
		if (!add_vcpu(view, sums, &sample, ticks))
			return false;
		taken = !filter || filter_takes(filter, view->trace, &view->frames, &sample);
		profile_count(&view->totals, &sample, ticks, taken);
		if (taken && sample_is_running(&sample) && !add_running(view, sums, &sample, ticks))
			return false;
	}
	return view->trace->reading;
}

static void set_rates(struct live_view *view, const struct live_snapshot *snapshot, uint64_t since)
{
	const struct live_counts *counts = &snapshot->counts;
	const struct trace *trace = view->trace;
	uint64_t first = trace->info.first_ns > since ? trace->info.first_ns : since;
	struct live_rates *rates = &view->rates;

	rates->ticks = view->all.ticks;
	rates->seconds = counts->newest_ns > first ? (double)(counts->newest_ns - first) / 1e9 : 0;
	for (size_t i = 0; i < trace->lost.count; i++)
		if (trace->lost.items[i].end_ns >= since)
			rates->dropped += trace->lost.items[i].records;
	/* Of a moment there is no rate. */
	if (rates->seconds >= 0.1) {
		rates->ticks_per_second = (double)rates->ticks / rates->seconds;
		rates->dropped_per_second = (double)rates->dropped / rates->seconds;
	}
}

static int compare_threads(const void *left, const void *right)
{
	const struct live_thread *a = left, *b = right;

	if (a->ticks != b->ticks)
		return a->ticks < b->ticks ? 1 : -1;
	return a->thread < b->thread ? -1 : a->thread > b->thread;
}

static int compare_vcpus(const void *left, const void *right)
{
	const struct live_vcpu *a = left, *b = right;

	return a->vcpu < b->vcpu ? -1 : a->vcpu > b->vcpu;
}

/* The tables become the view's, sorted. */
static void take_sums(struct live_view *view, struct sums *sums)
{
	view->threads = sums->threads.entries;
	view->thread_count = sums->threads.count;
	sums->threads.entries = NULL;
	view->vcpus = sums->vcpus.entries;
	view->vcpu_count = sums->vcpus.count;
	sums->vcpus.entries = NULL;
	if (view->thread_count)
		qsort(view->threads, view->thread_count, sizeof(*view->threads), compare_threads);
	if (view->vcpu_count)
		qsort(view->vcpus, view->vcpu_count, sizeof(*view->vcpus), compare_vcpus);
}

static gp_status_t make(struct live_view *view, const struct live_snapshot *snapshot,
			struct filter *filter, struct error *error)
{
	uint64_t newest = snapshot->counts.newest_ns;
	uint64_t since = newest > snapshot->window_ns ? newest - snapshot->window_ns : 0;
	struct sums sums;
	gp_status_t status;
	bool room;

	status = trace_open_bytes(snapshot->bytes, snapshot->size, view->trace, error);
	if (status)
		return status;
	/* What a filter has found out about frames was about those of the view before. */
	if (filter)
		filter->taken_of = NULL;
	hash_table_init(&sums.threads, offsetof(struct live_thread, ticks),
			sizeof(struct live_thread));
	hash_table_init(&sums.vcpus, offsetof(struct live_vcpu, ticks), sizeof(struct live_vcpu));
	room = add_samples(view, &sums, since, filter);
	take_sums(view, &sums);
	hash_table_deinit(&sums.threads);
	hash_table_deinit(&sums.vcpus);
	if (!room)
		return no_memory(error);
	set_rates(view, snapshot, since);
	status = call_tree_finish(&view->tree, error);
	if (!status)
		status = table_of_functions(&view->tree, &view->frames, &view->functions, error);
	return status;
}

gp_status_t live_view_init(struct live_view *view, const struct live_snapshot *snapshot,
			   struct filter *filter, struct error *error)
{
	static const uint64_t nothing = FXT_MAGIC;
	const struct live_snapshot empty = {.bytes = (void *)(uintptr_t)&nothing,
					    .size = sizeof(nothing),
					    .window_ns = snapshot->window_ns};
	gp_status_t status;

	*view = (struct live_view){.trace = calloc(1, sizeof(*view->trace))};
	if (!view->trace)
		return no_memory(error);
	status = frames_init(&view->frames, error);
	if (!status)
		status = call_tree_init(&view->tree, error);
	if (!status)
		status = make(view, snapshot->size ? snapshot : &empty, filter, error);
	if (status)
		live_view_deinit(view);
	return status;
}

void live_view_deinit(struct live_view *view)
{
	if (view->trace)
		trace_close(view->trace);
	free(view->trace);
	frames_deinit(&view->frames);
	call_tree_deinit(&view->tree);
	table_deinit(&view->functions);
	free(view->threads);
	free(view->vcpus);
	*view = (struct live_view){0};
}

/* The stack that ends in `node`, leaf first, from the leaf to the root. */
static size_t stack_of(const struct call_tree *tree, uint32_t node, uint32_t *stack)
{
	size_t depth = 0;

	for (; node != CALL_TREE_ROOT && depth < CALL_TREE_DEPTH_MAX;
	     node = tree->nodes[node].parent)
		stack[depth++] = tree->nodes[node].frame;
	return depth;
}

/* Adds what is of interest of one stack, if the function is on it. */
static void add_stack(struct call_tree *tree, const uint32_t *stack, size_t depth, uint32_t frame,
		      enum live_direction direction, uint64_t ticks)
{
	uint32_t path[CALL_TREE_DEPTH_MAX];
	size_t at = 0, length = 0;

	if (direction == LIVE_CALLERS) {
		while (at < depth && stack[at] != frame)
			at++;
		if (at < depth)
			call_tree_add(tree, stack + at, depth - at, ticks);
		return;
	}
	at = depth;
	while (at > 0 && stack[at - 1] != frame)
		at--;
	while (at > 0)
		path[length++] = stack[--at];
	if (length)
		call_tree_add(tree, path, length, ticks);
}

gp_status_t live_view_function(const struct live_view *view, uint32_t frame,
			       enum live_direction direction, struct call_tree *tree,
			       struct error *error)
{
	const struct call_tree *all = &view->tree;
	gp_status_t status = call_tree_init(tree, error);

	if (status)
		return status;
	for (size_t node = 1; node < all->count; node++) {
		uint32_t stack[CALL_TREE_DEPTH_MAX];

		if (all->nodes[node].self)
			add_stack(tree, stack, stack_of(all, (uint32_t)node, stack), frame,
				  direction, all->nodes[node].self);
	}
	status = call_tree_finish(tree, error);
	if (!status)
		status = call_tree_sort(tree, error);
	if (status)
		call_tree_deinit(tree);
	return status;
}
