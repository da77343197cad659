#include "export/export.h"

#include "analysis/text.h"

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

static void give(struct export *export, const struct merge_entry *entry)
{
	const struct export_format *format = export->format;
	bool taken;

	if (entry->lost) {
		if (export->filter &&
		    !filter_takes_lost(export->filter, export->trace, entry->lost))
			return;
		export->lost += entry->lost->records;
		if (format->lost)
			format->lost(export, entry->lost);
		return;
	}
	taken = !export->filter ||
		filter_takes(export->filter, export->trace, export->frames, &entry->sample);
	profile_count(&export->totals, &entry->sample, entry->ticks, taken);
	/* A record without ticks closes others; there is nothing to show. */
	if (taken && entry->ticks && (format->takes_idle || sample_is_running(&entry->sample)))
		format->sample(export, entry);
}

/* The lines of the console before that time, from `next` on. */
static void give_lines(struct export *export, const struct console_lines *lines, size_t *next,
		       uint64_t before_ns)
{
	for (; *next < lines->count && lines->items[*next].time_ns < before_ns; ++*next) {
		export->console_lines++;
		export->format->line(export, &lines->items[*next]);
	}
}

static bool goes_on(const struct export *export)
{
	/* A reader that went away or a full disk need no more. */
	return !export->failed && !export->frames->failed && !ferror(export->to);
}

/* All entries, in order of time. */
static void write_format(struct export *export, struct merge *merge,
			 const struct console_lines *lines)
{
	const struct export_format *format = export->format;
	struct merge_entry entry;
	size_t next = 0;

	if (format->begin && !format->begin(export))
		export->failed = true;
	while (goes_on(export) && merge_next(merge, &entry)) {
		give_lines(export, lines, &next, entry.time_ns);
		give(export, &entry);
	}
	if (goes_on(export))
		give_lines(export, lines, &next, UINT64_MAX);
	if (format->end && !export->failed && !export->frames->failed)
		format->end(export);
	if (format->release)
		format->release(export);
	export->state = NULL;
}

gp_status_t export_trace(struct export *export, struct error *error)
{
	struct console_lines lines = {0};
	struct merge merge;
	gp_status_t status = merge_init(&merge, export->trace, error);

	if (status)
		return status;
	if (export->format->line && !console_lines_read(export->trace, export->filter, &lines))
		export->failed = true;
	else
		write_format(export, &merge, &lines);
	if (export->failed || export->frames->failed)
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory for the export");
	console_lines_deinit(&lines);
	merge_deinit(&merge);
	trace_rewind(export->trace);
	return status;
}

bool export_line_text(const struct console_line *line, char out[4 * EXPORT_LINE_MAX + 1])
{
	char text[EXPORT_LINE_MAX];
	size_t size = console_line_clean(line, text, sizeof(text));

	text_escape(text, size, out, 4 * EXPORT_LINE_MAX + 1);
	return size;
}

static void export_copy_name(const struct trace_name *name, char *out, size_t size)
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
		export_copy_name(trace_process_name(export->trace, sample->process),
				 task->process_name, sizeof(task->process_name));
	else
		snprintf(task->process_name, sizeof(task->process_name), "[no process known]");
	if (sample->flags & FXT_SAMPLE_THREAD)
		export_copy_name(trace_thread_name(export->trace, sample->thread),
				 task->thread_name, sizeof(task->thread_name));
	else
		snprintf(task->thread_name, sizeof(task->thread_name), "vCPU %llu",
			 (unsigned long long)sample->vcpu);
}

bool export_begin_tree(struct export *export)
{
	struct call_tree *tree = calloc(1, sizeof(*tree));

	export->state = tree;
	return tree && !call_tree_init(tree, NULL) &&
	       !stacks_init(&export->stacks, export->trace, export->frames, tree, NULL);
}

void export_fold(struct export *export, const enum frame_owner *owners, size_t owner_count,
		 const struct merge_entry *entry)
{
	uint32_t path[OWNERS + EXPORT_DEPTH_MAX];

	for (size_t i = 0; i < owner_count && i < OWNERS; i++)
		path[i] = frames_of_owner(export->frames, export->trace, &entry->sample, owners[i]);
	if (export->inlined) {
		size_t depth = export_path(export, &entry->sample, path + owner_count);

		if (depth)
			call_tree_add(export->state, path, owner_count + depth, entry->ticks);
	} else if (!export->frames->failed) {
		stacks_add(&export->stacks, path, owner_count, &entry->sample, entry->ticks);
	}
	export->failed |= ((const struct call_tree *)export->state)->failed;
}

void export_release_tree(struct export *export)
{
	if (export->state)
		call_tree_deinit(export->state);
	free(export->state);
	stacks_deinit(&export->stacks);
}

size_t export_path(struct export *export, const struct fxt_sample *sample,
		   uint32_t path[EXPORT_DEPTH_MAX])
{
	size_t depth = frames_of_stack(export->frames, export->trace, sample, export->inlined, path,
				       EXPORT_DEPTH_MAX);

	return export->frames->failed ? 0 : depth;
}

uint32_t export_bare_name(const struct frame *frame)
{
	return frame->name_bytes - (frame->is_inlined ? (uint32_t)strlen(FRAME_INLINED) : 0);
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
