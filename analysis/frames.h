/* What stands in the nodes of call trees and in the lines of exports: functions by name, and what a
 * sample belongs to (process, thread, vCPU, mode, module), each with a small number.
 *
 * Two functions are one frame when they have the same name and kind, wherever they lie, so
 * that the frames of two traces can be compared: several traces may share one table. Names are
 * copied; they come from the guest and are untrusted. Memory: with the number of different names.
 * One thread at a time.
 */
#ifndef ANALYSIS_FRAMES_H
#define ANALYSIS_FRAMES_H

#include "base/hash_table.h"
#include "analysis/source_lines.h"

enum frame_kind {
	FRAME_KERNEL,  /* a function of the guest's kernel */
	FRAME_MODULE,  /* of one of its modules */
	FRAME_BOOT,    /* of its startup code */
	FRAME_USER,    /* of a program */
	FRAME_PROCESS, /* id: its number, or FRAME_NO_ID when processes of one name are one */
	FRAME_THREAD,  /* id: its number */
	FRAME_VCPU,    /* id: its number */
	FRAME_MODE,    /* id: enum fxt_sample_mode */
	FRAME_GROUP,   /* what a function is part of: "[kernel]", "libc.so.6" ... */
	FRAME_LINE,    /* of the source: "mm/slub.c:123"; without one "kfree [no line]" */
	FRAME_KINDS,
};

/* For unknown processes: those of samples from before the kernel's tasks could be
 * read. */
#define FRAME_NO_ID UINT64_MAX

struct frame {
	const char *name; /* not terminated */
	uint32_t name_bytes;
	uint8_t kind;    /* enum frame_kind */
	bool is_unnamed; /* an address without a name; the name says what is known of it */
	bool is_inlined; /* then its name ends in FRAME_INLINED */
	uint64_t id;     /* of functions 0 */
	/* Of functions, if frames.with_places: the line that ran there, or that called. */
	const char *file; /* NULL: not known */
	unsigned line;    /* 0: not known */
	unsigned begin;   /* the line of the file in which the function begins; 0: not known */
};
#define FRAME_INLINED " (inlined)"

struct frames {
	HASH_TABLE(struct frame, entries);
	bool failed; /* for lack of memory: what was given since then is 0 */
	/* What was found out for a trace: by address, and by symbol, for kernel and program. */
	struct frames_known *known;
	uint32_t *of_symbol[TRACE_SYMBOL_GROUPS][2]; /* numbers plus one; NULL: not asked yet */
	uint64_t known_of;                           /* trace.serial */
	/* Where lines and inlined functions come from; NULL: there are none. Set by the caller,
	 * borrowed, of one trace only. */
	struct source_lines *lines;
	/* One function at different lines is different frames. Set by the caller, at first. */
	bool with_places;
};

gp_status_t frames_init(struct frames *frames, struct error *error);
void frames_deinit(struct frames *frames);

/* The number of the frame with that kind, id and name, made if there is none. */
uint32_t frames_intern(struct frames *frames, const struct frame *frame);

/* The function that frame `index` of the sample lies in. Every address is some frame: one that has
 * no name is "[user]", "[kernel module]", "[kernel, no symbol]" or "[early boot, no symbol]". */
uint32_t frames_of_address(struct frames *frames, const struct trace *trace,
			   const struct fxt_sample *sample, size_t index);

/* The functions that were inlined where frame `index` of the sample stands, outermost first: what
 * belongs between it and what it called. Returns how many, at most
 * `most`; of more the innermost are left out. */
size_t frames_of_inlined(struct frames *frames, const struct trace *trace,
			 const struct fxt_sample *sample, size_t index, uint32_t *out, size_t most);

/* All of the sample's frames, outermost first, with the inlined ones if `inlined`. Returns how
 * many, at most `most`, which is at least the sample's depth: of what has no room inlined ones are
 * left out. */
size_t frames_of_stack(struct frames *frames, const struct trace *trace,
		       const struct fxt_sample *sample, bool inlined, uint32_t *out, size_t most);

/* What a sample belongs to. */
enum frame_owner {
	OWNER_PROCESS, /* one frame for each process and name it had */
	OWNER_COMMAND, /* one frame for all processes of one name */
	OWNER_THREAD,
	OWNER_VCPU,
	OWNER_MODE,
	OWNER_GROUP, /* that of the leaf */
	OWNER_LINE,  /* the leaf's source line */
	OWNERS,
};
uint32_t frames_of_owner(struct frames *frames, const struct trace *trace,
			 const struct fxt_sample *sample, enum frame_owner owner);

/* How a mode and an end of a stack are called: "guest user", "root" ...; unknown values are
 * "unknown". */
const char *frames_mode_name(uint64_t mode);
const char *frames_end_name(uint64_t end);
#define FRAMES_MODES 6
#define FRAMES_ENDS 8

/* True when the vCPU did something at the sample: it was neither halted nor not started, and there
 * is a stack. Only these have functions. */
static inline bool sample_is_running(const struct fxt_sample *sample)
{
	return sample->mode != FXT_MODE_HALTED && sample->mode != FXT_MODE_NOT_STARTED &&
	       sample->depth > 0;
}

#endif
