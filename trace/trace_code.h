/* What a trace has of the guest's code, and the files that the guest's programs had mapped. All
 * bytes and names lie in the file and are untrusted. */
#ifndef TRACE_TRACE_CODE_H
#define TRACE_TRACE_CODE_H

#include "fxt/code.h"
#include "fxt/reader.h"
#include "trace/trace_symbols.h"

/* A function's code is asked for as a whole; longer ones are cut. */
#define TRACE_CODE_MAX ((size_t)64 << 10)

/* A file that one process had mapped somewhere from one time on. */
struct trace_module {
	uint64_t process;
	uint64_t valid_from; /* that of its struct trace_program */
	uint64_t start;
	uint64_t end;
	uint64_t file_address; /* of `start`, as the ELF file has it */
	uint32_t file;         /* number of the file among all of the trace */
	uint32_t name_bytes;
	const char *name; /* its path in the guest; not terminated */
	uint32_t build_id_bytes;
	const uint8_t *build_id;
};

/* A piece of code. */
struct trace_code_piece {
	struct fxt_code code;
	uint32_t file; /* UINT32_MAX: of none; with the address there, set by trace_code_settle() */
	uint64_t file_address;
};

#define TRACE_CODE_RECENT 16

/* Private, but for the count of modules. */
struct trace_code {
	VECTOR(struct trace_code_piece) pieces;          /* by owner, then address, then time */
	VECTOR(const struct trace_code_piece *) by_file; /* those of files, likewise */
	VECTOR(struct trace_module) modules;             /* by process, time, start */
	struct trace_module recent[TRACE_CODE_RECENT];   /* of module records: mappings follow */
	uint16_t recent_ids[TRACE_CODE_RECENT];
	size_t recent_count;
};

/* Takes a record, if it is of these kinds. False: no memory. */
bool trace_code_see(struct trace_code *code, const struct fxt_reader *reader,
		    const struct fxt_record *record);
/* After the last one. False: no memory. */
bool trace_code_settle(struct trace_code *code);
void trace_code_deinit(struct trace_code *code);

struct trace_function_code {
	uint8_t bytes[TRACE_CODE_MAX];
	uint8_t known[TRACE_CODE_MAX]; /* not 0 where there is a byte */
	size_t size;                   /* of the function, cut */
	size_t known_count;
	bool changed;        /* the guest was seen with other bytes before */
	uint64_t read_at_ns; /* the latest */
	uint64_t wanted;     /* the start that was asked for */
	/* Where it was read: another program than asked for may have the same file elsewhere. */
	const struct trace_program *program;
	uint64_t start;
};

/* The latest code of [start, start + size): of `program`, NULL for the kernel's and that of guests
 * without known programs. What is not in the trace for that program is taken from others that
 * have the same file mapped, at the same place of the file. */
void trace_code_find(const struct trace_code *code, const struct trace_programs *programs,
		     const struct trace_program *program, uint64_t start, uint64_t size,
		     struct trace_function_code *out);

/* The file that a program (NULL: the kernel, whose modules these are) has mapped at an address, or
 * NULL. Two with the same `file` are of one file: the same build id, or, without one, name. */
const struct trace_module *trace_find_module(const struct trace_code *code,
					     const struct trace_program *program, uint64_t address);

#endif
