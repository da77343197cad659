/* Samples by thread or vCPU, for formats that want one list for each. Memory grows with the
 * samples, 16 bytes each, and with distinct stacks: such a format's file has an entry for each
 * sample as well. Private to export/.
 */
#ifndef EXPORT_SERIES_H
#define EXPORT_SERIES_H

#include "export/export.h"

struct series_sample {
	uint64_t time_ns;
	uint32_t node; /* in the tree */
	uint32_t ticks;
};

struct series {
	struct export_task task; /* the names it had last */
	VECTOR(struct series_sample) samples;
	uint64_t ticks;
};

struct series_set {
	struct call_tree tree;           /* of functions only */
	HASH_TABLE(struct series, list); /* by process and thread */
	void *more;                      /* of the format, which frees it before series_release() */
};

/* The functions of a format that keeps its series in export->state. */
bool series_begin(struct export *export);
void series_add_sample(struct export *export, const struct merge_entry *entry);
void series_release(struct export *export);

/* Orders the list by process, then thread. Numbers change; nothing can be added afterwards. */
void series_finish(struct series_set *set);

#endif
