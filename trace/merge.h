/* The samples of all vCPUs, and the ticks that were lost, as one sequence in time. A trace file has
 * each vCPU's samples in order, those of different vCPUs in pieces one behind the other.
 *
 *     merge_init(&merge, &trace, &error);
 *     while (merge_next(&merge, &entry))
 *             ...
 *     merge_deinit(&merge);
 *
 * Time never goes back: neither in a lane, nor over all. Memory: with the number of vCPUs. The
 * trace's own position is used for names (trace_process_name() holds for the entry given last);
 * trace_next_sample() is to be left alone meanwhile, and trace_rewind() called before it is used
 * again.
 */
#ifndef TRACE_MERGE_H
#define TRACE_MERGE_H

#include "trace/trace.h"

struct merge_entry {
	uint64_t time_ns;              /* on the trace's clock; of lost ticks: where they begin */
	const struct trace_lost *lost; /* NULL: it is a sample */
	struct fxt_sample sample;      /* its stack lies in the file */
	uint64_t ticks;                /* of the sample, as trace_next_sample() counts them */
	size_t offset;                 /* of the sample's record in the file */
};

struct merge_lane {
	size_t offset; /* where the search for its next sample goes on */
	uint64_t time_ns;
	uint64_t ticks;
	size_t sample_offset;
	struct fxt_sample sample;
	struct trace_lane open;
};

struct merge {
	struct trace *trace;
	struct merge_lane *lanes;
	size_t lane_count;
	size_t *heap; /* lanes that have a sample; the earliest is first */
	size_t heap_count;
	size_t next_lost;
	uint64_t last_ns;
	uint64_t given;
};

gp_status_t merge_init(struct merge *merge, struct trace *trace, struct error *error);
void merge_deinit(struct merge *merge);
bool merge_next(struct merge *merge, struct merge_entry *entry);

#endif
