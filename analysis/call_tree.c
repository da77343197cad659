#include "analysis/call_tree.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "no memory for the call tree";

gp_status_t call_tree_init(struct call_tree *tree, struct error *error)
{
	const struct call_tree_node root = {.frame = UINT32_MAX, .parent = CALL_TREE_ROOT};
	uint32_t number;

	*tree = (struct call_tree){0};
	hash_table_init(&tree->table, offsetof(struct call_tree_node, first_child), sizeof(root));
	tree->last = calloc(CALL_TREE_DEPTH_MAX, sizeof(*tree->last));
	if (tree->last && hash_table_add(&tree->table, &root, &number))
		return GP_OK;
	call_tree_deinit(tree);
	return error_set(error, GP_ERR_NO_MEMORY, no_memory);
}

void call_tree_deinit(struct call_tree *tree)
{
	hash_table_deinit(&tree->table);
	free(tree->last);
	*tree = (struct call_tree){0};
}

uint32_t call_tree_child(struct call_tree *tree, uint32_t node, uint32_t frame)
{
	const struct call_tree_node key = {.frame = frame, .parent = node};
	size_t before = tree->count;
	uint32_t child;

	if (!hash_table_add(&tree->table, &key, &child)) {
		tree->failed = true;
		return CALL_TREE_NONE;
	}
	if (child == before) {
		tree->nodes[child].next_sibling = tree->nodes[node].first_child;
		tree->nodes[node].first_child = child;
	}
	return child;
}

uint32_t call_tree_add(struct call_tree *tree, const uint32_t *path, size_t depth, uint64_t ticks)
{
	uint32_t node = CALL_TREE_ROOT;
	size_t at = 0;

	if (depth > CALL_TREE_DEPTH_MAX)
		depth = CALL_TREE_DEPTH_MAX;
	while (at < depth && at < tree->last_depth && tree->nodes[tree->last[at]].frame == path[at])
		node = tree->last[at++];
	for (; at < depth; at++) {
		node = call_tree_child(tree, node, path[at]);
		if (!node)
			break;
		tree->last[at] = node;
	}
	tree->last_depth = at;
	if (at < depth)
		return CALL_TREE_ROOT;
	tree->nodes[node].self += ticks;
	return node;
}

gp_status_t call_tree_finish(struct call_tree *tree, struct error *error)
{
	if (tree->failed)
		return error_set(error, GP_ERR_NO_MEMORY, no_memory);
	for (size_t i = 0; i < tree->count; i++)
		tree->nodes[i].total = tree->nodes[i].self;
	for (size_t i = tree->count - 1; i > 0; i--)
		tree->nodes[tree->nodes[i].parent].total += tree->nodes[i].total;
	return GP_OK;
}

struct sibling {
	uint64_t total;
	uint64_t self;
	uint32_t node;
	uint32_t frame;
};

static int compare_siblings(const void *left, const void *right)
{
	const struct sibling *a = left, *b = right;

	if (a->total != b->total)
		return a->total < b->total ? 1 : -1;
	if (a->self != b->self)
		return a->self < b->self ? 1 : -1;
	return a->frame < b->frame ? -1 : a->frame > b->frame;
}

gp_status_t call_tree_sort(struct call_tree *tree, struct error *error)
{
	AUTO_FREE struct sibling *siblings = calloc(tree->count, sizeof(*siblings));

	if (!siblings)
		return error_set(error, GP_ERR_NO_MEMORY, no_memory);
	for (size_t parent = 0; parent < tree->count; parent++) {
		uint32_t *link = &tree->nodes[parent].first_child;
		size_t count = 0;

		for (uint32_t child = *link; child; child = tree->nodes[child].next_sibling)
			siblings[count++] =
				(struct sibling){tree->nodes[child].total, tree->nodes[child].self,
						 child, tree->nodes[child].frame};
		if (count > 1)
			qsort(siblings, count, sizeof(*siblings), compare_siblings);
		for (size_t i = 0; i < count; i++) {
			*link = siblings[i].node;
			link = &tree->nodes[*link].next_sibling;
		}
		*link = CALL_TREE_NONE;
	}
	return GP_OK;
}

/* Depth is bounded by what was added. */
size_t call_tree_path(const struct call_tree *tree, uint32_t node,
		      uint32_t path[CALL_TREE_DEPTH_MAX])
{
	size_t depth = 0, at;

	for (uint32_t up = node; up != CALL_TREE_ROOT; up = tree->nodes[up].parent)
		depth++;
	for (at = depth; at-- > 0; node = tree->nodes[node].parent)
		path[at] = tree->nodes[node].frame;
	return depth;
}

gp_status_t call_tree_reverse(const struct call_tree *tree, struct call_tree *reversed,
			      struct error *error)
{
	gp_status_t status = call_tree_init(reversed, error);

	if (status)
		return status;
	reversed->leading = tree->leading;
	for (size_t node = 1; node < tree->count; node++) {
		uint32_t path[CALL_TREE_DEPTH_MAX], turned[CALL_TREE_DEPTH_MAX];
		size_t depth, leading;

		if (!tree->nodes[node].self)
			continue;
		depth = call_tree_path(tree, (uint32_t)node, path);
		leading = tree->leading < depth ? tree->leading : depth;
		memcpy(turned, path, leading * sizeof(*path));
		for (size_t i = leading; i < depth; i++)
			turned[i] = path[depth - 1 - (i - leading)];
		call_tree_add(reversed, turned, depth, tree->nodes[node].self);
	}
	reversed->nodes[CALL_TREE_ROOT].self = tree->nodes[CALL_TREE_ROOT].self;
	status = call_tree_finish(reversed, error);
	if (status)
		call_tree_deinit(reversed);
	return status;
}

gp_status_t call_tree_add_up(const struct call_tree *tree, struct call_tree_sum *sums,
			     size_t frame_count, struct error *error)
{
	/* How often a frame is on the way to the node that is being visited. */
	AUTO_FREE uint32_t *on_way = calloc(frame_count ? frame_count : 1, sizeof(*on_way));
	uint32_t node = tree->nodes[CALL_TREE_ROOT].first_child;

	if (!on_way)
		return error_set(error, GP_ERR_NO_MEMORY, no_memory);
	while (node) {
		const struct call_tree_node *here = &tree->nodes[node];

		if (here->frame < frame_count) {
			sums[here->frame].self += here->self;
			if (!on_way[here->frame]++)
				sums[here->frame].total += here->total;
		}
		if (here->first_child) {
			node = here->first_child;
			continue;
		}
		/* Up, until there is a way on. */
		while (node) {
			here = &tree->nodes[node];
			if (here->frame < frame_count)
				on_way[here->frame]--;
			if (here->next_sibling)
				break;
			node = here->parent;
		}
		node = node ? tree->nodes[node].next_sibling : 0;
	}
	return GP_OK;
}
