#include "profile/export.h"

#include "profile/text.h"

#include <stdlib.h>
#include <string.h>

#define USUAL_PERIOD_NS 1000000

const struct export_format *const export_formats[] = {
	&export_folded,  &export_perf,  &export_speedscope,
	&export_firefox, &export_pprof, &export_perfetto,
	&export_fuchsia, &export_json,  NULL,
};

const struct export_format *export_find_format(const char *name)
{
	for (size_t i = 0; export_formats[i]; i++)
		if (!strcmp(export_formats[i]->name, name))
			return export_formats[i];
	return NULL;
}

static gp_status_t give(struct export *export, const struct merge_entry *entry, struct error *error)
{
	const struct export_format *format = export->format;
	bool taken;

	if (entry->lost) {
		if (export->filter &&
		    !filter_takes_lost(export->filter, export->trace, entry->lost))
			return GP_OK;
		export->lost += entry->lost->records;
		return format->lost ? format->lost(export, entry->lost, error) : GP_OK;
	}
	taken = !export->filter ||
		filter_takes(export->filter, export->trace, export->frames, &entry->sample);
	profile_count(&export->totals, &entry->sample, entry->ticks, taken);
	/* A record without ticks closes others; there is nothing to show. */
	if (!taken || !entry->ticks || (!format->takes_idle && !sample_is_running(&entry->sample)))
		return GP_OK;
	return format->sample(export, entry, error);
}

gp_status_t export_trace(struct export *export, struct error *error)
{
	const struct export_format *format = export->format;
	struct merge_entry entry;
	struct merge merge;
	gp_status_t status = merge_init(&merge, export->trace, error);

	if (status)
		return status;
	if (format->begin)
		status = format->begin(export, error);
	/* A reader that went away or a full disk need no more. */
	while (!status && !ferror(export->to) && merge_next(&merge, &entry))
		status = give(export, &entry, error);
	if (!status && export->frames->failed)
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory for the names of functions");
	if (!status && format->end)
		status = format->end(export, error);
	if (format->release)
		format->release(export);
	export->state = NULL;
	merge_deinit(&merge);
	trace_rewind(export->trace);
	return status;
}

static void name_of(const struct trace_name *name, char *out, size_t size)
{
	if (name)
		text_escape(name->name, name->name_bytes, out, size);
	else
		snprintf(out, size, "[no name known]");
}

void export_find_task(const struct export *export, const struct fxt_sample *sample,
		      struct export_task *task)
{
	bool has_process = sample->flags & FXT_SAMPLE_PROCESS;

	task->process = has_process ? sample->process : FXT_VCPU_PROCESS;
	task->thread = sample->flags & FXT_SAMPLE_THREAD ? sample->thread
		       : has_process                     ? sample->process
							 : FXT_VCPU_PROCESS + 1 + sample->vcpu;
	if (has_process)
		name_of(trace_process_name(export->trace, sample->process), task->process_name,
			sizeof(task->process_name));
	else
		snprintf(task->process_name, sizeof(task->process_name), "[no process known]");
	if (sample->flags & FXT_SAMPLE_THREAD)
		name_of(trace_thread_name(export->trace, sample->thread), task->thread_name,
			sizeof(task->thread_name));
	else
		snprintf(task->thread_name, sizeof(task->thread_name), "vCPU %llu",
			 (unsigned long long)sample->vcpu);
}

gp_status_t export_begin_tree(struct export *export, struct error *error)
{
	struct call_tree *tree = calloc(1, sizeof(*tree));
	gp_status_t status;

	if (!tree)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	status = call_tree_init(tree, error);
	if (!status)
		status = stacks_init(&export->stacks, export->trace, export->frames, tree, error);
	if (status) {
		call_tree_deinit(tree);
		free(tree);
		return status;
	}
	export->state = tree;
	return GP_OK;
}

void export_fold(struct export *export, const enum frame_owner *owners, size_t owner_count,
		 const struct merge_entry *entry)
{
	uint32_t path[OWNERS];

	for (size_t i = 0; i < owner_count && i < OWNERS; i++)
		path[i] = frames_of_owner(export->frames, export->trace, &entry->sample, owners[i]);
	if (!export->frames->failed)
		stacks_add(&export->stacks, path, owner_count, &entry->sample, entry->ticks);
}

void export_release_tree(struct export *export)
{
	if (export->state)
		call_tree_deinit(export->state);
	free(export->state);
	stacks_deinit(&export->stacks);
}

size_t export_path(struct export *export, const struct fxt_sample *sample,
		   uint32_t path[FXT_SAMPLE_DEPTH_MAX])
{
	for (size_t i = 0; i < sample->depth; i++)
		path[sample->depth - 1 - i] =
			frames_of_address(export->frames, export->trace, sample, i);
	return export->frames->failed ? 0 : sample->depth;
}

const char *export_object_name(const struct frame *frame)
{
	switch (frame->kind) {
	case FRAME_MODULE:
		return "[kernel.modules]";
	case FRAME_BOOT:
		return "[early.boot]";
	case FRAME_USER:
		return "[user]";
	default:
		/* What perf calls a kernel without a file. */
		return "[kernel.kallsyms]";
	}
}

uint64_t export_period_ns(const struct export *export)
{
	return export->trace->info.period_ns ? export->trace->info.period_ns : USUAL_PERIOD_NS;
}
