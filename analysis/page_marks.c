#include "analysis/page_marks.h"

#include "base/cleanup.h"
#include "analysis/console_lines.h"

#include <stdlib.h>

/* Half of the room goes to time: the first line of each of so many equal spans, whatever else is
 * printed then. The other half goes evenly to the rest. */
static size_t thin_out(struct console_line *lines, size_t count, size_t most)
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

/* Leaves out the lines that show nothing. */
static void keep_visible(struct console_lines *lines)
{
	char text[PAGE_MARK_TEXT_MAX];
	size_t kept = 0;

	for (size_t i = 0; i < lines->count; i++)
		if (console_line_clean(&lines->items[i], text, sizeof(text)))
			lines->items[kept++] = lines->items[i];
	lines->count = kept;
}

bool page_marks_read(const struct trace *trace, const struct filter *filter, size_t most,
		     struct frames *frames, struct page_marks *marks)
{
	AUTO_FREE struct page_mark *entries = NULL;
	struct console_lines lines;
	size_t count, all;

	if (!console_lines_read(trace, filter, &lines))
		return false;
	keep_visible(&lines);
	all = lines.count;
	count = all > most ? thin_out(lines.items, all, most) : all;
	entries = calloc(count + 1, sizeof(*entries));
	for (size_t i = 0; entries && i < count; i++) {
		const struct console_line *line = &lines.items[i];
		char text[PAGE_MARK_TEXT_MAX];
		size_t size = console_line_clean(line, text, sizeof(text));
		struct frame frame = {
			.name = text, .name_bytes = (uint32_t)size, .kind = FRAME_GROUP};

		entries[i] = (struct page_mark){line->time_ns, frames_intern(frames, &frame)};
	}
	console_lines_deinit(&lines);
	if (!entries || frames->failed)
		return false;
	*marks = (struct page_marks){take_pointer(&entries), count, all};
	return true;
}
