/* Text as `perf script` prints it (tools/perf/builtin-script.c of the kernel), which many tools
 * read:
 *
 *     command  pid/tid [cpu] seconds: period event:
 *             address function+0xoffset (object)
 *             ...
 *     (empty line)
 *
 * Inlined functions stand in front of what they were inlined into, with "(inlined)" instead of the
 * object; places in the source in lines of their own, as its field srcline has them.
 * A sample's period is that of the trace times the ticks it stands for. */
#include "export/export.h"
#include "analysis/text.h"

#include <string.h>

static void print_function(struct export *export, const struct fxt_sample *sample, size_t index,
			   const struct frame *frame)
{
	const struct trace_symbol *symbol = trace_find_symbol(export->trace, sample, index);

	fprintf(export->to, "\t%16llx ", (unsigned long long)sample->stack[index]);
	/* In tools that fold, a semicolon is between functions. */
	text_print_without(export->to, frame->name, export_bare_name(frame), ";");
	if (symbol)
		fprintf(export->to, "+0x%llx",
			(unsigned long long)(sample->stack[index] - symbol->start));
	fprintf(export->to, " (%s)\n", frame->is_inlined ? "inlined" : export_object_name(frame));
	if (!frame->file)
		return;
	fputs("  ", export->to);
	text_print_without(export->to, frame->file, strlen(frame->file), ";");
	fprintf(export->to, ":%u\n", frame->line);
}

static void perf_add_sample(struct export *export, const struct merge_entry *entry)
{
	const struct fxt_sample *sample = &entry->sample;
	uint32_t path[EXPORT_DEPTH_MAX];
	size_t depth = export_path(export, sample, path), index = 0;
	struct export_task task;

	export_find_task(export, sample, &task);
	text_print_without(export->to, task.process_name, strlen(task.process_name), ";");
	fprintf(export->to, " %llu/%llu [%03llu] %llu.%09llu: %llu cpu-clock:\n",
		(unsigned long long)task.process, (unsigned long long)task.thread,
		(unsigned long long)sample->vcpu, (unsigned long long)(entry->time_ns / 1000000000),
		(unsigned long long)(entry->time_ns % 1000000000),
		(unsigned long long)(entry->ticks * export_period_ns(export)));
	for (size_t i = depth; i > 0; i--) {
		const struct frame *frame = &export->frames->entries[path[i - 1]];

		print_function(export, sample, index, frame);
		index += !frame->is_inlined;
	}
	putc('\n', export->to);
}

static void perf_add_lost(struct export *export, const struct trace_lost *lost)
{
	/* perf's own line for this has no comment sign, and readers take it for a sample. */
	fprintf(export->to, "# lost %llu ticks from %llu.%09llu to %llu.%09llu\n",
		(unsigned long long)lost->records,
		(unsigned long long)(lost->begin_ns / 1000000000),
		(unsigned long long)(lost->begin_ns % 1000000000),
		(unsigned long long)(lost->end_ns / 1000000000),
		(unsigned long long)(lost->end_ns % 1000000000));
}

const struct export_format export_perf = {
	.name = "perf",
	.summary = "text as perf script prints it",
	.has_inlined = true,
	.has_places = true,
	.sample = perf_add_sample,
	.lost = perf_add_lost,
};
