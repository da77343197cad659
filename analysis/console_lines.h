/* The lines of a guest's console in a trace, in order of time. Their texts are the guest's bytes,
 * escape sequences included: console_line_clean() gives what a terminal would show of one.
 */
#ifndef ANALYSIS_CONSOLE_LINES_H
#define ANALYSIS_CONSOLE_LINES_H

#include "analysis/filter.h"

struct console_line {
	uint64_t time_ns;
	const char *text; /* in the file, not terminated, untrusted */
	uint32_t size;
	uint32_t number; /* in the file, so that equal times keep their order */
};

struct console_lines {
	struct console_line *items;
	size_t count;
	size_t capacity;
};

/* The lines within --from and --to; nothing else of `filter`, which may be NULL, is looked at. They
 * point into the trace. False: no memory. */
bool console_lines_read(const struct trace *trace, const struct filter *filter,
			struct console_lines *lines);

/* Allowed on a zeroed one. */
void console_lines_deinit(struct console_lines *lines);

/* The line's text without escape sequences, control characters and blanks at its end, tabs as
 * blanks, into `out`, which has room for `most` bytes, more than 3; the end of a longer one is
 * "...". Not terminated. Returns its bytes; 0: nothing is left. */
size_t console_line_clean(const struct console_line *line, char *out, size_t most);

#endif
