/* The subcommands of guestprof: one file each, listed in main.c. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include "base/error.h"

struct command {
	const char *name;
	const char *summary; /* one line for `guestprof --help` */
	/* argv[0] is the subcommand's name. Returns the exit code of the process. Called once,
	 * on the main thread; may print and may exit. What it printed to standard output need not
	 * be written out yet: main() does, and reports when that fails. */
	int (*run)(int argc, char **argv);
};

/* What every subcommand returns for a command line it does not understand. */
#define EXIT_USAGE 2

/* The end of a command that works on traces: takes the line of progress away, prints what went
 * wrong, if anything did, and returns the exit code. */
int command_end(const char *program, gp_status_t status, const struct error *error);

int command_annotate(int argc, char **argv);
int command_attach(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_export(int argc, char **argv);
int command_flamegraph(int argc, char **argv);
int command_lab(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_record(int argc, char **argv);
int command_report(int argc, char **argv);
int command_timeline(int argc, char **argv);
int command_top(int argc, char **argv);

#endif
