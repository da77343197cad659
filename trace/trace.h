/* A recorded trace, opened for reading: what it says about itself, its samples, the names of their
 * addresses, and those of the guest's processes and threads. Needs nothing but the file.
 *
 * A trace whose end is cut, or that is damaged from some byte on, opens with what is good;
 * trace_info says so. The file's bytes are untrusted: names are escaped with trace_print_name().
 */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include "base/error.h"
#include "fxt/reader.h"
#include "fxt/sample.h"
#include "trace/trace_code.h"

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
	char source[TRACE_TEXT_MAX]; /* of an attached guest */
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
	uint64_t console_lines; /* counted in the file */
	uint64_t console_cut;   /* of them: without their end; what the file says */
	uint64_t console_lost;  /* further ones that were left out; what the file says */
	uint64_t first_ns;      /* of the samples */
	uint64_t last_ns;
	uint64_t wall_clock_ns; /* CLOCK_REALTIME when the session began, at session_ns */
	uint64_t session_ns;
	uint64_t kernel_text_base;            /* of the guest's kernel */
	char kernel_build_id[TRACE_TEXT_MAX]; /* hexadecimal */
	/* Of the code in the file (trace/trace_code.h), as the recorder counted. */
	uint64_t code_functions;
	uint64_t code_left_out;
};

/* What a process or thread was called from some byte of the file on. */
struct trace_name {
	uint64_t id;
	size_t offset;
	uint64_t process; /* of a thread; 0 where the file does not say */
	uint32_t name_bytes;
	const char *name; /* not terminated, untrusted; lies in the file */
};

/* Sorted by id, then offset; equal neighbours left out. */
struct trace_names {
	struct trace_name *items;
	size_t count;
	size_t capacity;
};

/* Ticks of one vCPU that found no room in its ring between two times. */
struct trace_lost {
	uint64_t begin_ns;
	uint64_t end_ns;
	uint64_t records;
	uint64_t bytes;
	uint32_t vcpu; /* UINT32_MAX: the record names none */
};

/* Told now and then how far the reading of a trace is, on the thread that reads; `what` is static
 * text. */
typedef void trace_watch(const char *what, uint64_t done, uint64_t all);

struct trace {
	void *bytes; /* the mapped file */
	size_t size;
	bool borrowed;   /* `bytes` are the caller's */
	uint64_t serial; /* from 1 on, another for each that is opened: what is known of one is not
			  * taken for another in the same place */
	struct trace_info info;
	struct trace_symbols symbols[TRACE_SYMBOL_GROUPS];
	struct trace_programs programs;
	struct trace_code code;
	struct trace_names processes;
	struct trace_names threads;
	VECTOR(struct trace_lost) lost; /* sorted by begin_ns */
	trace_watch *watch;             /* NULL: progress is told to nobody */
	uint32_t watch_steps;           /* since it was told last */
	struct fxt_reader reader;       /* of trace_next_sample() */
	bool reading;
	size_t position; /* of the sample given last: names are those that held there */
	struct trace_lane {
		bool used;    /* there are samples of this vCPU */
		size_t first; /* the file offset of its first one */
		/* Partial samples whose stack is still to come. */
		uint64_t continuation;
		uint64_t ticks;
	} lanes[TRACE_VCPUS_MAX]; /* by vCPU */
};

/* Maps and looks through the file, which may be compressed by gzip. Errors name it: no such file,
 * not a trace (with what it looks like), nothing readable in it. */
gp_status_t trace_open(const char *path, struct trace *trace, struct error *error);

/* The same, telling its progress; also while samples are read from it. */
gp_status_t trace_open_watched(const char *path, trace_watch *watch, struct trace *trace,
			       struct error *error);

/* For callers that read samples by other means: one step further. */
void trace_tell(struct trace *trace, const char *what, uint64_t done, uint64_t all);
/* All is read; what follows has no progress of its own. */
void trace_tell_end(const struct trace *trace, const char *what);

/* The same for bytes in memory, at a multiple of 8, which stay the caller's and unchanged until
 * trace_close(). Errors name no file. */
gp_status_t trace_open_bytes(const void *bytes, size_t size, struct trace *trace,
			     struct error *error);
void trace_close(struct trace *trace);

/* A sample with a stack, or one that says why there is none, and for how many ticks it stands: its
 * own and those of the partial samples it completes. In file order: each vCPU's are in
 * order of time, different vCPUs' are not. False at the end. Its stack is valid until the next
 * call. trace_rewind() starts over. */
bool trace_next_sample(struct trace *trace, struct fxt_sample *sample, uint64_t *ticks);
void trace_rewind(struct trace *trace);

/* The step that both this and trace/merge.h make for each sample record of a vCPU, in order.
 * False: a partial record, nothing to give yet. */
bool trace_weigh_sample(struct trace_lane *lane, const struct fxt_sample *sample, uint64_t *ticks);

/* What a process or thread was called at the sample that was given last; before its first name its
 * first one, NULL when it has none. */
const struct trace_name *trace_process_name(const struct trace *trace, uint64_t process);
const struct trace_name *trace_thread_name(const struct trace *trace, uint64_t thread);

/* True for a frame of the program that a kernel serves, false for one of the kernel itself. */
bool trace_frame_is_user(const struct fxt_sample *sample, size_t frame);

/* The address by which a frame is named: the one that was sampled, or, since a return address is
 * behind its call, which may be the function's last byte, the byte before it. */
uint64_t trace_frame_address(const struct fxt_sample *sample, size_t frame);

/* The program that a sample's user frames are of, NULL where the file knows none: frames of equal
 * addresses and programs are the same. */
const struct trace_program *trace_program_of(const struct trace *trace,
					     const struct fxt_sample *sample);

/* The symbol that frame `frame` of the sample lies in, or NULL. The kernel's names go to the
 * kernel's frames only, and its startup code's never to a program. A user frame has the name that
 * was found in its own process; if there is none that of a file the user gave, which may be for
 * another program at that address; else that of the mapping. */
const struct trace_symbol *trace_find_symbol(const struct trace *trace,
					     const struct fxt_sample *sample, size_t frame);

/* Prints an untrusted name: control and non-ASCII bytes as \xNN. */
void trace_print_name(FILE *to, const char *name, size_t size);

#endif
