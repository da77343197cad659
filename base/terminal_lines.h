/* The last lines of what a guest or a program has printed, in memory that does not grow: plain text
 * of printable ASCII, whatever the bytes were. One thread at a time.
 */
#ifndef BASE_TERMINAL_LINES_H
#define BASE_TERMINAL_LINES_H

#include <stddef.h>
#include <stdint.h>

#define TERMINAL_LINES_MAX 200
#define TERMINAL_LINE_BYTES 200 /* what is longer goes on in the next line */

/* All zero: empty. */
struct terminal_lines {
	char lines[TERMINAL_LINES_MAX][TERMINAL_LINE_BYTES + 1]; /* terminated */
	size_t newest;                                           /* the line being written */
	size_t count; /* lines that have ended, at most all but one */
	size_t column;
	int escape; /* how far into an escape sequence */
};

/* Escape sequences are left out, other control bytes but \n \r \t \b too; bytes above ASCII become
 * '?'. \r goes back and what follows writes over the line, as on a terminal. */
void terminal_lines_add(struct terminal_lines *lines, const void *bytes, size_t size);

/* How many there are, the one being written included if it holds anything. */
size_t terminal_lines_count(const struct terminal_lines *lines);

/* Line `index`, the oldest is 0. */
const char *terminal_lines_get(const struct terminal_lines *lines, size_t index);

#endif
