#include "tools/top/display.h"

#include "analysis/text.h"
#include "tools/tree_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RARE 200 /* of a tree: one in so many, and rarer, is not shown */

/* Filters. */

/* "*text*", with what is special in patterns made plain. */
static void make_pattern(const char *text, char *pattern)
{
	*pattern++ = '*';
	for (; *text; text++) {
		if (strchr("*?[]\\", *text))
			*pattern++ = '\\';
		*pattern++ = *text;
	}
	*pattern++ = '*';
	*pattern = 0;
}

gp_status_t top_display_filter(struct top_display *display, struct error *error)
{
	gp_status_t status = GP_OK;

	filter_deinit(&display->filter);
	if (display->processes[0])
		status = filter_set(&display->filter, "pid", display->processes, error);
	make_pattern(display->command, display->pattern);
	if (!status && display->command[0])
		status = filter_set(&display->filter, "comm", display->pattern, error);
	return status;
}

gp_status_t top_display_init(struct top_display *display, struct top_source *source,
			     const char *title, const char *pids, const char *command,
			     struct error *error)
{
	*display = (struct top_display){.source = source};
	text_escape(title, strlen(title), display->title, sizeof(display->title));
	snprintf(display->processes, sizeof(display->processes), "%s", pids ? pids : "");
	snprintf(display->command, sizeof(display->command), "%s", command ? command : "");
	display->rows = calloc(TOP_ROWS_MAX, sizeof(*display->rows));
	if (!display->rows)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the display");
	return top_display_filter(display, error);
}

void top_display_deinit(struct top_display *display)
{
	if (display->has_view)
		live_view_deinit(&display->view);
	live_snapshot_deinit(&display->snapshot);
	filter_deinit(&display->filter);
	free(display->rows);
	*display = (struct top_display){0};
}

void top_display_name(const struct top_display *display, uint32_t frame,
		      char name[TOP_NAME_MAX + 1])
{
	const struct frame *entry = &display->view.frames.entries[frame];

	text_escape(entry->name, entry->name_bytes, name, TOP_NAME_MAX + 1);
}

/* Rows. */

static struct top_row *add_row(struct top_display *display)
{
	struct top_row *row;

	if (display->row_count == TOP_ROWS_MAX)
		return NULL;
	row = &display->rows[display->row_count++];
	*row = (struct top_row){0};
	return row;
}

static bool is_found(const struct top_display *display, uint32_t frame)
{
	char name[TOP_NAME_MAX + 1];

	if (!display->find[0])
		return true;
	top_display_name(display, frame, name);
	return strcasestr(name, display->find);
}

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? 1 : a > b ? -1 : 0; /* the greater one first */
}

static int compare_self(const void *left, const void *right)
{
	const struct table_row *a = left, *b = right;
	int order = compare_numbers(a->self, b->self);

	if (!order)
		order = compare_numbers(a->total, b->total);
	return order ? order : -compare_numbers(a->frame, b->frame);
}

static int compare_total(const void *left, const void *right)
{
	const struct table_row *a = left, *b = right;
	int order = compare_numbers(a->total, b->total);

	return order ? order : compare_self(left, right);
}

static void list_functions(struct top_display *display)
{
	struct table *table = &display->view.functions;

	if (table->count)
		qsort(table->rows, table->count, sizeof(*table->rows),
		      display->by_total ? compare_total : compare_self);
	for (size_t i = 0; i < table->count; i++) {
		const struct table_row *function = &table->rows[i];
		struct top_row *row;

		if (!is_found(display, function->frame))
			continue;
		row = add_row(display);
		if (!row)
			return;
		row->self = function->self;
		row->total = function->total;
		row->frame = function->frame;
	}
}

static void list_threads(struct top_display *display)
{
	for (size_t i = 0; i < display->view.thread_count; i++) {
		const struct live_thread *thread = &display->view.threads[i];
		struct top_row *row;

		if (!is_found(display, thread->thread) && !is_found(display, thread->process))
			continue;
		row = add_row(display);
		if (!row)
			return;
		row->self = row->total = thread->ticks;
		row->frame = thread->thread;
		row->process = thread->process;
	}
}

static void list_vcpus(struct top_display *display)
{
	for (size_t i = 0; i < display->view.vcpu_count; i++) {
		struct top_row *row = add_row(display);

		if (!row)
			return;
		row->vcpu = i;
	}
}

/* The function that was looked into, found in this view by its name; UINT32_MAX: it was not in any
 * sample of the window. */
static uint32_t find_function(const struct top_display *display, const struct top_function *wanted)
{
	const struct table *table = &display->view.functions;
	char name[TOP_NAME_MAX + 1];

	for (size_t i = 0; i < table->count; i++) {
		const struct frame *frame = &display->view.frames.entries[table->rows[i].frame];

		if (frame->kind != wanted->kind)
			continue;
		top_display_name(display, table->rows[i].frame, name);
		if (!strcmp(name, wanted->name))
			return table->rows[i].frame;
	}
	return UINT32_MAX;
}

struct shown {
	const struct call_tree *tree;
	uint64_t least;
};

static bool is_common(const void *context, uint32_t node)
{
	const struct shown *shown = context;

	return shown->tree->nodes[node].total >= shown->least;
}

static void list_tree(struct top_display *display, const struct call_tree *tree)
{
	uint64_t total = tree->nodes[CALL_TREE_ROOT].total;
	const struct shown shown = {tree, total / RARE ? total / RARE : 1};
	unsigned indents[CALL_TREE_DEPTH_MAX + 1] = {0};
	struct tree_walk walk;
	struct top_row *row;

	display->call_ticks = total;
	tree_walk_begin(&walk, tree, is_common, &shown);
	while (tree_walk_next(&walk) && (row = add_row(display))) {
		const struct call_tree_node *node = &tree->nodes[walk.node];

		row->is_split = walk.depth > 1 && walk.branch;
		indents[walk.depth] = indents[walk.depth - 1] + (row->is_split || walk.depth == 2);
		row->indent = indents[walk.depth];
		row->self = node->self;
		row->total = node->total;
		row->frame = node->frame;
	}
}

static void list_calls(struct top_display *display)
{
	const struct top_function *function = &display->calls[display->call_count - 1];
	uint32_t frame = find_function(display, function);
	struct call_tree tree;

	display->call_ticks = 0;
	if (frame == UINT32_MAX || live_view_function(&display->view, frame, function->direction,
						      &tree, &display->problem))
		return;
	list_tree(display, &tree);
	call_tree_deinit(&tree);
}

static size_t last_row(const struct top_display *display)
{
	return display->row_count ? display->row_count - 1 : 0;
}

static bool follows_names(const struct top_display *display)
{
	return display->page == TOP_FUNCTIONS || display->page == TOP_THREADS;
}

/* Remembers which function or thread is selected, so that it stays selected when it moves. The
 * first row stays the first row. */
static void note_selected(struct top_display *display)
{
	struct top_function *noted = &display->selected_row;

	*noted = (struct top_function){0};
	if (!display->has_view || !follows_names(display) || !display->selected ||
	    display->selected >= display->row_count)
		return;
	top_display_name(display, display->rows[display->selected].frame, noted->name);
	noted->id = display->view.frames.entries[display->rows[display->selected].frame].id;
}

static void find_selected(struct top_display *display)
{
	const struct top_function *noted = &display->selected_row;
	char name[TOP_NAME_MAX + 1];

	if (display->selected > last_row(display))
		display->selected = last_row(display);
	if (!noted->name[0] || !follows_names(display))
		return;
	for (size_t i = 0; i < display->row_count; i++) {
		uint32_t frame = display->rows[i].frame;

		top_display_name(display, frame, name);
		if (display->view.frames.entries[frame].id != noted->id ||
		    strcmp(name, noted->name))
			continue;
		display->selected = i;
		return;
	}
}

void top_display_list(struct top_display *display)
{
	display->row_count = 0;
	if (!display->has_view)
		return;
	switch (display->page) {
	case TOP_THREADS:
		list_threads(display);
		break;
	case TOP_VCPUS:
		list_vcpus(display);
		break;
	case TOP_CALLS:
		list_calls(display);
		break;
	case TOP_FUNCTIONS:
		list_functions(display);
		break;
	case TOP_CONSOLE:
	case TOP_HELP:
		break;
	}
	find_selected(display);
}

/* A new view of the snapshot: of new samples, or with another filter. */
void top_display_look(struct top_display *display)
{
	struct error problem = {0};

	if (display->has_view)
		live_view_deinit(&display->view);
	display->has_view =
		!live_view_init(&display->view, &display->snapshot, &display->filter, &problem);
	display->problem = problem;
	top_display_list(display);
}

void top_display_refresh(struct top_display *display)
{
	struct error problem = {0};

	if (display->paused && display->has_view)
		return;
	/* The view's names lie in the snapshot. */
	if (display->has_view)
		live_view_deinit(&display->view);
	display->has_view = false;
	if (top_source_look(display->source, &display->snapshot, &display->state, &problem)) {
		display->problem = problem;
		return;
	}
	top_display_look(display);
}

void top_display_select(struct top_display *display, long to)
{
	long last = (long)last_row(display);

	display->selected = (size_t)(to < 0 ? 0 : to > last ? last : to);
	note_selected(display);
}

void top_display_go_to(struct top_display *display, enum top_page page)
{
	display->page = page;
	display->first = 0;
	display->selected = 0;
	display->selected_row.name[0] = 0;
	top_display_list(display);
}
