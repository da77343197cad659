/* Which samples of a trace count: the options --pid, --tid, --comm, --cpu, --mode, --from, --to and
 * --symbol, the same for every command. Those of different names must all hold; of several values
 * for one name, one must. One thread at a time.
 */
#ifndef ANALYSIS_FILTER_H
#define ANALYSIS_FILTER_H

#include "analysis/frames.h"

#define FILTER_VALUES_MAX 64 /* of one name */

struct filter_range {
	uint64_t first;
	uint64_t last;
};

struct filter_ranges {
	struct filter_range values[FILTER_VALUES_MAX];
	size_t count;
};

struct filter_patterns {
	const char *values[FILTER_VALUES_MAX]; /* borrowed */
	size_t count;
};

/* All zero: takes every sample. */
struct filter {
	struct filter_ranges processes;
	struct filter_ranges threads;
	struct filter_ranges vcpus;
	struct filter_patterns commands; /* names of processes and threads, may have *, ?, [] */
	struct filter_patterns symbols;  /* names of functions, likewise */
	uint64_t modes;                  /* bit by enum fxt_sample_mode; 0: all */
	uint64_t from_ns;                /* since the trace's first sample */
	uint64_t to_ns;                  /* the first that is too late; 0: none */
	/* What is known of a frame: whether --symbol takes it. Private. */
	VECTOR(uint8_t) taken;
	const struct frames *taken_of;
};

/* Takes one option: `name` is "pid", "tid", "comm", "cpu", "mode", "from", "to" or "symbol".
 * Numbers are lists of numbers and ranges, "1,4-7"; modes are lists of user, kernel, halted, vmm,
 * not-started; times are seconds, or a number with s, ms, us or ns behind it. `value` is kept for
 * comm and symbol, not copied. The error names option and value. */
gp_status_t filter_set(struct filter *filter, const char *name, const char *value,
		       struct error *error);
void filter_deinit(struct filter *filter);

/* False: not a time. */
bool filter_parse_time(const char *text, uint64_t *ns);

/* True when nothing is left out by it. */
bool filter_is_empty(const struct filter *filter);

/* Whether the filter takes a sample that trace_next_sample() or merge_next() just gave. */
bool filter_takes(struct filter *filter, const struct trace *trace, struct frames *frames,
		  const struct fxt_sample *sample);

/* Whether drops between these times of that vCPU are of interest; by time and vCPU only: what was
 * lost has no process. */
bool filter_takes_lost(const struct filter *filter, const struct trace *trace,
		       const struct trace_lost *lost);

#endif
