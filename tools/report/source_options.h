/* The options that say where debug information is, the same for every subcommand that shows source
 * lines. As filter_options.h. */
#ifndef TOOLS_REPORT_SOURCE_OPTIONS_H
#define TOOLS_REPORT_SOURCE_OPTIONS_H

#include "analysis/source_lines.h"

#define SOURCE_OPTION_FIRST 0x800 /* below FILTER_OPTION_FIRST */
/* clang-format off */
#define SOURCE_OPTIONS                                          \
	{"symfs", required_argument, NULL, SOURCE_OPTION_FIRST},    \
	{"vmlinux", required_argument, NULL, SOURCE_OPTION_FIRST + 1}
/* clang-format on */

/* For --help. */
#define SOURCE_HELP                                                                     \
	"Source lines come from debug information with the guest's build ids:\n"        \
	"      --symfs DIR      below DIR, by path or build id; then /usr/lib/debug;\n" \
	"                       then the servers of $DEBUGINFOD_URLS, if that is set\n" \
	"      --vmlinux FILE   the kernel's file, whatever its build id\n"

/* Takes what getopt_long() gave. False: it is none of these. */
static inline bool source_option(int option, const char *argument, struct source_options *options)
{
	if (option == SOURCE_OPTION_FIRST)
		options->symfs = argument;
	else if (option == SOURCE_OPTION_FIRST + 1)
		options->vmlinux = argument;
	else
		return false;
	return true;
}

#endif
