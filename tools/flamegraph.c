/* guestprof flamegraph: one HTML file that shows where the time went, or a static SVG. */
#include "command.h"
#include "filter_options.h"
#include "page_command.h"

#include "profile/flame_svg.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: guestprof flamegraph [OPTIONS] [FILE]\n"
	"Writes one HTML file with an interactive flame graph of a recorded guest. It loads "
	"nothing\n"
	"from anywhere: it can be mailed, kept with a build, opened offline. FILE is "
	"guestprof.fxt\n"
	"unless given.\n"
	"\n"
	"  -o, --output OUT   file to write (default: FILE with .html for .fxt; -: standard "
	"output)\n"
	"  -d, --diff BASE    colour what took more or less of the time than in the trace BASE\n"
	"      --svg          a static picture instead (default name: FILE with .svg)\n"
	"      --callers      with --svg: from the hottest functions up to their callers\n"
	"      --idle         with --svg: also vCPUs that were halted or not started\n"
	"  -h, --help\n"
	"\n" FILTER_HELP "\n"
	"In the page: click or Enter zooms, / searches, the back button takes back, ? lists all "
	"keys.\n"
	"Exit codes: 0 written, 1 a trace cannot be read or OUT not written, 2 bad command line.\n"
	"\n"
	"Examples: guestprof flamegraph boot.fxt\n"
	"          guestprof flamegraph --diff yesterday.fxt -o change.html today.fxt\n"
	"          guestprof flamegraph --svg -o boot.svg boot.fxt\n";

static gp_status_t write_svg(const struct page_data *data, FILE *to, const void *context,
			     struct error *error)
{
	return flame_svg_write(data, context, to, error);
}

static gp_status_t write_html(const struct page_data *data, FILE *to, const void *context,
			      struct error *error)
{
	(void)context;
	return page_write(data, PAGE_FLAMEGRAPH, to, error);
}

int command_flamegraph(int argc, char **argv)
{
	enum { OPTION_SVG = 256, OPTION_CALLERS, OPTION_IDLE };
	static const struct option options[] = {
		{"output", required_argument, NULL, 'o'},
		{"diff", required_argument, NULL, 'd'},
		{"svg", no_argument, NULL, OPTION_SVG},
		{"callers", no_argument, NULL, OPTION_CALLERS},
		{"idle", no_argument, NULL, OPTION_IDLE},
		{"help", no_argument, NULL, 'h'},
		FILTER_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	static char program[] = "guestprof flamegraph";
	struct flame_svg_options svg = {0};
	struct page_command command = {.program = program,
				       .suffix = ".html",
				       .trace = "guestprof.fxt",
				       .write = write_html,
				       .context = &svg};
	int option;

	argv[0] = program;
	optind = 1;
	while ((option = getopt_long(argc, argv, "o:d:h", options, NULL)) != -1) {
		switch (option) {
		case 'o':
			command.output = optarg;
			break;
		case 'd':
			command.base = optarg;
			break;
		case OPTION_SVG:
			command.suffix = ".svg";
			command.write = write_svg;
			break;
		case OPTION_CALLERS:
			svg.callers = true;
			break;
		case OPTION_IDLE:
			svg.idle = true;
			break;
		case 'h':
			fputs(help, stdout);
			return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
		default:
			if (!filter_option(program, option, &command.filter))
				return EXIT_USAGE;
		}
	}
	if ((svg.callers || svg.idle) && command.write != write_svg) {
		fputs("guestprof flamegraph: --callers and --idle go with --svg; the page has "
		      "buttons for them\n",
		      stderr);
		return EXIT_USAGE;
	}
	if (command.base && command.write == write_svg) {
		fputs("guestprof flamegraph: --diff goes with the page, not with --svg\n", stderr);
		return EXIT_USAGE;
	}
	if (optind < argc)
		command.trace = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "guestprof flamegraph: '%s': give one trace\n", argv[optind]);
		return EXIT_USAGE;
	}
	return page_command_run(&command);
}
