/* The options that choose samples, the same for every subcommand that reads a trace:
 *
 *     static const struct option options[] = {FILTER_OPTIONS, {"help", ...}, {NULL, 0, NULL, 0}};
 *     ...
 *     default:
 *             if (!filter_option(program, option, &filter))
 *                     return EXIT_USAGE;
 */
#ifndef TOOLS_FILTER_OPTIONS_H
#define TOOLS_FILTER_OPTIONS_H

#include "analysis/filter.h"

#include <getopt.h>

#define FILTER_OPTION_FIRST 0x1000
/* clang-format off */
#define FILTER_OPTIONS                                             \
	{"pid", required_argument, NULL, FILTER_OPTION_FIRST},         \
	{"tid", required_argument, NULL, FILTER_OPTION_FIRST + 1},     \
	{"comm", required_argument, NULL, FILTER_OPTION_FIRST + 2},    \
	{"cpu", required_argument, NULL, FILTER_OPTION_FIRST + 3},     \
	{"mode", required_argument, NULL, FILTER_OPTION_FIRST + 4},    \
	{"from", required_argument, NULL, FILTER_OPTION_FIRST + 5},    \
	{"to", required_argument, NULL, FILTER_OPTION_FIRST + 6},      \
	{"symbol", required_argument, NULL, FILTER_OPTION_FIRST + 7}
/* clang-format on */

/* For --help. */
#define FILTER_HELP                                                                    \
	"Which samples (options of different names must all hold):\n"                  \
	"      --pid LIST, --tid LIST   processes, threads: numbers such as 1,40-49\n" \
	"      --comm NAME      processes or threads of that name; may have * and ?\n" \
	"      --cpu LIST       vCPUs\n"                                               \
	"      --mode LIST      user, kernel, halted, vmm, not-started\n"              \
	"      --from T, --to T since the first sample: 1.5, 1.5s, 200ms\n"            \
	"      --symbol NAME    stacks with that function; may have * and ?\n"

/* Takes what getopt_long() gave (and optarg). False: it is no filter, or a bad one, and an error
 * has been printed under `program`'s name (getopt prints its own for what it does not know). */
bool filter_option(const char *program, int option, struct filter *filter);

#endif
