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
#ifndef ANALYSIS_COMPARE_TREE_H
#define ANALYSIS_COMPARE_TREE_H

#include "analysis/compare.h"

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
