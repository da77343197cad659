#include "export/series.h"

#include <stdlib.h>
#include <string.h>

static gp_status_t no_memory(struct error *error)
{
	return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples");
}

gp_status_t series_begin(struct export *export, struct error *error)
{
	struct series_set *set = calloc(1, sizeof(*set));

	if (!set)
		return no_memory(error);
	export->state = set;
	set->table_size = 1024;
	set->table = calloc(set->table_size, sizeof(*set->table));
	if (!set->table)
		return no_memory(error);
	return call_tree_init(&set->tree, error);
}

void series_release(struct export *export)
{
	struct series_set *set = export->state;

	if (!set)
		return;
	for (size_t i = 0; i < set->count; i++)
		free(set->list[i].samples);
	free(set->list);
	free(set->table);
	call_tree_deinit(&set->tree);
	free(set);
}

static uint32_t *find_slot(const struct series_set *set, uint64_t process, uint64_t thread)
{
	/* Fibonacci hashing: 2^64 / golden ratio. */
	uint64_t hash = (process * 31 + thread) * UINT64_C(0x9e3779b97f4a7c15);
	size_t at = (hash >> 24) & (set->table_size - 1);

	for (; set->table[at]; at = (at + 1) & (set->table_size - 1)) {
		const struct export_task *task = &set->list[set->table[at] - 1].task;

		if (task->process == process && task->thread == thread)
			break;
	}
	return &set->table[at];
}

static bool grow(struct series_set *set)
{
	size_t capacity = set->capacity ? set->capacity * 2 : 256;
	struct series *list = realloc(set->list, capacity * sizeof(*list));
	uint32_t *table;

	if (!list)
		return false;
	set->list = list;
	set->capacity = capacity;
	table = calloc(capacity * 4, sizeof(*table));
	if (!table)
		return false;
	free(set->table);
	set->table = table;
	set->table_size = capacity * 4;
	for (size_t i = 0; i < set->count; i++)
		*find_slot(set, list[i].task.process, list[i].task.thread) = (uint32_t)i + 1;
	return true;
}

static struct series *find(struct series_set *set, const struct export_task *task)
{
	uint32_t *slot = find_slot(set, task->process, task->thread);

	if (*slot)
		return &set->list[*slot - 1];
	if (set->count >= UINT32_MAX - 1 || (set->count == set->capacity && !grow(set)))
		return NULL;
	slot = find_slot(set, task->process, task->thread);
	set->list[set->count] = (struct series){.task = *task};
	*slot = (uint32_t)++set->count;
	return &set->list[set->count - 1];
}

gp_status_t series_add_sample(struct export *export, const struct merge_entry *entry,
			      struct error *error)
{
	struct series_set *set = export->state;
	uint32_t path[EXPORT_DEPTH_MAX];
	size_t depth = export_path(export, &entry->sample, path);
	struct export_task task;
	struct series *series;

	if (export->by_vcpu) {
		task = (struct export_task){.process = FXT_VCPU_PROCESS,
					    .thread = FXT_VCPU_PROCESS + 1 + entry->sample.vcpu};
		strcpy(task.process_name, "guest");
		snprintf(task.thread_name, sizeof(task.thread_name), "vCPU %llu",
			 (unsigned long long)entry->sample.vcpu);
	} else {
		export_find_task(export, &entry->sample, &task);
	}
	series = find(set, &task);
	if (!series)
		return no_memory(error);
	if (series->count == series->capacity) {
		size_t capacity = series->capacity ? series->capacity * 2 : 16;
		struct series_sample *samples =
			realloc(series->samples, capacity * sizeof(*samples));

		if (!samples)
			return no_memory(error);
		series->samples = samples;
		series->capacity = capacity;
	}
	series->task = task;
	series->ticks += entry->ticks;
	series->samples[series->count++] = (struct series_sample){
		.time_ns = entry->time_ns,
		.node = call_tree_add(&set->tree, path, depth, entry->ticks),
		.ticks = entry->ticks < UINT32_MAX ? (uint32_t)entry->ticks : UINT32_MAX,
	};
	return GP_OK;
}

static int compare(const void *left, const void *right)
{
	const struct export_task *a = &((const struct series *)left)->task;
	const struct export_task *b = &((const struct series *)right)->task;

	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	return a->thread < b->thread ? -1 : a->thread > b->thread;
}

gp_status_t series_finish(struct series_set *set, struct error *error)
{
	if (set->count)
		qsort(set->list, set->count, sizeof(*set->list), compare);
	return call_tree_finish(&set->tree, error);
}
