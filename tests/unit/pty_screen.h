/* A program on a terminal of its own: what it draws, kept as a screen of characters; keys for it;
 * and how it left the terminal. The terminal is a VT100, of which it knows what ncurses uses. */
#ifndef TESTS_UNIT_PTY_SCREEN_H
#define TESTS_UNIT_PTY_SCREEN_H

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdint.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <utmp.h>

#define PTY_ROWS 60
#define PTY_COLUMNS 200
/* No test is about time; this only keeps a defect from hanging the run. */
#define PTY_SECONDS 60

struct pty {
	int fd;
	pid_t child;
	struct termios before;
	char cells[PTY_ROWS][PTY_COLUMNS + 1];
	int rows, columns;
	int row, column;
	int scroll_top, scroll_bottom; /* rows, the last one included */
	char sequence[32];             /* an escape sequence that has begun */
	int sequence_size;
	bool raw;       /* no screen is kept: for terminals of another kind */
	char tail[256]; /* the last raw bytes, terminated */
	size_t bytes;   /* that came */
	int exit_code;
	bool has_ended;
};

/* Makes the screen that large, and empty. */
static inline void pty_set_size(struct pty *pty, int rows, int columns)
{
	const struct winsize size = {.ws_row = (unsigned short)rows,
				     .ws_col = (unsigned short)columns};

	pty->rows = rows;
	pty->columns = columns;
	pty->scroll_top = 0;
	pty->scroll_bottom = rows - 1;
	memset(pty->cells, 0, sizeof(pty->cells));
	for (int row = 0; row < PTY_ROWS; row++)
		memset(pty->cells[row], ' ', PTY_COLUMNS);
	if (pty->fd >= 0)
		cr_assert_eq(ioctl(pty->fd, TIOCSWINSZ, &size), 0);
}

/* `terminal` is TERM, NULL: not set. */
static inline void pty_start(struct pty *pty, const char *const *argv, const char *terminal,
			     int rows, int columns)
{
	const struct winsize size = {.ws_row = (unsigned short)rows,
				     .ws_col = (unsigned short)columns};
	int slave;

	*pty = (struct pty){.fd = -1};
	pty_set_size(pty, rows, columns);
	cr_assert_eq(openpty(&pty->fd, &slave, NULL, NULL, &size), 0);
	cr_assert_eq(tcgetattr(slave, &pty->before), 0);
	pty->child = fork();
	cr_assert_geq(pty->child, 0);
	if (!pty->child) {
		close(pty->fd);
		login_tty(slave);
		unsetenv("LINES");
		unsetenv("COLUMNS");
		if (terminal)
			setenv("TERM", terminal, 1);
		else
			unsetenv("TERM");
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(slave);
}

static inline int pty_number(const char *text, int otherwise)
{
	return *text >= '0' && *text <= '9' ? atoi(text) : otherwise;
}

static inline void pty_erase(struct pty *pty, int row, int from, int to)
{
	if (row >= 0 && row < PTY_ROWS && from < to)
		memset(pty->cells[row] + from, ' ', (size_t)(to - from));
}

/* One row down, or up; at the end of the scrolling region the region moves. */
static inline void pty_step(struct pty *pty, bool down)
{
	const size_t moved = sizeof(pty->cells[0]) * (size_t)(pty->scroll_bottom - pty->scroll_top);
	char *top = pty->cells[pty->scroll_top];

	if (pty->row != (down ? pty->scroll_bottom : pty->scroll_top)) {
		pty->row += down ? pty->row < pty->rows - 1 : -(pty->row > 0);
	} else if (down) {
		memmove(top, top + sizeof(pty->cells[0]), moved);
		pty_erase(pty, pty->scroll_bottom, 0, PTY_COLUMNS);
	} else {
		memmove(top + sizeof(pty->cells[0]), top, moved);
		pty_erase(pty, pty->scroll_top, 0, PTY_COLUMNS);
	}
}

/* Of a region that makes no sense, all of the screen. */
static inline void pty_set_region(struct pty *pty, int first, int last)
{
	bool sane = first >= 1 && first < last && last <= pty->rows;

	pty->scroll_top = sane ? first - 1 : 0;
	pty->scroll_bottom = sane ? last - 1 : pty->rows - 1;
	pty->row = pty->column = 0;
}

/* A whole control sequence: what is behind "ESC [". */
static inline void pty_obey(struct pty *pty, const char *parameters, char final)
{
	const char *second = strchr(parameters, ';');
	int first = pty_number(parameters, 1);

	switch (final) {
	case 'H':
		pty->row = first - 1;
		pty->column = second ? pty_number(second + 1, 1) - 1 : 0;
		break;
	case 'A':
		pty->row -= first;
		break;
	case 'B':
		pty->row += first;
		break;
	case 'C':
		pty->column += first;
		break;
	case 'D':
		pty->column -= first;
		break;
	case 'J':
		pty_erase(pty, pty->row, pty->column, PTY_COLUMNS);
		for (int row = pty->row + 1; row < PTY_ROWS; row++)
			pty_erase(pty, row, 0, PTY_COLUMNS);
		break;
	case 'K':
		if (*parameters == '1')
			pty_erase(pty, pty->row, 0, pty->column + 1);
		else
			pty_erase(pty, pty->row, pty->column, PTY_COLUMNS);
		break;
	case 'r':
		pty_set_region(pty, first, second ? pty_number(second + 1, pty->rows) : pty->rows);
		break;
	case 'm':
	case 'h':
	case 'l':
		break;
	default:
		cr_assert_fail("the terminal knows no sequence ESC [ %s %c", parameters, final);
	}
	pty->row = pty->row < 0 ? 0 : pty->row >= pty->rows ? pty->rows - 1 : pty->row;
	pty->column = pty->column < 0               ? 0
		      : pty->column >= pty->columns ? pty->columns - 1
						    : pty->column;
}

/* Takes a byte of an escape sequence; false: it is none. */
static inline bool pty_escape(struct pty *pty, char byte)
{
	if (!pty->sequence_size && byte != 27)
		return false;
	cr_assert_lt(pty->sequence_size, (int)sizeof(pty->sequence) - 1);
	pty->sequence[pty->sequence_size++] = byte;
	pty->sequence[pty->sequence_size] = 0;
	if (pty->sequence_size == 1)
		return true;
	if (pty->sequence[1] == '[') {
		if (pty->sequence_size > 2 && byte >= 0x40) {
			pty->sequence[pty->sequence_size - 1] = 0;
			pty_obey(pty, pty->sequence + 2, byte);
			pty->sequence_size = 0;
		}
	} else if (strchr("()", pty->sequence[1])) { /* character sets */
		if (pty->sequence_size == 3)
			pty->sequence_size = 0;
	} else {
		if (byte == 'M')
			pty_step(pty, false);
		pty->sequence_size = 0;
	}
	return true;
}

static inline void pty_take(struct pty *pty, char byte)
{
	if (pty_escape(pty, byte))
		return;
	switch (byte) {
	case '\r':
		pty->column = 0;
		break;
	case '\n':
		pty_step(pty, true);
		break;
	case '\b':
		pty->column -= pty->column > 0;
		break;
	case '\t':
		pty->column = (pty->column / 8 + 1) * 8;
		break;
	case 7:
	case 14:
	case 15:
		break;
	default:
		cr_assert(byte >= ' ' && byte < 127, "byte %#x on the screen", (unsigned char)byte);
		if (pty->column >= pty->columns) {
			pty->column = 0;
			pty_step(pty, true);
		}
		pty->cells[pty->row][pty->column++] = byte;
		break;
	}
}

/* Whatever comes within that time. False: the program has closed the terminal. */
static inline bool pty_read(struct pty *pty, int milliseconds)
{
	struct pollfd output = {.fd = pty->fd, .events = POLLIN};
	char bytes[4096];
	ssize_t size;

	if (poll(&output, 1, milliseconds) <= 0)
		return true;
	size = read(pty->fd, bytes, sizeof(bytes));
	if (size <= 0)
		return false;
	for (ssize_t i = 0; i < size; i++) {
		memmove(pty->tail, pty->tail + 1, sizeof(pty->tail) - 2);
		pty->tail[sizeof(pty->tail) - 2] = bytes[i];
		pty->bytes++;
		if (!pty->raw)
			pty_take(pty, bytes[i]);
	}
	return true;
}

/* The row that holds the text, without what is right of the screen; NULL: none. */
static inline const char *pty_row(const struct pty *pty, const char *text)
{
	for (int row = 0; row < pty->rows; row++)
		if (strstr(pty->cells[row], text))
			return pty->cells[row];
	return NULL;
}

static inline bool pty_shows(const struct pty *pty, const char *text)
{
	return pty_row(pty, text) != NULL;
}

static inline void pty_dump(const struct pty *pty)
{
	for (int row = 0; row < pty->rows; row++)
		fprintf(stderr, "|%.*s|\n", pty->columns, pty->cells[row]);
}

static inline time_t pty_deadline(void)
{
	return time(NULL) + PTY_SECONDS;
}

/* Waits for a row that holds both texts; a picture comes in pieces. */
static inline void pty_wait_for_row(struct pty *pty, const char *text, const char *more)
{
	time_t deadline = pty_deadline();

	for (;;) {
		const char *row = pty_row(pty, text);
		bool open;

		if (row && strstr(row, more))
			return;
		open = pty_read(pty, 100);
		if (open && time(NULL) < deadline)
			continue;
		row = pty_row(pty, text);
		if (row && strstr(row, more))
			return;
		pty_dump(pty);
		cr_assert_fail("no row with '%s' and '%s'%s", text, more,
			       open ? "" : ": the program has ended");
	}
}

static inline void pty_wait_for(struct pty *pty, const char *text)
{
	pty_wait_for_row(pty, text, "");
}

/* Until the first text is in a row above the second one's. */
static inline void pty_wait_for_order(struct pty *pty, const char *above, const char *below)
{
	time_t deadline = pty_deadline();

	while (!pty_row(pty, above) || !pty_row(pty, below) ||
	       pty_row(pty, above) > pty_row(pty, below)) {
		if (pty_read(pty, 100) && time(NULL) < deadline)
			continue;
		pty_dump(pty);
		cr_assert_fail("'%s' does not come above '%s'", above, below);
	}
}

static inline void pty_wait_without(struct pty *pty, const char *text)
{
	time_t deadline = pty_deadline();

	while (pty_row(pty, text)) {
		if (pty_read(pty, 100) && time(NULL) < deadline)
			continue;
		pty_dump(pty);
		cr_assert_fail("'%s' does not go", text);
	}
}

static inline void pty_keys(struct pty *pty, const char *keys)
{
	cr_assert_eq(write(pty->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* Waits for the program's end, and looks whether the terminal is as it was. */
static inline int pty_end(struct pty *pty)
{
	time_t deadline = pty_deadline();
	struct termios after;
	int status;

	while (!pty->has_ended && time(NULL) < deadline) {
		pty_read(pty, 50);
		pty->has_ended = waitpid(pty->child, &status, WNOHANG) == pty->child;
	}
	if (!pty->has_ended) {
		pty_dump(pty);
		kill(pty->child, SIGKILL);
		waitpid(pty->child, &status, 0);
		cr_assert_fail("the program does not end");
	}
	while (pty_read(pty, 0)) {
		struct pollfd output = {.fd = pty->fd, .events = POLLIN};

		if (poll(&output, 1, 0) <= 0 || !(output.revents & POLLIN))
			break;
	}
	cr_assert_eq(tcgetattr(pty->fd, &after), 0);
	cr_assert_eq(after.c_lflag, pty->before.c_lflag, "input is as it was");
	cr_assert_eq(after.c_iflag, pty->before.c_iflag);
	cr_assert_eq(after.c_oflag, pty->before.c_oflag, "and so is output");
	close(pty->fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The command that is tested. */
static inline const char *pty_guestprof(void)
{
	const char *path = getenv("GUESTPROF");

	path = path ? path : "build/guestprof";
	if (access(path, X_OK))
		cr_skip_test("%s is not there (make)", path);
	return path;
}

#endif
