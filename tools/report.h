/* What guestprof report found out, and its three writers. Private to tools/report*.c. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "profile/profile.h"
#include "profile/table.h"

enum report_shape { REPORT_TABLE, REPORT_CALLEES, REPORT_CALLERS };

struct report {
	const char *path;
	struct trace trace;
	struct filter filter;
	struct frames frames;
	struct call_tree tree; /* sorted; for REPORT_CALLERS reversed */
	struct table table;    /* of REPORT_TABLE */
	struct profile_totals totals;
	enum report_shape shape;
	bool by_owner;      /* rows are processes, vCPUs ..., not functions */
	const char *column; /* what the rows are: "function", "process" ... */
	uint64_t whole;     /* the ticks that are 100 % */
	size_t most;        /* rows; 0: all */
	double least;       /* percent: branches of the tree below it are left out */
	bool colours;
	struct source_lines *lines; /* NULL: nothing shows lines or inlined functions */
};

static inline double report_percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* How many rows of the table are to be shown. */
static inline size_t report_rows(const struct report *report)
{
	return report->most && report->most < report->table.count ? report->most
								  : report->table.count;
}

/* The tree in the order it is printed. */
struct report_walk {
	const struct report *report;
	uint32_t node;
	size_t depth;
	bool branch;
	uint16_t indents[CALL_TREE_DEPTH_MAX + 1]; /* by depth; the node's is at `depth` */
};
/* A chain of single calls stays at one indentation: only branches go to the right. */
void report_walk_begin(struct report_walk *walk, const struct report *report);
bool report_walk_next(struct report_walk *walk);

void report_write_text(const struct report *report, FILE *to);
void report_write_markdown(const struct report *report, FILE *to);
void report_write_json(const struct report *report, FILE *to);

#endif
