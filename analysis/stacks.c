#include "analysis/stacks.h"

#include <stdlib.h>
#include <string.h>

#define KNOWN_BITS 16
#define NO_KERNEL_FRAMES UINT64_MAX
/* Fibonacci hashing: 2^64 / golden ratio. */
#define HASH_MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

/* All that decides which frames a stack's addresses are: trace/trace.h, trace_find_symbol(). */
struct callers {
	const uint64_t *addresses;           /* in the trace, from the leaf's caller on */
	const struct trace_program *program; /* whose user frames are */
	uint64_t kernel_frames;              /* NO_KERNEL_FRAMES: the sample does not say */
	uint64_t mode;
	uint32_t depth;  /* of addresses */
	uint32_t owners; /* the node that the stack is below */
	bool has_process;
};

/* Where the callers' innermost frame is in the tree. */
struct stacks_known {
	struct callers callers;
	uint64_t hash;
	uint32_t node; /* CALL_TREE_NONE: nothing is known here */
};

gp_status_t stacks_init(struct stacks *stacks, const struct trace *trace, struct frames *frames,
			struct call_tree *tree, struct error *error)
{
	struct stacks_known *known = calloc((size_t)1 << KNOWN_BITS, sizeof(*known));

	if (!known)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the stacks");
	*stacks = (struct stacks){.trace = trace, .frames = frames, .tree = tree, .known = known};
	return GP_OK;
}

void stacks_deinit(struct stacks *stacks)
{
	free(stacks->known);
	*stacks = (struct stacks){0};
}

static uint64_t stacks_hash_of(const struct callers *callers)
{
	uint64_t hash = callers->owners;

	for (uint32_t i = 0; i < callers->depth; i++)
		hash = (hash ^ callers->addresses[i]) * HASH_MULTIPLIER;
	return hash;
}

static bool stacks_is_same(const struct callers *a, const struct callers *b)
{
	return a->program == b->program && a->kernel_frames == b->kernel_frames &&
	       a->mode == b->mode && a->depth == b->depth && a->owners == b->owners &&
	       a->has_process == b->has_process &&
	       !memcmp(a->addresses, b->addresses, a->depth * sizeof(*a->addresses));
}

/* The node of a sample's frame `last` below `node`, all frames around it in between. */
static uint32_t descend(struct stacks *stacks, const struct fxt_sample *sample, uint32_t node,
			size_t last)
{
	for (size_t i = sample->depth; i > last; i--) {
		uint32_t frame = frames_of_address(stacks->frames, stacks->trace, sample, i - 1);

		if (stacks->frames->failed)
			return CALL_TREE_NONE;
		/* Not before: the root, where it may begin, has NONE's number. */
		node = call_tree_child(stacks->tree, node, frame);
		if (node == CALL_TREE_NONE)
			break;
	}
	return node;
}

static uint32_t find_callers(struct stacks *stacks, const struct fxt_sample *sample,
			     uint32_t owners)
{
	struct callers callers = {
		.addresses = sample->stack + 1,
		.program = trace_program_of(stacks->trace, sample),
		.kernel_frames = sample->flags & FXT_SAMPLE_KERNEL_FRAMES ? sample->kernel_frames
									  : NO_KERNEL_FRAMES,
		.mode = sample->mode,
		.depth = (uint32_t)(sample->depth - 1),
		.owners = owners,
		.has_process = sample->flags & FXT_SAMPLE_PROCESS,
	};
	uint64_t hash = stacks_hash_of(&callers);
	struct stacks_known *known = &stacks->known[hash >> (64 - KNOWN_BITS)];
	uint32_t node;

	if (known->node != CALL_TREE_NONE && known->hash == hash &&
	    stacks_is_same(&known->callers, &callers))
		return known->node;
	node = descend(stacks, sample, owners, 1);
	if (node != CALL_TREE_NONE)
		*known = (struct stacks_known){.callers = callers, .hash = hash, .node = node};
	return node;
}

uint32_t stacks_add(struct stacks *stacks, const uint32_t *owners, size_t owner_count,
		    const struct fxt_sample *sample, uint64_t ticks)
{
	struct call_tree *tree = stacks->tree;
	uint32_t node = CALL_TREE_ROOT, leaf;

	for (size_t i = 0; i < owner_count; i++) {
		node = call_tree_child(tree, node, owners[i]);
		if (node == CALL_TREE_NONE)
			return CALL_TREE_ROOT;
	}
	if (sample->depth > 1) {
		node = find_callers(stacks, sample, node);
		if (node == CALL_TREE_NONE)
			return CALL_TREE_ROOT;
	}
	leaf = frames_of_address(stacks->frames, stacks->trace, sample, 0);
	if (stacks->frames->failed)
		return CALL_TREE_ROOT;
	node = call_tree_child(tree, node, leaf);
	if (node != CALL_TREE_NONE)
		tree->nodes[node].self += ticks;
	return node;
}
