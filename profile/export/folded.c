/* Folded stacks, what FlameGraph's tools read and write: "command;root;...;leaf ticks". Brendan
 * Gregg, github.com/brendangregg/FlameGraph. As its stackcollapse-perf.pl does, blanks in the
 * command become underscores. Memory: with the number of distinct stacks. */
#include "profile/export.h"
#include "profile/text.h"

#include <stdlib.h>
#include <string.h>

static gp_status_t add_sample(struct export *export, const struct merge_entry *entry,
			      struct error *error)
{
	uint32_t path[CALL_TREE_DEPTH_MAX];
	size_t depth;

	(void)error; /* frames and tree keep theirs */
	path[0] = frames_of_owner(export->frames, export->trace, &entry->sample, OWNER_COMMAND);
	depth = export_path(export, &entry->sample, path + 1);
	call_tree_add(export->state, path, depth + 1, entry->ticks);
	return GP_OK;
}

static void print_frame(FILE *to, const struct frame *frame)
{
	if (frame->kind != FRAME_PROCESS) {
		text_print_without(to, frame->name, frame->name_bytes, ";");
		return;
	}
	for (uint32_t i = 0; i < frame->name_bytes; i++) {
		if (frame->name[i] == ' ')
			putc('_', to);
		else
			text_print_without(to, &frame->name[i], 1, ";");
	}
}

static gp_status_t end(struct export *export, struct error *error)
{
	const struct call_tree *tree = export->state;
	uint32_t way[CALL_TREE_DEPTH_MAX];

	if (tree->failed)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the call tree");
	for (size_t node = 1; node < tree->count; node++) {
		size_t depth = 0;

		if (!tree->nodes[node].self)
			continue;
		for (uint32_t at = (uint32_t)node; at && depth < CALL_TREE_DEPTH_MAX;
		     at = tree->nodes[at].parent)
			way[depth++] = tree->nodes[at].frame;
		while (depth > 0) {
			print_frame(export->to, &export->frames->entries[way[--depth]]);
			putc(depth ? ';' : ' ', export->to);
		}
		fprintf(export->to, "%llu\n", (unsigned long long)tree->nodes[node].self);
	}
	return GP_OK;
}

static void release(struct export *export)
{
	if (export->state)
		call_tree_deinit(export->state);
	free(export->state);
}

const struct export_format export_folded = {
	.name = "folded",
	.summary = "one line for each stack, for FlameGraph's scripts",
	.begin = export_begin_tree,
	.sample = add_sample,
	.end = end,
	.release = release,
};
