/* What a trace has of the guest's code, and of the files that programs had mapped. The part of
 * trace.h that annotate and source lines need. All bytes and names are untrusted. */
#ifndef TRACE_TRACE_CODE_H
#define TRACE_TRACE_CODE_H

#include "fxt/code.h"
#include "trace/trace.h"

/* A function's code is asked for as a whole; longer ones are cut. */
#define TRACE_CODE_MAX ((size_t)64 << 10)

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
void trace_code_find(const struct trace *trace, const struct trace_program *program, uint64_t start,
		     uint64_t size, struct trace_function_code *out);

/* The file that a program (NULL: the kernel, whose modules these are) has mapped at an address, or
 * NULL. Two with the same `file` are of one
 * file: the same build id, or, without one, name. */
const struct trace_module *trace_find_module(const struct trace *trace,
					     const struct trace_program *program, uint64_t address);

/* Takes a record, if it is of these kinds. False: no memory. */
bool trace_see_code(struct trace *trace, const struct fxt_record *record);
/* After the last one, and after trace_settle_programs(). False: no memory. */
bool trace_settle_code(struct trace *trace);
void trace_free_code(struct trace *trace);

#endif
