/* guestprof export: a trace in the formats of other tools. */
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/progress.h"

#include "export/export.h"
#include "tools/report/source_options.h"

#include <stdlib.h>
#include <string.h>

enum { OPTION_BY = 256, OPTION_INLINES, OPTION_SOURCE };

static char program[] = "guestprof export";

struct choice {
	const struct export_format *format;
	const char *path;
	const char *output;
	bool by_vcpu;
	bool inlined;
	bool with_places;
	struct source_options source;
	struct filter filter;
};

static void print_help(FILE *to)
{
	fputs("usage: guestprof export FORMAT [OPTIONS] [FILE]\n"
	      "Writes a trace in the format of another tool. FILE is guestprof.fxt unless given.\n"
	      "\n",
	      to);
	for (size_t i = 0; export_formats[i]; i++)
		fprintf(to, "  %-11s %s\n", export_formats[i]->name, export_formats[i]->summary);
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
	      to);
}

static bool parse_subject(const char *text, bool *by_vcpu)
{
	*by_vcpu = !strcmp(text, "vcpu");
	if (*by_vcpu || !strcmp(text, "thread"))
		return true;
	fprintf(stderr, "%s: --by %s: give thread or vcpu\n", program, text);
	return false;
}

static bool parse_words(int argc, char **argv, struct choice *choice)
{
	if (optind == argc) {
		fprintf(stderr, "%s: give a format; --help lists them\n", program);
		return false;
	}
	choice->format = export_find_format(argv[optind]);
	if (!choice->format) {
		fprintf(stderr, "%s: no format '%s'; --help lists them\n", program, argv[optind]);
		return false;
	}
	if ((choice->inlined && !choice->format->has_inlined) ||
	    (choice->with_places && !choice->format->has_places)) {
		fprintf(stderr, "%s: %s: %s has no place for them\n", program,
			choice->with_places && !choice->format->has_places ? "--source"
									   : "--inlines",
			choice->format->name);
		return false;
	}
	optind++;
	return option_trace(program, argc, argv, &choice->path);
}

static bool take_option(void *context, int option)
{
	struct choice *choice = context;

	switch (option) {
	case OPTION_BY:
		return parse_subject(optarg, &choice->by_vcpu);
	case OPTION_INLINES:
		choice->inlined = true;
		return true;
	case OPTION_SOURCE:
		choice->with_places = true;
		return true;
	case 'o':
		choice->output = optarg;
		return true;
	default:
		return source_option(option, optarg, &choice->source);
	}
}

/* -1: go on; otherwise the exit code. */
static int parse(int argc, char **argv, struct choice *choice)
{
	static const struct option names[] = {
		{"output", required_argument, NULL, 'o'},
		{"by", required_argument, NULL, OPTION_BY},
		{"inlines", no_argument, NULL, OPTION_INLINES},
		{"source", no_argument, NULL, OPTION_SOURCE},
		{"help", no_argument, NULL, 'h'},
		FILTER_OPTIONS,
		SOURCE_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	const struct options options = {.program = program,
					.print_help = print_help,
					.letters = "o:h",
					.names = names,
					.filter = &choice->filter,
					.take = take_option,
					.context = choice};
	int code = options_parse(&options, argc, argv);

	if (code >= 0)
		return code;
	return parse_words(argc, argv, choice) ? -1 : EXIT_USAGE;
}

static gp_status_t write_to(struct choice *choice, struct trace *trace, struct frames *frames,
			    struct error *error)
{
	struct export export = {
		.trace = trace,
		.frames = frames,
		.filter = &choice->filter,
		.by_vcpu = choice->by_vcpu,
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
	if (!status)
		return output_finish(&output, error);
	output_abandon(&output);
	return status;
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
	static struct trace trace; /* larger than a stack frame should be */
	static struct choice choice;
	struct frames frames;
	struct error error = {0};
	gp_status_t status;
	int code;

	choice = (struct choice){.path = "guestprof.fxt"};
	code = parse(argc, argv, &choice);
	if (code >= 0)
		return code;
	progress_begin(program);
	status = progress_open_trace(choice.path, &trace, &error);
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
	progress_end();
	if (!status)
		return EXIT_SUCCESS;
	fprintf(stderr, "%s: %s\n", program, error.text);
	return EXIT_FAILURE;
}
