/* Source lines and inlined functions of a trace's addresses, from debug information on this
 * machine, by libdw, which is loaded with the first struct source_lines.
 *
 * Files are found by build id, in this order: below the directory that the user gave (`symfs`), by
 * path or as usr/lib/debug/.build-id; the same in the root directory; from the servers of
 * DEBUGINFOD_URLS, if that is set. A file whose build id is not the trace's is not used; a trace
 * that has no build id (old, or of another guest than Linux) needs the kernel's file named by the
 * user.
 *
 * Each file is opened once, each address is looked up once. One thread at a time. The trace is
 * untrusted, the debug information is the user's own.
 */
#ifndef ANALYSIS_SOURCE_LINES_H
#define ANALYSIS_SOURCE_LINES_H

#include "analysis/debug_file.h"
#include "trace/trace.h"

struct source_lines;

struct source_options {
	const char *symfs; /* directory with a copy of the guest's files; NULL: none. Borrowed. */
	const char
		*vmlinux; /* the kernel's ELF file, whatever its build id; NULL: none. Borrowed. */
};

/* GP_ERR_NOT_SUPPORTED: there is no libdw here; the text says what to install. */
gp_status_t source_lines_create(const struct source_options *options, const struct trace *trace,
				struct source_lines **out, struct error *error);
void source_lines_destroy(struct source_lines *lines);

/* The places of an address of `program` (NULL: the kernel's) in the function of `symbol`: innermost
 * first, at most SOURCE_FRAMES_MAX. 0: no debug information. Texts live as long as `lines`. */
size_t source_lines_find(struct source_lines *lines, const struct trace_program *program,
			 const struct trace_symbol *symbol, uint64_t address,
			 struct source_frame out[SOURCE_FRAMES_MAX]);

/* The text of a source line, not terminated, without its end, from the file on this machine; NULL:
 * it is not here. Returns bytes through `size`. */
const char *source_lines_text(struct source_lines *lines, const char *file, unsigned line,
			      size_t *size);

/* What was found, for a line that says so: files of the trace that were asked for, and those with
 * debug information. */
struct source_counts {
	unsigned files;
	unsigned found;
};
struct source_counts source_lines_counts(const struct source_lines *lines);

#endif
