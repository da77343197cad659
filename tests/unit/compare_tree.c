/* When call paths of two profiles differ, and when only their sampling does. */
#include "analysis/compare.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LEVELS = 6, CHOICES = 4 };

static uint64_t random_state = 88172645463325252u;

static double next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

/* A tree as programs have them: some hot paths and a long tail. Frame numbers are level * CHOICES +
 * choice. With `factor`, the path through choice 1 on the first two levels is taken that much more
 * often. */
static struct compare_side draw(struct call_tree *tree, uint64_t ticks, double factor)
{
	struct compare_side side = {.period_ns = 1000000};

	cr_assert_eq(call_tree_init(tree, NULL), GP_OK);
	while (side.running < ticks) {
		uint32_t path[LEVELS];
		size_t depth = 0;

		for (; depth < LEVELS; depth++) {
			uint32_t choice = 0;

			while (choice + 1 < CHOICES && next_random() < 0.35)
				choice++;
			path[depth] = (uint32_t)depth * CHOICES + choice;
			if (next_random() < 0.1)
				break;
		}
		depth = depth < LEVELS ? depth + 1 : LEVELS;
		/* Thinning out all others is the same as taking this one more often. */
		if (next_random() >= 1 / factor &&
		    !(depth > 1 && path[0] == 1 && path[1] == CHOICES + 1))
			continue;
		call_tree_add(tree, path, depth, 1);
		side.running++;
		side.squares++;
	}
	cr_assert_eq(call_tree_finish(tree, NULL), GP_OK);
	return side;
}

static void compare(uint64_t before, uint64_t after, double factor, enum compare_basis basis,
		    struct compare_tree *result)
{
	struct call_tree trees[2];
	struct compare_side sides[2] = {draw(&trees[0], before, 1), draw(&trees[1], after, factor)};

	cr_assert_eq(compare_trees(sides, trees, basis, result, NULL), GP_OK);
	call_tree_deinit(&trees[0]);
	call_tree_deinit(&trees[1]);
}

Test(compare_tree, equal_things_are_seldom_called_changed)
{
	int changed = 0;

	for (int i = 0; i < 200; i++) {
		struct compare_tree result;

		compare(2000, 3000, 1, COMPARE_SHARE, &result);
		cr_assert_gt(result.paths, 200, "a long tail");
		changed += result.changes > 0;
		compare_tree_deinit(&result);
	}
	/* One in twenty at most: 10 of 200 on average; 24 would be one in ten thousand. */
	cr_assert_lt(changed, 24, "%d of 200", changed);
}

static uint32_t find(const struct compare_tree *result, uint32_t parent, uint32_t frame)
{
	for (uint32_t i = 1; i < result->tree.count; i++)
		if (result->tree.nodes[i].parent == parent && result->tree.nodes[i].frame == frame)
			return i;
	cr_assert_fail("no path");
	return 0;
}

Test(compare_tree, a_path_that_grew_is_found_and_its_frames_elsewhere_are_not)
{
	struct compare_tree result;
	uint32_t parent, grown, other;

	compare(8000, 5000, 2, COMPARE_SHARE, &result);
	parent = find(&result, CALL_TREE_ROOT, 1);
	grown = find(&result, parent, CHOICES + 1);
	other = find(&result, find(&result, CALL_TREE_ROOT, 2), CHOICES + 1);
	cr_assert(result.rows[grown].is_change);
	cr_assert_gt(compare_growth(&result.rows[grown]), 2);
	cr_assert(!result.rows[other].is_change || compare_growth(&result.rows[other]) < 0);
	/* The greatest change comes first. */
	cr_assert_eq(result.tree.nodes[parent].first_child, grown);
	compare_tree_deinit(&result);
}

Test(compare_tree, ticks_of_both_sides_are_kept_to_the_last)
{
	static const uint32_t first[] = {0, 1}, second[] = {0, 2};
	struct compare_side sides[2] = {{.running = 30, .squares = 30, .period_ns = 10},
					{.running = 60, .squares = 60, .period_ns = 5}};
	struct compare_tree result;
	struct call_tree trees[2];

	for (int i = 0; i < 2; i++)
		cr_assert_eq(call_tree_init(&trees[i], NULL), GP_OK);
	call_tree_add(&trees[0], first, 1, 10);
	call_tree_add(&trees[0], first, 2, 20);
	call_tree_add(&trees[1], second, 2, 60);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(call_tree_finish(&trees[i], NULL), GP_OK);
	cr_assert_eq(compare_trees(sides, trees, COMPARE_TIME, &result, NULL), GP_OK);
	cr_assert_eq(result.tree.count, 4);
	cr_assert_eq(result.paths, 3);
	cr_assert_eq(result.rows[CALL_TREE_ROOT].before, 30);
	cr_assert_eq(result.rows[CALL_TREE_ROOT].after, 60);
	cr_assert_float_eq(result.rows[CALL_TREE_ROOT].after_percent, 100, 1e-9, "twice the rate");
	uint32_t both = find(&result, CALL_TREE_ROOT, 0);

	cr_assert_eq(result.rows[both].before, 30);
	cr_assert_eq(result.rows[both].after, 60);
	cr_assert(!result.rows[both].is_change);
	cr_assert_eq(result.self[both].before, 10);
	cr_assert_eq(result.self[both].after, 0);
	cr_assert_eq(result.rows[find(&result, both, 2)].before, 0);
	cr_assert(result.rows[find(&result, both, 2)].is_change);
	cr_assert(result.rows[find(&result, both, 1)].is_change);
	compare_tree_deinit(&result);
	for (int i = 0; i < 2; i++)
		call_tree_deinit(&trees[i]);
}

/* One hot path and many paths of one tick: by a plain Bonferroni the change would be lost. */
Test(compare_tree, a_long_tail_does_not_hide_a_change)
{
	struct compare_side sides[2] = {{.period_ns = 1}, {.period_ns = 1}};
	struct compare_tree result;
	struct call_tree trees[2];
	uint32_t hot = 0;

	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(call_tree_init(&trees[i], NULL), GP_OK);
		call_tree_add(&trees[i], &hot, 1, i ? 140 : 80);
		for (uint32_t frame = 1; frame <= 5000; frame++)
			call_tree_add(&trees[i], &frame, 1, 1);
		sides[i].running = sides[i].squares = i ? 5140 : 5080;
		cr_assert_eq(call_tree_finish(&trees[i], NULL), GP_OK);
	}
	cr_assert_eq(compare_trees(sides, trees, COMPARE_SHARE, &result, NULL), GP_OK);
	cr_assert_eq(result.changes, 1);
	cr_assert(result.rows[find(&result, CALL_TREE_ROOT, hot)].is_change);
	cr_assert_gt(result.rows[find(&result, CALL_TREE_ROOT, hot)].chance * 5000, COMPARE_CHANCE);
	compare_tree_deinit(&result);
	for (int i = 0; i < 2; i++)
		call_tree_deinit(&trees[i]);
}
