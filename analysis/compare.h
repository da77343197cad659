/* Two profiles compared: which functions take another part of the time, and whether that is more
 * than sampling explains.
 *
 * A tick hits a function with the probability of the part of the time it takes, so that two
 * recordings of the same thing differ as two draws do. For each function that hypothesis is tested:
 * from few ticks exactly, from many by the normal approximation. Ticks that one stack stands for
 * are one observation, not several, and widen what counts as noise (the design effect of Kish,
 * "Survey Sampling", 1965: sum of squared weights over sum of weights). Because many functions are
 * tested at once, each must pass at COMPARE_CHANCE divided by their number (Bonferroni): in one of
 * twenty comparisons of equal things is anything at all called a change.
 *
 * What is not noise of sampling, such as another order of events in one of the runs, is a change
 * like any other: only more runs could tell.
 */
#ifndef ANALYSIS_COMPARE_H
#define ANALYSIS_COMPARE_H

#include "analysis/profile.h"

#define COMPARE_CHANCE 0.05

/* One of the two profiles. */
struct compare_side {
	const struct call_tree_sum *sums; /* by frame */
	uint64_t running;                 /* ticks */
	uint64_t squares;                 /* see profile_totals */
	uint64_t period_ns;
};

enum compare_basis {
	COMPARE_SHARE, /* of the ticks in which a vCPU ran */
	COMPARE_TIME,  /* absolute: for two runs of the same work */
};

struct compare_row {
	uint32_t frame;  /* COMPARE_ALL: everything, by COMPARE_TIME only */
	uint64_t before; /* ticks */
	uint64_t after;
	double before_percent; /* of the side's own ticks; by time: both of the whole time before */
	double after_percent;
	double chance; /* that sampling makes such a difference where there is none */
	bool is_change;
};
#define COMPARE_ALL UINT32_MAX

struct compare {
	struct compare_row *rows; /* changes first, the greatest growth first among them */
	size_t count;
	size_t changes;
};

/* Compares what frames have on either side: `total` or self ticks. Frames that have none on both
 * sides are left out. */
gp_status_t compare_profiles(const struct compare_side *before, const struct compare_side *after,
			     const struct frames *frames, enum compare_basis basis, bool total,
			     struct compare *compare, struct error *error);
void compare_deinit(struct compare *compare);

/* Percentage points. */
static inline double compare_growth(const struct compare_row *row)
{
	return row->after_percent - row->before_percent;
}

/* For other tests of the same kind (analysis/compare.h): one comparison, of `a` ticks with
 * `b`; whether it is a change is for the caller to decide. */
struct compare_row compare_row(const struct compare_side *before, const struct compare_side *after,
			       enum compare_basis basis, uint32_t frame, uint64_t a, uint64_t b);

/* The least chance that ticks as many as these in all could have, wherever they are: 0 when there
 * are many. */
double compare_least_chance(const struct compare_side *before, const struct compare_side *after,
			    enum compare_basis basis, uint64_t a, uint64_t b);

/* The chance that `before` and `after`, of expectations in the ratio of `before_part` to 1 -
 * `before_part`, lie at least this far apart; for tests. */
double compare_chance_of_few(uint64_t before, uint64_t after, double before_part);

/* Two call trees compared, path by path: not only which function takes more, but on whose account.
 *
 * Each call path is tested by all the ticks that pass it, as functions are in analysis/compare.h. A
 * trace has many paths, and most have so few ticks that no outcome could be told from chance. Those
 * are not counted among the tests that must all hold (Tarone, "A modified Bonferroni method for
 * discrete data", Biometrics 46, 1990): whether a path is tested depends on its ticks in both
 * traces together and not on where they are, so that equal things are still called changed in one
 * of twenty comparisons. A path all of whose ticks go on to the next frame is the same test as that
 * one.
 */

struct compare_tree_self {
	uint64_t before;
	uint64_t after;
};

struct compare_tree {
	/* The paths of both; a node's children by the size of their change, greatest first. */
	struct call_tree tree;
	struct compare_row *rows; /* by node: with what it called */
	struct compare_tree_self *self;
	size_t paths;   /* with ticks, the root left out */
	size_t changes; /* of them; of the whole (COMPARE_TIME) the root counts too */
};

/* `sides` without sums. Both trees are finished, of the same table of frames, and both or none
 * reversed. */
gp_status_t compare_trees(const struct compare_side sides[2], const struct call_tree trees[2],
			  enum compare_basis basis, struct compare_tree *compare,
			  struct error *error);
void compare_tree_deinit(struct compare_tree *compare);

#endif
