/* What guestprof diff found out, and its writers. */
#ifndef TOOLS_REPORT_DIFF_OUTPUT_H
#define TOOLS_REPORT_DIFF_OUTPUT_H

#include "tools/options.h"
#include "analysis/compare.h"

enum { DIFF_BEFORE, DIFF_AFTER, DIFF_SIDES };

struct diff_side {
	const char *path;
	struct trace trace;
	struct call_tree tree; /* for SHAPE_CALLERS reversed */
	struct profile_totals totals;
};

struct diff {
	struct diff_side sides[DIFF_SIDES];
	struct filter filter;
	struct frames frames; /* of both */
	enum compare_basis basis;
	enum option_shape shape;
	bool total;               /* of the table */
	struct compare compare;   /* of SHAPE_TABLE */
	struct compare_tree tree; /* of the others */
	bool *shown;              /* by node of the tree */
	bool all;
	double fail_above; /* percent; negative: not asked for */
	double least;      /* percentage points: smaller changes are left out of a tree */
	uint64_t most;     /* lines; 0: all */
	bool colours;
};

/* How many were compared, and how many of them changed. */
static inline size_t diff_compared(const struct diff *diff)
{
	return diff->shape == SHAPE_TABLE ? diff->compare.count : diff->tree.paths;
}

static inline size_t diff_changes(const struct diff *diff)
{
	return diff->shape == SHAPE_TABLE ? diff->compare.changes : diff->tree.changes;
}

/* How many rows of the table are to be shown. */
static inline size_t diff_rows(const struct diff *diff)
{
	size_t rows = diff->all ? diff->compare.count : diff->compare.changes;

	return diff->most && rows > diff->most ? diff->most : rows;
}

/* A change that --fail-above is about. */
static inline bool diff_is_over(const struct diff *diff, const struct compare_row *row)
{
	return diff->fail_above >= 0 && row->is_change && compare_growth(row) > diff->fail_above;
}

/* For tree_walk_begin(), with the diff as context. */
static inline bool diff_shows_node(const void *diff, uint32_t node)
{
	return ((const struct diff *)diff)->shown[node];
}

void diff_write_text(const struct diff *diff, FILE *to);
void diff_write_markdown(const struct diff *diff, FILE *to);
void diff_write_json(const struct diff *diff, FILE *to);

#endif
