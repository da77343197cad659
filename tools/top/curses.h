/* The terminal of `guestprof top`: ncurses, and a way back for every end.
 *
 * ncurses is looked for at run time, so that no other subcommand carries it. Its functions are the
 * members of `curses`, of the types that curses.h declares.
 */
#ifndef TOOLS_TOP_CURSES_H
#define TOOLS_TOP_CURSES_H

#include "base/error.h"

/* It has another mind about X() each time. */
/* clang-format off */

/* Functions, not macros, which would reach into the library's data. */
#define NCURSES_NOMACROS 1
#include <curses.h>

#define TOP_CURSES_FUNCTIONS(X)                                                                    \
	X(newterm)                                                                                 \
	X(endwin)                                                                                  \
	X(delscreen) X(cbreak) X(noecho) X(nonl) X(keypad) X(curs_set) X(set_escdelay) X(wtimeout) \
		X(wgetch) X(wmove) X(waddnstr) X(wattrset) X(werase) X(wrefresh) X(clearok)        \
			X(getmaxx) X(getmaxy) X(has_colors) X(start_color) X(use_default_colors)   \
				X(init_pair) X(COLOR_PAIR)

struct top_curses {
#define X(function) __typeof__(&function) function;
	TOP_CURSES_FUNCTIONS(X)
#undef X
	WINDOW *screen; /* all of it; NULL while it is not ours */
};
extern struct top_curses curses;
/* clang-format on */

/* Looks for ncurses, and whether it can draw on this terminal: standard input and output must be
 * one, and TERM name a kind that can be written to at any place. Changes nothing on it. */
gp_status_t top_curses_load(struct error *error);

/* Takes the terminal. From here on it is given back by top_curses_end(), by exit(), and before a
 * signal such as SIGSEGV takes its course. */
gp_status_t top_curses_begin(struct error *error);
void top_curses_end(void);

enum top_colour { TOP_PLAIN, TOP_GREEN, TOP_YELLOW, TOP_RED, TOP_BLUE, TOP_COLOURS };
/* For wattrset(); without colours, nothing. */
int top_curses_colour(enum top_colour colour);

#endif
