/* The last lines of a console, as plain text. */
#include "base/terminal_lines.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct terminal_lines lines;

static void add(const char *text)
{
	terminal_lines_add(&lines, text, strlen(text));
}

Test(terminal_lines, lines_come_in_any_pieces)
{
	cr_assert_eq(terminal_lines_count(&lines), 0);
	add("one\r\ntw");
	cr_assert_eq(terminal_lines_count(&lines), 2, "the one being written, too");
	add("o\n");
	cr_assert_eq(terminal_lines_count(&lines), 2);
	cr_assert_str_eq(terminal_lines_get(&lines, 0), "one");
	cr_assert_str_eq(terminal_lines_get(&lines, 1), "two");
}

Test(terminal_lines, only_the_last_ones_are_kept)
{
	char text[32];

	for (int i = 0; i < 10 * TERMINAL_LINES_MAX; i++) {
		snprintf(text, sizeof(text), "line %d\n", i);
		add(text);
	}
	add("open");
	cr_assert_eq(terminal_lines_count(&lines), TERMINAL_LINES_MAX);
	snprintf(text, sizeof(text), "line %d", 9 * TERMINAL_LINES_MAX + 1);
	cr_assert_str_eq(terminal_lines_get(&lines, 0), text);
	cr_assert_str_eq(terminal_lines_get(&lines, TERMINAL_LINES_MAX - 1), "open");
}

Test(terminal_lines, what_controls_terminals_is_left_out)
{
	add("\033[1;31mred\033[0m \033]0;title\abell\033P..\033\\.\033(B!\tx\b\x01y\x7f\xc3\xa4\n");
	cr_assert_str_eq(terminal_lines_get(&lines, 0), "red bell.!      y??");
	/* A sequence that does not end ends with its line. */
	add("a\033[1\nb\033]title\nc");
	cr_assert_str_eq(terminal_lines_get(&lines, 1), "a");
	cr_assert_str_eq(terminal_lines_get(&lines, 2), "b");
	cr_assert_str_eq(terminal_lines_get(&lines, 3), "c");
}

Test(terminal_lines, a_line_is_written_over_and_a_long_one_goes_on)
{
	char text[TERMINAL_LINE_BYTES + 11];

	add(" 10 %\r 20 %\n");
	cr_assert_str_eq(terminal_lines_get(&lines, 0), " 20 %");
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	add(text);
	cr_assert_eq(strlen(terminal_lines_get(&lines, 1)), TERMINAL_LINE_BYTES);
	cr_assert_str_eq(terminal_lines_get(&lines, 2), "xxxxxxxxxx");
}
