/* A trace read into a call tree: the way that every command takes whose answer needs no time axis.
 */
#ifndef ANALYSIS_PROFILE_H
#define ANALYSIS_PROFILE_H

#include "analysis/call_tree.h"
#include "analysis/filter.h"

/* What was read into a tree, and what was not. */
struct profile_totals {
	uint64_t ticks;    /* of the samples that the filter takes */
	uint64_t running;  /* of those, in which a vCPU ran (sample_is_running()) */
	uint64_t filtered; /* ticks that the filter leaves out */
	uint64_t samples;  /* as records */
	uint64_t unnamed;  /* ticks of `running` whose leaf has no name */
	uint64_t squares;  /* sum over running samples of the square of their ticks */
	uint64_t modes[FRAMES_MODES];
	uint64_t ends[FRAMES_ENDS]; /* of `running` */
};

struct profile_options {
	struct filter *filter; /* NULL: everything */
	/* What stands in front of every stack, from the outside: by thread within its process is
	 * {OWNER_PROCESS, OWNER_THREAD}. */
	enum frame_owner owners[4];
	size_t owner_count;
	/* Also the ticks without functions, as a frame of FRAME_MODE below their owners. */
	bool idle;
	/* Also inlined functions, as far as frames->lines knows them. */
	bool inlined;
};

/* Reads all samples of the trace, from its beginning, into the tree (initialised, and finished
 * here). `totals` may be NULL. */
gp_status_t profile_read(struct trace *trace, const struct profile_options *options,
			 struct frames *frames, struct call_tree *tree,
			 struct profile_totals *totals, struct error *error);

/* Counts one sample with its ticks, taken by the filter or not. For callers that read samples
 * themselves. */
void profile_count(struct profile_totals *totals, const struct fxt_sample *sample, uint64_t ticks,
		   bool taken);

/* Flat tables out of call trees: what `report` and `diff` show. */

struct table_row {
	uint32_t frame;
	uint64_t self;
	uint64_t total;
};

struct table {
	struct table_row *rows; /* the greatest self first, among equals the greatest total */
	size_t count;
};

/* One row for each function in the tree (finished, not reversed); owners are left out. */
gp_status_t table_of_functions(const struct call_tree *tree, const struct frames *frames,
			       struct table *table, struct error *error);

/* One row for each owner that stands directly below the root; self and total are the same. */
gp_status_t table_of_owners(const struct call_tree *tree, const struct frames *frames,
			    struct table *table, struct error *error);

void table_deinit(struct table *table);

#endif
