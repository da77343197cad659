/* What the pages show: samples folded into distinct call paths, who ran them, and, for the
 * timeline, when.
 *
 * Memory grows with the distinct paths and not with the samples, unless times are asked for: then
 * by 24 bytes per sample. Names come from the guest: their writers escape them,
 * page_print_name() and export/page_json.h do.
 *
 *     page_data_create(false, &data, &error)
 *     page_data_add(data, &trace, "boot.fxt", NULL, &error)  once; a second is the base to compare
 *     page_data_finish(data, PAGE_NODES_MAX, &error)         then it can be written
 *     page_data_write(data, file, &error) or flame_svg_write(data, ..., file, &error)
 */
#ifndef ANALYSIS_PAGE_DATA_H
#define ANALYSIS_PAGE_DATA_H

#include "base/hash_table.h"
#include "analysis/profile.h"

#define PAGE_FILES_MAX 2
/* With more call paths than this, rare ones are folded into "[rare]", so that the page stays small:
 * at most about 5 MB. */
#define PAGE_NODES_MAX 400000

/* A call path: its last frame and where it goes on towards the root. Number 0 is the root. */
struct page_node {
	uint32_t parent;
	uint32_t frame; /* number in the table of frames */
	/* Set by page_data_finish(). */
	uint32_t first_child; /* 0: none */
	uint32_t next_sibling;
	uint64_t total; /* ticks in it and below, of all files */
};

/* Who was sampled. */
struct page_context {
	uint32_t file;
	uint32_t vcpu;
	uint32_t process; /* numbers of frames, of OWNER_PROCESS and OWNER_THREAD */
	uint32_t thread;
	uint32_t mode; /* enum fxt_sample_mode, 0 for one we do not know */
};

/* A call path that was seen as a whole stack in some context. */
struct page_cell {
	uint32_t node;
	uint32_t context;
	uint64_t ticks;
};

struct page_sample {
	uint64_t time_ns;
	uint32_t cell;
	uint32_t vcpu;
	uint32_t ticks;
	uint32_t sequence; /* in the file, so that equal times keep their order */
};

struct page_file {
	char path[TRACE_TEXT_MAX];
	struct trace_info info;
	struct profile_totals totals;
};

/* The lines of a guest's console as marks on a timeline. A trace may hold a million of them and a
 * page shall stay small, so they are thinned out evenly over time, and the page is told of how many
 * the ones it has were chosen.
 */
#define PAGE_MARKS_MAX 5000
#define PAGE_MARK_TEXT_MAX 240 /* bytes; the end of a longer line is "..." */

struct page_mark {
	uint64_t time_ns;
	uint32_t frame; /* whose name is the text */
};

struct page_marks {
	struct page_mark *items; /* by time; free() */
	size_t count;
	uint64_t all; /* lines between which was chosen */
};

struct page_data {
	struct page_file files[PAGE_FILES_MAX];
	size_t file_count;
	bool with_times;
	struct frames frames;
	HASH_TABLE(struct page_node, items) nodes;
	HASH_TABLE(struct page_context, items) contexts;
	HASH_TABLE(struct page_cell, items) cells;
	VECTOR(struct page_sample) times; /* after page_data_finish() by vCPU and time */
	VECTOR(struct trace_lost) drops;  /* of the first file */
	struct page_marks marks;          /* of the first file */
	/* Set by page_data_finish(): node numbers, each before its children, a node's whole subtree
	 * in one piece. */
	uint32_t *order;
	uint32_t *cell_order; /* cell numbers by place of their node in `order` */
	uint64_t rare_nodes;  /* folded away */
	uint64_t rare_ticks;  /* of the largest of them */
};

/* GP_ERR_NO_MEMORY. */
gp_status_t page_data_create(bool with_times, struct page_data **out, struct error *error);
void page_data_destroy(struct page_data *data);

/* Reads the samples of the trace that the filter takes (NULL: all); the trace may be closed
 * afterwards. At most PAGE_FILES_MAX, the first is what is shown. GP_ERR_NO_MEMORY,
 * GP_ERR_INVALID_ARGS: one too many. After an error only destroy. */
gp_status_t page_data_add(struct page_data *data, struct trace *trace, const char *path,
			  struct filter *filter, struct error *error);

/* Once, after the last one. Above `nodes_max` call paths the rarest are folded, see PAGE_NODES_MAX.
 * GP_ERR_NO_MEMORY. */
gp_status_t page_data_finish(struct page_data *data, size_t nodes_max, struct error *error);

/* How many nodes there are in `order`: those with ticks, and the root. */
size_t page_data_nodes(const struct page_data *data);

/* A name made fit to be shown: bytes that are not printable ASCII become \xNN, as in the text
 * report, and the end of a very long one "...". It still holds whatever ASCII the guest liked. */
#define PAGE_NAME_MAX 1000
const char *page_print_name(const char *name, size_t bytes, char text[PAGE_NAME_MAX + 8]);

/* The lines within --from and --to (`filter` may be NULL), at most `most` (1 or more). Their texts
 * are interned in `frames`, without escape sequences and control characters; lines that are nothing
 * else are left out. False: no memory. */
bool page_marks_read(const struct trace *trace, const struct filter *filter, size_t most,
		     struct frames *frames, struct page_marks *marks);

#endif
