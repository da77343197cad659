/* The keys of `guestprof top`. */
#include "base/container.h"
#include "tools/top/curses.h"
#include "tools/top/display.h"

#include <stdio.h>
#include <string.h>

#define KEY_ESCAPE 27
#define KEY_CONTROL(letter) ((letter)&0x1f)

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
	top_display_go_to(display, TOP_CALLS);
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
	top_display_filter(display, &error);
	display->page = TOP_FUNCTIONS;
	top_display_look(display);
	top_display_go_to(display, TOP_FUNCTIONS);
}

static void go_back(struct top_display *display)
{
	if (display->page == TOP_CALLS && --display->call_count > 0) {
		top_display_go_to(display, TOP_CALLS);
		return;
	}
	top_display_go_to(display, display->page == TOP_CONSOLE || display->page == TOP_HELP
					   ? display->before
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
	top_display_go_to(display, page);
}

static void ask(struct top_display *display, char *text)
{
	display->asked = text;
	snprintf(display->typed, sizeof(display->typed), "%s", text);
}

/* Takes what was typed. If it is no filter, says so and goes back to the one before. */
static void answer(struct top_display *display)
{
	char before[TOP_TEXT_MAX];
	struct error error = {0};

	memcpy(before, display->asked, sizeof(before));
	memcpy(display->asked, display->typed, TOP_TEXT_MAX);
	if (top_display_filter(display, &error)) {
		snprintf(display->message, sizeof(display->message), "%s", error.text);
		memcpy(display->asked, before, TOP_TEXT_MAX);
		top_display_filter(display, &error);
	}
	display->asked = NULL;
	top_display_look(display);
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
	top_display_filter(display, &error);
	top_display_look(display);
}

/* The console's lines are counted from its end, which is where it is looked at first. */
static void scroll_console(struct top_display *display, long by)
{
	long last = (long)terminal_lines_count(&display->state.console) - (long)display->height;
	long to = (long)display->first + by;

	display->first = (size_t)(to < 0 || last < 0 ? 0 : to > last ? last : to);
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
	top_display_go_to(display, TOP_CALLS);
}

static void leave_for(struct top_display *display, enum top_page page)
{
	display->call_count = 0;
	top_display_go_to(display, page);
}

/* The key that stands for others with the same meaning. */
static int canonical(int key)
{
	static const struct {
		int key, meaning;
	} same[] = {
		{KEY_DOWN, 'j'},
		{KEY_UP, 'k'},
		{KEY_NPAGE, KEY_CONTROL('d')},
		{KEY_PPAGE, KEY_CONTROL('u')},
		{KEY_HOME, 'g'},
		{KEY_END, 'G'},
		{'\n', '\r'},
		{KEY_ENTER, '\r'},
		{KEY_RIGHT, '\r'},
		{KEY_BACKSPACE, KEY_ESCAPE},
		{KEY_LEFT, KEY_ESCAPE},
		{127, KEY_ESCAPE},
		{'Q', 'q'},
		{'?', 'h'},
	};

	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		if (same[i].key == key)
			return same[i].meaning;
	return key;
}

/* How many rows a key goes down; 0: it does not move. */
static long rows_of(const struct top_display *display, int key)
{
	switch (key) {
	case 'j':
		return 1;
	case 'k':
		return -1;
	case KEY_CONTROL('d'):
		return (long)display->height;
	case KEY_CONTROL('u'):
		return -(long)display->height;
	case 'g':
		return -TOP_ROWS_MAX;
	case 'G':
		return TOP_ROWS_MAX;
	default:
		return 0;
	}
}

/* Keys that lead to a page, or ask for a text. */
static bool leads_on(struct top_display *display, int key)
{
	const struct {
		int key;
		enum top_page page;
		char *text;
		void (*go)(struct top_display *display, enum top_page page);
	} ways[] = {
		{'f', TOP_FUNCTIONS, NULL, leave_for}, {'t', TOP_THREADS, NULL, leave_for},
		{'v', TOP_VCPUS, NULL, leave_for},     {'c', TOP_CONSOLE, NULL, show_aside},
		{'h', TOP_HELP, NULL, show_aside},     {'/', 0, display->find, NULL},
		{'p', 0, display->processes, NULL},    {'n', 0, display->command, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		if (ways[i].key != key)
			continue;
		if (ways[i].text)
			ask(display, ways[i].text);
		else
			ways[i].go(display, ways[i].page);
		return true;
	}
	return false;
}

void top_display_key(struct top_display *display, int key)
{
	long down;

	display->message[0] = 0;
	if (display->asked) {
		type(display, key);
		return;
	}
	key = canonical(key);
	down = rows_of(display, key);
	if (down && display->page == TOP_CONSOLE)
		scroll_console(display, -down);
	else if (down)
		top_display_select(display, (long)display->selected + down);
	else if (key == 'q')
		display->quit = true;
	else if (key == ' ')
		display->paused = !display->paused;
	else if (key == 'x')
		clear_filters(display);
	else if (key == 'r')
		turn_round(display);
	else if (key == '\r')
		enter(display);
	else if (key == KEY_ESCAPE)
		go_back(display);
	else if (!leads_on(display, key) && key == 's') {
		display->by_total = !display->by_total;
		top_display_list(display);
	}
}
