/* What the subcommands that turn traces into one file have in common: read, fold, write. */
#ifndef TOOLS_PAGE_PAGE_COMMAND_H
#define TOOLS_PAGE_PAGE_COMMAND_H

#include "tools/page/page_writer.h"

struct page_command {
	const char *program; /* for messages */
	const char *trace;
	const char *base;   /* a trace to compare with, or NULL */
	const char *output; /* NULL: the trace's name with `suffix` for .fxt */
	const char *suffix;
	enum page_type type;
	/* Instead of the page; NULL: the page. */
	gp_status_t (*write)(const struct page_data *data, FILE *to, const void *context,
			     struct error *error);
	const void *context; /* of write */
	struct filter filter;
};

/* Returns the exit code, having printed what went wrong. */
int page_command_run(struct page_command *command);

#endif
