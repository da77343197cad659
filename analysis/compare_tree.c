#include "analysis/compare_tree.h"

#include "base/cleanup.h"

#include <math.h>
#include <stdlib.h>

enum { BEFORE, AFTER };

/* Makes the node's path in `into`. Paths are added root first, so that each is one step. */
static uint32_t copy_path(const struct call_tree *from, uint32_t node, struct call_tree *into)
{
	uint32_t path[CALL_TREE_DEPTH_MAX];

	return call_tree_add(into, path, call_tree_path(from, node, path), 0);
}

/* Both trees in one; then each side's ticks by its nodes. */
static gp_status_t unite(const struct call_tree trees[2], struct compare_tree *compare,
			 uint64_t *totals[2], struct error *error)
{
	struct call_tree *tree = &compare->tree;

	for (int side = BEFORE; side <= AFTER; side++)
		for (uint32_t i = 1; i < trees[side].count; i++)
			if (trees[side].nodes[i].self)
				copy_path(&trees[side], i, tree);
	if (call_tree_finish(tree, error))
		return GP_ERR_NO_MEMORY;
	compare->rows = calloc(tree->count, sizeof(*compare->rows));
	compare->self = calloc(tree->count, sizeof(*compare->self));
	totals[BEFORE] = calloc(tree->count, sizeof(*totals[BEFORE]));
	totals[AFTER] = calloc(tree->count, sizeof(*totals[AFTER]));
	if (!compare->rows || !compare->self || !totals[BEFORE] || !totals[AFTER])
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the comparison");
	for (int side = BEFORE; side <= AFTER; side++) {
		for (uint32_t i = 0; i < trees[side].count; i++) {
			uint64_t ticks = trees[side].nodes[i].self;

			if (ticks)
				totals[side][copy_path(&trees[side], i, tree)] += ticks;
		}
	}
	for (uint32_t i = 0; i < tree->count; i++)
		compare->self[i] = (struct compare_tree_self){totals[BEFORE][i], totals[AFTER][i]};
	for (uint32_t i = (uint32_t)tree->count; i-- > 1;) {
		totals[BEFORE][tree->nodes[i].parent] += totals[BEFORE][i];
		totals[AFTER][tree->nodes[i].parent] += totals[AFTER][i];
	}
	return GP_OK;
}

/* Whether everything that passes a node comes from its parent and goes nowhere else: one test. */
static bool is_same_as_parent(const struct compare_tree *compare, uint32_t node)
{
	const struct compare_row *row = &compare->rows[node];
	uint32_t parent = compare->tree.nodes[node].parent;

	return parent && compare->rows[parent].before == row->before &&
	       compare->rows[parent].after == row->after;
}

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return a < b ? -1 : a > b;
}

/* By how much each test must be more certain than one alone: the smallest number that is not less
 * than that of the tests which could be that certain. `least`: sorted. */
static size_t count_tests(const double *least, size_t count)
{
	size_t factor = 1, able = count;

	for (; factor < count; factor++) {
		while (able && least[able - 1] * (double)factor >= COMPARE_CHANCE)
			able--;
		if (able <= factor)
			break;
	}
	return factor;
}

static gp_status_t decide(const struct compare_side sides[2], enum compare_basis basis,
			  struct compare_tree *compare, struct error *error)
{
	uint32_t first = basis == COMPARE_TIME ? 0 : 1; /* all of all is no test */
	AUTO_FREE double *least = calloc(compare->tree.count + 1, sizeof(*least));
	size_t count = 0, factor;

	if (!least)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the comparison");
	for (uint32_t i = first; i < compare->tree.count; i++) {
		const struct compare_row *row = &compare->rows[i];

		if (!is_same_as_parent(compare, i))
			least[count++] = compare_least_chance(&sides[BEFORE], &sides[AFTER], basis,
							      row->before, row->after);
	}
	if (count)
		qsort(least, count, sizeof(*least), compare_doubles);
	factor = count_tests(least, count);
	for (uint32_t i = first; i < compare->tree.count; i++) {
		struct compare_row *row = &compare->rows[i];

		row->is_change = row->chance * (double)factor < COMPARE_CHANCE;
		compare->changes += row->is_change;
		compare->paths += i && (row->before || row->after);
	}
	return GP_OK;
}

gp_status_t compare_trees(const struct compare_side sides[2], const struct call_tree trees[2],
			  enum compare_basis basis, struct compare_tree *out, struct error *error)
{
	struct compare_tree compare = {0};
	uint64_t *totals[2] = {NULL};
	gp_status_t status = call_tree_init(&compare.tree, error);

	if (!status)
		status = unite(trees, &compare, totals, error);
	for (uint32_t i = 0; !status && i < compare.tree.count; i++) {
		struct call_tree_node *node = &compare.tree.nodes[i];
		struct compare_row *row = &compare.rows[i];

		*row = compare_row(&sides[BEFORE], &sides[AFTER], basis,
				   i ? node->frame : COMPARE_ALL, totals[BEFORE][i],
				   totals[AFTER][i]);
		/* What call_tree_sort() goes by; a millionth of a percent is nothing. */
		node->total = (uint64_t)(1e6 * fabs(row->after_percent - row->before_percent));
	}
	if (!status)
		status = decide(sides, basis, &compare, error);
	if (!status)
		status = call_tree_sort(&compare.tree, error);
	free(totals[BEFORE]);
	free(totals[AFTER]);
	if (status)
		compare_tree_deinit(&compare);
	else
		*out = compare;
	return status;
}

void compare_tree_deinit(struct compare_tree *compare)
{
	call_tree_deinit(&compare->tree);
	free(compare->rows);
	free(compare->self);
	*compare = (struct compare_tree){0};
}
