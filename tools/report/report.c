/* guestprof report: where the time went. */
#include "tools/report/report.h"

#include "base/container.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/report/source_options.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LINES 30
#define DEFAULT_LEAST 0.5

enum { OPTION_BY = 256, OPTION_TREE, OPTION_MIN, OPTION_JSON, OPTION_MARKDOWN, OPTION_INLINES };

static char program[] = "guestprof report";

static const char help[] =
	"usage: guestprof report [OPTIONS] [FILE]\n"
	"Shows which functions of a recorded guest took the time. FILE is guestprof.fxt\n"
	"unless given.\n"
	"\n"
	"  -n, --lines N        lines to show (default: 30, of a tree all; 0: all)\n"
	"      --by WHAT        function (default), process, command, thread, vcpu,\n"
	"                       mode, module, line (of the source)\n"
	"      --tree[=callers] call tree from the outermost function, or from the leaf\n"
	"                       to callers\n"
	"      --inlines        inlined functions as well, where there is debug\n"
	"                       information\n"
	"      --min PERCENT    leave out branches of the tree below (default: 0.5)\n"
	"      --json, --markdown\n"
	"  -h, --help\n"
	"\n" FILTER_HELP "\n" SOURCE_HELP "\n"
	"self: the guest was in the function itself; total: in it or in what it called.\n"
	"Percentages are of the samples in which a vCPU ran. Exit codes: 0 shown, 1 the\n"
	"file cannot be read, 2 bad command line.\n"
	"\n"
	"Examples: guestprof report -n 10 boot.fxt\n"
	"          guestprof report --by process --from 2s --to 5s boot.fxt\n"
	"          guestprof report --tree --inlines --symfs ~/dbgsym boot.fxt\n"
	"          guestprof report --tree=callers --symbol '*spin_lock*' boot.fxt\n";

static const struct {
	const char *name;
	bool is_owner;
	enum frame_owner owner;
} subjects[] = {
	{"function", false, OWNER_PROCESS}, {"symbol", false, OWNER_PROCESS},
	{"process", true, OWNER_PROCESS},   {"command", true, OWNER_COMMAND},
	{"thread", true, OWNER_THREAD},     {"vcpu", true, OWNER_VCPU},
	{"mode", true, OWNER_MODE},         {"module", true, OWNER_GROUP},
	{"line", true, OWNER_LINE},
};

struct choice {
	struct report *report;
	size_t subject;
	bool lines_given;
	bool inlined;
	struct source_options source;
	void (*write)(const struct report *report, FILE *to);
};

static bool parse_subject(const char *text, size_t *subject)
{
	for (size_t i = 0; i < ARRAY_SIZE(subjects); i++) {
		if (strcmp(subjects[i].name, text))
			continue;
		*subject = i;
		return true;
	}
	fprintf(stderr,
		"%s: --by %s: give function, process, command, thread, vcpu, mode, module or "
		"line\n",
		program, text);
	return false;
}

static bool take_option(void *context, int option)
{
	struct choice *choice = context;
	struct report *report = choice->report;

	switch (option) {
	case 'n':
		choice->lines_given = true;
		return option_number(program, "-n", optarg, &report->most);
	case OPTION_BY:
		return parse_subject(optarg, &choice->subject);
	case OPTION_TREE:
		return option_tree(program, optarg, &report->shape);
	case OPTION_MIN:
		return option_percent(program, "--min", optarg, 100, &report->least);
	case OPTION_INLINES:
		choice->inlined = true;
		return true;
	case OPTION_JSON:
		choice->write = report_write_json;
		return true;
	case OPTION_MARKDOWN:
		choice->write = report_write_markdown;
		return true;
	default:
		return source_option(option, optarg, &choice->source);
	}
}

/* -1: go on; otherwise the exit code. */
static int parse(int argc, char **argv, struct report *report, struct choice *choice)
{
	static const struct option names[] = {
		{"lines", required_argument, NULL, 'n'},
		{"by", required_argument, NULL, OPTION_BY},
		{"tree", optional_argument, NULL, OPTION_TREE},
		{"min", required_argument, NULL, OPTION_MIN},
		{"inlines", no_argument, NULL, OPTION_INLINES},
		{"json", no_argument, NULL, OPTION_JSON},
		{"markdown", no_argument, NULL, OPTION_MARKDOWN},
		{"help", no_argument, NULL, 'h'},
		FILTER_OPTIONS,
		SOURCE_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	const struct options options = {.program = program,
					.help = help,
					.letters = "n:h",
					.names = names,
					.filter = &report->filter,
					.take = take_option,
					.context = choice};
	int code = options_parse(&options, argc, argv);

	if (code >= 0)
		return code;
	return option_trace(program, argc, argv, &report->path) ? -1 : EXIT_USAGE;
}

static gp_status_t make_tree(struct report *report, const struct profile_options *options,
			     struct error *error)
{
	struct call_tree reversed;
	gp_status_t status;

	status = profile_read(&report->trace, options, &report->frames, &report->tree,
			      &report->totals, error);
	if (!status && report->shape == SHAPE_CALLERS) {
		status = call_tree_reverse(&report->tree, &reversed, error);
		if (!status) {
			call_tree_deinit(&report->tree);
			report->tree = reversed;
		}
	}
	if (!status && report->shape != SHAPE_TABLE)
		status = call_tree_sort(&report->tree, error);
	return status;
}

static gp_status_t build(struct report *report, const struct choice *choice, struct error *error)
{
	bool by_owner = subjects[choice->subject].is_owner;
	struct profile_options options = {
		.filter = &report->filter,
		.owners = {subjects[choice->subject].owner},
		.owner_count = by_owner ? 1 : 0,
		/* What the vCPUs did is not only running. */
		.idle = by_owner && subjects[choice->subject].owner == OWNER_MODE,
		.inlined = choice->inlined,
	};
	gp_status_t status = frames_init(&report->frames, error);

	if (!status && (choice->inlined || subjects[choice->subject].owner == OWNER_LINE))
		status =
			source_lines_create(&choice->source, &report->trace, &report->lines, error);
	report->frames.lines = report->lines;

	if (!status)
		status = call_tree_init(&report->tree, error);
	if (!status)
		status = make_tree(report, &options, error);
	report->by_owner = by_owner && report->shape == SHAPE_TABLE;
	report->column = subjects[choice->subject].name;
	report->whole = options.idle ? report->totals.ticks : report->totals.running;
	if (status || report->shape != SHAPE_TABLE)
		return status;
	return by_owner ? table_of_owners(&report->tree, &report->frames, &report->table, error)
			: table_of_functions(&report->tree, &report->frames, &report->table, error);
}

static gp_status_t show(struct report *report, const struct choice *choice, struct error *error)
{
	struct output output;

	output_open_paged(&output);
	report->colours = output.is_terminal && !getenv("NO_COLOR");
	choice->write(report, output.file);
	return output_finish(&output, error);
}

int command_report(int argc, char **argv)
{
	static struct report report; /* larger than a stack frame should be */
	struct choice choice = {.report = &report, .write = report_write_text};
	struct error error = {0};
	gp_status_t status;
	int code;

	report = (struct report){
		.path = "guestprof.fxt", .most = DEFAULT_LINES, .least = DEFAULT_LEAST};
	code = parse(argc, argv, &report, &choice);
	if (code >= 0)
		return code;
	if (report.shape != SHAPE_TABLE && !choice.lines_given)
		report.most = 0;
	progress_begin(program);
	status = progress_open_trace(report.path, &report.trace, &error);
	if (!status) {
		status = build(&report, &choice, &error);
		if (!status)
			status = show(&report, &choice, &error);
		table_deinit(&report.table);
		call_tree_deinit(&report.tree);
		frames_deinit(&report.frames);
		source_lines_destroy(report.lines);
		trace_close(&report.trace);
	}
	filter_deinit(&report.filter);
	progress_end();
	if (!status)
		return EXIT_SUCCESS;
	fprintf(stderr, "%s: %s\n", program, error.text);
	return EXIT_FAILURE;
}
