/* What guestprof annotate shows, and its two writers. */
#ifndef TOOLS_REPORT_ANNOTATE_OUTPUT_H
#define TOOLS_REPORT_ANNOTATE_OUTPUT_H

#include "analysis/annotation.h"

struct annotate {
	const char *path;
	const char *pattern; /* NULL: the hottest functions */
	struct trace trace;
	struct filter filter;
	struct annotation annotation;
	struct source_lines *lines; /* NULL: none are wanted, or there is no libdw */
	enum disassembler_syntax syntax;
	uint64_t most; /* functions */
	bool whole;    /* also what is far from every sample */
	bool bytes;
	bool colours;
};

static inline size_t annotate_count(const struct annotate *annotate)
{
	return annotate->most && annotate->most < annotate->annotation.count
		       ? annotate->most
		       : annotate->annotation.count;
}

gp_status_t annotate_write_text(const struct annotate *annotate, FILE *to, struct error *error);
gp_status_t annotate_write_json(const struct annotate *annotate, FILE *to, struct error *error);

#endif
