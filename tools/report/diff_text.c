/* guestprof diff as text and as Markdown. */
#include "tools/report/diff_output.h"

#include "analysis/text.h"
#include "tools/tree_walk.h"

#include <string.h>

static const char everything[] = "[everything]";

static const char *things(const struct diff *diff)
{
	return diff->shape == SHAPE_TABLE ? "functions" : "call paths";
}

static const char *unit_of(const struct diff *diff)
{
	return diff->basis == COMPARE_TIME ? "percent of the time before"
					   : "percent of its own trace";
}

static const char *columns_of(const struct diff *diff)
{
	if (diff->shape == SHAPE_TABLE)
		return diff->total ? "total" : "self";
	return diff->shape == SHAPE_CALLEES ? "total, and the change of self"
					    : "what came this way";
}

static void print_name(const struct diff *diff, FILE *to, const struct compare_row *row)
{
	if (row->frame == COMPARE_ALL)
		fputs(everything, to);
	else
		text_print_frame(to, &diff->frames.entries[row->frame]);
}

static void print_figures(const struct diff *diff, FILE *to, const struct compare_row *row)
{
	const char *colour = compare_growth(row) > 0 ? "\033[31m" : "\033[32m";
	bool coloured = diff->colours && row->is_change;

	fprintf(to, "%6.2f %%  %6.2f %%  %s%+6.2f %%%s  ", row->before_percent, row->after_percent,
		coloured ? colour : "", compare_growth(row), coloured ? "\033[0m" : "");
}

static void write_rows(const struct diff *diff, FILE *to)
{
	size_t shown = diff_rows(diff);

	fputs("#\n#  before     after    change  function\n", to);
	for (size_t i = 0; i < shown; i++) {
		const struct compare_row *row = &diff->compare.rows[i];

		print_figures(diff, to, row);
		print_name(diff, to, row);
		fputs(row->is_change ? "\n" : "  (noise)\n", to);
	}
	if (shown < diff->compare.changes)
		fprintf(to, "# and %zu more; -n 0 shows all\n", diff->compare.changes - shown);
}

/* The change of what ended in the node itself. Callers have none of their own. */
static void print_self(const struct diff *diff, FILE *to, uint32_t node)
{
	const struct compare_row *whole = &diff->tree.rows[CALL_TREE_ROOT];
	const struct compare_tree_self *self = &diff->tree.self[node];
	double before = (double)self->before * whole->before_percent / (double)whole->before;
	double after = (double)self->after * whole->after_percent / (double)whole->after;

	if (diff->shape == SHAPE_CALLEES)
		fprintf(to, "%+6.2f %%  ", after - before);
}

static void write_tree(const struct diff *diff, FILE *to)
{
	bool callees = diff->shape == SHAPE_CALLEES;
	struct tree_walk walk;
	size_t shown = 0;

	fprintf(to, "#\n#  before     after    change  %s  function\n", callees ? "    self" : "");
	if (diff->basis == COMPARE_TIME) {
		print_figures(diff, to, &diff->tree.rows[CALL_TREE_ROOT]);
		fprintf(to, "%s  %s\n", callees ? "          " : "", everything);
	}
	tree_walk_begin(&walk, &diff->tree.tree, diff_shows_node, diff);
	while (tree_walk_next(&walk)) {
		const struct compare_row *row = &diff->tree.rows[walk.node];

		if (diff->most && shown == diff->most) {
			fprintf(to, "# and more; -n 0 shows all\n");
			break;
		}
		shown++;
		print_figures(diff, to, row);
		print_self(diff, to, walk.node);
		tree_walk_indent(&walk, to);
		print_name(diff, to, row);
		fputs(row->is_change ? "\n" : "  (noise)\n", to);
	}
	if (diff->least > 0 && !diff->all)
		fprintf(to, "# without changes below %g %%; --min 0 shows all\n", diff->least);
}

/* Seconds, or the events that were counted instead. */
static void print_amount(const struct diff_side *side, FILE *to)
{
	const struct trace_info *info = &side->trace.info;

	if (text_period_is_time(info))
		fprintf(to, "%.3f s", (double)side->totals.running * (double)info->period_ns / 1e9);
	else
		fprintf(to, "%.0f %s", (double)side->totals.running * (double)info->period_ns,
			info->tick_source);
}

void diff_write_text(const struct diff *diff, FILE *to)
{
	static const char *const labels[DIFF_SIDES] = {"before: ", "after:  "};

	for (int i = 0; i < DIFF_SIDES; i++) {
		const struct diff_side *side = &diff->sides[i];

		fprintf(to, "# %s  ", labels[i]);
		trace_print_name(to, side->path, strlen(side->path));
		fprintf(to, ", %llu tick%s, ", (unsigned long long)side->totals.running,
			text_plural(side->totals.running));
		print_amount(side, to);
		fprintf(to, " of vCPUs running%s\n",
			side->trace.info.complete ? "" : ", INCOMPLETE");
	}
	fprintf(to, "# changed:  %zu of %zu %s by more than sampling explains\n",
		diff_changes(diff), diff_compared(diff), things(diff));
	fprintf(to, "# columns:  %s, in %s\n", columns_of(diff), unit_of(diff));
	if (diff->shape == SHAPE_TABLE)
		write_rows(diff, to);
	else
		write_tree(diff, to);
}

static void write_markdown_rows(const struct diff *diff, FILE *to)
{
	size_t shown = diff_rows(diff);

	if (shown)
		fputs("\n| before | after | change | function |\n|---:|---:|---:|:---|\n", to);
	for (size_t i = 0; i < shown; i++) {
		const struct compare_row *row = &diff->compare.rows[i];
		const char *bold = diff_is_over(diff, row) ? "**" : "";

		fprintf(to, "| %.2f %% | %.2f %% | %s%+.2f %%%s | ", row->before_percent,
			row->after_percent, bold, compare_growth(row), bold);
		if (row->frame == COMPARE_ALL)
			fputs("\\[everything\\]", to);
		else
			text_print_markdown(to, &diff->frames.entries[row->frame]);
		fputs(row->is_change ? " |\n" : " (noise) |\n", to);
	}
	if (shown < diff->compare.changes)
		fprintf(to, "\n%zu more are not shown.\n", diff->compare.changes - shown);
}

void diff_write_markdown(const struct diff *diff, FILE *to)
{
	fprintf(to, "%zu of %zu %s changed by more than sampling explains (%s, %s).\n",
		diff_changes(diff), diff_compared(diff), things(diff), columns_of(diff),
		unit_of(diff));
	fputs("Running: ", to);
	print_amount(&diff->sides[DIFF_BEFORE], to);
	fputs(" before, ", to);
	print_amount(&diff->sides[DIFF_AFTER], to);
	fputs(" after.\n", to);
	for (int i = 0; i < DIFF_SIDES; i++)
		if (!diff->sides[i].trace.info.complete)
			fprintf(to, "The trace %s is **incomplete**.\n",
				i == DIFF_BEFORE ? "before" : "after");
	if (diff->shape == SHAPE_TABLE) {
		write_markdown_rows(diff, to);
		return;
	}
	fputs("\n```\n", to);
	write_tree(diff, to);
	fputs("```\n", to);
}
