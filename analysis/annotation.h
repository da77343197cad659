/* Which instructions of which functions a trace's samples stopped at, and those instructions: the
 * code is the guest's own, out of the trace (trace/trace_code.h).
 *
 *     annotation_read()     all samples: functions and the places in them, the hottest first
 *     annotation_list()     one function's instructions
 *
 * Only leaves count: a function's ticks are its `self` in a report. One thread at a time.
 */
#ifndef ANALYSIS_ANNOTATION_H
#define ANALYSIS_ANNOTATION_H

#include "analysis/disassembler.h"
#include "analysis/filter.h"
#include "analysis/profile.h"
#include "analysis/source_lines.h"

/* Ticks at one place of a function. */
struct annotation_hit {
	uint64_t offset; /* bytes from its start */
	uint64_t ticks;
};

/* A function of the kernel, or of a file, whatever processes have it mapped; or a region of code in
 * which no functions are known: "[kernel startup]", "[busybox]", "[jit]". */
struct annotation_function {
	const struct trace_symbol *symbol;
	uint64_t start; /* address of offset 0; a function's own, or anywhere below a region */
	bool is_region;
	const struct trace_program *program; /* one that it was sampled in; NULL: the kernel's */
	unsigned bits;                       /* of its code: 16, 32, 64 */
	uint64_t ticks;
	const struct annotation_hit *hits; /* by offset */
	size_t hit_count;
};

struct annotation {
	struct annotation_function *functions; /* hottest first */
	size_t count;
	struct annotation_hit *hits; /* of all functions */
	struct profile_totals totals;
	uint64_t nameless; /* ticks of running samples whose leaf is in nothing that is known */
};

/* Reads the trace from its beginning. `pattern`: only functions of that name, which may have *, ?
 * and []; NULL: all. `filter` may be NULL. */
gp_status_t annotation_read(struct trace *trace, struct filter *filter, const char *pattern,
			    struct annotation *out, struct error *error);
void annotation_deinit(struct annotation *annotation);

/* The name of the file a function is in: "[kernel]", "[ext4]", "[libc.so.6]" ... Returns its bytes,
 * not terminated, untrusted. */
size_t annotation_where(const struct annotation_function *function, const char **name);

struct annotation_line {
	struct instruction instruction;
	uint8_t bytes[INSTRUCTION_BYTES_MAX];
	uint64_t ticks;
	bool begins_piece; /* of a region: what is in front of it is not listed */
	bool is_gap;       /* no code is known for instruction.size bytes from here on */
	bool is_moved;     /* ticks of addresses inside it: it is another instruction now */
	/* Where a call or jump goes; NULL: not known. */
	const struct trace_symbol *target;
	uint64_t target_offset; /* in it */
	/* Of the source; file NULL: not known. `inlined` from the innermost function out. */
	struct source_frame places[SOURCE_FRAMES_MAX];
	size_t place_count;
};

struct annotation_listing {
	struct annotation_line *items;
	size_t count;
	size_t capacity;
	uint64_t unplaced; /* ticks behind the part that is kept of a long function */
	bool has_code;     /* false: no lines */
	bool changed;      /* the guest had other code there before */
	uint64_t read_at_ns;
	uint64_t missing; /* bytes without code */
};

/* `lines` may be NULL: no source lines are wanted. A function without any code in the trace has no
 * lines, and GP_OK. Of a region pieces are listed: from a sample on, as far as the trace has code.
 */
gp_status_t annotation_list(const struct trace *trace, const struct annotation_function *function,
			    enum disassembler_syntax syntax, struct source_lines *lines,
			    struct annotation_listing *out, struct error *error);
void annotation_listing_deinit(struct annotation_listing *listing);

#endif
