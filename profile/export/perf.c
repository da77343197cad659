/* Text as `perf script` prints it (tools/perf/builtin-script.c of the kernel), which many tools
 * read:
 *
 *     command  pid/tid [cpu] seconds: period event:
 *             address function+0xoffset (object)
 *             ...
 *     (empty line)
 *
 * A sample's period is that of the trace times the ticks it stands for. */
#include "profile/export.h"
#include "profile/text.h"

static void print_function(struct export *export, const struct fxt_sample *sample, size_t index)
{
	const struct trace_symbol *symbol = trace_find_symbol(export->trace, sample, index);
	uint32_t number = frames_of_address(export->frames, export->trace, sample, index);
	const struct frame *frame;

	if (export->frames->failed)
		return;
	frame = &export->frames->entries[number];
	fprintf(export->to, "\t%16llx ", (unsigned long long)sample->stack[index]);
	/* In tools that fold, a semicolon is between functions. */
	text_print_without(export->to, frame->name, frame->name_bytes, ";");
	if (symbol)
		fprintf(export->to, "+0x%llx",
			(unsigned long long)(sample->stack[index] - symbol->start));
	fprintf(export->to, " (%s)\n", export_object_name(frame));
}

static gp_status_t add_sample(struct export *export, const struct merge_entry *entry,
			      struct error *error)
{
	const struct fxt_sample *sample = &entry->sample;
	struct export_task task;

	(void)error;
	export_find_task(export, sample, &task);
	text_print_without(export->to, task.process_name, strlen(task.process_name), ";");
	fprintf(export->to, " %llu/%llu [%03llu] %llu.%09llu: %llu cpu-clock:\n",
		(unsigned long long)task.process, (unsigned long long)task.thread,
		(unsigned long long)sample->vcpu, (unsigned long long)(entry->time_ns / 1000000000),
		(unsigned long long)(entry->time_ns % 1000000000),
		(unsigned long long)(entry->ticks * export_period_ns(export)));
	for (size_t i = 0; i < sample->depth; i++)
		print_function(export, sample, i);
	putc('\n', export->to);
	return GP_OK;
}

static gp_status_t add_lost(struct export *export, const struct trace_lost *lost,
			    struct error *error)
{
	(void)error;
	/* perf's own line for this has no comment sign, and readers take it for a sample. */
	fprintf(export->to, "# lost %llu ticks from %llu.%09llu to %llu.%09llu\n",
		(unsigned long long)lost->records,
		(unsigned long long)(lost->begin_ns / 1000000000),
		(unsigned long long)(lost->begin_ns % 1000000000),
		(unsigned long long)(lost->end_ns / 1000000000),
		(unsigned long long)(lost->end_ns % 1000000000));
	return GP_OK;
}

const struct export_format export_perf = {
	.name = "perf",
	.summary = "text as perf script prints it",
	.sample = add_sample,
	.lost = add_lost,
};
