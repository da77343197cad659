/* guestprof report as JSON: one object. Trees are lists of nodes that name their parent, because
 * readers of JSON limit how deep it may nest. */
#include "tools/report/report_output.h"

#include "export/json_writer.h"
#include "tools/tree_walk.h"

static void counts_member(struct json *json, const char *name, const uint64_t *counts, size_t count,
			  const char *(*name_of)(uint64_t))
{
	json_open(json, name, '{', false);
	for (size_t i = 0; i < count; i++)
		if (counts[i])
			json_number(json, name_of(i), counts[i]);
	json_close(json);
}

static void frame_members(struct json *json, const struct frame *frame, uint64_t self,
			  uint64_t total)
{
	json_text(json, "name", frame->name, frame->name_bytes);
	json_string(json, "kind", text_frame_kind(frame));
	if (frame->kind >= FRAME_PROCESS && frame->kind <= FRAME_VCPU && frame->id != FRAME_NO_ID)
		json_number(json, "id", frame->id);
	json_number(json, "self", self);
	json_number(json, "total", total);
}

static void write_rows(const struct report *report, struct json *json)
{
	size_t shown = report_rows(report);

	json_open(json, "rows", '[', true);
	for (size_t i = 0; i < shown; i++) {
		const struct table_row *row = &report->table.rows[i];

		json_open(json, NULL, '{', false);
		frame_members(json, &report->frames.entries[row->frame], row->self, row->total);
		json_close(json);
	}
	json_close(json);
	json_number(json, "rows_not_shown", report->table.count - shown);
}

static void write_nodes(const struct report *report, struct json *json)
{
	struct tree_walk walk;
	size_t shown = 0;

	json_open(json, "nodes", '[', true);
	tree_walk_begin(&walk, &report->tree, report_shows_node, report);
	while ((!report->most || shown++ < report->most) && tree_walk_next(&walk)) {
		const struct call_tree_node *node = &report->tree.nodes[walk.node];

		json_open(json, NULL, '{', false);
		json_number(json, "id", walk.node);
		json_number(json, "parent", node->parent);
		frame_members(json, &report->frames.entries[node->frame], node->self, node->total);
		json_close(json);
	}
	json_close(json);
}

void report_write_json(const struct report *report, FILE *to)
{
	static const char *const shapes[] = {"table", "callees", "callers"};
	const struct profile_totals *totals = &report->totals;
	const struct trace_info *info = &report->trace.info;
	struct json json = {.to = to};

	json_open(&json, NULL, '{', true);
	json_string(&json, "trace", report->path);
	json_string(&json, "guest", info->banner);
	json_string(&json, "kernel", info->kernel);
	json_string(&json, "command_line", info->command_line);
	if (*info->source)
		json_string(&json, "source", info->source);
	json_string(&json, "tick_source", info->tick_source);
	json_string(&json, "ended", info->end_reason);
	json_bool(&json, "complete", info->complete);
	json_number(&json, "vcpus", info->vcpus);
	json_number(&json, "period_ns", info->period_ns);
	json_number(&json, "duration_ns", info->last_ns - info->first_ns);
	json_number(&json, "stacks", info->stacks);
	json_number(&json, "partials", info->partials);
	json_number(&json, "dropped", info->dropped_records);
	json_number(&json, "bad_records", info->bad_records);
	json_number(&json, "console_lines", info->console_lines);
	json_number(&json, "console_lines_lost", info->console_lost);
	json_number(&json, "ticks", totals->ticks);
	json_number(&json, "filtered", totals->filtered);
	json_number(&json, "running", totals->running);
	json_number(&json, "unnamed", totals->unnamed);
	counts_member(&json, "modes", totals->modes, FRAMES_MODES, frames_mode_name);
	counts_member(&json, "stack_ends", totals->ends, FRAMES_ENDS, frames_end_name);
	json_string(&json, "shape", shapes[report->shape]);
	json_string(&json, "by", report->column);
	json_number(&json, "whole", report->whole);
	if (report->shape == SHAPE_TABLE)
		write_rows(report, &json);
	else
		write_nodes(report, &json);
	json_close(&json);
}
