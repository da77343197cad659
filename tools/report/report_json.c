/* guestprof report as JSON: one object. Trees are lists of nodes that name their parent, because
 * readers of JSON limit how deep it may nest. */
#include "tools/report/report_output.h"

#include "base/container.h"
#include "analysis/text.h"
#include "tools/tree_walk.h"

#include <string.h>

static void text_member(FILE *to, const char *name, const char *text)
{
	fprintf(to, "  \"%s\": ", name);
	text_print_json(to, text, strlen(text));
	fputs(",\n", to);
}

static void number_member(FILE *to, const char *name, uint64_t value)
{
	fprintf(to, "  \"%s\": %llu,\n", name, (unsigned long long)value);
}

static void counts_member(FILE *to, const char *name, const uint64_t *counts, size_t count,
			  const char *(*name_of)(uint64_t))
{
	const char *comma = "";

	fprintf(to, "  \"%s\": {", name);
	for (size_t i = 0; i < count; i++) {
		if (!counts[i])
			continue;
		fprintf(to, "%s\"%s\": %llu", comma, name_of(i), (unsigned long long)counts[i]);
		comma = ", ";
	}
	fputs("},\n", to);
}

static void frame_members(FILE *to, const struct frame *frame)
{
	fputs("\"name\": ", to);
	text_print_json(to, frame->name, frame->name_bytes);
	fprintf(to, ", \"kind\": \"%s\"", text_frame_kind(frame));
	if (frame->kind >= FRAME_PROCESS && frame->kind <= FRAME_VCPU && frame->id != FRAME_NO_ID)
		fprintf(to, ", \"id\": %llu", (unsigned long long)frame->id);
}

static void write_rows(const struct report *report, FILE *to)
{
	size_t shown = report_rows(report);

	fputs("  \"rows\": [", to);
	for (size_t i = 0; i < shown; i++) {
		const struct table_row *row = &report->table.rows[i];

		fprintf(to, "%s\n    {", i ? "," : "");
		frame_members(to, &report->frames.entries[row->frame]);
		fprintf(to, ", \"self\": %llu, \"total\": %llu}", (unsigned long long)row->self,
			(unsigned long long)row->total);
	}
	fprintf(to, "\n  ],\n  \"rows_not_shown\": %zu\n", report->table.count - shown);
}

static void write_nodes(const struct report *report, FILE *to)
{
	struct tree_walk walk;
	size_t shown = 0;

	fputs("  \"nodes\": [", to);
	tree_walk_begin(&walk, &report->tree, report_shows_node, report);
	while ((!report->most || shown < report->most) && tree_walk_next(&walk)) {
		const struct call_tree_node *node = &report->tree.nodes[walk.node];

		fprintf(to, "%s\n    {\"id\": %u, \"parent\": %u, ", shown++ ? "," : "", walk.node,
			node->parent);
		frame_members(to, &report->frames.entries[node->frame]);
		fprintf(to, ", \"self\": %llu, \"total\": %llu}", (unsigned long long)node->self,
			(unsigned long long)node->total);
	}
	fputs("\n  ]\n", to);
}

void report_write_json(const struct report *report, FILE *to)
{
	const struct profile_totals *totals = &report->totals;
	const struct trace_info *info = &report->trace.info;
	static const char *const shapes[] = {"table", "callees", "callers"};

	fputs("{\n", to);
	text_member(to, "trace", report->path);
	text_member(to, "guest", info->banner);
	text_member(to, "kernel", info->kernel);
	text_member(to, "command_line", info->command_line);
	if (*info->source)
		text_member(to, "source", info->source);
	text_member(to, "tick_source", info->tick_source);
	text_member(to, "ended", info->end_reason);
	fprintf(to, "  \"complete\": %s,\n", info->complete ? "true" : "false");
	number_member(to, "vcpus", info->vcpus);
	number_member(to, "period_ns", info->period_ns);
	number_member(to, "duration_ns", info->last_ns - info->first_ns);
	number_member(to, "stacks", info->stacks);
	number_member(to, "partials", info->partials);
	number_member(to, "dropped", info->dropped_records);
	number_member(to, "bad_records", info->bad_records);
	number_member(to, "console_lines", info->console_lines);
	number_member(to, "console_lines_lost", info->console_lost);
	number_member(to, "ticks", totals->ticks);
	number_member(to, "filtered", totals->filtered);
	number_member(to, "running", totals->running);
	number_member(to, "unnamed", totals->unnamed);
	counts_member(to, "modes", totals->modes, FRAMES_MODES, frames_mode_name);
	counts_member(to, "stack_ends", totals->ends, FRAMES_ENDS, frames_end_name);
	text_member(to, "shape", shapes[report->shape]);
	text_member(to, "by", report->column);
	number_member(to, "whole", report->whole);
	if (report->shape == SHAPE_TABLE)
		write_rows(report, to);
	else
		write_nodes(report, to);
	fputs("}\n", to);
}
