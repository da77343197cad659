/* The record ring: one producer, one consumer, whole FXT records, exact account of loss.
 *
 * The producer is a vCPU thread whose vCPU is stopped: writing allocates nothing, takes no lock,
 * makes no system call and takes bounded time. The consumer copies whole records out; that a
 * record may wrap around the end of the buffer is never seen outside.
 *
 * Full: the NEW record is dropped and counted. The count goes in front of the next record that
 * fits, as the 7-word event that Fuchsia's kernel writes (category "kernel:meta", name
 * "drop_stats", from first to last drop), with the string indices of fxt_write_preamble(). Both
 * must fit. At any moment of rest: records given to fxt_ring_write() = records_written +
 * records_dropped, and records_dropped = what drop records said + what is still pending.
 *
 * Who writes which cache line (64 bytes each):
 *
 *     offset   0  +----------------------------------------------+
 *                 | buffer, size, identity of drops, locked      |  nobody, once set up
 *             64  +----------------------------------------------+
 *                 | produced, consumed as last seen, totals      |  producer
 *            128  +----------------------------------------------+
 *                 | drops not yet written                        |  producer
 *            192  +----------------------------------------------+
 *                 | consumed, bytes discarded                    |  consumer
 *            256  +----------------------------------------------+
 *
 * `produced` and `consumed` count bytes since the beginning and never wrap (2^64 bytes); their
 * low bits are offsets into the buffer. consumed <= produced <= consumed + size.
 */
#ifndef FXT_RING_H
#define FXT_RING_H

#include "base/error.h"
#include "fxt/record.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FXT_RING_LINE 64
#define FXT_DROP_RECORD_WORDS 7
#define FXT_RING_BYTES_MIN 4096

struct fxt_ring {
	/* Read-only between fxt_ring_init() and fxt_ring_deinit(). */
	alignas(FXT_RING_LINE) uint64_t *buffer;
	uint64_t size; /* bytes, a power of two */
	/* Whom the drop records are attributed to; set by the owner before the first write. Zero
	 * after init; a vCPU's ring has FXT_VCPU_PROCESS and fxt_vcpu_thread(). */
	uint64_t drop_process;
	uint64_t drop_thread;
	bool locked;    /* the buffer cannot be paged out */
	int lock_errno; /* why not, else 0 */

	/* Written by the producer. The totals are for any thread to read: fxt_ring_totals(). */
	alignas(FXT_RING_LINE) _Atomic uint64_t produced;
	uint64_t consumed_seen; /* so that the consumer's line is touched only when it looks full */
	_Atomic uint64_t records_written; /* without drop records */
	_Atomic uint64_t records_dropped;
	_Atomic uint64_t bytes_dropped;

	alignas(FXT_RING_LINE) struct {
		uint64_t records;
		uint64_t bytes;
		uint64_t first; /* time of the first drop in this account */
		uint64_t last;
	} pending;

	/* Written by the consumer. */
	alignas(FXT_RING_LINE) _Atomic uint64_t consumed;
	_Atomic uint64_t bytes_discarded;
};

_Static_assert(offsetof(struct fxt_ring, produced) == 1 * FXT_RING_LINE, "producer's line");
_Static_assert(offsetof(struct fxt_ring, bytes_dropped) < 2 * FXT_RING_LINE, "producer's line");
_Static_assert(offsetof(struct fxt_ring, pending) == 2 * FXT_RING_LINE, "producer's line");
_Static_assert(offsetof(struct fxt_ring, consumed) == 3 * FXT_RING_LINE, "consumer's line");
_Static_assert(sizeof(struct fxt_ring) == 4 * FXT_RING_LINE, "four lines");

struct fxt_ring_totals {
	uint64_t records_written; /* without drop records */
	uint64_t records_dropped;
	uint64_t bytes_dropped;
	/* Bytes the consumer threw away because no record began where one had to: a sign that
	 * something overwrote the buffer. Always 0 otherwise. */
	uint64_t bytes_discarded;
};

/* Maps, touches and locks `bytes` of buffer: a power of two, at least FXT_RING_BYTES_MIN. The ring
 * itself is the caller's, at an address aligned to FXT_RING_LINE. A buffer that cannot be
 * locked (RLIMIT_MEMLOCK) still works, page faults under memory pressure are the price:
 * ring->locked and ring->lock_errno tell.
 * GP_ERR_INVALID_ARGS, GP_ERR_NO_MEMORY. Once, before any other thread knows the ring. */
gp_status_t fxt_ring_init(struct fxt_ring *ring, size_t bytes, struct error *error);

/* Once neither side uses the ring any more. Allowed on a zeroed ring and twice. */
void fxt_ring_deinit(struct fxt_ring *ring);

/* Producer. Copies one whole encoded record of `words` words in, in front of it the drop record
 * if one is due. False: dropped and counted, at time `now` (ticks). What is no record (no words, as
 * an encoder returns when it fails, or a header that says another size) is dropped and counted
 * too, so that the consumer can trust what it finds. */
bool fxt_ring_write(struct fxt_ring *ring, const uint64_t *record, size_t words, uint64_t now);

/* Producer. Counts `records` records that were never encoded, because there was no room for any of
 * them, as dropped: the first at `first`, the last at `last`. They have no bytes. */
void fxt_ring_count_drops(struct fxt_ring *ring, uint64_t records, uint64_t first, uint64_t last);

/* Producer, or anybody once the producer has stopped for good (and that is known through a join or
 * the like). Writes the drop records that no later record brought. True when nothing is pending
 * any more; false: no room, read and call again. */
bool fxt_ring_flush_drops(struct fxt_ring *ring);

/* Consumer. Bytes that fxt_ring_read() would give now if its buffer were large enough. More may
 * have come when it is called. */
size_t fxt_ring_size_available(const struct fxt_ring *ring);

/* Consumer. Copies as many whole records as fit into `bytes`, oldest first, and returns their size
 * in bytes; 0 when the ring is empty or the first record does not fit. */
size_t fxt_ring_read(struct fxt_ring *ring, void *buffer, size_t bytes);

/* Any thread, at any time. Each number is exact for some moment during the call. */
struct fxt_ring_totals fxt_ring_totals(const struct fxt_ring *ring);

#endif
