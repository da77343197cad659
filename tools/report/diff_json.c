/* guestprof diff as JSON: one object. A tree is a list of nodes that name their parent. */
#include "tools/report/diff_output.h"

#include "export/json_writer.h"
#include "tools/tree_walk.h"

static void row_members(const struct diff *diff, struct json *json, const struct compare_row *row)
{
	const struct frame *frame = &diff->frames.entries[row->frame];

	if (row->frame == COMPARE_ALL)
		json_string(json, "name", "[everything]");
	else
		json_text(json, "name", frame->name, frame->name_bytes);
	json_number(json, "before", row->before);
	json_number(json, "after", row->after);
	json_value(json, "before_percent", "%.4f", row->before_percent);
	json_value(json, "after_percent", "%.4f", row->after_percent);
	json_value(json, "chance", "%.3g", row->chance);
	json_bool(json, "changed", row->is_change);
	json_bool(json, "over", diff_is_over(diff, row));
}

static void write_rows(const struct diff *diff, struct json *json)
{
	size_t shown = diff_rows(diff);

	json_open(json, "rows", '[', true);
	for (size_t i = 0; i < shown; i++) {
		json_open(json, NULL, '{', false);
		row_members(diff, json, &diff->compare.rows[i]);
		json_close(json);
	}
	json_close(json);
}

static void write_nodes(const struct diff *diff, struct json *json)
{
	struct tree_walk walk;
	size_t shown = 0;

	json_open(json, "nodes", '[', true);
	tree_walk_begin(&walk, &diff->tree.tree, diff_shows_node, diff);
	while ((!diff->most || shown++ < diff->most) && tree_walk_next(&walk)) {
		const struct compare_tree_self *self = &diff->tree.self[walk.node];

		json_open(json, NULL, '{', false);
		json_number(json, "id", walk.node);
		json_number(json, "parent", diff->tree.tree.nodes[walk.node].parent);
		row_members(diff, json, &diff->tree.rows[walk.node]);
		json_number(json, "self_before", self->before);
		json_number(json, "self_after", self->after);
		json_close(json);
	}
	json_close(json);
}

void diff_write_json(const struct diff *diff, FILE *to)
{
	static const char *const labels[DIFF_SIDES] = {"before", "after"};
	static const char *const shapes[] = {"table", "callees", "callers"};
	bool table = diff->shape == SHAPE_TABLE;
	struct json json = {.to = to};

	json_open(&json, NULL, '{', true);
	for (int i = 0; i < DIFF_SIDES; i++) {
		const struct diff_side *side = &diff->sides[i];

		json_open(&json, labels[i], '{', false);
		json_string(&json, "trace", side->path);
		json_number(&json, "running", side->totals.running);
		json_number(&json, "period_ns", side->trace.info.period_ns);
		json_number(&json, "filtered", side->totals.filtered);
		json_bool(&json, "complete", side->trace.info.complete);
		json_close(&json);
	}
	json_string(&json, "basis", diff->basis == COMPARE_TIME ? "time" : "share");
	json_string(&json, "of", diff->total || !table ? "total" : "self");
	json_string(&json, "shape", shapes[diff->shape]);
	json_number(&json, "compared", diff_compared(diff));
	json_number(&json, "changes", diff_changes(diff));
	if (table)
		write_rows(diff, &json);
	else
		write_nodes(diff, &json);
	json_close(&json);
}
