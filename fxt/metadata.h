/* What a file says about the session that wrote it: instant events of category "guestprof".
 *
 * `session` once at the start; `console` when lines of the guest's console were left out; after
 * stop `guest` if its kernel was recognised, `console` if there was a line, `code`, `vcpu_totals`
 * once per vCPU and `session_end` once. Their values are named arguments; a reader takes the names
 * it knows and ignores others, so that arguments can be added. A file without session_end was cut
 * short. Text from the command line is the user's, untrusted where it is printed.
 */
#ifndef FXT_METADATA_H
#define FXT_METADATA_H

#include "fxt/value.h"

/* Event names. */
#define FXT_SESSION "session"
#define FXT_SESSION_END "session_end"
#define FXT_GUEST "guest"
#define FXT_VCPU_TOTALS "vcpu_totals"
#define FXT_CONSOLE "console"
#define FXT_CODE "code"

/* Arguments of `session`. u64 unless said otherwise. */
#define FXT_SESSION_VERSION "version"           /* string: guestprof's version */
#define FXT_SESSION_PERIOD "period_ns"          /* time between two ticks of one vCPU */
#define FXT_SESSION_DEPTH "depth"               /* most frames per sample */
#define FXT_SESSION_VCPUS "vcpus"               /* how many vCPUs */
#define FXT_SESSION_TICK_SOURCE "tick_source"   /* string: "timer", "cpu-clock", "cycles" ... */
#define FXT_SESSION_MEMORY "memory_bytes"       /* the guest's memory */
#define FXT_SESSION_KERNEL "kernel"             /* string: the kernel file's name */
#define FXT_SESSION_COMMAND_LINE "command_line" /* string: the guest kernel's */
#define FXT_SESSION_SOURCE "source"             /* string: whose vCPUs, read how; none: our own */
#define FXT_SESSION_WALL_CLOCK "wall_clock_ns"  /* CLOCK_REALTIME at the event's timestamp */

/* Arguments of `guest`: what the guest turned out to be. */
#define FXT_GUEST_BANNER "banner" /* string: "Linux version ...", from its memory, untrusted */
#define FXT_GUEST_TEXT_BASE "text_base" /* where its kernel's code begins */

#define FXT_GUEST_BUILD_ID "build_id" /* string: of its kernel, hexadecimal; empty: unknown */

/* Arguments of `console`: sums from the start of the session to this event. */
#define FXT_CONSOLE_LINES "lines" /* log records */
#define FXT_CONSOLE_CUT "cut"     /* of them: without their end, they were too long */
#define FXT_CONSOLE_LOST "lost"   /* lines that have no record */

/* Arguments of `code`: what there is of fxt/code.h. */
#define FXT_CODE_FUNCTIONS "functions" /* that have some */
#define FXT_CODE_BYTES "bytes"
#define FXT_CODE_CHANGED "changed"   /* kernel functions with other bytes at the end than before */
#define FXT_CODE_LEFT_OUT "left_out" /* functions whose code was gone, or had no room */

/* Arguments of `vcpu_totals`, and, but for the first, of `session_end` summed over all vCPUs.
 * ticks = stacks + partials + dropped + filtered. */
#define FXT_TOTALS_VCPU "vcpu"
#define FXT_TOTALS_TICKS "ticks"       /* ticks that fired */
#define FXT_TOTALS_STACKS "stacks"     /* of them: full samples in the file */
#define FXT_TOTALS_PARTIALS "partials" /* of them: partial samples in the file */
#define FXT_TOTALS_DROPPED "dropped"   /* of them: lost, counted in drop records */
#define FXT_TOTALS_FILTERED "filtered" /* of them: of tasks that the session left out */

/* Arguments of `session_end`. */
#define FXT_SESSION_END_REASON "reason" /* string: "powered off", "timed out" ... */

/* Named values, for the list that fxt_metadata_encode() takes. */
static inline struct fxt_argument fxt_argument_u64(const char *name, uint64_t value)
{
	return (struct fxt_argument){
		.name = fxt_text(name), .type = FXT_ARGUMENT_U64, .u64 = value};
}

static inline struct fxt_argument fxt_argument_text(const char *name, const char *value)
{
	return (struct fxt_argument){
		.name = fxt_text(name), .type = FXT_ARGUMENT_STRING, .string = fxt_text(value)};
}

/* Encodes the event `name` at `timestamp` (ticks), attributed to `thread` of FXT_VCPU_PROCESS: a
 * fxt_vcpu_thread(), or FXT_VCPU_PROCESS itself for the session. Needs the preamble. Returns words,
 * or 0: too little room, more than FXT_ARGUMENTS_MAX arguments, text too long. */
size_t fxt_metadata_encode(const char *name, uint64_t timestamp, uint64_t thread,
			   const struct fxt_argument *arguments, size_t count, uint64_t *words,
			   size_t capacity);

/* True when `event` is our metadata event of that name. */
bool fxt_metadata_is(const struct fxt_event *event, const char *name);

/* The first argument of that name, or NULL. For any event. */
const struct fxt_argument *fxt_argument_find(const struct fxt_event *event, const char *name);

/* The value of an unsigned argument (u32, u64), a signed one that is not negative, or a string;
 * false when there is none of that name and kind, `value` untouched. */
bool fxt_argument_get_u64(const struct fxt_event *event, const char *name, uint64_t *value);
bool fxt_argument_get_text(const struct fxt_event *event, const char *name,
			   struct fxt_string *value);

/* A drop record, as fxt/ring.h writes it: how many records and bytes were lost between the event's
 * timestamp and its end (event->extra). */
struct fxt_drops {
	uint64_t records;
	uint64_t bytes;
};

/* True and `drops` set when `event` is one. */
bool fxt_event_is_drops(const struct fxt_event *event, struct fxt_drops *drops);

#endif
