/* Folded stacks, what FlameGraph's tools read and write: "command;root;...;leaf ticks". Brendan
 * Gregg, github.com/brendangregg/FlameGraph. As its stackcollapse-perf.pl does, blanks in the
 * command become underscores. Memory: with the number of distinct stacks. */
#include "export/export.h"
#include "analysis/text.h"

static void folded_add_sample(struct export *export, const struct merge_entry *entry)
{
	export_fold(export, (const enum frame_owner[]){OWNER_COMMAND}, 1, entry);
}

static void folded_print_frame(FILE *to, const struct frame *frame)
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

static void folded_end(struct export *export)
{
	const struct call_tree *tree = export->state;
	uint32_t path[CALL_TREE_DEPTH_MAX];

	for (size_t node = 1; node < tree->count; node++) {
		size_t depth;

		if (!tree->nodes[node].self)
			continue;
		depth = call_tree_path(tree, (uint32_t)node, path);
		for (size_t i = 0; i < depth; i++) {
			folded_print_frame(export->to, &export->frames->entries[path[i]]);
			putc(i + 1 < depth ? ';' : ' ', export->to);
		}
		fprintf(export->to, "%llu\n", (unsigned long long)tree->nodes[node].self);
	}
}

const struct export_format export_folded = {
	.name = "folded",
	.summary = "one line for each stack, for FlameGraph's scripts",
	.has_inlined = true,
	.begin = export_begin_tree,
	.sample = folded_add_sample,
	.end = folded_end,
	.release = export_release_tree,
};
