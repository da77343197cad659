/* guestprof diff as JSON: one object. A tree is a list of nodes that name their parent. */
#include "tools/report/diff_output.h"

#include "analysis/text.h"
#include "tools/tree_walk.h"

#include <string.h>

static void write_row(const struct diff *diff, FILE *to, const struct compare_row *row)
{
	fputs("\"name\": ", to);
	if (row->frame == COMPARE_ALL)
		fputs("\"[everything]\"", to);
	else
		text_print_json(to, diff->frames.entries[row->frame].name,
				diff->frames.entries[row->frame].name_bytes);
	fprintf(to,
		", \"before\": %llu, \"after\": %llu, \"before_percent\": %.4f, "
		"\"after_percent\": %.4f, \"chance\": %.3g, \"changed\": %s, \"over\": %s",
		(unsigned long long)row->before, (unsigned long long)row->after,
		row->before_percent, row->after_percent, row->chance,
		row->is_change ? "true" : "false", diff_is_over(diff, row) ? "true" : "false");
}

static void write_rows(const struct diff *diff, FILE *to)
{
	size_t shown = diff_rows(diff);

	fputs("  \"rows\": [", to);
	for (size_t i = 0; i < shown; i++) {
		fprintf(to, "%s\n    {", i ? "," : "");
		write_row(diff, to, &diff->compare.rows[i]);
		putc('}', to);
	}
}

static void write_nodes(const struct diff *diff, FILE *to)
{
	struct tree_walk walk;
	size_t shown = 0;

	fputs("  \"nodes\": [", to);
	tree_walk_begin(&walk, &diff->tree.tree, diff_shows_node, diff);
	while ((!diff->most || shown < diff->most) && tree_walk_next(&walk)) {
		const struct compare_tree_self *self = &diff->tree.self[walk.node];

		fprintf(to, "%s\n    {\"id\": %u, \"parent\": %u, ", shown++ ? "," : "", walk.node,
			diff->tree.tree.nodes[walk.node].parent);
		write_row(diff, to, &diff->tree.rows[walk.node]);
		fprintf(to, ", \"self_before\": %llu, \"self_after\": %llu}",
			(unsigned long long)self->before, (unsigned long long)self->after);
	}
}

void diff_write_json(const struct diff *diff, FILE *to)
{
	static const char *const labels[DIFF_SIDES] = {"before", "after"};
	static const char *const shapes[] = {"table", "callees", "callers"};
	bool table = diff->shape == SHAPE_TABLE;

	fputs("{\n", to);
	for (int i = 0; i < DIFF_SIDES; i++) {
		const struct diff_side *side = &diff->sides[i];

		fprintf(to, "  \"%s\": {\"trace\": ", labels[i]);
		text_print_json(to, side->path, strlen(side->path));
		fprintf(to,
			", \"running\": %llu, \"period_ns\": %llu, \"filtered\": %llu, "
			"\"complete\": %s},\n",
			(unsigned long long)side->totals.running,
			(unsigned long long)side->trace.info.period_ns,
			(unsigned long long)side->totals.filtered,
			side->trace.info.complete ? "true" : "false");
	}
	fprintf(to, "  \"basis\": \"%s\",\n  \"of\": \"%s\",\n  \"shape\": \"%s\",\n",
		diff->basis == COMPARE_TIME ? "time" : "share",
		diff->total || !table ? "total" : "self", shapes[diff->shape]);
	fprintf(to, "  \"compared\": %zu,\n  \"changes\": %zu,\n", diff_compared(diff),
		diff_changes(diff));
	if (table)
		write_rows(diff, to);
	else
		write_nodes(diff, to);
	fputs("\n  ]\n}\n", to);
}
