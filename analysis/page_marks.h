/* The lines of a guest's console as marks on a timeline. A trace may hold a million of them and a
 * page shall stay small, so they are thinned out evenly over time, and the page is told of how many
 * the ones it has were chosen.
 */
#ifndef ANALYSIS_PAGE_MARKS_H
#define ANALYSIS_PAGE_MARKS_H

#include "analysis/filter.h"

#define PAGE_MARKS_MAX 5000
#define PAGE_MARK_TEXT_MAX 240 /* bytes; the end of a longer line is "..." */

struct page_mark {
	uint64_t time_ns;
	uint32_t frame; /* whose name is the text */
};

struct page_marks {
	struct page_mark *entries; /* by time; free() */
	size_t count;
	uint64_t all; /* lines between which was chosen */
};

/* The lines within --from and --to (`filter` may be NULL), at most `most` (1 or more). Their texts
 * are interned in `frames`, without escape sequences and control characters; lines that are nothing
 * else are left out. False: no memory. */
bool page_marks_read(const struct trace *trace, const struct filter *filter, size_t most,
		     struct frames *frames, struct page_marks *marks);

#endif
