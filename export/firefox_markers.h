/* The markers of a Firefox profile (export/firefox.c, which has them in
 * series_set.more): lines on the console, what each vCPU did. Kept until the profile is written.
 * Private to export/.
 */
#ifndef EXPORT_FIREFOX_MARKERS_H
#define EXPORT_FIREFOX_MARKERS_H

#include "export/lanes.h"

/* Indices into `categories`, which give the colours. */
enum { CATEGORY_KERNEL, CATEGORY_USER, CATEGORY_BOOT, CATEGORY_OTHER };
struct markers {
	VECTOR(struct marker) entries;
	struct lanes lanes;
};

/* How each type of marker is shown: the profile's "markerSchema". */
extern const char markers_schemas[];

struct markers *markers_of(struct export *export);
void markers_destroy(struct markers *markers);

/* A lanes_put. */
void markers_put_piece(struct export *export, const struct lane_piece *piece);

void markers_add_line(struct export *export, const struct console_line *line);

/* Members of their thread: its strings, and its table of markers. */
void markers_print_names(FILE *to, const struct markers *markers);
void markers_print_table(FILE *to, const struct markers *markers, uint64_t first_ns);

#endif
