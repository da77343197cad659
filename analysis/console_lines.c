#include "analysis/console_lines.h"

#include <stdlib.h>
#include <string.h>

#define ESCAPE 0x1b

/* Skips the sequence that begins at `at`, as terminals understand them (ECMA-48): ESC [,
 * parameters, a final byte; or ESC and one byte. */
static size_t skip_escape(const char *text, size_t size, size_t at)
{
	if (++at < size && text[at] != '[')
		return at + 1;
	for (at++; at < size; at++)
		if (text[at] >= 0x40 && text[at] <= 0x7e)
			return at + 1;
	return size;
}

size_t console_line_clean(const struct console_line *line, char *out, size_t most)
{
	size_t length = 0, at = 0, seen = 0;

	while (at < line->size) {
		unsigned char byte = (unsigned char)line->text[at];

		if (byte == ESCAPE) {
			at = skip_escape(line->text, line->size, at);
			continue;
		}
		at++;
		if (byte < ' ' && byte != '\t')
			continue;
		if (length == most) {
			memcpy(out + length - 3, "...", 3);
			return length;
		}
		out[length++] = byte == '\t' ? ' ' : (char)byte;
		if (byte > ' ')
			seen = length;
	}
	return seen;
}

static bool console_is_wanted(const struct trace *trace, const struct filter *filter,
			      uint64_t time_ns)
{
	uint64_t first = trace->info.first_ns;
	uint64_t since = time_ns > first ? time_ns - first : 0;

	return !filter || (since >= filter->from_ns && (!filter->to_ns || since < filter->to_ns));
}

static bool console_add_line(struct console_lines *lines, uint64_t time_ns,
			     const struct fxt_string *text)
{
	return vector_add(lines, (struct console_line){.time_ns = time_ns,
						       .text = text->text,
						       .size = text->length,
						       .number = (uint32_t)lines->count});
}

static int compare_lines(const void *left, const void *right)
{
	const struct console_line *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

bool console_lines_read(const struct trace *trace, const struct filter *filter,
			struct console_lines *lines)
{
	struct fxt_reader reader;
	struct fxt_record record;
	bool done = true;

	*lines = (struct console_lines){0};
	if (!trace->info.console_lines)
		return true;
	if (fxt_reader_init(&reader, trace->bytes, trace->size, NULL))
		return false;
	while (done && fxt_reader_next(&reader, &record)) {
		uint64_t time_ns;

		if (record.kind != FXT_KIND_LOG)
			continue;
		time_ns = fxt_reader_nanoseconds(&reader, record.log.timestamp);
		if (console_is_wanted(trace, filter, time_ns))
			done = console_add_line(lines, time_ns, &record.log.text);
	}
	fxt_reader_deinit(&reader);
	if (!done)
		console_lines_deinit(lines);
	vector_sort(lines, compare_lines);
	return done;
}

void console_lines_deinit(struct console_lines *lines)
{
	vector_deinit(lines);
}
