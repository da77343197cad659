/* Where a subcommand's result goes: standard output, a pager, or a file that gets its name when it
 * is whole.
 *
 *     output_open(&output, path, &error)    or output_open_paged(&output)
 *     ... write to output.file
 *     output_finish(&output, &error)        or output_abandon(&output): no file is left
 *
 * While one is open, writing to a closed pipe is an error that output_finish() returns, not a
 * signal.
 */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>

struct output {
	FILE *file;
	bool is_terminal; /* a person reads it: colours may be used */
	char *path;       /* NULL: standard output or a pager */
	char *temporary;  /* NULL: written in place, as what is no regular file must be */
	bool is_pager;
};

/* A file that this process reads: output_open() refuses to replace it. A file that is not there is
 * ignored; the first OUTPUT_INPUTS_MAX are remembered. */
#define OUTPUT_INPUTS_MAX 32
void output_protect(const char *path);
bool output_is_protected(const char *path);

/* `path` NULL or "-": standard output. */
gp_status_t output_open(struct output *output, const char *path, struct error *error);

/* Standard output; when that is a terminal, through $PAGER, or less if it is there. */
void output_open_paged(struct output *output);

/* Closes it and returns errors of earlier writes, too. Leaving a pager early is no error. */
gp_status_t output_finish(struct output *output, struct error *error);
void output_abandon(struct output *output);
/* The one or the other: `status` is that of the writing. */
gp_status_t output_close(struct output *output, gp_status_t status, struct error *error);

/* At the end of the process: writes out what was printed to standard output. False, with `error`,
 * when that failed, now or before, and has not been reported. */
bool output_settle(struct error *error);

#endif
