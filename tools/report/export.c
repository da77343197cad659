/* guestprof export: a trace in the formats of other tools. */
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "base/progress.h"

#include "export/export.h"

#include <stdlib.h>
#include <string.h>

static const char program[] = "guestprof export";

struct choice {
	const struct export_format *format;
	const char *path;
	const char *output;
	unsigned by; /* 0: thread, 1: vCPU */
	bool inlined;
	bool with_places;
	struct source_options source;
	struct filter filter;
};

static void print_help(void)
{
	fputs("usage: guestprof export FORMAT [OPTIONS] [FILE]\n"
	      "Writes a trace in the format of another tool. FILE is guestprof.fxt unless given.\n"
	      "\n",
	      stdout);
	for (size_t i = 0; export_formats[i]; i++)
		printf("  %-11s %s\n", export_formats[i]->name, export_formats[i]->summary);
	fputs("\n"
	      "  -o, --output OUT     the file to write (default: standard output); it appears "
	      "when\n"
	      "                       it is whole\n"
	      "      --by WHAT        speedscope, firefox: a profile for each thread (default) "
	      "or vcpu\n"
	      "      --inlines        inlined functions as well, where there is debug information\n"
	      "      --source         files and lines of the source, likewise\n"
	      "  -h, --help\n"
	      "\n" FILTER_HELP "\n" SOURCE_HELP "\n"
	      "Exit codes: 0 written, 1 the trace cannot be read or the output not written,\n"
	      "2 bad command line.\n"
	      "\n"
	      "Examples: guestprof export folded boot.fxt | flamegraph.pl >boot.svg\n"
	      "          guestprof export speedscope -o boot.speedscope.json boot.fxt\n"
	      "          guestprof export pprof --comm make -o boot.pb.gz boot.fxt\n"
	      "          guestprof export pprof --source --inlines --symfs ~/dbgsym -o "
	      "boot.pb.gz\n",
	      stdout);
}

/* FORMAT and FILE. -1: go on. */
static int take_names(int argc, char **argv, struct choice *choice)
{
	const char *refused = NULL;

	if (optind == argc)
		return option_bad(program, "give a format");
	choice->format = export_find_format(argv[optind]);
	if (!choice->format)
		return option_bad(program, "no format '%s'", argv[optind]);
	if (choice->inlined && !choice->format->has_inlined)
		refused = "--inlines";
	if (choice->with_places && !choice->format->has_places)
		refused = "--source";
	if (refused)
		return option_bad(program, "%s: %s has no place for them", refused,
				  choice->format->name);
	optind++;
	return option_trace(program, argc, argv, &choice->path) ? -1 : EXIT_USAGE;
}

static gp_status_t write_to(struct choice *choice, struct trace *trace, struct frames *frames,
			    struct error *error)
{
	struct export export = {
		.trace = trace,
		.frames = frames,
		.filter = &choice->filter,
		.by_vcpu = choice->by,
		.inlined = choice->inlined,
		.format = choice->format,
	};
	struct output output;
	gp_status_t status = output_open(&output, choice->output, error);

	if (status)
		return status;
	if (choice->format->is_binary && output.is_terminal) {
		output_abandon(&output);
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%s is not for a terminal; give a file with -o",
				 choice->format->name);
	}
	export.to = output.file;
	status = export_trace(&export, error);
	return output_close(&output, status, error);
}

/* The same with the places of functions, if they are asked for. */
static gp_status_t write_with_source(struct choice *choice, struct trace *trace,
				     struct frames *frames, struct error *error)
{
	struct source_counts counts;
	gp_status_t status;

	if (!choice->inlined && !choice->with_places)
		return write_to(choice, trace, frames, error);
	status = source_lines_create(&choice->source, trace, &frames->lines, error);
	if (status)
		return status;
	frames->with_places = choice->with_places;
	status = write_to(choice, trace, frames, error);
	counts = source_lines_counts(frames->lines);
	source_lines_destroy(frames->lines);
	frames->lines = NULL;
	progress_end();
	if (!status && counts.found < counts.files)
		fprintf(stderr, "%s: debug information for %u of %u files%s\n", program,
			counts.found, counts.files,
			counts.found ? "" : "; --symfs says where there is some");
	return status;
}

int command_export(int argc, char **argv)
{
	static const char *const subjects[] = {"thread", "vcpu", NULL};
	static struct trace trace; /* larger than a stack frame should be */
	static struct choice choice = {.path = "guestprof.fxt"};
	static const struct option_row rows[] = {
		OPTION("output", 'o', OPTION_TEXT, &choice.output, ),
		OPTION("by", 0, OPTION_WORD, &choice.by, .words = subjects,
		       .hint = "give thread or vcpu"),
		OPTION("inlines", 0, OPTION_FLAG, &choice.inlined, ),
		OPTION("source", 0, OPTION_FLAG, &choice.with_places, ),
		FILTER_ROWS(choice.filter),
		SOURCE_ROWS(choice.source),
		OPTIONS_END,
	};
	const struct command_line line = {
		.program = program, .rows = rows, .print_help = print_help};
	struct frames frames;
	struct error error = {0};
	gp_status_t status;
	int code = options_parse(&line, argc, argv);

	if (code < 0)
		code = take_names(argc, argv, &choice);
	if (code >= 0)
		return code;
	progress_begin(program);
	status = trace_open_watched(choice.path, progress_tell, &trace, &error);
	if (!status) {
		status = frames_init(&frames, &error);
		if (!status) {
			status = write_with_source(&choice, &trace, &frames, &error);
			frames_deinit(&frames);
		}
		progress_end();
		if (!status && !trace.info.complete)
			fprintf(stderr, "%s: %s is incomplete; what is there was written\n",
				program, choice.path);
		trace_close(&trace);
	}
	filter_deinit(&choice.filter);
	return command_end(program, status, &error);
}
