/* What each vCPU did when, as pieces one behind the other: running, halted, in the VMM, not
 * started, ticks lost. A tick stands for the period that begins with it; neighbours in one state
 * are one piece, and where there is no tick (the filter took it, or the VM did not get to run)
 * there is none. The ticks of all pieces are those of the samples and losses. Fixed memory. Private
 * to export/.
 */
#ifndef EXPORT_LANES_H
#define EXPORT_LANES_H

#include "export/export.h"

#define LANES_NO_VCPU UINT32_MAX /* of ticks whose loss names none */
extern const char lanes_lost[];  /* the state of ticks that were lost */

struct lane_piece {
	const char *state; /* static text */
	uint32_t vcpu;
	uint64_t begin_ns;
	uint64_t end_ns;
	uint64_t ticks; /* 0: there is no piece */
};

struct lanes {
	struct lane_piece open[TRACE_VCPUS_MAX + 1];
};

/* Takes a piece that has ended: of one vCPU in order of time, one not before the other's end. */
typedef void lanes_put(struct export *export, const struct lane_piece *piece);

void lanes_add_sample(struct lanes *lanes, struct export *export, const struct merge_entry *entry,
		      lanes_put *put);
void lanes_add_lost(struct lanes *lanes, struct export *export, const struct trace_lost *lost,
		    lanes_put *put);

/* Once, at the end: the pieces that have not ended. */
void lanes_finish(struct lanes *lanes, struct export *export, lanes_put *put);

/* "vCPU 1"; what LANES_NO_VCPU is called. */
void lanes_name(uint32_t vcpu, char *out, size_t size);

#endif
