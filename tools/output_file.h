/* A file that is either written whole or not there: it is made under another name beside its own,
 * and renamed when all of it is on the disk. What is no regular file, such as a pipe or
 * /dev/stdout, is written as it is. */
#ifndef TOOLS_OUTPUT_FILE_H
#define TOOLS_OUTPUT_FILE_H

#include "base/error.h"

#include <limits.h>
#include <stdio.h>

struct output_file {
	FILE *stream;
	char path[PATH_MAX];
	char made[PATH_MAX + 8]; /* empty: written directly */
};

/* "-" is the standard output. */
gp_status_t output_file_open(const char *path, struct output_file *file, struct error *error);

/* Closes it; then the file has its name, or there is an error and what was made is gone, any
 * earlier file of that name untouched. */
gp_status_t output_file_commit(struct output_file *file, struct error *error);

/* Closes it and removes what was made. */
void output_file_abandon(struct output_file *file);

#endif
