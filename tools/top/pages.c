/* The pages of `guestprof top`, drawn line by line: what does not fit is cut. */
#include "base/container.h"
#include "analysis/text.h"
#include "tools/top/curses.h"
#include "tools/top/display.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ROWS_LEAST 5 /* title, rates, a list of two, keys */
#define COLUMNS_LEAST 20
#define LINE_MAX_BYTES 512
/* From this many rows on there is room for threads below the functions. */
#define ROWS_FOR_THREADS 18
#define THREADS_BELOW 4

struct page {
	struct top_display *display;
	int rows;
	int columns;
	int row; /* the next one to be drawn */
};

/* Draws one line, filled up with blanks. Its text is printable ASCII: names have been escaped. */
static void draw(struct page *page, int attributes, const char *text)
{
	char line[LINE_MAX_BYTES];
	int width = page->columns < LINE_MAX_BYTES - 1 ? page->columns : LINE_MAX_BYTES - 1;

	if (page->row >= page->rows)
		return;
	snprintf(line, sizeof(line), "%-*.*s", width, width, text);
	curses.wattrset(curses.screen, attributes);
	curses.wmove(curses.screen, page->row++, 0);
	curses.waddnstr(curses.screen, line, width);
}

__attribute__((format(printf, 3, 4))) static void print(struct page *page, int attributes,
							const char *format, ...)
{
	char text[LINE_MAX_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	draw(page, attributes, text);
}

/* Too narrow for more than the shares and a name. */
static bool is_narrow(const struct page *page)
{
	return page->columns < 60;
}

/* What became of it: nothing while all is well. */
static void describe_state(const struct top_display *display, char *text, size_t size)
{
	const struct top_state *state = &display->state;
	const char *reason = display->has_view ? display->view.trace->info.end_reason : "";
	char escaped[64];

	text_escape(reason, strlen(reason), escaped, sizeof(escaped));
	if (display->paused)
		snprintf(text, size, "PAUSED");
	else if (state->problem.status)
		snprintf(text, size, "damaged");
	else if (state->has_ended && escaped[0])
		snprintf(text, size, "ended: %s", escaped);
	else if (state->has_ended)
		snprintf(text, size, "ended, exit code %d", state->exit_code);
	else if (state->silent_ns > UINT64_C(3000000000))
		snprintf(text, size, "nothing new for %.0f s", (double)state->silent_ns / 1e9);
	else
		text[0] = 0;
}

static void draw_title(struct page *page)
{
	const struct top_display *display = page->display;
	const struct live_counts *counts = &display->snapshot.counts;
	unsigned seconds = (unsigned)((counts->newest_ns - counts->first_ns) / 1000000000);
	const struct trace_info *info = display->has_view ? &display->view.trace->info : NULL;
	char state[96], left[LINE_MAX_BYTES], rate[48] = "";
	int gap;

	describe_state(display, state, sizeof(state));
	if (info && info->period_ns && !strcmp(info->tick_source, "timer"))
		snprintf(rate, sizeof(rate), "  %.0f Hz", 1e9 / (double)info->period_ns);
	snprintf(left, sizeof(left), "guestprof top  %s  %llu vCPUs%s  %u:%02u", display->title,
		 info ? (unsigned long long)info->vcpus : 0ULL, rate, seconds / 60, seconds % 60);
	gap = page->columns - (int)strlen(state);
	if (gap < 1)
		draw(page, A_REVERSE | A_BOLD, state);
	else
		print(page, A_REVERSE | A_BOLD, "%-*.*s%s", gap, gap - 1, left, state);
}

static void draw_rates(struct page *page)
{
	const struct top_display *display = page->display;
	const struct live_counts *counts = &display->snapshot.counts;
	const struct live_rates *rates = &display->view.rates;

	print(page, counts->dropped ? top_curses_colour(TOP_RED) : 0,
	      "%.0f samples/s, %.0f dropped/s, last %.1f s; in all %llu, %llu dropped",
	      rates->ticks_per_second, rates->dropped_per_second, rates->seconds,
	      (unsigned long long)(counts->stacks + counts->partials),
	      (unsigned long long)counts->dropped);
}

static void draw_modes(struct page *page, const char *name, const struct live_vcpu *vcpu,
		       int attributes)
{
	print(page, attributes,
	      "%-8s user %5.1f %%  kernel %5.1f %%  VMM %5.1f %%  halted %5.1f %%  off %5.1f %%",
	      name, text_percent(vcpu->modes[FXT_MODE_GUEST_USER], vcpu->ticks),
	      text_percent(vcpu->modes[FXT_MODE_GUEST_KERNEL], vcpu->ticks),
	      text_percent(vcpu->modes[FXT_MODE_IN_VMM], vcpu->ticks),
	      text_percent(vcpu->modes[FXT_MODE_HALTED], vcpu->ticks),
	      text_percent(vcpu->modes[FXT_MODE_NOT_STARTED], vcpu->ticks));
}

static void draw_vcpu(struct page *page, const struct live_vcpu *vcpu, int attributes)
{
	char name[32];

	snprintf(name, sizeof(name), "vCPU %llu", (unsigned long long)vcpu->vcpu);
	draw_modes(page, name, vcpu, attributes);
}

/* As many as leave the list most of the screen. */
static void draw_vcpus(struct page *page)
{
	const struct live_view *view = &page->display->view;
	size_t room = page->rows > 12 ? (size_t)(page->rows - 12) / 3 : 0;

	if (!view->vcpu_count)
		return;
	if (view->vcpu_count > 1)
		draw_modes(page, "all", &view->all, A_BOLD);
	for (size_t i = 0; i < view->vcpu_count; i++) {
		if (view->vcpu_count > 1 && i + 1 >= room && i + 1 < view->vcpu_count) {
			if (room)
				print(page, 0, "         %zu more vCPUs: v", view->vcpu_count - i);
			return;
		}
		draw_vcpu(page, &view->vcpus[i], 0);
	}
}

static int frame_colour(const struct frame *frame)
{
	switch (frame->kind) {
	case FRAME_USER:
		return top_curses_colour(TOP_GREEN);
	case FRAME_MODULE:
		return top_curses_colour(TOP_BLUE);
	case FRAME_BOOT:
		return top_curses_colour(TOP_YELLOW);
	default:
		return 0;
	}
}

/* "make (pid 17)". */
static void name_task(const struct top_display *display, uint32_t frame, const char *kind,
		      char *text, size_t size)
{
	uint64_t id = display->view.frames.entries[frame].id;
	char name[TOP_NAME_MAX + 1];

	top_display_name(display, frame, name);
	if (id == FRAME_NO_ID)
		snprintf(text, size, "%s", name);
	else
		snprintf(text, size, "%s (%s %llu)", name, kind, (unsigned long long)id);
}

static void draw_thread(struct page *page, uint32_t process, uint32_t thread, uint64_t ticks,
			int attributes)
{
	const struct top_display *display = page->display;
	char names[2][TOP_NAME_MAX + 40];

	name_task(display, thread, "tid", names[0], sizeof(names[0]));
	name_task(display, process, "pid", names[1], sizeof(names[1]));
	print(page, attributes, "%6.2f %%  %8llu  %-30s %s",
	      text_percent(ticks, display->view.totals.running), (unsigned long long)ticks,
	      names[0], names[1]);
}

static void draw_row(struct page *page, const struct top_row *row, int attributes)
{
	const struct top_display *display = page->display;
	uint64_t running = display->view.totals.running;
	char name[TOP_NAME_MAX + 1];

	switch (display->page) {
	case TOP_VCPUS:
		draw_vcpu(page, &display->view.vcpus[row->vcpu], attributes);
		return;
	case TOP_THREADS:
		draw_thread(page, row->process, row->frame, row->self, attributes);
		return;
	default:
		break;
	}
	top_display_name(display, row->frame, name);
	attributes |= frame_colour(&display->view.frames.entries[row->frame]);
	if (display->page == TOP_CALLS)
		print(page, attributes, "%6.2f %%  %8llu  %*s%s%s",
		      text_percent(row->total, display->call_ticks), (unsigned long long)row->total,
		      (int)(row->indent > 30 ? 60 : 2 * row->indent), "", row->is_split ? "+ " : "",
		      name);
	else if (is_narrow(page))
		print(page, attributes, "%6.2f %% %6.2f %% %s", text_percent(row->self, running),
		      text_percent(row->total, running), name);
	else
		print(page, attributes, "%6.2f %%  %6.2f %%  %8llu  %s",
		      text_percent(row->self, running), text_percent(row->total, running),
		      (unsigned long long)(display->by_total ? row->total : row->self), name);
}

static void draw_list_head(struct page *page)
{
	const struct top_display *display = page->display;
	const struct top_function *function;

	switch (display->page) {
	case TOP_THREADS:
		draw(page, A_REVERSE, "    TIME   SAMPLES  THREAD                         PROCESS");
		break;
	case TOP_VCPUS:
		draw(page, A_REVERSE, "VCPU     what each did at its samples");
		break;
	case TOP_CALLS:
		function = &display->calls[display->call_count - 1];
		print(page, A_REVERSE, "    TIME   SAMPLES  %s %s (%.1f %% of the time)",
		      function->direction == LIVE_CALLERS ? "CALLERS of" : "CALLEES of",
		      function->name,
		      text_percent(display->call_ticks, display->view.totals.running));
		break;
	default:
		if (is_narrow(page))
			draw(page, A_REVERSE,
			     display->by_total ? "   SELF  [TOTAL] FUNCTION"
					       : "  [SELF]   TOTAL FUNCTION");
		else
			draw(page, A_REVERSE,
			     display->by_total ? "    SELF    [TOTAL]   SAMPLES  FUNCTION"
					       : "   [SELF]    TOTAL    SAMPLES  FUNCTION");
		break;
	}
}

/* The list, into `height` rows. */
static void draw_list(struct page *page, int height)
{
	struct top_display *display = page->display;
	int end = page->row + height;

	display->height = height > 0 ? (size_t)height : 1;
	if (display->selected < display->first)
		display->first = display->selected;
	if (display->selected >= display->first + display->height)
		display->first = display->selected - display->height + 1;
	for (size_t i = display->first; i < display->row_count && page->row < end; i++)
		draw_row(page, &display->rows[i], i == display->selected ? A_REVERSE : 0);
	if (!display->row_count && page->row < end)
		draw(page, 0,
		     display->page == TOP_CALLS ? "not in any sample at the moment"
		     : display->find[0] || display->processes[0] || display->command[0]
			     ? "nothing that the filters take (x clears them)"
			     : "no samples yet");
	while (page->row < end)
		draw(page, 0, "");
}

static void draw_threads_below(struct page *page)
{
	const struct live_view *view = &page->display->view;

	draw(page, A_REVERSE, "    TIME   SAMPLES  THREAD (t: all)                PROCESS");
	for (size_t i = 0; i < THREADS_BELOW - 1; i++) {
		if (i < view->thread_count)
			draw_thread(page, view->threads[i].process, view->threads[i].thread,
				    view->threads[i].ticks, 0);
		else
			draw(page, 0, "");
	}
}

static void draw_console(struct page *page, int height)
{
	struct top_display *display = page->display;
	const struct terminal_lines *lines = &display->state.console;
	size_t count = terminal_lines_count(lines), shown, from;
	int end = page->row + height;

	display->height = height > 0 ? (size_t)height : 1;
	shown = count < display->height ? count : display->height;
	from = count - shown;
	from -= display->first < from ? display->first : from;
	draw(page, A_REVERSE, "CONSOLE of the guest, its last lines (c: back)");
	if (!count)
		draw(page, 0,
		     display->state.is_recording ? "nothing yet"
						 : "only a guest that was started here has one");
	for (size_t i = 0; i < shown && page->row <= end; i++)
		draw(page, 0, terminal_lines_get(lines, from + i));
	while (page->row <= end)
		draw(page, 0, "");
}

static void draw_help(struct page *page, int height)
{
	static const char *const lines[] = {
		"f t v     functions, threads, vCPUs",
		"c         the guest's console",
		"Enter     callers of a function; functions of a thread's process",
		"r         there: callees instead of callers, and back",
		"Esc, <-   back",
		"s         by self or by total time",
		"space     hold still, and go on",
		"/         only names with a text in them",
		"p n       only processes of these ids; only processes and threads of that name",
		"x         no filters",
		"arrows, j k, PgUp PgDn, Home End     up and down",
		"q         end the recording, and this",
		"",
		"Shares are of the time in which vCPUs ran, over the last seconds.",
		"Green: programs. Cyan: modules. Yellow: the kernel's startup code.",
	};
	int end = page->row + height;

	draw(page, A_REVERSE, "KEYS (h: back)");
	for (size_t i = 0; i < ARRAY_SIZE(lines) && page->row <= end; i++)
		draw(page, 0, lines[i]);
	while (page->row <= end)
		draw(page, 0, "");
}

/* What is wrong; "" when nothing is. */
static const char *trouble(const struct top_display *display)
{
	const struct top_state *state = &display->state;
	size_t count = terminal_lines_count(&state->messages);

	if (display->message[0])
		return display->message;
	if (state->problem.status)
		return state->problem.text;
	if (display->problem.status)
		return display->problem.text;
	if (state->has_ended && state->is_recording && count && top_is_failure(state->exit_code))
		return terminal_lines_get(&state->messages, count - 1);
	return "";
}

static void draw_bottom(struct page *page)
{
	const struct top_display *display = page->display;
	char filters[4 * TOP_TEXT_MAX] = "";
	const char *question = "";

	page->row = page->rows - 1;
	if (display->asked) {
		if (display->asked == display->find)
			question = "names with";
		else if (display->asked == display->processes)
			question = "process ids, such as 1,40-49";
		else
			question = "processes and threads called";
		print(page, A_BOLD, "%s: %s_", question, display->typed);
		return;
	}
	if (trouble(display)[0]) {
		draw(page, A_BOLD | top_curses_colour(TOP_RED), trouble(display));
		return;
	}
	if (display->find[0] || display->processes[0] || display->command[0]) {
		snprintf(filters, sizeof(filters), "only%s%s%s%s%s%s (x: all)  ",
			 display->find[0] ? " /" : "", display->find,
			 display->processes[0] ? " pid " : "", display->processes,
			 display->command[0] ? " name " : "", display->command);
		print(page, A_BOLD, "%sh help  q quit", filters);
		return;
	}
	draw(page, A_BOLD,
	     page->columns >= 79 ? "q quit  space pause  s sort  / find  Enter callers  t threads  "
				   "c console  h help"
				 : "q quit  h help");
}

void top_pages_draw(struct top_display *display)
{
	struct page page = {.display = display,
			    .rows = curses.getmaxy(curses.screen),
			    .columns = curses.getmaxx(curses.screen)};
	bool with_threads = display->page == TOP_FUNCTIONS && page.rows >= ROWS_FOR_THREADS;
	int height;

	curses.werase(curses.screen);
	if (page.rows < ROWS_LEAST || page.columns < COLUMNS_LEAST) {
		draw(&page, 0, "too small (q quits)");
		curses.wrefresh(curses.screen);
		return;
	}
	draw_title(&page);
	if (display->has_view)
		draw_rates(&page);
	if (display->has_view && display->page != TOP_VCPUS && display->page != TOP_CONSOLE &&
	    display->page != TOP_HELP && page.rows >= ROWS_LEAST + 3)
		draw_vcpus(&page);
	height = page.rows - page.row - 2;
	if (display->page == TOP_CONSOLE) {
		draw_console(&page, height);
	} else if (display->page == TOP_HELP) {
		draw_help(&page, height);
	} else if (display->has_view) {
		draw_list_head(&page);
		draw_list(&page, height - (with_threads ? THREADS_BELOW : 0));
		if (with_threads)
			draw_threads_below(&page);
	}
	draw_bottom(&page);
	curses.wrefresh(curses.screen);
}
