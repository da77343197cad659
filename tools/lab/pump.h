/* One of the command's streams, on its way from one descriptor to another: the host's stdin into a
 * port, that port into the command's pipe, and so on. Both ends of the lab move bytes with this.
 *
 * The ports carry the bytes as they are. Where a stream ends is said on the control port, as a
 * number of bytes: a port does not say whether more will come.
 */
#ifndef TOOLS_LAB_PUMP_H
#define TOOLS_LAB_PUMP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAB_PUMP_BYTES 65536u

struct lab_pump {
	int from, to;
	size_t piece;   /* bytes of a write at most; 0: no limit */
	uint64_t taken; /* bytes, from `from` */
	uint64_t all;   /* so many there will be, when all_is_known */
	bool all_is_known;
	bool ended;  /* nothing more comes from `from` */
	bool broken; /* `to` has no reader any more */
	size_t start, used;
	uint8_t bytes[LAB_PUMP_BYTES]; /* from start to used: taken, not written yet */
};

/* What to wait for; descriptor -1: nothing. */
struct pollfd lab_pump_wait(const struct lab_pump *pump);

/* One read or one write, whichever is due; waits only if poll() would. */
void lab_pump_move(struct lab_pump *pump);

/* Everything has been taken and written, or cannot be. */
bool lab_pump_is_done(const struct lab_pump *pump);

/* The stream has this many bytes in all. */
void lab_pump_set_end(struct lab_pump *pump, uint64_t all);

/* Drops what is not written yet, and takes no more. */
void lab_pump_stop(struct lab_pump *pump);

#endif
