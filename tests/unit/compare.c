/* When two profiles differ, and when only their sampling does. */
#include "analysis/compare.h"

#include "base/container.h"

#include <criterion/criterion.h>
#include <math.h>

enum { FUNCTIONS = 50 };

static uint64_t random_state = 88172645463325252u;

static double next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

static struct frames frames;

static void make_frames(void)
{
	char name[8];

	cr_assert_eq(frames_init(&frames, NULL), GP_OK);
	for (int i = 0; i < FUNCTIONS; i++) {
		int size = snprintf(name, sizeof(name), "f%d", i);

		frames_intern(&frames, &(struct frame){.name = name, .name_bytes = (uint32_t)size});
	}
}

/* Draws `ticks` ticks, in groups of `group` that one stack stands for. The functions' parts of the
 * time are 1/2, 1/4 ... but for function 1, which has `factor` times its own. */
static struct compare_side draw(struct call_tree_sum *sums, uint64_t ticks, uint64_t group,
				double factor)
{
	struct compare_side side = {.sums = sums, .period_ns = 1000000};

	memset(sums, 0, FUNCTIONS * sizeof(*sums));
	for (; side.running < ticks; side.running += group) {
		double at = next_random() * (1 + 0.25 * (factor - 1));
		size_t i = 0;

		for (double part = 0.5; i + 1 < FUNCTIONS; part /= 2, i++) {
			at -= i == 1 ? part * factor : part;
			if (at < 0)
				break;
		}
		sums[i].self += group;
		sums[i].total += group;
		side.squares += group * group;
	}
	return side;
}

/* How many of 200 comparisons call anything a change. */
static int count_changed(uint64_t ticks_a, uint64_t ticks_b, uint64_t group, double factor)
{
	struct call_tree_sum a[FUNCTIONS + 1], b[FUNCTIONS + 1];
	int changed = 0;

	for (int round = 0; round < 200; round++) {
		struct compare_side before = draw(a, ticks_a, group, 1);
		struct compare_side after = draw(b, ticks_b, group, factor);
		struct compare compare;

		cr_assert_eq(compare_profiles(&before, &after, &frames, COMPARE_SHARE, false,
					      &compare, NULL),
			     GP_OK);
		changed += compare.changes > 0;
		compare_deinit(&compare);
	}
	return changed;
}

Test(compare, equal_things_are_equal_whatever_is_drawn, .init = make_frames)
{
	/* One in twenty at most: 10 of 200 on average; 24 would be one in ten thousand. */
	cr_assert_lt(count_changed(1000, 1000, 1, 1), 24);
	cr_assert_lt(count_changed(200, 5000, 1, 1), 24);
	cr_assert_lt(count_changed(20000, 20000, 20, 1), 24);
	frames_deinit(&frames);
}

Test(compare, what_grew_is_found, .init = make_frames)
{
	cr_assert_gt(count_changed(2000, 2000, 1, 1.5), 190);
	/* 2000 ticks of 100 stacks are not 2000 observations. */
	cr_assert_lt(count_changed(2000, 2000, 20, 1.2), 60);
	frames_deinit(&frames);
}

Test(compare, few_ticks_are_counted_exactly)
{
	cr_assert_float_eq(compare_chance_of_few(0, 10, 0.5), 2.0 / 1024, 1e-9);
	cr_assert_float_eq(compare_chance_of_few(1, 9, 0.5), 2.0 * 11 / 1024, 1e-9);
	cr_assert_float_eq(compare_chance_of_few(5, 5, 0.5), 1, 1e-9);
	cr_assert_float_eq(compare_chance_of_few(0, 0, 0.5), 1, 1e-9);
	cr_assert_float_eq(compare_chance_of_few(3, 0, 0.25), 2.0 / 64, 1e-9);
}

Test(compare, shares_and_times_answer_different_questions, .init = make_frames)
{
	struct call_tree_sum a[FUNCTIONS + 1] = {{.self = 1000}, {.self = 1000}};
	struct call_tree_sum b[FUNCTIONS + 1] = {{.self = 1000}, {.self = 2000}};
	struct compare_side before = {a, 2000, 2000, 1000000}, after = {b, 3000, 3000, 1000000};
	struct compare compare;

	cr_assert_eq(
		compare_profiles(&before, &after, &frames, COMPARE_SHARE, false, &compare, NULL),
		GP_OK);
	cr_assert_eq(compare.changes, 2, "one grew, so the other shrank");
	cr_assert_eq(compare.rows[0].frame, 1);
	cr_assert_float_eq(compare.rows[0].after_percent, 66.67, 0.01);
	compare_deinit(&compare);
	cr_assert_eq(
		compare_profiles(&before, &after, &frames, COMPARE_TIME, false, &compare, NULL),
		GP_OK);
	cr_assert_eq(compare.changes, 2);
	cr_assert_eq(compare.rows[0].frame, 1);
	cr_assert_float_eq(compare.rows[0].after_percent, 100, 0.01);
	cr_assert_eq(compare.rows[1].frame, COMPARE_ALL);
	cr_assert_float_eq(compare.rows[1].after_percent, 150, 0.01);
	cr_assert_eq(compare.rows[2].frame, 0);
	cr_assert(!compare.rows[2].is_change, "took the same time");
	compare_deinit(&compare);
	/* Sampled twice as often, the same ticks are half the time. */
	after.period_ns = 500000;
	cr_assert_eq(
		compare_profiles(&before, &after, &frames, COMPARE_TIME, false, &compare, NULL),
		GP_OK);
	for (size_t i = 0; i < compare.count; i++)
		if (compare.rows[i].frame == 1)
			cr_assert(!compare.rows[i].is_change, "%g", compare.rows[i].chance);
	compare_deinit(&compare);
	frames_deinit(&frames);
}
