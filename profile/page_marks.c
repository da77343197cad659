#include "profile/page_marks.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

#define ESCAPE 0x1b

struct line {
	uint64_t time_ns;
	const char *text; /* in the file */
	uint32_t size;
	uint32_t number; /* in the file, so that equal times keep their order */
};

struct lines {
	struct line *entries;
	size_t count;
	size_t capacity;
};

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

static size_t clean(const char *text, size_t size, char out[PAGE_MARK_TEXT_MAX])
{
	size_t length = 0, at = 0, seen = 0;

	while (at < size) {
		unsigned char byte = (unsigned char)text[at];

		if (byte == ESCAPE) {
			at = skip_escape(text, size, at);
			continue;
		}
		at++;
		if (byte < ' ' && byte != '\t')
			continue;
		if (length == PAGE_MARK_TEXT_MAX) {
			memcpy(out + length - 3, "...", 3);
			return length;
		}
		out[length++] = byte == '\t' ? ' ' : (char)byte;
		if (byte > ' ')
			seen = length;
	}
	return seen;
}

static bool is_wanted(const struct trace *trace, const struct filter *filter, uint64_t time_ns)
{
	uint64_t first = trace->info.first_ns;
	uint64_t since = time_ns > first ? time_ns - first : 0;

	return !filter || (since >= filter->from_ns && (!filter->to_ns || since < filter->to_ns));
}

static bool add_line(struct lines *lines, uint64_t time_ns, const struct fxt_string *text)
{
	if (lines->count == lines->capacity) {
		size_t capacity = lines->capacity ? lines->capacity * 2 : 256;
		struct line *entries = realloc(lines->entries, capacity * sizeof(*entries));

		if (!entries)
			return false;
		lines->entries = entries;
		lines->capacity = capacity;
	}
	lines->entries[lines->count] = (struct line){.time_ns = time_ns,
						     .text = text->text,
						     .size = text->length,
						     .number = (uint32_t)lines->count};
	lines->count++;
	return true;
}

static int compare_lines(const void *left, const void *right)
{
	const struct line *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static bool read_lines(const struct trace *trace, const struct filter *filter, struct lines *lines)
{
	struct fxt_reader reader;
	struct fxt_record record;
	char text[PAGE_MARK_TEXT_MAX];
	bool done = true;

	if (!trace->info.console_lines)
		return true;
	if (fxt_reader_init(&reader, trace->bytes, trace->size, NULL))
		return false;
	while (done && fxt_reader_next(&reader, &record)) {
		uint64_t time_ns;

		if (record.kind != FXT_KIND_LOG)
			continue;
		time_ns = fxt_reader_nanoseconds(&reader, record.log.timestamp);
		if (is_wanted(trace, filter, time_ns) &&
		    clean(record.log.text.text, record.log.text.length, text))
			done = add_line(lines, time_ns, &record.log.text);
	}
	fxt_reader_deinit(&reader);
	if (lines->count)
		qsort(lines->entries, lines->count, sizeof(*lines->entries), compare_lines);
	return done;
}

/* Half of the room goes to time: the first line of each of so many equal spans, whatever else is
 * printed then. The other half goes evenly to the rest. */
static size_t thin_out(struct line *lines, size_t count, size_t most)
{
	size_t spans = most / 2 ? most / 2 : 1, firsts = 0, others = 0, kept = 0;
	uint64_t begin = lines[0].time_ns, span = (lines[count - 1].time_ns - begin) / spans + 1;
	uint64_t last = UINT64_MAX;

	for (size_t i = 0; i < count; i++) {
		firsts += (lines[i].time_ns - begin) / span != last;
		last = (lines[i].time_ns - begin) / span;
	}
	last = UINT64_MAX;
	for (size_t i = 0; i < count; i++) {
		bool is_first = (lines[i].time_ns - begin) / span != last;
		size_t rest = count - firsts, room = most > firsts ? most - firsts : 0;

		last = (lines[i].time_ns - begin) / span;
		if (!is_first) {
			size_t share = (size_t)((double)others * (double)room / (double)rest);

			others++;
			if ((size_t)((double)others * (double)room / (double)rest) == share)
				continue;
		}
		lines[kept++] = lines[i];
	}
	return kept;
}

bool page_marks_read(const struct trace *trace, const struct filter *filter, size_t most,
		     struct frames *frames, struct page_marks *marks)
{
	AUTO_FREE struct page_mark *entries = NULL;
	struct lines lines = {0};
	size_t count;
	bool done = read_lines(trace, filter, &lines);

	count = lines.count > most ? thin_out(lines.entries, lines.count, most) : lines.count;
	if (done)
		entries = calloc(count + 1, sizeof(*entries));
	for (size_t i = 0; entries && i < count; i++) {
		const struct line *line = &lines.entries[i];
		char text[PAGE_MARK_TEXT_MAX];
		size_t size = clean(line->text, line->size, text);
		struct frame frame = {
			.name = text, .name_bytes = (uint32_t)size, .kind = FRAME_GROUP};

		entries[i] = (struct page_mark){line->time_ns, frames_intern(frames, &frame)};
	}
	free(lines.entries);
	if (!entries || frames->failed)
		return false;
	*marks = (struct page_marks){take_pointer(&entries), count, lines.count};
	return true;
}
