/* guestprof report: where the time went. */
#include "tools/report/report_output.h"

#include "base/container.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "base/progress.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LINES 30
#define DEFAULT_LEAST 0.5

static const char program[] = "guestprof report";

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

/* What --by can be, and whose samples make a row then. */
static const char *const subjects[] = {"function", "symbol", "process", "command", "thread",
				       "vcpu",     "mode",   "module",  "line",    NULL};
enum { SUBJECT_FUNCTION, SUBJECT_SYMBOL };
static const enum frame_owner owners[] = {[2] = OWNER_PROCESS, OWNER_COMMAND, OWNER_THREAD,
					  OWNER_VCPU,          OWNER_MODE,    OWNER_GROUP,
					  OWNER_LINE};

struct choice {
	unsigned subject;
	bool lines_given;
	bool inlined;
	struct source_options source;
	enum { AS_TEXT, AS_MARKDOWN, AS_JSON } format;
};

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
	bool by_owner = choice->subject > SUBJECT_SYMBOL;
	enum frame_owner owner = owners[choice->subject];
	struct profile_options options = {
		.filter = &report->filter,
		.owners = {owner},
		.owner_count = by_owner ? 1 : 0,
		/* What the vCPUs did is not only running. */
		.idle = by_owner && owner == OWNER_MODE,
		.inlined = choice->inlined,
	};
	gp_status_t status = frames_init(&report->frames, error);

	if (!status && (choice->inlined || owner == OWNER_LINE))
		status =
			source_lines_create(&choice->source, &report->trace, &report->lines, error);
	report->frames.lines = report->lines;

	if (!status)
		status = call_tree_init(&report->tree, error);
	if (!status)
		status = make_tree(report, &options, error);
	report->by_owner = by_owner && report->shape == SHAPE_TABLE;
	report->column = subjects[choice->subject];
	report->whole = options.idle ? report->totals.ticks : report->totals.running;
	if (status || report->shape != SHAPE_TABLE)
		return status;
	return by_owner ? table_of_owners(&report->tree, &report->frames, &report->table, error)
			: table_of_functions(&report->tree, &report->frames, &report->table, error);
}

static gp_status_t show(struct report *report, const struct choice *choice, struct error *error)
{
	static void (*const writers[])(const struct report *report, FILE *to) = {
		report_write_text, report_write_markdown, report_write_json};
	struct output output;

	output_open_paged(&output);
	report->colours = output.is_terminal && !getenv("NO_COLOR");
	writers[choice->format](report, output.file);
	return output_finish(&output, error);
}

int command_report(int argc, char **argv)
{
	static struct report report = {/* larger than a stack frame should be */
				       .path = "guestprof.fxt",
				       .most = DEFAULT_LINES,
				       .least = DEFAULT_LEAST};
	static struct choice choice;
	static const struct option_row rows[] = {
		OPTION("lines", 'n', OPTION_NUMBER, &report.most, .most = SIZE_MAX,
		       .hint = "give a number", .given = &choice.lines_given),
		OPTION("by", 0, OPTION_WORD, &choice.subject, .words = subjects,
		       .hint = "give function, process, command, thread, vcpu, mode, module or "
			       "line"),
		TREE_ROW(report.shape),
		OPTION("min", 0, OPTION_PERCENT, &report.least, .most = 100,
		       .hint = "give percent, 0 to 100"),
		OPTION("inlines", 0, OPTION_FLAG, &choice.inlined, ),
		OPTION("json", 0, OPTION_SET, &choice.format, .least = AS_JSON),
		OPTION("markdown", 0, OPTION_SET, &choice.format, .least = AS_MARKDOWN),
		FILTER_ROWS(report.filter),
		SOURCE_ROWS(choice.source),
		OPTIONS_END,
	};
	struct error error = {0};
	gp_status_t status;
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code >= 0)
		return code;
	if (!option_trace(program, argc, argv, &report.path))
		return EXIT_USAGE;
	if (report.shape != SHAPE_TABLE && !choice.lines_given)
		report.most = 0;
	progress_begin(program);
	status = trace_open_watched(report.path, progress_tell, &report.trace, &error);
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
	return command_end(program, status, &error);
}
