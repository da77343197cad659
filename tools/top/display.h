/* What `guestprof top` has on the screen: which page, which rows, and what was asked for by keys.
 * The drawing is in top_pages.c, keys and data in top_display.c; both are of one thread.
 */
#ifndef TOOLS_TOP_DISPLAY_H
#define TOOLS_TOP_DISPLAY_H

#include "analysis/live_view.h"
#include "tools/top/source.h"

#define TOP_TEXT_MAX 64
#define TOP_NAME_MAX 200  /* of a function, as it is shown */
#define TOP_CALLS_MAX 16  /* functions looked into one from another */
#define TOP_ROWS_MAX 5000 /* of one page */

enum top_page {
	TOP_FUNCTIONS,
	TOP_THREADS,
	TOP_VCPUS,
	TOP_CALLS, /* of one function */
	TOP_CONSOLE,
	TOP_HELP,
};

/* A line of a list. */
struct top_row {
	uint64_t self; /* ticks */
	uint64_t total;
	uint32_t frame;
	uint32_t process; /* of a thread: its frame */
	unsigned indent;  /* in a tree */
	bool is_split;    /* in a tree: more than one way on from its parent */
	size_t vcpu;      /* index */
};

/* A function by name: the numbers of frames hold for one view only. */
struct top_function {
	char name[TOP_NAME_MAX + 1]; /* escaped */
	uint8_t kind;
	uint64_t id; /* of a thread */
	enum live_direction direction;
};

struct top_display {
	struct top_source *source;
	char title[TOP_NAME_MAX + 1];
	uint64_t interval_ns;

	struct live_snapshot snapshot;
	struct top_state state;
	struct live_view view; /* made when has_view */
	bool has_view;
	struct error problem; /* of making it */

	enum top_page page;
	enum top_page before; /* the help and the console */
	struct top_function calls[TOP_CALLS_MAX];
	size_t call_count;
	uint64_t call_ticks; /* of the function looked into */
	struct top_row *rows;
	size_t row_count;
	size_t selected;
	size_t first;                     /* row at the top of the list */
	size_t height;                    /* rows that the list has room for */
	struct top_function selected_row; /* empty name: the first one */

	char find[TOP_TEXT_MAX]; /* in names of functions and threads */
	char processes[TOP_TEXT_MAX];
	char command[TOP_TEXT_MAX];
	char pattern[2 * TOP_TEXT_MAX + 3]; /* of the command, for the filter */
	struct filter filter;
	bool by_total;
	bool paused;
	bool quit;

	char *asked; /* the text being typed, or NULL */
	char typed[TOP_TEXT_MAX];
	char message[512];
};

/* `pids` and `command` may be NULL, and are shorter than TOP_TEXT_MAX. Errors say what is wrong
 * with them, or GP_ERR_NO_MEMORY. */
gp_status_t top_display_init(struct top_display *display, struct top_source *source,
			     const char *title, const char *pids, const char *command,
			     struct error *error);
void top_display_deinit(struct top_display *display);

/* Takes what there is now, unless paused, and makes the rows anew. */
void top_display_refresh(struct top_display *display);

/* A key, as wgetch() gives it. */
void top_display_key(struct top_display *display, int key);

/* For keys. The rows anew, of the view that is there; a view anew, of the samples that are there;
 * the filter out of the texts, its error says what is wrong with them. */
void top_display_list(struct top_display *display);
void top_display_look(struct top_display *display);
gp_status_t top_display_filter(struct top_display *display, struct error *error);

/* Another page, from its top; another row, the nearest that there is. */
void top_display_go_to(struct top_display *display, enum top_page page);
void top_display_select(struct top_display *display, long row);

/* The name of a frame made fit to be shown. */
void top_display_name(const struct top_display *display, uint32_t frame,
		      char name[TOP_NAME_MAX + 1]);

/* Draws everything. */
void top_pages_draw(struct top_display *display);

#endif
