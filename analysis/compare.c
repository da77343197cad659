#include "analysis/compare.h"

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
