#include "analysis/table.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

struct sorting {
	struct table_row row;
	const struct frame *frame;
};

static int table_compare_rows(const void *left, const void *right)
{
	const struct sorting *a = left, *b = right;
	int order;

	if (a->row.self != b->row.self)
		return a->row.self < b->row.self ? 1 : -1;
	if (a->row.total != b->row.total)
		return a->row.total < b->row.total ? 1 : -1;
	order = strcmp(a->frame->name, b->frame->name);
	if (order)
		return order;
	return a->row.frame < b->row.frame ? -1 : a->row.frame > b->row.frame;
}

static gp_status_t table_no_memory(struct error *error)
{
	return error_set(error, GP_ERR_NO_MEMORY, "no memory for the table");
}

static gp_status_t table_make(struct sorting *sorting, size_t count, struct table *table,
			      struct error *error)
{
	struct table_row *rows = calloc(count ? count : 1, sizeof(*rows));

	if (!rows)
		return table_no_memory(error);
	if (count)
		qsort(sorting, count, sizeof(*sorting), table_compare_rows);
	for (size_t i = 0; i < count; i++)
		rows[i] = sorting[i].row;
	*table = (struct table){rows, count};
	return GP_OK;
}

gp_status_t table_of_functions(const struct call_tree *tree, const struct frames *frames,
			       struct table *table, struct error *error)
{
	AUTO_FREE struct call_tree_sum *sums =
		calloc(frames->count ? frames->count : 1, sizeof(*sums));
	AUTO_FREE struct sorting *sorting =
		calloc(frames->count ? frames->count : 1, sizeof(*sorting));
	gp_status_t status;
	size_t count = 0;

	if (!sums || !sorting)
		return table_no_memory(error);
	status = call_tree_add_up(tree, sums, frames->count, error);
	if (status)
		return status;
	for (size_t i = 0; i < frames->count; i++)
		if (sums[i].total && frames->entries[i].kind < FRAME_PROCESS)
			sorting[count++] =
				(struct sorting){.row = {(uint32_t)i, sums[i].self, sums[i].total},
						 .frame = &frames->entries[i]};
	return table_make(sorting, count, table, error);
}

gp_status_t table_of_owners(const struct call_tree *tree, const struct frames *frames,
			    struct table *table, struct error *error)
{
	AUTO_FREE struct sorting *sorting = calloc(tree->count, sizeof(*sorting));
	size_t count = 0;

	if (!sorting)
		return table_no_memory(error);
	for (uint32_t node = tree->nodes[CALL_TREE_ROOT].first_child; node;
	     node = tree->nodes[node].next_sibling) {
		const struct call_tree_node *owner = &tree->nodes[node];

		sorting[count++] =
			(struct sorting){.row = {owner->frame, owner->total, owner->total},
					 .frame = &frames->entries[owner->frame]};
	}
	return table_make(sorting, count, table, error);
}

void table_deinit(struct table *table)
{
	free(table->rows);
	*table = (struct table){0};
}
