/* Copies a function's code out of the guest into records (fxt/code.h). Any thread; allocates
 * nothing; the guest may run meanwhile. */
#ifndef NAMING_CODE_COPY_H
#define NAMING_CODE_COPY_H

#include "fxt/code.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a longer function that many bytes, from its start. */
#define CODE_FUNCTION_BYTES_MAX (UINT64_C(64) << 10)

/* Of code that has no functions, from a sampled address on: a dozen instructions. */
#define CODE_WINDOW_BYTES 64u

/* What was copied into a trace. */
struct code_totals {
	uint64_t functions;
	uint64_t bytes;
	uint64_t changed;  /* functions that were not at the end what they were before */
	uint64_t left_out; /* functions whose code was gone, or had no room */
};

/* Where bytes come from and where records go. */
struct code_copier {
	/* Copies `size` bytes at `address`, within one page of 4 KiB. False: they are not in
	 * memory, or no longer code. */
	bool (*read)(void *context, uint64_t address, void *buffer, size_t size);
	/* Takes a record. False: no memory. */
	bool (*write)(void *context, const uint64_t *words, size_t count);
	/* Optional: takes the target of what may be a direct call or jump, so that it can be named.
	 * Not all of them are: bytes are looked at, not instructions. */
	void (*target)(void *context, uint64_t address);
	void *context;
	uint64_t written; /* bytes of code so far */
	uint64_t written_max;
	uint8_t bytes[FXT_CODE_BYTES_MAX];
	uint64_t words[FXT_CODE_OVERHEAD_WORDS + FXT_CODE_BYTES_MAX / 8];
};

/* What was copied of a function. */
struct code_copied {
	uint64_t bytes; /* 0: nothing */
	uint64_t hash;  /* of addresses and bytes; another one: the guest has changed its code */
};

/* Copies what can be read of [start, start + size). `symbol_start` is the address of `start` in
 * records: startup code has its symbols at physical addresses and is read at linear ones. A `size`
 * of more than CODE_FUNCTION_BYTES_MAX is cut. `known_hash` not 0: write only what differs from it.
 */
struct code_copied code_copy(struct code_copier *copier, const struct fxt_process_symbols *of,
			     uint64_t read_at, uint64_t start, uint64_t size, uint64_t symbol_start,
			     uint64_t known_hash);

#endif
