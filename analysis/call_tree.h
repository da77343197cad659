/* Stacks added up: a tree of frames (analysis/frames.h), from the outermost caller down or, turned
 * round, from the leaf to its callers. Memory grows with the number of distinct stacks, not with
 * that of samples.
 *
 *     call_tree_init(&tree, &error);
 *     call_tree_add(&tree, path, depth, ticks);    for each stack, outermost first
 *     call_tree_finish(&tree);                     totals are filled in
 *     look at tree.nodes; call_tree_sum(), call_tree_reverse()
 *     call_tree_deinit(&tree);
 *
 * Node 0 is the root, which is no frame. A node's number is higher than its parent's, so that a
 * loop over all nodes, forwards or backwards, is a walk of the tree. One thread at a time.
 */
#ifndef ANALYSIS_CALL_TREE_H
#define ANALYSIS_CALL_TREE_H

#include "analysis/frames.h"

#define CALL_TREE_ROOT 0
#define CALL_TREE_NONE 0 /* as a child or sibling: the root is nobody's */

struct call_tree_node {
	uint32_t frame;  /* number in the table of frames; of the root: UINT32_MAX */
	uint32_t parent; /* of the root: itself */
	uint32_t first_child;
	uint32_t next_sibling;
	uint64_t self;  /* ticks that end here */
	uint64_t total; /* ticks that pass here, its own included; filled by call_tree_finish() */
};

struct call_tree {
	HASH_TABLE(struct call_tree_node, nodes); /* by frame and parent */
	/* The way of the stack before, which shares its outer part with most. */
	uint32_t *last;
	size_t last_depth;
	size_t leading; /* frames in front that are owners, see analysis/profile.h */
	bool failed;    /* for lack of memory: what was added since then is missing */
};

/* The deepest path: a sample's frames and its owners. */
#define CALL_TREE_DEPTH_MAX (FXT_SAMPLE_DEPTH_MAX + 8)

gp_status_t call_tree_init(struct call_tree *tree, struct error *error);
void call_tree_deinit(struct call_tree *tree);

/* The child of `node` with that frame, made if there is none. CALL_TREE_NONE: no memory. */
uint32_t call_tree_child(struct call_tree *tree, uint32_t node, uint32_t frame);

/* `path`: frames, outermost first, at most CALL_TREE_DEPTH_MAX; what is deeper is left out. Returns
 * the node that the ticks were added to; the root as well when there is no memory. */
uint32_t call_tree_add(struct call_tree *tree, const uint32_t *path, size_t depth, uint64_t ticks);

/* The frames from the root to a node, outermost first. Returns how many. */
size_t call_tree_path(const struct call_tree *tree, uint32_t node,
		      uint32_t path[CALL_TREE_DEPTH_MAX]);

/* Adds up the totals. GP_ERR_NO_MEMORY when anything before has failed. Adding may go on; then
 * finish again. */
gp_status_t call_tree_finish(struct call_tree *tree, struct error *error);

/* Orders every node's children by total, greatest first. After call_tree_finish(). */
gp_status_t call_tree_sort(struct call_tree *tree, struct error *error);

/* The same ticks turned round: below the owners, the leaf comes first and its callers below it.
 * Into `reversed`, initialised here, finished. */
gp_status_t call_tree_reverse(const struct call_tree *tree, struct call_tree *reversed,
			      struct error *error);

/* One frame over the whole tree. */
struct call_tree_sum {
	uint64_t self;
	uint64_t total; /* a frame that is on a stack more than once counts once */
};

/* Into `sums`, one for each of `frame_count` frames, which the caller has set to zero. After
 * call_tree_finish(), not for reversed trees. */
gp_status_t call_tree_add_up(const struct call_tree *tree, struct call_tree_sum *sums,
			     size_t frame_count, struct error *error);

#endif
