/* What the subcommands that turn traces into one file have in common: read, fold, write. */
#ifndef TOOLS_PAGE_COMMAND_H
#define TOOLS_PAGE_COMMAND_H

#include "page_writer.h"

struct page_command {
	const char *program; /* for messages */
	const char *trace;
	const char *base;   /* a trace to compare with, or NULL */
	const char *output; /* NULL: the trace's name with `suffix` for .fxt */
	const char *suffix;
	bool with_times;
	gp_status_t (*write)(const struct page_data *data, FILE *to, const void *context,
			     struct error *error);
	const void *context; /* of write */
	struct filter filter;
};

/* The options that choose samples, the same for every command: profile/filter.h. */
#define PAGE_FILTER_FIRST 1000
#define PAGE_FILTER_OPTIONS                                               \
	{"pid", required_argument, NULL, PAGE_FILTER_FIRST},              \
		{"tid", required_argument, NULL, PAGE_FILTER_FIRST + 1},  \
		{"comm", required_argument, NULL, PAGE_FILTER_FIRST + 2}, \
		{"cpu", required_argument, NULL, PAGE_FILTER_FIRST + 3},  \
		{"mode", required_argument, NULL, PAGE_FILTER_FIRST + 4}, \
		{"from", required_argument, NULL, PAGE_FILTER_FIRST + 5}, \
		{"to", required_argument, NULL, PAGE_FILTER_FIRST + 6},   \
	{                                                                 \
		"symbol", required_argument, NULL, PAGE_FILTER_FIRST + 7  \
	}
#define PAGE_FILTER_HELP                                                                          \
	"\n"                                                                                      \
	"Only samples of which all of these hold:\n"                                              \
	"      --pid N[,N-N]      of these processes; --tid: threads; --cpu: vCPUs\n"             \
	"      --comm PATTERN     whose process or thread is called so; may have * ? []\n"        \
	"      --mode MODE[,...]  user, kernel, halted, vmm, not-started\n"                       \
	"      --from, --to TIME  since the first sample: seconds, or a number with ms, us, ns\n" \
	"      --symbol PATTERN   with such a function on the stack\n"

/* Takes one of them. False: not one, or a bad value, which has been printed. */
bool page_command_filter(struct page_command *command, int option, const char *value);

/* Returns the exit code, having printed what went wrong. */
int page_command_run(struct page_command *command);

#endif
