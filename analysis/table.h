/* Flat tables out of call trees: what `report` and `diff` show. */
#ifndef ANALYSIS_TABLE_H
#define ANALYSIS_TABLE_H

#include "analysis/call_tree.h"

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
