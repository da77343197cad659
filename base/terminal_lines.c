#include "base/terminal_lines.h"

#include <stdbool.h>
#include <string.h>

/* Of ECMA-48: ESC alone, with a control sequence's '[', with a string's ']' and the like. */
enum { PLAIN, ESCAPE, CONTROL_SEQUENCE, STRING, STRING_ESCAPE };

static void end_line(struct terminal_lines *lines)
{
	lines->newest = (lines->newest + 1) % TERMINAL_LINES_MAX;
	if (lines->count < TERMINAL_LINES_MAX - 1)
		lines->count++;
	lines->column = 0;
	memset(lines->lines[lines->newest], 0, sizeof(lines->lines[lines->newest]));
}

static void put(struct terminal_lines *lines, char byte)
{
	char *line;

	if (lines->column == TERMINAL_LINE_BYTES)
		end_line(lines);
	line = lines->lines[lines->newest];
	line[lines->column++] = byte;
}

/* Takes a byte of an escape sequence; false: it is none. */
static bool skip(struct terminal_lines *lines, unsigned char byte)
{
	switch (lines->escape) {
	case ESCAPE:
		if (byte == '[')
			lines->escape = CONTROL_SEQUENCE;
		else if (byte == ']' || byte == 'P' || byte == '^' || byte == '_')
			lines->escape = STRING;
		else if (byte < 0x20 || byte > 0x2f) /* not an intermediate byte */
			lines->escape = PLAIN;
		return true;
	case CONTROL_SEQUENCE:
		if (byte >= 0x40 && byte <= 0x7e)
			lines->escape = PLAIN;
		/* A line end in a sequence that was cut off is one. */
		if (byte == '\n')
			lines->escape = PLAIN;
		return byte != '\n';
	case STRING:
		if (byte == 0x1b)
			lines->escape = STRING_ESCAPE;
		if (byte == 7 || byte == '\n')
			lines->escape = PLAIN;
		return byte != '\n';
	case STRING_ESCAPE:
		lines->escape = byte == '\\' ? PLAIN : STRING;
		return true;
	default:
		if (byte == 0x1b)
			lines->escape = ESCAPE;
		return byte == 0x1b;
	}
}

void terminal_lines_add(struct terminal_lines *lines, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char byte = ((const unsigned char *)bytes)[i];

		if (skip(lines, byte))
			continue;
		if (byte == '\n')
			end_line(lines);
		else if (byte == '\r')
			lines->column = 0;
		else if (byte == '\b')
			lines->column -= lines->column > 0;
		else if (byte == '\t')
			do
				put(lines, ' ');
			while (lines->column % 8);
		else if (byte >= 0x20 && byte != 0x7f)
			put(lines, byte < 0x7f ? (char)byte : '?');
	}
}

size_t terminal_lines_count(const struct terminal_lines *lines)
{
	return lines->count + (lines->lines[lines->newest][0] != 0);
}

const char *terminal_lines_get(const struct terminal_lines *lines, size_t index)
{
	size_t oldest = (lines->newest + TERMINAL_LINES_MAX - lines->count) % TERMINAL_LINES_MAX;

	return lines->lines[(oldest + index) % TERMINAL_LINES_MAX];
}
