#include "tools/top/curses.h"

#include "base/container.h"
#include "base/library.h"
#include "tools/end_signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define LIBRARY "libncursesw.so.6"
#define ESCAPE_MILLISECONDS 100 /* an arrow key's bytes may come apart over ssh */

struct top_curses curses;

/* How to leave: what a signal handler can do, made ready before. */
static struct termios terminal_before;
static char leaving[256];
static size_t leaving_size;
static volatile sig_atomic_t is_taken;
static SCREEN *terminal;
static WINDOW **whole_screen; /* the library's stdscr */
static bool has_colours;

static int (*setup_terminal)(const char *name, int fd, int *problem);
static char *(*terminal_text)(const char *capability);
static void *(*set_terminal)(void *description);
static int (*delete_terminal)(void *description);

static gp_status_t load(struct error *error)
{
	static struct library library; /* it stays loaded: what it has allocated is its own */
	static const struct library_symbol symbols[] = {
		{"setupterm", &setup_terminal}, {"tigetstr", &terminal_text},
		{"set_curterm", &set_terminal}, {"del_curterm", &delete_terminal},
		{"stdscr", &whole_screen},
#define X(function) {#function, &curses.function},
		TOP_CURSES_FUNCTIONS(X)
#undef X
	};

	return library_load(&library, LIBRARY, "libncursesw6", symbols, ARRAY_SIZE(symbols), error);
}

/* NULL: the terminal cannot do that. */
static const char *capability(const char *name)
{
	const char *text = terminal_text(name);

	/* tigetstr(3X): -1 is not the name of a text */
	return text == (char *)-1 ? NULL : text;
}

/* Appends a capability without its padding ("$<5>"), which no terminal of today needs. */
static void add_leaving(const char *name)
{
	const char *text = capability(name);

	while (text && *text && leaving_size < sizeof(leaving)) {
		const char *end = !strncmp(text, "$<", 2) ? strchr(text, '>') : NULL;

		if (end)
			text = end + 1;
		else
			leaving[leaving_size++] = *text++;
	}
}

/* What the terminal's description says. */
static gp_status_t ask_terminal(const char *name, struct error *error)
{
	static const char *const endings[] = {"rmkx", "sgr0", "cnorm", "rmcup", "cr"};
	int problem;

	if (setup_terminal(NULL, STDOUT_FILENO, &problem))
		return error_set(
			error, GP_ERR_NOT_FOUND,
			"the terminal TERM=%s is not known here; TERM=xterm or vt100 may do", name);
	if (!capability("cup"))
		error_set(error, GP_ERR_NOT_SUPPORTED,
			  "the terminal TERM=%s cannot move its cursor: nothing can be drawn; "
			  "guestprof record and report need no such terminal",
			  name);
	leaving_size = 0;
	for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
		add_leaving(endings[i]);
	/* newterm() reads it again. */
	delete_terminal(set_terminal(NULL));
	return error->status;
}

gp_status_t top_curses_load(struct error *error)
{
	const char *name = getenv("TERM");

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return error_set(error, GP_ERR_BAD_STATE,
				 "needs a terminal as standard input and output; guestprof record "
				 "and report need none");
	if (!name || !*name)
		return error_set(error, GP_ERR_BAD_STATE,
				 "TERM is not set: say what the terminal is, as in TERM=xterm");
	if (load(error))
		return error->status;
	return ask_terminal(name, error);
}

/* Safe in a signal handler. */
static void leave(void)
{
	if (!is_taken)
		return;
	is_taken = 0;
	/* If this fails, there is nothing else to try. */
	if (write(STDOUT_FILENO, leaving, leaving_size) < 0)
		errno = 0;
	tcsetattr(STDOUT_FILENO, TCSANOW, &terminal_before);
}

static void make_colours(void)
{
	static const short colours[TOP_COLOURS] = {[TOP_GREEN] = COLOR_GREEN,
						   [TOP_YELLOW] = COLOR_YELLOW,
						   [TOP_RED] = COLOR_RED,
						   [TOP_BLUE] = COLOR_CYAN};

	has_colours = curses.has_colors() && curses.start_color() != ERR &&
		      curses.use_default_colors() != ERR;
	for (short i = TOP_PLAIN + 1; has_colours && i < TOP_COLOURS; i++)
		curses.init_pair(i, colours[i], -1);
}

int top_curses_colour(enum top_colour colour)
{
	return has_colours ? curses.COLOR_PAIR(colour) : 0;
}

gp_status_t top_curses_begin(struct error *error)
{
	static bool is_guarded;

	if (tcgetattr(STDOUT_FILENO, &terminal_before))
		return error_set_errno(error, errno, "cannot ask for the terminal's settings");
	crash_signals_catch(leave);
	if (!is_guarded)
		atexit(top_curses_end);
	is_guarded = true;
	is_taken = 1;
	terminal = curses.newterm(NULL, stdout, stdin);
	if (!terminal) {
		leave();
		return error_set(error, GP_ERR_NOT_SUPPORTED, "ncurses cannot use this terminal");
	}
	curses.screen = *whole_screen;
	curses.cbreak();
	curses.noecho();
	curses.nonl();
	curses.set_escdelay(ESCAPE_MILLISECONDS);
	curses.keypad(curses.screen, true);
	curses.curs_set(0);
	make_colours();
	return GP_OK;
}

void top_curses_end(void)
{
	if (!terminal)
		return;
	curses.endwin();
	is_taken = 0;
	curses.delscreen(terminal);
	terminal = NULL;
	curses.screen = NULL;
}
