#include "top_display.h"

#include "base/container.h"
#include "profile/text.h"
#include "top_curses.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RARE 200 /* of a tree: one in so many, and rarer, is not shown */
#define KEY_ESCAPE 27
#define KEY_CONTROL(letter) ((letter)&0x1f)

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

static gp_status_t set_filter(struct top_display *display, struct error *error)
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
	if ((pids && strlen(pids) >= TOP_TEXT_MAX) || (command && strlen(command) >= TOP_TEXT_MAX))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "--pid and --comm take at most %d bytes", TOP_TEXT_MAX - 1);
	snprintf(display->processes, sizeof(display->processes), "%s", pids ? pids : "");
	snprintf(display->command, sizeof(display->command), "%s", command ? command : "");
	display->rows = calloc(TOP_ROWS_MAX, sizeof(*display->rows));
	if (!display->rows)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the display");
	return set_filter(display, error);
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

/* The next node in the order of a walk from the top that is common enough. Children are sorted:
 * what follows a rare one is rare. */
static uint32_t next_node(const struct call_tree *tree, uint32_t node, uint64_t least,
			  unsigned *depth)
{
	const struct call_tree_node *nodes = tree->nodes;
	uint32_t child = nodes[node].first_child;

	if (child && nodes[child].total >= least) {
		(*depth)++;
		return child;
	}
	while (node != CALL_TREE_ROOT) {
		uint32_t sibling = nodes[node].next_sibling;

		if (sibling && nodes[sibling].total >= least)
			return sibling;
		node = nodes[node].parent;
		(*depth)--;
	}
	return CALL_TREE_NONE;
}

/* Whether the node's parent goes on in more than one way that is shown. */
static bool is_split(const struct call_tree *tree, uint32_t node, uint64_t least)
{
	uint32_t first = tree->nodes[tree->nodes[node].parent].first_child;
	uint32_t second = tree->nodes[first].next_sibling;

	return second && tree->nodes[second].total >= least;
}

static void list_tree(struct top_display *display, const struct call_tree *tree)
{
	unsigned indents[CALL_TREE_DEPTH_MAX + 1] = {0}, depth = 1;
	uint32_t node = tree->nodes[CALL_TREE_ROOT].first_child;
	uint64_t least = tree->nodes[CALL_TREE_ROOT].total / RARE;

	display->call_ticks = tree->nodes[CALL_TREE_ROOT].total;
	least = least ? least : 1;
	while (node) {
		struct top_row *row = add_row(display);

		if (!row)
			return;
		row->is_split = node != 1 && is_split(tree, node, least);
		indents[depth] = indents[depth - 1] + (row->is_split || depth == 2);
		row->indent = indents[depth];
		row->self = tree->nodes[node].self;
		row->total = tree->nodes[node].total;
		row->frame = tree->nodes[node].frame;
		node = next_node(tree, node, least, &depth);
		if (!depth)
			return;
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

/* Notes which function or thread is selected, so that it stays so wherever it goes; the top one is
 * the top one, whatever comes there. */
static void note_selected(struct top_display *display)
{
	struct top_function *noted = &display->selected_row;

	*noted = (struct top_function){0};
	if (!display->has_view || !follows_names(display) || !display->selected ||
	    display->selected >= display->row_count)
		return;
	top_display_name(display, display->rows[display->selected].frame, noted->name);
	noted->kind = display->view.frames.entries[display->rows[display->selected].frame].kind;
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
		top_display_name(display, display->rows[i].frame, name);
		if (strcmp(name, noted->name))
			continue;
		display->selected = i;
		return;
	}
}

static void list(struct top_display *display)
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
static void look(struct top_display *display)
{
	struct error problem = {0};

	if (display->has_view)
		live_view_deinit(&display->view);
	display->has_view =
		!live_view_init(&display->view, &display->snapshot, &display->filter, &problem);
	display->problem = problem;
	list(display);
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
	look(display);
}

/* Keys. */

static void select_row(struct top_display *display, long to)
{
	long last = (long)last_row(display);

	display->selected = (size_t)(to < 0 ? 0 : to > last ? last : to);
	note_selected(display);
}

static void go_to(struct top_display *display, enum top_page page)
{
	display->page = page;
	display->first = 0;
	display->selected = 0;
	display->selected_row.name[0] = 0;
	list(display);
}

static void look_into(struct top_display *display)
{
	struct top_function *function;
	uint32_t frame;

	if (display->selected >= display->row_count)
		return;
	frame = display->rows[display->selected].frame;
	/* The function itself, at the top of its own tree. */
	if (display->page == TOP_CALLS && !display->selected)
		return;
	if (display->call_count == TOP_CALLS_MAX) {
		memmove(display->calls, display->calls + 1,
			sizeof(display->calls) - sizeof(display->calls[0]));
		display->call_count--;
	}
	function = &display->calls[display->call_count++];
	top_display_name(display, frame, function->name);
	function->kind = display->view.frames.entries[frame].kind;
	function->direction = display->call_count > 1 ? function[-1].direction : LIVE_CALLERS;
	go_to(display, TOP_CALLS);
}

/* Enter on a thread: the functions of its process. */
static void look_at_thread(struct top_display *display)
{
	const struct frame *process;
	struct error error = {0};

	if (display->selected >= display->row_count)
		return;
	process = &display->view.frames.entries[display->rows[display->selected].process];
	if (process->id == FRAME_NO_ID)
		return;
	snprintf(display->processes, sizeof(display->processes), "%llu",
		 (unsigned long long)process->id);
	set_filter(display, &error);
	display->page = TOP_FUNCTIONS;
	look(display);
	go_to(display, TOP_FUNCTIONS);
}

static void go_back(struct top_display *display)
{
	if (display->page == TOP_CALLS && --display->call_count > 0) {
		go_to(display, TOP_CALLS);
		return;
	}
	go_to(display, display->page == TOP_CONSOLE || display->page == TOP_HELP ? display->before
										 : TOP_FUNCTIONS);
}

static void show_aside(struct top_display *display, enum top_page page)
{
	if (display->page == page) {
		go_back(display);
		return;
	}
	if (display->page != TOP_CONSOLE && display->page != TOP_HELP)
		display->before = display->page;
	go_to(display, page);
}

static void ask(struct top_display *display, char *text)
{
	display->asked = text;
	snprintf(display->typed, sizeof(display->typed), "%s", text);
}

/* Takes what was typed; what is no filter is told, and the one before stays. */
static void answer(struct top_display *display)
{
	char before[TOP_TEXT_MAX];
	struct error error = {0};

	memcpy(before, display->asked, sizeof(before));
	memcpy(display->asked, display->typed, TOP_TEXT_MAX);
	if (set_filter(display, &error)) {
		snprintf(display->message, sizeof(display->message), "%s", error.text);
		memcpy(display->asked, before, TOP_TEXT_MAX);
		set_filter(display, &error);
	}
	display->asked = NULL;
	look(display);
}

static void type(struct top_display *display, int key)
{
	size_t size = strlen(display->typed);

	if (key == '\r' || key == '\n' || key == KEY_ENTER)
		answer(display);
	else if (key == KEY_ESCAPE || key == KEY_CONTROL('g'))
		display->asked = NULL;
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && size)
		display->typed[size - 1] = 0;
	else if (key == KEY_CONTROL('u'))
		display->typed[0] = 0;
	else if (key >= ' ' && key < 127 && size + 1 < sizeof(display->typed)) {
		display->typed[size] = (char)key;
		display->typed[size + 1] = 0;
	}
}

static void clear_filters(struct top_display *display)
{
	struct error error;

	display->find[0] = display->processes[0] = display->command[0] = 0;
	set_filter(display, &error);
	look(display);
}

/* The console's lines are counted from its end, which is where it is looked at first. */
static void scroll_console(struct top_display *display, long by)
{
	long last = (long)top_lines_count(&display->state.console) - (long)display->height;
	long to = (long)display->first + by;

	display->first = (size_t)(to < 0 || last < 0 ? 0 : to > last ? last : to);
}

static void select_row_or_scroll(struct top_display *display, long to)
{
	if (display->page == TOP_CONSOLE)
		scroll_console(display, -to);
	else
		select_row(display, to);
}

static bool move_by_key(struct top_display *display, int key)
{
	long row = display->page == TOP_CONSOLE ? 0 : (long)display->selected;
	long height = (long)display->height;

	switch (key) {
	case KEY_DOWN:
	case 'j':
		select_row_or_scroll(display, row + 1);
		return true;
	case KEY_UP:
	case 'k':
		select_row_or_scroll(display, row - 1);
		return true;
	case KEY_NPAGE:
	case KEY_CONTROL('d'):
		select_row_or_scroll(display, row + height);
		return true;
	case KEY_PPAGE:
	case KEY_CONTROL('u'):
		select_row_or_scroll(display, row - height);
		return true;
	case KEY_HOME:
	case 'g':
		select_row_or_scroll(display, -TOP_ROWS_MAX);
		return true;
	case KEY_END:
	case 'G':
		select_row_or_scroll(display, TOP_ROWS_MAX);
		return true;
	default:
		return false;
	}
}

static void enter(struct top_display *display)
{
	if (!display->has_view)
		return;
	if (display->page == TOP_FUNCTIONS || display->page == TOP_CALLS)
		look_into(display);
	else if (display->page == TOP_THREADS)
		look_at_thread(display);
}

static void turn_round(struct top_display *display)
{
	struct top_function *function;

	if (display->page != TOP_CALLS)
		return;
	function = &display->calls[display->call_count - 1];
	function->direction = function->direction == LIVE_CALLERS ? LIVE_CALLEES : LIVE_CALLERS;
	go_to(display, TOP_CALLS);
}

static void leave_for(struct top_display *display, enum top_page page)
{
	display->call_count = 0;
	go_to(display, page);
}

void top_display_key(struct top_display *display, int key)
{
	display->message[0] = 0;
	if (display->asked) {
		type(display, key);
		return;
	}
	if (move_by_key(display, key))
		return;
	switch (key) {
	case 'q':
	case 'Q':
		display->quit = true;
		break;
	case ' ':
		display->paused = !display->paused;
		break;
	case 's':
		display->by_total = !display->by_total;
		list(display);
		break;
	case 'f':
		leave_for(display, TOP_FUNCTIONS);
		break;
	case 't':
		leave_for(display, TOP_THREADS);
		break;
	case 'v':
		leave_for(display, TOP_VCPUS);
		break;
	case 'c':
		show_aside(display, TOP_CONSOLE);
		break;
	case 'h':
	case '?':
		show_aside(display, TOP_HELP);
		break;
	case '/':
		ask(display, display->find);
		break;
	case 'p':
		ask(display, display->processes);
		break;
	case 'n':
		ask(display, display->command);
		break;
	case 'x':
		clear_filters(display);
		break;
	case 'r':
		turn_round(display);
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
	case KEY_RIGHT:
		enter(display);
		break;
	case KEY_ESCAPE:
	case KEY_BACKSPACE:
	case KEY_LEFT:
	case 127:
		go_back(display);
		break;
	default:
		break;
	}
}
