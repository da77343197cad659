/* A call tree in the order it is printed, for report and diff. */
#ifndef TOOLS_TREE_WALK_H
#define TOOLS_TREE_WALK_H

#include "analysis/call_tree.h"

struct tree_walk {
	const struct call_tree *tree;
	/* Whether a node is printed; what is below one that is not, is not asked for. */
	bool (*is_shown)(const void *context, uint32_t node);
	const void *context;
	/* Where it is. */
	uint32_t node;
	size_t depth;
	bool branch; /* the node has shown siblings */
	/* Private. A chain of single calls stays at one indentation: only branches go to the right.
	 */
	uint16_t indents[CALL_TREE_DEPTH_MAX + 1]; /* by depth */
};

void tree_walk_begin(struct tree_walk *walk, const struct call_tree *tree,
		     bool (*is_shown)(const void *context, uint32_t node), const void *context);
bool tree_walk_next(struct tree_walk *walk);

/* The place of the node's name in a line, with a '+' where it branches off. */
void tree_walk_indent(const struct tree_walk *walk, FILE *to);

#endif
