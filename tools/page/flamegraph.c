/* guestprof flamegraph: one HTML file that shows where the time went, or a static SVG. */
#include "tools/command.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/page/page_command.h"

#include "export/flame_svg.h"

static const char program[] = "guestprof flamegraph";

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
	"In the page: click or Enter zooms, / searches, the back button goes back, ?\n"
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

int command_flamegraph(int argc, char **argv)
{
	static struct flame_svg_options svg;
	static bool as_svg;
	static struct page_command page = {.program = program,
					   .suffix = ".html",
					   .type = PAGE_FLAMEGRAPH,
					   .trace = "guestprof.fxt",
					   .context = &svg};
	static const struct option_row rows[] = {
		OPTION("output", 'o', OPTION_TEXT, &page.output, ),
		OPTION("diff", 'd', OPTION_TEXT, &page.base, ),
		OPTION("svg", 0, OPTION_FLAG, &as_svg, ),
		OPTION("callers", 0, OPTION_FLAG, &svg.callers, ),
		OPTION("idle", 0, OPTION_FLAG, &svg.idle, ),
		FILTER_ROWS(page.filter),
		OPTIONS_END,
	};
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code >= 0)
		return code;
	if ((svg.callers || svg.idle) && !as_svg)
		return option_bad(program,
				  "--callers and --idle go with --svg; the page has buttons for "
				  "them");
	if (!option_trace(program, argc, argv, &page.trace))
		return EXIT_USAGE;
	if (page.base)
		output_protect(page.base);
	if (as_svg) {
		page.suffix = ".svg";
		page.write = write_svg;
	}
	return page_command_run(&page);
}
