/* guestprof diff: what takes another part of the time in a second trace. */
#include "command.h"
#include "filter_options.h"
#include "output.h"

#include "base/container.h"
#include "profile/compare.h"
#include "profile/text.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LINES 30
/* A function grew by more than --fail-above. */
#define EXIT_SLOWER 3

enum { OPTION_TIME = 256, OPTION_TOTAL, OPTION_ALL, OPTION_FAIL, OPTION_JSON, OPTION_MARKDOWN };
enum { BEFORE, AFTER, SIDES };

static char program[] = "guestprof diff";

static const char help[] =
	"usage: guestprof diff [OPTIONS] BEFORE AFTER\n"
	"Shows which functions take another part of the time in the trace AFTER than in BEFORE.\n"
	"Differences that sampling explains are left out.\n"
	"\n"
	"      --time            compare times, not shares: for two runs of the same work\n"
	"      --total           a function with what it called, not only itself\n"
	"      --all             also what did not change\n"
	"      --fail-above P%   exit code 3 when a function grew by more than P percent of the\n"
	"                        whole, beyond what sampling explains\n"
	"  -n, --lines N         functions to show (default: 30; 0: all)\n"
	"      --json, --markdown\n"
	"  -h, --help\n"
	"\n" FILTER_HELP "\n"
	"Exit codes: 0 compared, 1 a file cannot be read, 2 bad command line, 3 --fail-above.\n"
	"\n"
	"Examples: guestprof diff yesterday.fxt today.fxt\n"
	"          guestprof diff --time --total --fail-above 5% --markdown base.fxt new.fxt\n";

struct side {
	const char *path;
	struct trace trace;
	struct call_tree tree;
	struct profile_totals totals;
};

struct diff {
	struct side sides[SIDES];
	struct filter filter;
	struct frames frames; /* of both */
	struct compare compare;
	enum compare_basis basis;
	bool total;
	bool all;
	double fail_above; /* percent; negative: not asked for */
	size_t most;
	size_t shown; /* rows */
	bool colours;
	void (*write)(const struct diff *diff, FILE *to);
};

static double growth(const struct compare_row *row)
{
	return row->after_percent - row->before_percent;
}

static bool is_over(const struct diff *diff, const struct compare_row *row)
{
	return diff->fail_above >= 0 && row->is_change && growth(row) > diff->fail_above;
}

static double seconds(const struct side *side)
{
	return (double)side->totals.running * (double)side->trace.info.period_ns / 1e9;
}

static void print_name(const struct diff *diff, FILE *to, const struct compare_row *row)
{
	if (row->frame == COMPARE_ALL)
		fputs("[everything]", to);
	else
		text_print_frame(to, &diff->frames.entries[row->frame]);
}

static const char *unit_of(const struct diff *diff)
{
	return diff->basis == COMPARE_TIME ? "percent of the time before"
					   : "percent of its own trace";
}

static void write_text(const struct diff *diff, FILE *to)
{
	static const char *const labels[SIDES] = {"before: ", "after:  "};

	for (int i = 0; i < SIDES; i++) {
		const struct side *side = &diff->sides[i];

		fprintf(to, "# %s  ", labels[i]);
		trace_print_name(to, side->path, strlen(side->path));
		fprintf(to, ", %llu ticks, %.3f s of vCPUs running%s\n",
			(unsigned long long)side->totals.running, seconds(side),
			side->trace.info.complete ? "" : ", INCOMPLETE");
	}
	fprintf(to, "# changed:  %zu of %zu functions by more than sampling explains\n",
		diff->compare.changes, diff->compare.count);
	fprintf(to, "# columns:  %s, in %s\n#\n#  before     after    change  function\n",
		diff->total ? "total" : "self", unit_of(diff));
	for (size_t i = 0; i < diff->shown; i++) {
		const struct compare_row *row = &diff->compare.rows[i];
		const char *colour = growth(row) > 0 ? "\033[31m" : "\033[32m";
		bool coloured = diff->colours && row->is_change;

		fprintf(to, "%6.2f %%  %6.2f %%  %s%+6.2f %%%s  ", row->before_percent,
			row->after_percent, coloured ? colour : "", growth(row),
			coloured ? "\033[0m" : "");
		print_name(diff, to, row);
		fputs(row->is_change ? "\n" : "  (noise)\n", to);
	}
	if (diff->shown < diff->compare.changes)
		fprintf(to, "# and %zu more; -n 0 shows all\n",
			diff->compare.changes - diff->shown);
}

static void write_markdown(const struct diff *diff, FILE *to)
{
	fprintf(to, "%zu of %zu functions changed by more than sampling explains (%s, %s).\n",
		diff->compare.changes, diff->compare.count, diff->total ? "total" : "self",
		unit_of(diff));
	fprintf(to, "Running: %.3f s before, %.3f s after.\n", seconds(&diff->sides[BEFORE]),
		seconds(&diff->sides[AFTER]));
	if (diff->shown)
		fputs("\n| before | after | change | function |\n|---:|---:|---:|:---|\n", to);
	for (size_t i = 0; i < diff->shown; i++) {
		const struct compare_row *row = &diff->compare.rows[i];

		fprintf(to, "| %.2f %% | %.2f %% | %s%+.2f %%%s | ", row->before_percent,
			row->after_percent, is_over(diff, row) ? "**" : "", growth(row),
			is_over(diff, row) ? "**" : "");
		if (row->frame == COMPARE_ALL)
			fputs("\\[everything\\]", to);
		else
			text_print_markdown(to, &diff->frames.entries[row->frame]);
		fputs(row->is_change ? " |\n" : " (noise) |\n", to);
	}
	if (diff->shown < diff->compare.changes)
		fprintf(to, "\n%zu more are not shown.\n", diff->compare.changes - diff->shown);
}

static void write_json(const struct diff *diff, FILE *to)
{
	static const char *const labels[SIDES] = {"before", "after"};

	fputs("{\n", to);
	for (int i = 0; i < SIDES; i++) {
		const struct side *side = &diff->sides[i];

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
	fprintf(to, "  \"basis\": \"%s\",\n  \"of\": \"%s\",\n  \"compared\": %zu,\n",
		diff->basis == COMPARE_TIME ? "time" : "share", diff->total ? "total" : "self",
		diff->compare.count);
	fprintf(to, "  \"changes\": %zu,\n  \"rows\": [", diff->compare.changes);
	for (size_t i = 0; i < diff->shown; i++) {
		const struct compare_row *row = &diff->compare.rows[i];

		fprintf(to, "%s\n    {\"name\": ", i ? "," : "");
		if (row->frame == COMPARE_ALL)
			fputs("\"[everything]\"", to);
		else
			text_print_json(to, diff->frames.entries[row->frame].name,
					diff->frames.entries[row->frame].name_bytes);
		fprintf(to,
			", \"before\": %llu, \"after\": %llu, \"before_percent\": %.4f, "
			"\"after_percent\": %.4f, \"chance\": %.3g, \"changed\": %s, \"over\": %s}",
			(unsigned long long)row->before, (unsigned long long)row->after,
			row->before_percent, row->after_percent, row->chance,
			row->is_change ? "true" : "false", is_over(diff, row) ? "true" : "false");
	}
	fputs("\n  ]\n}\n", to);
}

static bool parse_lines(const char *text, size_t *lines)
{
	char *end;

	*lines = strtoul(text, &end, 10);
	if (!*end && *text >= '0' && *text <= '9')
		return true;
	fprintf(stderr, "%s: -n %s: give a number of lines\n", program, text);
	return false;
}

static bool parse_percent(const char *text, double *percent)
{
	char *end;

	*percent = strtod(text, &end);
	if (*end == '%')
		end++;
	if (!*end && *text >= '0' && *text <= '9' && *percent >= 0 && *percent < 1e6)
		return true;
	fprintf(stderr, "%s: --fail-above %s: give percent, such as 5%%\n", program, text);
	return false;
}

/* -1: go on; otherwise the exit code. */
static int parse(int argc, char **argv, struct diff *diff)
{
	static const struct option options[] = {
		{"time", no_argument, NULL, OPTION_TIME},
		{"total", no_argument, NULL, OPTION_TOTAL},
		{"all", no_argument, NULL, OPTION_ALL},
		{"fail-above", required_argument, NULL, OPTION_FAIL},
		{"lines", required_argument, NULL, 'n'},
		{"json", no_argument, NULL, OPTION_JSON},
		{"markdown", no_argument, NULL, OPTION_MARKDOWN},
		{"help", no_argument, NULL, 'h'},
		FILTER_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	int option;

	optind = 1;
	while ((option = getopt_long(argc, argv, "n:h", options, NULL)) != -1) {
		bool good = true;

		switch (option) {
		case OPTION_TIME:
			diff->basis = COMPARE_TIME;
			break;
		case OPTION_TOTAL:
			diff->total = true;
			break;
		case OPTION_ALL:
			diff->all = true;
			break;
		case OPTION_FAIL:
			good = parse_percent(optarg, &diff->fail_above);
			break;
		case 'n':
			good = parse_lines(optarg, &diff->most);
			break;
		case OPTION_JSON:
			diff->write = write_json;
			break;
		case OPTION_MARKDOWN:
			diff->write = write_markdown;
			break;
		case 'h':
			fputs(help, stdout);
			return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
		default:
			good = filter_option(program, option, &diff->filter);
		}
		if (!good)
			return EXIT_USAGE;
	}
	if (argc - optind != SIDES) {
		fprintf(stderr, "%s: give two traces, BEFORE and AFTER\n", program);
		return EXIT_USAGE;
	}
	diff->sides[BEFORE].path = argv[optind];
	diff->sides[AFTER].path = argv[optind + 1];
	return -1;
}

static gp_status_t read_side(struct diff *diff, struct side *side, struct error *error)
{
	struct profile_options options = {.filter = &diff->filter};
	gp_status_t status = trace_open(side->path, &side->trace, error);

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
	return status;
}

static gp_status_t compare_sides(struct diff *diff, struct error *error)
{
	struct call_tree_sum *sums[SIDES] = {NULL};
	struct compare_side compared[SIDES];
	gp_status_t status = GP_OK;

	for (int i = 0; !status && i < SIDES; i++) {
		const struct side *side = &diff->sides[i];

		sums[i] = calloc(diff->frames.count + 1, sizeof(*sums[i]));
		status = sums[i] ? call_tree_add_up(&side->tree, sums[i], diff->frames.count, error)
				 : error_set(error, GP_ERR_NO_MEMORY, "no memory");
		compared[i] = (struct compare_side){
			.sums = sums[i],
			.running = side->totals.running,
			.squares = side->totals.squares,
			.period_ns = side->trace.info.period_ns,
		};
	}
	if (!status)
		status = compare_profiles(&compared[BEFORE], &compared[AFTER], &diff->frames,
					  diff->basis, diff->total, &diff->compare, error);
	free(sums[BEFORE]);
	free(sums[AFTER]);
	return status;
}

static gp_status_t show(struct diff *diff, struct error *error)
{
	struct output output;

	diff->shown = diff->all ? diff->compare.count : diff->compare.changes;
	if (diff->most && diff->shown > diff->most)
		diff->shown = diff->most;
	output_open_paged(&output);
	diff->colours = output.is_terminal && !getenv("NO_COLOR");
	diff->write(diff, output.file);
	return output_finish(&output, error);
}

static gp_status_t run(struct diff *diff, struct error *error)
{
	gp_status_t status = frames_init(&diff->frames, error);

	for (int i = 0; !status && i < SIDES; i++)
		status = read_side(diff, &diff->sides[i], error);
	if (!status)
		status = compare_sides(diff, error);
	if (!status)
		status = show(diff, error);
	return status;
}

int command_diff(int argc, char **argv)
{
	static struct diff diff; /* larger than a stack frame should be */
	struct error error = {0};
	gp_status_t status;
	int code;

	diff = (struct diff){.most = DEFAULT_LINES, .fail_above = -1, .write = write_text};
	argv[0] = program;
	code = parse(argc, argv, &diff);
	if (code >= 0)
		return code;
	status = run(&diff, &error);
	code = status ? EXIT_FAILURE : EXIT_SUCCESS;
	for (size_t i = 0; !status && i < diff.compare.changes; i++)
		if (is_over(&diff, &diff.compare.rows[i]))
			code = EXIT_SLOWER;
	compare_deinit(&diff.compare);
	for (int i = 0; i < SIDES; i++) {
		call_tree_deinit(&diff.sides[i].tree);
		trace_close(&diff.sides[i].trace);
	}
	frames_deinit(&diff.frames);
	filter_deinit(&diff.filter);
	if (status)
		fprintf(stderr, "%s: %s\n", program, error.text);
	return code;
}
