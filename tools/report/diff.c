/* guestprof diff: what takes more or less of the time in a second trace. */
#include "tools/report/diff_output.h"

#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "base/progress.h"

#include "analysis/text.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LINES 30
#define DEFAULT_LEAST 0.1
/* Something grew by more than --fail-above. */
#define EXIT_SLOWER 3

static const char program[] = "guestprof diff";

static const char help[] =
	"usage: guestprof diff [OPTIONS] BEFORE AFTER\n"
	"Shows which functions take more or less of the time in the trace AFTER than in\n"
	"BEFORE. Differences that sampling explains are left out.\n"
	"\n"
	"      --time            compare times, not shares: for two runs of the same\n"
	"                        work\n"
	"      --total           a function with what it called, not only itself\n"
	"      --tree[=callers]  by call path: from the outermost function, or from the\n"
	"                        leaf to callers\n"
	"      --min PERCENT     leave out changes of paths below (default: 0.1)\n"
	"      --all             also what did not change\n"
	"      --fail-above P%   exit code 3 when a function, or with --tree a path,\n"
	"                        grew by more than P percent of the whole, beyond what\n"
	"                        sampling explains\n"
	"  -n, --lines N         lines to show (default: 30, of a tree all; 0: all)\n"
	"      --json, --markdown\n"
	"  -h, --help\n"
	"\n" FILTER_HELP "\n"
	"Exit codes: 0 compared, 1 a file cannot be read, 2 bad command line, 3\n"
	"--fail-above.\n"
	"\n"
	"Examples: guestprof diff yesterday.fxt today.fxt\n"
	"          guestprof diff --tree --comm make yesterday.fxt today.fxt\n"
	"          guestprof diff --time --fail-above 5% --markdown base.fxt new.fxt\n";

struct choice {
	bool lines_given;
	enum { AS_TEXT, AS_MARKDOWN, AS_JSON } format;
};

/* -1: go on; otherwise the exit code. */
static int check(int argc, char **argv, struct diff *diff, const struct choice *choice)
{
	if (diff->shape != SHAPE_TABLE && diff->total)
		return option_bad(program, "--tree has totals anyway: leave out --total");
	if (argc - optind != DIFF_SIDES || !*argv[optind] || !*argv[optind + 1])
		return option_bad(program, "give two traces, BEFORE and AFTER");
	if (diff->shape != SHAPE_TABLE && !choice->lines_given)
		diff->most = 0;
	diff->sides[DIFF_BEFORE].path = argv[optind];
	diff->sides[DIFF_AFTER].path = argv[optind + 1];
	return -1;
}

static gp_status_t turn_round(struct call_tree *tree, struct error *error)
{
	struct call_tree reversed;
	gp_status_t status = call_tree_reverse(tree, &reversed, error);

	if (status)
		return status;
	call_tree_deinit(tree);
	*tree = reversed;
	return GP_OK;
}

static gp_status_t read_side(struct diff *diff, struct diff_side *side, struct error *error)
{
	struct profile_options options = {.filter = &diff->filter};
	gp_status_t status = trace_open_watched(side->path, progress_tell, &side->trace, error);

	if (!status)
		status = call_tree_init(&side->tree, error);
	if (!status)
		status = profile_read(&side->trace, &options, &diff->frames, &side->tree,
				      &side->totals, error);
	if (!status && !side->totals.running)
		status = error_set(error, GP_ERR_INVALID_ARGS,
				   "%s: no sample in which a vCPU ran is left to compare",
				   side->path);
	if (!status && !side->trace.info.period_ns)
		status = error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				   "%s does not say how often it was sampled", side->path);
	if (!status && diff->shape == SHAPE_CALLERS)
		status = turn_round(&side->tree, error);
	return status;
}

static struct compare_side side_of(const struct diff_side *side)
{
	return (struct compare_side){.running = side->totals.running,
				     .squares = side->totals.squares,
				     .period_ns = side->trace.info.period_ns};
}

/* Seconds and cycles have no common measure. */
static gp_status_t check_ticks(const struct diff *diff, struct error *error)
{
	const struct trace_info *before = &diff->sides[DIFF_BEFORE].trace.info;
	const struct trace_info *after = &diff->sides[DIFF_AFTER].trace.info;

	if (text_period_is_time(before) && text_period_is_time(after))
		return GP_OK;
	if (strcmp(before->tick_source, after->tick_source))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "one trace counts %s, the other %s: record both with the same -e",
				 before->tick_source, after->tick_source);
	if (diff->basis == COMPARE_TIME)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "--time: these traces count %s, not time; leave it out",
				 before->tick_source);
	return GP_OK;
}

static gp_status_t compare_functions(struct diff *diff, struct error *error)
{
	struct call_tree_sum *sums[DIFF_SIDES] = {NULL};
	struct compare_side compared[DIFF_SIDES];
	gp_status_t status = GP_OK;

	for (int i = 0; !status && i < DIFF_SIDES; i++) {
		sums[i] = calloc(diff->frames.count + 1, sizeof(*sums[i]));
		status = sums[i] ? call_tree_add_up(&diff->sides[i].tree, sums[i],
						    diff->frames.count, error)
				 : error_set(error, GP_ERR_NO_MEMORY, "no memory");
		compared[i] = side_of(&diff->sides[i]);
		compared[i].sums = sums[i];
	}
	if (!status)
		status = compare_profiles(&compared[DIFF_BEFORE], &compared[DIFF_AFTER],
					  &diff->frames, diff->basis, diff->total, &diff->compare,
					  error);
	free(sums[DIFF_BEFORE]);
	free(sums[DIFF_AFTER]);
	return status;
}

static gp_status_t compare_paths(struct diff *diff, struct error *error)
{
	const struct compare_side sides[] = {side_of(&diff->sides[DIFF_BEFORE]),
					     side_of(&diff->sides[DIFF_AFTER])};
	const struct call_tree trees[] = {diff->sides[DIFF_BEFORE].tree,
					  diff->sides[DIFF_AFTER].tree};
	const struct call_tree_node *nodes;
	gp_status_t status = compare_trees(sides, trees, diff->basis, &diff->tree, error);

	if (status)
		return status;
	nodes = diff->tree.tree.nodes;
	diff->shown = calloc(diff->tree.tree.count, sizeof(*diff->shown));
	if (!diff->shown)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	/* A change, and the way to it. */
	for (uint32_t i = (uint32_t)diff->tree.tree.count; i-- > 1;) {
		const struct compare_row *row = &diff->tree.rows[i];
		double growth = compare_growth(row);

		if (diff->all ? row->before || row->after
			      : row->is_change && (growth >= diff->least || -growth >= diff->least))
			diff->shown[i] = true;
		if (diff->shown[i])
			diff->shown[nodes[i].parent] = true;
	}
	return GP_OK;
}

static gp_status_t show(struct diff *diff, const struct choice *choice, struct error *error)
{
	static void (*const writers[])(const struct diff *diff, FILE *to) = {
		diff_write_text, diff_write_markdown, diff_write_json};
	struct output output;

	output_open_paged(&output);
	diff->colours = output.is_terminal && !getenv("NO_COLOR") && choice->format == AS_TEXT;
	writers[choice->format](diff, output.file);
	return output_finish(&output, error);
}

static gp_status_t run(struct diff *diff, const struct choice *choice, struct error *error)
{
	gp_status_t status = frames_init(&diff->frames, error);

	for (int i = 0; !status && i < DIFF_SIDES; i++)
		status = read_side(diff, &diff->sides[i], error);
	if (!status)
		status = check_ticks(diff, error);
	if (!status)
		status = diff->shape == SHAPE_TABLE ? compare_functions(diff, error)
						    : compare_paths(diff, error);
	if (!status)
		status = show(diff, choice, error);
	return status;
}

static bool is_slower(const struct diff *diff)
{
	bool table = diff->shape == SHAPE_TABLE;
	const struct compare_row *rows = table ? diff->compare.rows : diff->tree.rows;
	size_t count = table ? diff->compare.count : diff->tree.tree.count;

	for (size_t i = 0; i < count; i++)
		if (diff_is_over(diff, &rows[i]))
			return true;
	return false;
}

static void release(struct diff *diff)
{
	compare_deinit(&diff->compare);
	compare_tree_deinit(&diff->tree);
	free(diff->shown);
	for (int i = 0; i < DIFF_SIDES; i++) {
		call_tree_deinit(&diff->sides[i].tree);
		trace_close(&diff->sides[i].trace);
	}
	frames_deinit(&diff->frames);
	filter_deinit(&diff->filter);
}

int command_diff(int argc, char **argv)
{
	static struct diff diff = {/* larger than a stack frame should be */
				   .most = DEFAULT_LINES,
				   .fail_above = -1,
				   .least = DEFAULT_LEAST};
	static struct choice choice;
	static const struct option_row rows[] = {
		OPTION("time", 0, OPTION_SET, &diff.basis, .least = COMPARE_TIME),
		OPTION("total", 0, OPTION_FLAG, &diff.total, ),
		TREE_ROW(diff.shape),
		OPTION("min", 0, OPTION_PERCENT, &diff.least, .most = 100,
		       .hint = "give percent, 0 to 100"),
		OPTION("all", 0, OPTION_FLAG, &diff.all, ),
		OPTION("fail-above", 0, OPTION_PERCENT, &diff.fail_above, .most = 1000000,
		       .hint = "give percent, 0 to 1000000"),
		OPTION("lines", 'n', OPTION_NUMBER, &diff.most, .most = SIZE_MAX,
		       .hint = "give a number", .given = &choice.lines_given),
		OPTION("json", 0, OPTION_SET, &choice.format, .least = AS_JSON),
		OPTION("markdown", 0, OPTION_SET, &choice.format, .least = AS_MARKDOWN),
		FILTER_ROWS(diff.filter),
		OPTIONS_END,
	};
	struct error error = {0};
	gp_status_t status;
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code < 0)
		code = check(argc, argv, &diff, &choice);
	if (code >= 0)
		return code;
	progress_begin(program);
	status = run(&diff, &choice, &error);
	code = command_end(program, status, &error);
	if (!status && is_slower(&diff))
		code = EXIT_SLOWER;
	release(&diff);
	return code;
}
