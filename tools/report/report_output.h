/* What guestprof report found out, and its three writers. */
#ifndef TOOLS_REPORT_REPORT_OUTPUT_H
#define TOOLS_REPORT_REPORT_OUTPUT_H

#include "tools/options.h"
#include "analysis/profile.h"
#include "analysis/text.h"

struct report {
	const char *path;
	struct trace trace;
	struct filter filter;
	struct frames frames;
	struct call_tree tree; /* sorted; for SHAPE_CALLERS reversed */
	struct table table;    /* of SHAPE_TABLE */
	struct profile_totals totals;
	enum option_shape shape;
	bool by_owner;      /* rows are processes, vCPUs ..., not functions */
	const char *column; /* what the rows are: "function", "process" ... */
	uint64_t whole;     /* the ticks that are 100 % */
	uint64_t most;      /* rows; 0: all */
	double least;       /* percent: branches of the tree below it are left out */
	bool colours;
	struct source_lines *lines; /* NULL: nothing shows lines or inlined functions */
};

/* How many rows of the table are to be shown. */
static inline size_t report_rows(const struct report *report)
{
	return report->most && report->most < report->table.count ? report->most
								  : report->table.count;
}

/* For tree_walk_begin(), with the report as context. */
static inline bool report_shows_node(const void *context, uint32_t node)
{
	const struct report *report = context;
	uint64_t total = report->tree.nodes[node].total;

	return total && text_percent(total, report->whole) >= report->least;
}

void report_write_text(const struct report *report, FILE *to);
void report_write_markdown(const struct report *report, FILE *to);
void report_write_json(const struct report *report, FILE *to);

#endif
