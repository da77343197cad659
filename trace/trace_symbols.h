/* Tables of symbols in an opened trace, and those of the guest's programs. Private to profile/: the
 * parts of trace.h that are about names. */
#ifndef TRACE_TRACE_SYMBOLS_H
#define TRACE_TRACE_SYMBOLS_H

#include "trace/trace.h"

/* An entry of a blob; its name stays in the file. */
struct trace_symbol trace_symbol_of(const struct fxt_symbol *symbol);

/* For qsort(): by start, among equals the narrower one last. */
int trace_compare_symbols(const void *left, const void *right);

/* The narrowest symbol of a sorted table that holds the address, or NULL. */
const struct trace_symbol *trace_find_in(const struct trace_symbols *symbols, uint64_t address);

/* The latest program of that process and address space that had begun at that time, or NULL. */
const struct trace_program *trace_find_program(const struct trace *trace,
					       const struct fxt_process_symbols *wanted);

/* Takes a blob with symbols of a process. False: no memory. */
bool trace_see_process_symbols(struct trace *trace, const struct fxt_blob *blob);

/* After the last one: makes trace->programs. False: no memory. */
bool trace_settle_programs(struct trace *trace);

#endif
