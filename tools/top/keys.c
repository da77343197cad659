/* The keys of `guestprof top`. */
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

/* Takes what was typed; what is no filter is told, and the one before stays. */
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

/* Whether it is a key that moves; the row it leads to, or in the console the line. */
static bool moves(const struct top_display *display, int key, long *to)
{
	long row = display->page == TOP_CONSOLE ? 0 : (long)display->selected;
	long height = (long)display->height;

	switch (key) {
	case KEY_DOWN:
	case 'j':
		*to = row + 1;
		return true;
	case KEY_UP:
	case 'k':
		*to = row - 1;
		return true;
	case KEY_NPAGE:
	case KEY_CONTROL('d'):
		*to = row + height;
		return true;
	case KEY_PPAGE:
	case KEY_CONTROL('u'):
		*to = row - height;
		return true;
	case KEY_HOME:
	case 'g':
		*to = -TOP_ROWS_MAX;
		return true;
	case KEY_END:
	case 'G':
		*to = TOP_ROWS_MAX;
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
	top_display_go_to(display, TOP_CALLS);
}

static void leave_for(struct top_display *display, enum top_page page)
{
	display->call_count = 0;
	top_display_go_to(display, page);
}

void top_display_key(struct top_display *display, int key)
{
	long to;

	display->message[0] = 0;
	if (display->asked) {
		type(display, key);
		return;
	}
	if (moves(display, key, &to)) {
		if (display->page == TOP_CONSOLE)
			scroll_console(display, -to);
		else
			top_display_select(display, to);
		return;
	}
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
		top_display_list(display);
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
