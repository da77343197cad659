/* The command line of `guestprof attach`, and what it does once that has been read, for other
 * subcommands that attach. */
#ifndef TOOLS_RECORD_ATTACH_H
#define TOOLS_RECORD_ATTACH_H

#include "tools/record/sampling_options.h"

struct attach_options {
	struct sampling_options sampling;
	const char *machine; /* a PID or a domain */
	bool signal_kick;
};

/* Returns -1 to go on, or the exit code (help was printed, or what is wrong). */
int attach_options_parse(int argc, char **argv, struct attach_options *options);

/* Attaches, samples, prints what became of it, and returns the exit code. Once in a process: takes
 * over its signals. */
int attach_run(const struct attach_options *options);

#endif
