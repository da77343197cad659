/* One JSON object a line: the trace, then samples, lost ticks and the console's lines in order of
 * time, then the sums.
 * All samples are there, those in which nothing ran as well. */
#include "export/export.h"
#include "analysis/text.h"

static void text_member(FILE *to, const char *name, const char *text)
{
	fprintf(to, ",\"%s\":", name);
	text_print_json(to, text, strlen(text));
}

static void number_member(FILE *to, const char *name, uint64_t value)
{
	fprintf(to, ",\"%s\":%llu", name, (unsigned long long)value);
}

static bool json_begin(struct export *export)
{
	const struct trace_info *info = &export->trace->info;

	fputs("{\"type\":\"trace\"", export->to);
	text_member(export->to, "guest", info->banner);
	text_member(export->to, "kernel", info->kernel);
	text_member(export->to, "command_line", info->command_line);
	text_member(export->to, "tick_source", info->tick_source);
	text_member(export->to, "ended", info->end_reason);
	number_member(export->to, "vcpus", info->vcpus);
	number_member(export->to, "period_ns", info->period_ns);
	number_member(export->to, "first_ns", info->first_ns);
	number_member(export->to, "last_ns", info->last_ns);
	fprintf(export->to, ",\"complete\":%s}\n", info->complete ? "true" : "false");
	return true;
}

static void json_print_frame(struct export *export, const struct frame *frame, uint64_t address)
{
	fprintf(export->to, "{\"address\":\"0x%llx\",\"name\":", (unsigned long long)address);
	text_print_json(export->to, frame->name, frame->name_bytes);
	fprintf(export->to, ",\"kind\":\"%s\"", text_frame_kind(frame));
	if (frame->is_inlined)
		fputs(",\"inlined\":true", export->to);
	if (frame->file)
		text_member(export->to, "file", frame->file);
	if (frame->line)
		number_member(export->to, "line", frame->line);
	putc('}', export->to);
}

/* Leaf first; what was inlined has the address of what it was inlined into. */
static void json_print_stack(struct export *export, const struct fxt_sample *sample)
{
	uint32_t path[EXPORT_DEPTH_MAX];
	size_t depth = export_path(export, sample, path), address = 0;

	for (size_t i = depth; i > 0; i--) {
		const struct frame *frame = &export->frames->entries[path[i - 1]];

		if (i < depth)
			putc(',', export->to);
		json_print_frame(export, frame, sample->stack[address]);
		address += !frame->is_inlined;
	}
}

static void json_add_sample(struct export *export, const struct merge_entry *entry)
{
	const struct fxt_sample *sample = &entry->sample;
	struct export_task task;

	fprintf(export->to, "{\"type\":\"sample\",\"time_ns\":%llu,\"ticks\":%llu,\"vcpu\":%llu",
		(unsigned long long)entry->time_ns, (unsigned long long)entry->ticks,
		(unsigned long long)sample->vcpu);
	text_member(export->to, "mode", frames_mode_name(sample->mode));
	export_find_task(export, sample, &task);
	if (sample->flags & FXT_SAMPLE_PROCESS) {
		number_member(export->to, "pid", task.process);
		text_member(export->to, "process", task.process_name);
	}
	if (sample->flags & FXT_SAMPLE_THREAD) {
		number_member(export->to, "tid", task.thread);
		text_member(export->to, "thread", task.thread_name);
	}
	if (sample_is_running(sample)) {
		text_member(export->to, "stack_end", frames_end_name(sample->stack_end));
		fputs(",\"stack\":[", export->to);
		json_print_stack(export, sample);
		putc(']', export->to);
	}
	fputs("}\n", export->to);
}

static void json_add_lost(struct export *export, const struct trace_lost *lost)
{
	fprintf(export->to, "{\"type\":\"lost\",\"time_ns\":%llu,\"end_ns\":%llu,\"ticks\":%llu",
		(unsigned long long)lost->begin_ns, (unsigned long long)lost->end_ns,
		(unsigned long long)lost->records);
	if (lost->vcpu != UINT32_MAX)
		number_member(export->to, "vcpu", lost->vcpu);
	fputs("}\n", export->to);
}

static void json_add_line(struct export *export, const struct console_line *line)
{
	fprintf(export->to, "{\"type\":\"console\",\"time_ns\":%llu,\"text\":",
		(unsigned long long)line->time_ns);
	text_print_json(export->to, line->text, line->size);
	fputs("}\n", export->to);
}

static void json_end(struct export *export)
{
	fprintf(export->to,
		"{\"type\":\"end\",\"ticks\":%llu,\"running\":%llu,\"filtered\":%llu,\"lost\":%llu,"
		"\"console_lines\":%llu,\"console_lines_lost\":%llu}\n",
		(unsigned long long)export->totals.ticks,
		(unsigned long long)export->totals.running,
		(unsigned long long)export->totals.filtered, (unsigned long long)export->lost,
		(unsigned long long)export->console_lines,
		(unsigned long long)export->trace->info.console_lost);
}

const struct export_format export_json = {
	.name = "json",
	.summary = "one JSON object a line, every sample",
	.takes_idle = true,
	.has_inlined = true,
	.has_places = true,
	.begin = json_begin,
	.sample = json_add_sample,
	.lost = json_add_lost,
	.line = json_add_line,
	.end = json_end,
};
