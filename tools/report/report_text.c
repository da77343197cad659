/* guestprof report as text and as Markdown. */
#include "tools/report/report_output.h"

#include "analysis/text.h"
#include "tools/tree_walk.h"

#include <string.h>

/* As perf colours its percentages. */
#define HOT_PERCENT 5.0
#define WARM_PERCENT 0.5

static void print_text(FILE *to, const char *label, const char *text)
{
	if (!*text)
		return;
	fprintf(to, "# %s", label);
	trace_print_name(to, text, strlen(text));
	putc('\n', to);
}

static const char *state_of(const struct trace_info *info)
{
	if (info->broken)
		return "is damaged";
	return info->cut ? "is cut" : "has no end record and stops";
}

static void print_sampling(const struct trace_info *info, FILE *to)
{
	fprintf(to, "%llu vCPU%s, ", (unsigned long long)info->vcpus, text_plural(info->vcpus));
	text_print_period(to, info);
	fprintf(to, ", %.3f s\n", (double)(info->last_ns - info->first_ns) / 1e9);
}

static void print_console(const struct trace_info *info, FILE *to)
{
	if (!info->console_lines && !info->console_lost)
		return;
	fprintf(to, "# console:  %llu line%s", (unsigned long long)info->console_lines,
		text_plural(info->console_lines));
	if (info->console_cut)
		fprintf(to, ", %llu of them without their end",
			(unsigned long long)info->console_cut);
	if (info->console_lost)
		fprintf(to, ", and %llu that are left out", (unsigned long long)info->console_lost);
	putc('\n', to);
}

static void print_shares(const struct profile_totals *totals, FILE *to)
{
	/* Of no ticks there are no shares. */
	if (!totals->ticks) {
		fputs(totals->filtered ? "# nothing:  no sample is what the filters ask for\n"
				       : "# nothing:  there is no sample in it\n",
		      to);
		return;
	}
	fprintf(to, "# vCPUs:   ");
	for (int mode = 0; mode < FRAMES_MODES; mode++)
		if (totals->modes[mode])
			fprintf(to, " %s %.1f %%", frames_mode_name((uint64_t)mode),
				text_percent(totals->modes[mode], totals->ticks));
	fprintf(to, "\n# stacks:  ");
	for (int end = 0; end < FRAMES_ENDS; end++)
		if (totals->ends[end])
			fprintf(to, " %s %.1f %%", frames_end_name((uint64_t)end),
				text_percent(totals->ends[end], totals->running));
	putc('\n', to);
}

static void print_header(const struct report *report, FILE *to)
{
	const struct profile_totals *totals = &report->totals;
	const struct trace_info *info = &report->trace.info;

	print_text(to, "trace:    ", report->path);
	print_text(to, "guest:    ", info->banner);
	print_text(to, "kernel:   ", info->kernel);
	print_text(to, "command:  ", info->command_line);
	print_text(to, "source:   ", info->source);
	fputs("# sampled:  ", to);
	print_sampling(info, to);
	fprintf(to, "# ticks:    %llu stacks + %llu partial + %llu dropped\n",
		(unsigned long long)info->stacks, (unsigned long long)info->partials,
		(unsigned long long)info->dropped_records);
	if (!filter_is_empty(&report->filter))
		fprintf(to, "# filtered: %llu of %llu ticks are left out\n",
			(unsigned long long)totals->filtered,
			(unsigned long long)(totals->filtered + totals->ticks));
	print_shares(totals, to);
	print_console(info, to);
	print_text(to, "ended:    ", info->end_reason);
	if (report->lines) {
		const struct source_counts counts = source_lines_counts(report->lines);

		fprintf(to, "# lines:    debug information for %u of %u files\n", counts.found,
			counts.files);
	}
	if (!info->complete)
		fprintf(to, "# INCOMPLETE: the trace %s at byte %zu of %zu%s%s\n", state_of(info),
			info->good_bytes, info->bytes, info->problem ? ": " : "",
			info->problem ? info->problem : "");
	else if (info->bad_records)
		fprintf(to, "# DAMAGED: %llu record%s skipped; the last at byte %zu: %s\n",
			(unsigned long long)info->bad_records, text_plural(info->bad_records),
			info->problem_offset, info->problem);
}

static void print_percent(const struct report *report, FILE *to, uint64_t part)
{
	double percent = text_percent(part, report->whole);
	const char *colour = percent >= HOT_PERCENT ? "\033[31m" : "\033[32m";

	if (report->colours && percent >= WARM_PERCENT)
		fprintf(to, "%s%6.2f %%\033[0m  ", colour, percent);
	else
		fprintf(to, "%6.2f %%  ", percent);
}

static void write_table(const struct report *report, FILE *to)
{
	size_t shown = report_rows(report);

	fprintf(to,
		report->by_owner ? "#\n#  share   samples  %s\n"
				 : "#\n#   self     total   samples  %s\n",
		report->column);
	for (size_t i = 0; i < shown; i++) {
		const struct table_row *row = &report->table.rows[i];

		print_percent(report, to, row->self);
		if (!report->by_owner)
			print_percent(report, to, row->total);
		fprintf(to, "%8llu  ", (unsigned long long)row->self);
		text_print_frame(to, &report->frames.entries[row->frame]);
		putc('\n', to);
	}
	if (shown < report->table.count)
		fprintf(to, "# and %zu more; -n 0 shows all\n", report->table.count - shown);
}

static void write_tree(const struct report *report, FILE *to)
{
	bool callers = report->shape == SHAPE_CALLERS;
	struct tree_walk walk;
	size_t shown = 0;

	/* Turned round, what ends at a node is what came from a thread's first function: no figure
	 * of its own. */
	fprintf(to,
		callers ? "#\n#  share   samples  %s\n" : "#\n#  total      self   samples  %s\n",
		report->column);
	tree_walk_begin(&walk, &report->tree, report_shows_node, report);
	while (tree_walk_next(&walk)) {
		const struct call_tree_node *node = &report->tree.nodes[walk.node];

		if (report->most && shown == report->most) {
			fprintf(to, "# and more; -n 0 shows all\n");
			break;
		}
		shown++;
		print_percent(report, to, node->total);
		if (!callers)
			print_percent(report, to, node->self);
		fprintf(to, "%8llu  ", (unsigned long long)node->total);
		tree_walk_indent(&walk, to);
		text_print_frame(to, &report->frames.entries[node->frame]);
		putc('\n', to);
	}
	if (report->least > 0)
		fprintf(to, "# without what is below %g %%; --min 0 shows all\n", report->least);
}

void report_write_text(const struct report *report, FILE *to)
{
	print_header(report, to);
	if (report->shape == SHAPE_TABLE)
		write_table(report, to);
	else
		write_tree(report, to);
}

static void markdown_fact(FILE *to, const char *label, const char *text)
{
	if (!*text)
		return;
	fprintf(to, "- %s: `", label);
	/* Nothing but a backtick ends code. */
	text_print_without(to, text, strlen(text), "`");
	fputs("`\n", to);
}

void report_write_markdown(const struct report *report, FILE *to)
{
	const struct profile_totals *totals = &report->totals;
	const struct trace_info *info = &report->trace.info;
	size_t shown = report_rows(report);

	markdown_fact(to, "guest", info->banner);
	markdown_fact(to, "kernel", info->kernel);
	fputs("- sampled: ", to);
	print_sampling(info, to);
	fprintf(to, "- ticks: %llu stacks, %llu partial, %llu dropped, %llu left out by filters\n",
		(unsigned long long)info->stacks, (unsigned long long)info->partials,
		(unsigned long long)info->dropped_records, (unsigned long long)totals->filtered);
	fprintf(to, "- complete stacks: %.1f %%\n",
		text_percent(totals->ends[FXT_STACK_END_ROOT], totals->running));
	markdown_fact(to, "ended", info->end_reason);
	if (!info->complete)
		fprintf(to, "- **incomplete**: the trace %s at byte %zu of %zu\n", state_of(info),
			info->good_bytes, info->bytes);
	if (report->shape != SHAPE_TABLE) {
		fputs("\n```\n", to);
		write_tree(report, to);
		fputs("```\n", to);
		return;
	}
	fprintf(to,
		report->by_owner ? "\n| share | samples | %s |\n|---:|---:|:---|\n"
				 : "\n| self | total | samples | %s |\n|---:|---:|---:|:---|\n",
		report->column);
	for (size_t i = 0; i < shown; i++) {
		const struct table_row *row = &report->table.rows[i];

		fprintf(to, "| %.2f %% |", text_percent(row->self, report->whole));
		if (!report->by_owner)
			fprintf(to, " %.2f %% |", text_percent(row->total, report->whole));
		fprintf(to, " %llu | ", (unsigned long long)row->self);
		text_print_markdown(to, &report->frames.entries[row->frame]);
		fputs(" |\n", to);
	}
	if (shown < report->table.count)
		fprintf(to, "\n%zu more are not shown.\n", report->table.count - shown);
}
