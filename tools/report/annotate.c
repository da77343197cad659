/* guestprof annotate: the instructions that took a function's time. */
#include "tools/report/annotate_output.h"

#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOTTEST 5 /* without a SYMBOL */

static const char program[] = "guestprof annotate";

static const char help[] =
	"usage: guestprof annotate [OPTIONS] [SYMBOL] [FILE]\n"
	"Shows which instructions of a function took its time, as the guest had them:\n"
	"the trace holds the code. SYMBOL may have * and ?; without it, the hottest\n"
	"functions are shown. FILE is guestprof.fxt unless given; a single argument that\n"
	"is a file is FILE.\n"
	"\n"
	"      --hottest N      so many functions, the hottest first (default: 5, with\n"
	"                       SYMBOL all; 0: all)\n"
	"      --all            also instructions that are far from every sample\n"
	"      --bytes          the code's bytes as well\n"
	"      --intel          Intel's syntax instead of AT&T's\n"
	"      --no-source      no source lines\n"
	"      --json\n"
	"  -h, --help\n"
	"\n" SOURCE_HELP "\n" FILTER_HELP "\n"
	"Percentages are of the function's samples. Exit codes: 0 shown, 1 the file\n"
	"cannot be read, no such function was sampled, or capstone is missing, 2 bad\n"
	"command line.\n"
	"\n"
	"Examples: guestprof annotate clear_page_erms boot.fxt\n"
	"          guestprof annotate --hottest 3 --mode kernel boot.fxt\n"
	"          guestprof annotate --symfs ~/guest-root hash boot.fxt\n";

struct choice {
	bool most_given;
	bool json;
	bool no_source;
	struct source_options source;
};

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), tail = strlen(end);

	return length >= tail && !strcmp(name + length - tail, end);
}

/* Not a function's name, whether the file is there or not: a missing trace is said to be missing.
 */
static bool is_trace(const char *name)
{
	return !access(name, F_OK) || strchr(name, '/') || ends_with(name, ".fxt") ||
	       ends_with(name, ".fxt.gz");
}

/* SYMBOL, FILE, both or neither. -1: go on. */
static int take_names(int count, char **names, struct annotate *annotate)
{
	if (count > 2)
		return option_bad(program, "'%s': give one function and one trace", names[2]);
	if (count == 2)
		annotate->path = names[1];
	if (count == 1 && is_trace(names[0]))
		annotate->path = names[0];
	else if (count)
		annotate->pattern = names[0];
	return -1;
}

/* Without libdw there are no source lines, which is worth a word and no failure; but what the user
 * has named himself must be there. */
static gp_status_t find_lines(struct annotate *annotate, const struct choice *choice,
			      struct error *error)
{
	gp_status_t status;

	if (choice->no_source)
		return GP_OK;
	status = source_lines_create(&choice->source, &annotate->trace, &annotate->lines, error);
	if (status != GP_ERR_NOT_SUPPORTED || choice->source.symfs || choice->source.vmlinux)
		return status;
	fprintf(stderr, "%s: no source lines: %s\n", program, error->text);
	return GP_OK;
}

static gp_status_t build(struct annotate *annotate, const struct choice *choice,
			 struct error *error)
{
	gp_status_t status = annotation_read(&annotate->trace, &annotate->filter, annotate->pattern,
					     &annotate->annotation, error);

	if (!status && !annotate->annotation.count)
		status = annotate->pattern ? error_set(error, GP_ERR_NOT_FOUND,
						       "no sample is in a function '%s'; guestprof "
						       "report lists those that have some",
						       annotate->pattern)
					   : error_set(error, GP_ERR_NOT_FOUND,
						       "no sample is in a function with a name");
	return status ? status : find_lines(annotate, choice, error);
}

static gp_status_t show(struct annotate *annotate, const struct choice *choice, struct error *error)
{
	struct output output;
	gp_status_t status;

	output_open_paged(&output);
	annotate->colours = output.is_terminal && !getenv("NO_COLOR");
	status = choice->json ? annotate_write_json(annotate, output.file, error)
			      : annotate_write_text(annotate, output.file, error);
	return output_close(&output, status, error);
}

int command_annotate(int argc, char **argv)
{
	static struct annotate annotate = {.path = "guestprof.fxt"}; /* too large for a stack */
	static struct choice choice;
	static const struct option_row rows[] = {
		OPTION("hottest", 0, OPTION_NUMBER, &annotate.most, .most = SIZE_MAX,
		       .hint = "give a number", .given = &choice.most_given),
		OPTION("all", 0, OPTION_FLAG, &annotate.whole, ),
		OPTION("bytes", 0, OPTION_FLAG, &annotate.bytes, ),
		OPTION("intel", 0, OPTION_SET, &annotate.syntax, .least = DISASSEMBLER_INTEL),
		OPTION("no-source", 0, OPTION_FLAG, &choice.no_source, ),
		OPTION("json", 0, OPTION_FLAG, &choice.json, ),
		FILTER_ROWS(annotate.filter),
		SOURCE_ROWS(choice.source),
		OPTIONS_END,
	};
	struct error error = {0};
	gp_status_t status;
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code < 0)
		code = take_names(argc - optind, argv + optind, &annotate);
	if (code >= 0)
		return code;
	if (!choice.most_given && !annotate.pattern)
		annotate.most = HOTTEST;
	progress_begin(program);
	status = trace_open_watched(annotate.path, progress_tell, &annotate.trace, &error);
	if (!status) {
		status = build(&annotate, &choice, &error);
		if (!status)
			status = show(&annotate, &choice, &error);
		source_lines_destroy(annotate.lines);
		annotation_deinit(&annotate.annotation);
		trace_close(&annotate.trace);
	}
	filter_deinit(&annotate.filter);
	return command_end(program, status, &error);
}
