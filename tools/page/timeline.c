/* guestprof timeline: one HTML file that shows who ran on which vCPU when. */
#include "tools/command.h"
#include "tools/options.h"
#include "tools/page/page_command.h"

static const char help[] =
	"usage: guestprof timeline [OPTIONS] [FILE]\n"
	"Writes one HTML file with a lane per vCPU of a recorded guest: which process\n"
	"ran when, in user mode, in the kernel or in the machine monitor, when it was\n"
	"halted, and where samples were dropped; and marks where it printed a line on\n"
	"its console. A range that is zoomed to, or between two lines, has its flame\n"
	"graph below. The file loads nothing from anywhere. FILE is guestprof.fxt unless\n"
	"given.\n"
	"\n"
	"  -o, --output OUT   file to write (default: FILE with -timeline.html for .fxt;\n"
	"                     -: standard output)\n"
	"  -h, --help\n"
	"\n" FILTER_HELP "\n"
	"In the page: drag over the lanes to zoom to a range; + - and the arrow keys do\n"
	"it without a mouse; the back button goes back, ? lists all keys.\n"
	"Exit codes: 0 written, 1 the trace cannot be read or OUT not written, 2 bad\n"
	"command line.\n"
	"\n"
	"Examples: guestprof timeline boot.fxt\n"
	"          guestprof timeline -o boot-timeline.html boot.fxt\n";

int command_timeline(int argc, char **argv)
{
	static const char program[] = "guestprof timeline";
	static struct page_command page = {.program = program,
					   .suffix = "-timeline.html",
					   .trace = "guestprof.fxt",
					   .type = PAGE_TIMELINE};
	static const struct option_row rows[] = {
		OPTION("output", 'o', OPTION_TEXT, &page.output, ),
		FILTER_ROWS(page.filter),
		OPTIONS_END,
	};
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code >= 0)
		return code;
	if (!option_trace(program, argc, argv, &page.trace))
		return EXIT_USAGE;
	return page_command_run(&page);
}
