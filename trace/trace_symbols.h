/* The symbols in a trace: those of the guest's kernel and of files that the user gave, by group,
 * and those of the guest's programs. Names stay in the file and are untrusted. */
#ifndef TRACE_TRACE_SYMBOLS_H
#define TRACE_TRACE_SYMBOLS_H

#include "base/vector.h"
#include "fxt/symbol.h"

struct trace_symbol {
	uint64_t start;
	uint64_t end; /* first address behind it */
	uint32_t kind;
	uint32_t name_bytes;
	const char *name; /* not terminated, untrusted; lies in the file */
};

/* Sorted by start. */
struct trace_symbols {
	struct trace_symbol *items;
	size_t count;
	size_t capacity;
};

enum trace_symbol_group {
	TRACE_SYMBOLS_KERNEL, /* the guest kernel and its modules */
	TRACE_SYMBOLS_FILE,   /* from files the user gave */
	TRACE_SYMBOLS_BOOT,   /* startup code at physical addresses */
	TRACE_SYMBOL_GROUPS,
};

/* Takes a blob with symbols of the groups. False: no memory. */
bool trace_symbols_see(struct trace_symbols groups[TRACE_SYMBOL_GROUPS],
		       const struct fxt_blob *blob);

/* After the last one: sorts, and gives ends to symbols of unknown size. */
void trace_symbols_settle(struct trace_symbols groups[TRACE_SYMBOL_GROUPS]);

/* The narrowest symbol that holds the address, or NULL. */
const struct trace_symbol *trace_symbols_find(const struct trace_symbols *symbols,
					      uint64_t address);

/* The symbols of one program, in one address space of one process, from one time on:
 * fxt/symbol.h. */
struct trace_program {
	struct fxt_process_symbols of;
	struct trace_symbols functions; /* parts of trace_programs.symbols */
	struct trace_symbols mappings;
};

/* All of them, sorted by process, address space, time. */
struct trace_programs {
	struct trace_program *items;
	size_t count;
	/* Private. */
	size_t capacity;
	struct trace_symbol *symbols;
	VECTOR(struct trace_program_entry) entries; /* until trace_programs_settle() */
};

/* Takes a blob with symbols of a process. False: no memory. */
bool trace_programs_see(struct trace_programs *programs, const struct fxt_blob *blob);

/* After the last one. False: no memory. */
bool trace_programs_settle(struct trace_programs *programs);
void trace_programs_deinit(struct trace_programs *programs);

/* The latest program of that process and address space that had begun at that time, or NULL. */
const struct trace_program *trace_programs_find(const struct trace_programs *programs,
						const struct fxt_process_symbols *wanted);

#endif
