/* The last lines of what a guest or a program has printed, in memory that does not grow: plain text
 * of printable ASCII, whatever the bytes were. One thread at a time.
 */
#ifndef TOOLS_TOP_LINES_H
#define TOOLS_TOP_LINES_H

#include <stddef.h>
#include <stdint.h>

#define TOP_LINES_MAX 200
#define TOP_LINE_BYTES 200 /* what is longer goes on in the next line */

/* All zero: empty. */
struct top_lines {
	char lines[TOP_LINES_MAX][TOP_LINE_BYTES + 1]; /* terminated */
	size_t newest;                                 /* the line being written */
	size_t count; /* lines that have ended, at most all but one */
	size_t column;
	int escape; /* how far into an escape sequence */
};

/* Escape sequences are left out, other control bytes but \n \r \t \b too; bytes above ASCII become
 * '?'. \r goes back and what follows writes over the line, as on a terminal. */
void top_lines_add(struct top_lines *lines, const void *bytes, size_t size);

/* How many there are, the one being written included if it holds anything. */
size_t top_lines_count(const struct top_lines *lines);

/* Line `index`, the oldest is 0. */
const char *top_lines_get(const struct top_lines *lines, size_t index);

#endif
