#include "export/series.h"

#include "base/sorting.h"

#include <stdlib.h>
#include <string.h>

bool series_begin(struct export *export)
{
	struct series_set *set = calloc(1, sizeof(*set));

	export->state = set;
	if (!set)
		return false;
	hash_table_init(&set->table, offsetof(struct export_task, process_name),
			sizeof(struct series));
	return !call_tree_init(&set->tree, NULL);
}

void series_release(struct export *export)
{
	struct series_set *set = export->state;

	if (!set)
		return;
	for (size_t i = 0; i < set->count; i++)
		free(set->list[i].samples.items);
	hash_table_deinit(&set->table);
	call_tree_deinit(&set->tree);
	free(set);
}

void series_add_sample(struct export *export, const struct merge_entry *entry)
{
	struct series_set *set = export->state;
	uint32_t path[EXPORT_DEPTH_MAX];
	size_t depth = export_path(export, &entry->sample, path);
	struct export_task task;
	struct series *series;
	uint32_t number;

	if (export->by_vcpu) {
		task = (struct export_task){.process = FXT_VCPU_PROCESS,
					    .thread = FXT_VCPU_PROCESS + 1 + entry->sample.vcpu};
		strcpy(task.process_name, "guest");
		snprintf(task.thread_name, sizeof(task.thread_name), "vCPU %llu",
			 (unsigned long long)entry->sample.vcpu);
	} else {
		export_find_task(export, &entry->sample, &task);
	}
	if (!hash_table_add(&set->table, &task, &number)) {
		export->failed = true;
		return;
	}
	series = &set->list[number];
	series->task = task;
	series->ticks += entry->ticks;
	if (!vector_add(&series->samples,
			(struct series_sample){
				.time_ns = entry->time_ns,
				.node = call_tree_add(&set->tree, path, depth, entry->ticks),
				.ticks = entry->ticks < UINT32_MAX ? (uint32_t)entry->ticks
								   : UINT32_MAX,
			}) ||
	    set->tree.failed)
		export->failed = true;
}

static int series_compare(const void *left, const void *right)
{
	const struct export_task *a = &((const struct series *)left)->task;
	const struct export_task *b = &((const struct series *)right)->task;

	int order = compare_u64(a->process, b->process);

	return order ? order : compare_u64(a->thread, b->thread);
}

void series_finish(struct series_set *set)
{
	if (set->count)
		qsort(set->list, set->count, sizeof(*set->list), series_compare);
	call_tree_finish(&set->tree, NULL);
}
