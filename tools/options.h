/* What the command lines of the subcommands that read traces have in common.
 *
 *     static const struct option names[] = {{"lines", ...}, {"help", no_argument, NULL, 'h'},
 *                                           FILTER_OPTIONS, {NULL, 0, NULL, 0}};
 *     code = options_parse(&(struct options){...}, argc, argv);
 *     if (code >= 0)
 *             return code;
 *     the rest begins at argv[optind]
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "tools/filter_options.h"

#include <stddef.h>
#include <stdio.h>

struct options {
	char *program; /* "guestprof report": stands before every message, getopt's too */
	const char *help;
	void (*print_help)(FILE *to); /* where the help is no fixed text: instead of it */
	const char *letters;
	const struct option *names; /* 'h' is help */
	struct filter *filter;
	/* One option of the command's own, its value in optarg. False: it has printed what is wrong
	 * with it. */
	bool (*take)(void *context, int option);
	void *context;
};

/* -1: go on; otherwise the exit code: help was asked for and printed, or what is wrong. */
int options_parse(const struct options *options, int argc, char **argv);

/* Values. False, after a line that names the option and says what to give: `text` is none. */
bool option_number(const char *program, const char *name, const char *text, size_t *number);
/* With or without a '%' behind it. */
bool option_percent(const char *program, const char *name, const char *text, double most,
		    double *percent);

/* The value of --tree, NULL without one: callees. */
enum option_shape { SHAPE_TABLE, SHAPE_CALLEES, SHAPE_CALLERS };
bool option_tree(const char *program, const char *text, enum option_shape *shape);

/* What stands behind the options: at most one trace; `path` stays as it is without. No output will
 * replace it. */
bool option_trace(const char *program, int argc, char **argv, const char **path);

#endif
