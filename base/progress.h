/* A line on a terminal that shows how far long work is; nothing in a pipe or a file, and nothing
 * for work of less than a second.
 *
 * One line for the process, on standard error: it belongs to the main thread. End it before
 * printing; output_open() does when the output is a terminal itself. When there is no report for a
 * second, as while something large is sorted, compressed or written, it says for how long.
 *
 *     progress_begin("guestprof report");
 *     progress_tell("doing", done, all)             as often as one likes
 *     progress_end();
 */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `program` stands at the beginning of the line. */
void progress_begin(const char *program);

/* `all` 0: not known. Units are the caller's: what is shown is a percentage, or a number; with both
 * 0 nothing but what is done. */
void progress_tell(const char *what, uint64_t done, uint64_t all);

/* Draws a text of `size` bytes over the line before, cut to the terminal's width, without asking
 * who looks and for how long. */
void progress_draw(const char *text, size_t size);

/* Takes the line away. Harmless without one. */
void progress_end(void);

/* Whether a line can be drawn while a guest's console goes to the descriptor `console`: standard
 * error is a terminal, and the console goes to a file, to nothing, or to another terminal. Not when
 * it goes to a pipe: `| tee` leads back. */
bool progress_has_place(int console, int errors);

#endif
