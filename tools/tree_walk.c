#include "tools/tree_walk.h"

void tree_walk_begin(struct tree_walk *walk, const struct call_tree *tree,
		     bool (*is_shown)(const void *context, uint32_t node), const void *context)
{
	*walk = (struct tree_walk){.tree = tree, .is_shown = is_shown, .context = context};
}

/* The node or the first of its siblings behind it that is shown. */
static uint32_t shown_from(const struct tree_walk *walk, uint32_t node)
{
	while (node && !walk->is_shown(walk->context, node))
		node = walk->tree->nodes[node].next_sibling;
	return node;
}

static bool enter(struct tree_walk *walk, uint32_t node, size_t depth)
{
	const struct call_tree_node *nodes = walk->tree->nodes;
	uint32_t first = shown_from(walk, nodes[nodes[node].parent].first_child);
	bool alone = node == first && !shown_from(walk, nodes[node].next_sibling);
	size_t above = depth > 1 ? walk->indents[depth - 1] : 0;

	walk->node = node;
	walk->depth = depth;
	walk->branch = !alone || depth <= walk->tree->leading + 1;
	walk->indents[depth] = (uint16_t)(above + (walk->branch && depth > 1 ? 2 : 0));
	return true;
}

bool tree_walk_next(struct tree_walk *walk)
{
	const struct call_tree_node *nodes = walk->tree->nodes;
	uint32_t node = walk->node, next = shown_from(walk, nodes[node].first_child);
	size_t depth = walk->depth;

	if (next && depth < CALL_TREE_DEPTH_MAX)
		return enter(walk, next, depth + 1);
	for (; node; node = nodes[node].parent, depth--) {
		next = shown_from(walk, nodes[node].next_sibling);
		if (next)
			return enter(walk, next, depth);
	}
	return false;
}

void tree_walk_indent(const struct tree_walk *walk, FILE *to)
{
	fprintf(to, "%*s%s", (int)walk->indents[walk->depth], "", walk->branch ? "+ " : "  ");
}
