#include "analysis/compare.h"

#include "base/cleanup.h"

#include <math.h>
#include <stdlib.h>

/* Below this many observations the normal approximation is not used. */
#define FEW 50

static double spread_of(const struct compare_side *side)
{
	return side->running ? (double)side->squares / (double)side->running : 1;
}

static double log_binomial(uint64_t n, uint64_t k, double p)
{
	double all = (double)n, hits = (double)k;

	return lgamma(all + 1) - lgamma(hits + 1) - lgamma(all - hits + 1) + hits * log(p) +
	       (all - hits) * log1p(-p);
}

double compare_chance_of_few(uint64_t before, uint64_t after, double before_part)
{
	uint64_t n = before + after;
	double lower = 0, upper = 0, chance;

	if (before_part <= 0 || before_part >= 1)
		return 1;
	for (uint64_t k = 0; k <= n; k++) {
		double each = exp(log_binomial(n, k, before_part));

		if (k <= before)
			lower += each;
		if (k >= before)
			upper += each;
	}
	chance = 2 * (lower < upper ? lower : upper);
	return chance < 1 ? chance : 1;
}

static double chance_of_z(double difference, double variance)
{
	return variance > 0 ? erfc(fabs(difference) / sqrt(2 * variance)) : 1;
}

/* One tick of each side, in the unit in which they are compared and their spread is one. */
struct expected {
	double spread_a, spread_b;
	double a, b;
};

static struct expected expect(const struct compare_side *before, const struct compare_side *after,
			      enum compare_basis basis)
{
	struct expected expected = {spread_of(before), spread_of(after), 0, 0};

	if (basis == COMPARE_SHARE) {
		expected.a = (double)before->running / expected.spread_a;
		expected.b = (double)after->running / expected.spread_b;
	} else {
		expected.a = 1 / ((double)before->period_ns * expected.spread_a);
		expected.b = 1 / ((double)after->period_ns * expected.spread_b);
	}
	return expected;
}

static double chance_of(const struct compare_side *before, const struct compare_side *after,
			enum compare_basis basis, uint64_t a, uint64_t b)
{
	struct expected expected = expect(before, after, basis);
	double observed_a = (double)a / expected.spread_a;
	double observed_b = (double)b / expected.spread_b;

	if (expected.a <= 0 || expected.b <= 0)
		return 1;
	if (observed_a + observed_b < FEW)
		return compare_chance_of_few((uint64_t)(observed_a + 0.5),
					     (uint64_t)(observed_b + 0.5),
					     expected.a / (expected.a + expected.b));
	if (basis == COMPARE_SHARE) {
		double pooled = (observed_a + observed_b) / (expected.a + expected.b);

		return chance_of_z(observed_b / expected.b - observed_a / expected.a,
				   pooled * (1 - pooled) * (1 / expected.a + 1 / expected.b));
	} else {
		double time_a = (double)a * (double)before->period_ns;
		double time_b = (double)b * (double)after->period_ns;

		/* Counts vary as their mean does (Poisson). */
		return chance_of_z(time_b - time_a,
				   time_a * (double)before->period_ns * expected.spread_a +
					   time_b * (double)after->period_ns * expected.spread_b);
	}
}

double compare_least_chance(const struct compare_side *before, const struct compare_side *after,
			    enum compare_basis basis, uint64_t a, uint64_t b)
{
	struct expected expected = expect(before, after, basis);
	double all = (double)a / expected.spread_a + (double)b / expected.spread_b, part;

	if (expected.a <= 0 || expected.b <= 0)
		return 1;
	if (all >= FEW)
		return 0;
	part = expected.a / (expected.a + expected.b);
	/* All of them on the side where fewer are to be expected. */
	return fmin(1, 2 * pow(part < 0.5 ? part : 1 - part, floor(all)));
}

struct compare_row compare_row(const struct compare_side *before, const struct compare_side *after,
			       enum compare_basis basis, uint32_t frame, uint64_t a, uint64_t b)
{
	double whole_a = (double)before->running, whole_b = (double)after->running;

	if (basis == COMPARE_TIME)
		whole_b = whole_a * (double)before->period_ns / (double)after->period_ns;
	return (struct compare_row){
		.frame = frame,
		.before = a,
		.after = b,
		.before_percent = whole_a > 0 ? 100 * (double)a / whole_a : 0,
		.after_percent = whole_b > 0 ? 100 * (double)b / whole_b : 0,
		.chance = chance_of(before, after, basis, a, b),
	};
}

static int compare_by_growth(const void *left, const void *right)
{
	const struct compare_row *a = left, *b = right;

	if (a->is_change != b->is_change)
		return a->is_change ? -1 : 1;
	if (compare_growth(a) != compare_growth(b))
		return compare_growth(a) < compare_growth(b) ? 1 : -1;
	return a->frame < b->frame ? -1 : a->frame > b->frame;
}

gp_status_t compare_profiles(const struct compare_side *before, const struct compare_side *after,
			     const struct frames *frames, enum compare_basis basis, bool total,
			     struct compare *compare, struct error *error)
{
	struct compare_row *rows = calloc(frames->count + 1, sizeof(*rows));
	size_t count = 0, changes = 0;

	if (!rows)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the comparison");
	if (basis == COMPARE_TIME)
		rows[count++] = compare_row(before, after, basis, COMPARE_ALL, before->running,
					    after->running);
	for (size_t i = 0; i < frames->count; i++) {
		uint64_t a = total ? before->sums[i].total : before->sums[i].self;
		uint64_t b = total ? after->sums[i].total : after->sums[i].self;

		if (a || b)
			rows[count++] = compare_row(before, after, basis, (uint32_t)i, a, b);
	}
	for (size_t i = 0; i < count; i++) {
		rows[i].is_change = rows[i].chance * (double)count < COMPARE_CHANCE;
		changes += rows[i].is_change;
	}
	if (count)
		qsort(rows, count, sizeof(*rows), compare_by_growth);
	*compare = (struct compare){rows, count, changes};
	return GP_OK;
}

void compare_deinit(struct compare *compare)
{
	free(compare->rows);
	*compare = (struct compare){0};
}

/* Trees. */

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
