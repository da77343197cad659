/* The command line of guestprof attach. */
#ifndef TOOLS_RECORD_ATTACH_OPTIONS_H
#define TOOLS_RECORD_ATTACH_OPTIONS_H

#include "tools/record/sampling_options.h"

#include <stdbool.h>

struct attach_options {
	struct sampling_options sampling;
	const char *machine; /* a PID or a domain */
	bool signal_kick;
};

/* Returns -1 to go on, or the exit code (help was printed, or what is wrong). */
int attach_options_parse(int argc, char **argv, struct attach_options *options);

#endif
