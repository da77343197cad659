/* A recorded trace, opened for reading: what it says about itself, its samples, and the names of
 * their addresses. Needs nothing but the file.
 *
 * A trace whose end is cut, or that is damaged from some byte on, opens with what is good;
 * trace_info says so. The file's bytes are untrusted: names are escaped with trace_print_name().
 */
#ifndef PROFILE_TRACE_H
#define PROFILE_TRACE_H

#include "base/error.h"
#include "fxt/reader.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_TEXT_MAX 256
#define TRACE_VCPUS_MAX 1024

/* What the file says. Numbers are 0 and texts empty where it does not. */
struct trace_info {
	char version[TRACE_TEXT_MAX];
	char tick_source[TRACE_TEXT_MAX];
	char kernel[TRACE_TEXT_MAX];
	char command_line[TRACE_TEXT_MAX];
	char banner[TRACE_TEXT_MAX];
	char end_reason[TRACE_TEXT_MAX];
	uint64_t period_ns;
	uint64_t depth;
	uint64_t vcpus;
	uint64_t memory_bytes;
	bool complete; /* session_end is there, and nothing was cut or broken */
	bool cut;
	bool broken;
	size_t bytes;         /* of the file */
	size_t good_bytes;    /* up to where it was read */
	uint64_t bad_records; /* skipped */
	const char *problem;  /* the last one; NULL: none */
	size_t problem_offset;
	/* Counted in the file, not what session_end claims. */
	uint64_t stacks;
	uint64_t partials;
	uint64_t dropped_records;
	uint64_t first_ns; /* of the samples */
	uint64_t last_ns;
};

struct trace_symbol {
	uint64_t start;
	uint64_t end; /* first address behind it */
	uint32_t kind;
	uint32_t name_bytes;
	const char *name; /* not terminated, untrusted; lies in the file */
};

struct trace_symbols {
	struct trace_symbol *entries; /* sorted by start */
	size_t count;
	size_t capacity;
};

enum trace_symbol_group {
	TRACE_SYMBOLS_KERNEL, /* the guest kernel and its modules */
	TRACE_SYMBOLS_FILE,   /* from files the user gave */
	TRACE_SYMBOLS_BOOT,   /* startup code at physical addresses */
	TRACE_SYMBOL_GROUPS,
};

struct trace {
	void *bytes; /* the mapped file */
	size_t size;
	struct trace_info info;
	struct trace_symbols symbols[TRACE_SYMBOL_GROUPS];
	struct fxt_reader reader; /* of trace_next_sample() */
	bool reading;
	/* Partial samples whose stack is still to come, by vCPU. */
	struct {
		uint64_t continuation;
		uint64_t ticks;
	} open[TRACE_VCPUS_MAX];
};

/* Maps and looks through the file. Errors name it: no such file, not a trace (with what it looks
 * like), nothing readable in it. */
gp_status_t trace_open(const char *path, struct trace *trace, struct error *error);
void trace_close(struct trace *trace);

/* A sample with a stack, or one that says why there is none, and for how many ticks it stands: its
 * own and those of the partial samples it completes. In file order: each vCPU's are in
 * order of time, different vCPUs' are not. False at the end. Its stack is valid until the next
 * call. trace_rewind() starts over. */
bool trace_next_sample(struct trace *trace, struct fxt_sample *sample, uint64_t *ticks);
void trace_rewind(struct trace *trace);

/* The symbol that frame `frame` of the sample lies in, or NULL. */
const struct trace_symbol *trace_find_symbol(const struct trace *trace,
					     const struct fxt_sample *sample, size_t frame);

/* Prints an untrusted name: control and non-ASCII bytes as \xNN. */
void trace_print_name(FILE *to, const char *name, size_t size);

#endif
