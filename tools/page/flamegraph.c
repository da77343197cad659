/* guestprof flamegraph: one HTML file that shows where the time went, or a static SVG. */
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/page/page_command.h"

#include "export/flame_svg.h"

enum { OPTION_SVG = 256, OPTION_CALLERS, OPTION_IDLE };

static char program[] = "guestprof flamegraph";

static const char help[] =
	"usage: guestprof flamegraph [OPTIONS] [FILE]\n"
	"Writes one HTML file with an interactive flame graph of a recorded guest. It\n"
	"loads nothing from anywhere: it can be mailed, kept with a build, opened\n"
	"offline. FILE is guestprof.fxt unless given.\n"
	"\n"
	"  -o, --output OUT   file to write (default: FILE with .html for .fxt; -:\n"
	"                     standard output)\n"
	"  -d, --diff BASE    colour what took more or less of the time than in the\n"
	"                     trace BASE\n"
	"      --svg          a static picture instead (default name: FILE with .svg);\n"
	"                     with --diff too\n"
	"      --callers      with --svg: from the hottest functions up to their callers\n"
	"      --idle         with --svg: also vCPUs that were halted or not started\n"
	"  -h, --help\n"
	"\n" FILTER_HELP "\n"
	"In the page: click or Enter zooms, / searches, the back button takes back, ?\n"
	"lists all keys.\n"
	"Exit codes: 0 written, 1 a trace cannot be read or OUT not written, 2 bad\n"
	"command line.\n"
	"\n"
	"Examples: guestprof flamegraph boot.fxt\n"
	"          guestprof flamegraph --diff yesterday.fxt -o change.html today.fxt\n"
	"          guestprof flamegraph --svg -o boot.svg boot.fxt\n"
	"          guestprof flamegraph --svg --diff base.fxt new.fxt\n";

static gp_status_t write_svg(const struct page_data *data, FILE *to, const void *context,
			     struct error *error)
{
	return flame_svg_write(data, context, to, error);
}

struct choice {
	struct page_command page;
	struct flame_svg_options svg;
};

static bool take_option(void *context, int option)
{
	struct choice *choice = context;

	switch (option) {
	case 'o':
		choice->page.output = optarg;
		break;
	case 'd':
		choice->page.base = optarg;
		output_protect(optarg);
		break;
	case OPTION_SVG:
		choice->page.suffix = ".svg";
		choice->page.write = write_svg;
		break;
	case OPTION_CALLERS:
		choice->svg.callers = true;
		break;
	case OPTION_IDLE:
		choice->svg.idle = true;
		break;
	}
	return true;
}

int command_flamegraph(int argc, char **argv)
{
	static const struct option names[] = {
		{"output", required_argument, NULL, 'o'},
		{"diff", required_argument, NULL, 'd'},
		{"svg", no_argument, NULL, OPTION_SVG},
		{"callers", no_argument, NULL, OPTION_CALLERS},
		{"idle", no_argument, NULL, OPTION_IDLE},
		{"help", no_argument, NULL, 'h'},
		FILTER_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	struct choice choice = {.page = {.program = program,
					 .suffix = ".html",
					 .type = PAGE_FLAMEGRAPH,
					 .trace = "guestprof.fxt",
					 .context = &choice.svg}};
	const struct options options = {.program = program,
					.help = help,
					.letters = "o:d:h",
					.names = names,
					.filter = &choice.page.filter,
					.take = take_option,
					.context = &choice};
	int code = options_parse(&options, argc, argv);

	if (code >= 0)
		return code;
	if ((choice.svg.callers || choice.svg.idle) && choice.page.write != write_svg) {
		fprintf(stderr,
			"%s: --callers and --idle go with --svg; the page has buttons for them\n",
			program);
		return EXIT_USAGE;
	}
	if (!option_trace(program, argc, argv, &choice.page.trace))
		return EXIT_USAGE;
	return page_command_run(&choice.page);
}
