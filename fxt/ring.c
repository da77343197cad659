#include "fxt/ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

gp_status_t fxt_ring_init(struct fxt_ring *ring, size_t bytes, struct error *error)
{
	void *buffer;

	if (bytes < FXT_RING_BYTES_MIN || (bytes & (bytes - 1)) != 0)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "ring of %zu bytes: give a power of two of at least %d", bytes,
				 FXT_RING_BYTES_MIN);
	buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED)
		return error_set_errno(error, errno, "ring of %zu bytes: cannot map memory", bytes);
	memset(ring, 0, sizeof(*ring));
	ring->buffer = buffer;
	ring->size = bytes;
	if (mlock(buffer, bytes) == 0)
		ring->locked = true;
	else
		ring->lock_errno = errno;
	/* Touched whether or not it could be locked: without a lock no page is there yet,
	 * and the producer must not be the one to take the faults. */
	memset(buffer, 0, bytes);
	return GP_OK;
}

void fxt_ring_deinit(struct fxt_ring *ring)
{
	if (ring->buffer)
		munmap(ring->buffer, ring->size);
	memset(ring, 0, sizeof(*ring));
}

/* Counters have one writer: a plain load and store, no locked instruction. */
static void ring_count(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
			      memory_order_relaxed);
}

static void copy_in(const struct fxt_ring *ring, uint64_t position, const void *from, size_t bytes)
{
	uint64_t offset = position & (ring->size - 1);
	uint64_t before_end = ring->size - offset;

	if (bytes <= before_end) {
		memcpy((char *)ring->buffer + offset, from, bytes);
		return;
	}
	memcpy((char *)ring->buffer + offset, from, before_end);
	memcpy(ring->buffer, (const char *)from + before_end, bytes - before_end);
}

static void copy_out(const struct fxt_ring *ring, uint64_t position, void *to, size_t bytes)
{
	uint64_t offset = position & (ring->size - 1);
	uint64_t before_end = ring->size - offset;

	if (bytes <= before_end) {
		memcpy(to, (const char *)ring->buffer + offset, bytes);
		return;
	}
	memcpy(to, (const char *)ring->buffer + offset, before_end);
	memcpy((char *)to + before_end, ring->buffer, bytes - before_end);
}

static bool has_room(struct fxt_ring *ring, uint64_t produced, uint64_t bytes)
{
	if (ring->size - (produced - ring->consumed_seen) >= bytes)
		return true;
	/* Acquire: the consumer's copying out of the space is over before we write there. */
	ring->consumed_seen = atomic_load_explicit(&ring->consumed, memory_order_acquire);
	return ring->size - (produced - ring->consumed_seen) >= bytes;
}

static void drop(struct fxt_ring *ring, uint64_t records, uint64_t bytes, uint64_t first,
		 uint64_t last)
{
	if (ring->pending.records == 0)
		ring->pending.first = first;
	ring->pending.last = last;
	ring->pending.records += records;
	ring->pending.bytes += bytes;
	ring_count(&ring->records_dropped, records);
	ring_count(&ring->bytes_dropped, bytes);
}

/* Copies the drop record in at `produced` and takes what it says off the account. Its numbers have
 * 32 bits: what is beyond them stays on the account and goes into the next one. */
static void write_drop_record(struct fxt_ring *ring, uint64_t produced)
{
	uint64_t records = ring->pending.records < UINT32_MAX ? ring->pending.records : UINT32_MAX;
	uint64_t bytes = ring->pending.bytes < UINT32_MAX ? ring->pending.bytes : UINT32_MAX;
	uint64_t record[FXT_DROP_RECORD_WORDS];

	/* An account of bytes without records would end here and lose the bytes: while bytes have
	 * to stay, a record stays with them. */
	if (bytes < ring->pending.bytes && records == ring->pending.records)
		records--;
	record[0] = fxt_header_with_size(fxt_header(FXT_TYPE_EVENT), FXT_DROP_RECORD_WORDS) |
		    (uint64_t)FXT_EVENT_DURATION_COMPLETE << 16 | 2ull << 20 |
		    (uint64_t)FXT_STRING_KERNEL_META << 32 | (uint64_t)FXT_STRING_DROP_STATS << 48;
	record[1] = ring->pending.first;
	record[2] = ring->drop_process;
	record[3] = ring->drop_thread;
	record[4] = fxt_header_with_size(FXT_ARGUMENT_U32, 1) |
		    (uint64_t)FXT_STRING_NUM_RECORDS << 16 | records << 32;
	record[5] = fxt_header_with_size(FXT_ARGUMENT_U32, 1) |
		    (uint64_t)FXT_STRING_NUM_BYTES << 16 | bytes << 32;
	record[6] = ring->pending.last;
	copy_in(ring, produced, record, sizeof(record));
	ring->pending.records -= records;
	ring->pending.bytes -= bytes;
}

/* Release: a thread that sees the new index sees the bytes before it. */
static void publish(struct fxt_ring *ring, uint64_t produced)
{
	atomic_store_explicit(&ring->produced, produced, memory_order_release);
}

bool fxt_ring_write(struct fxt_ring *ring, const uint64_t *record, size_t words, uint64_t now)
{
	uint64_t produced = atomic_load_explicit(&ring->produced, memory_order_relaxed);
	uint64_t bytes = words * sizeof(uint64_t);
	uint64_t in_front =
		ring->pending.records != 0 ? FXT_DROP_RECORD_WORDS * sizeof(uint64_t) : 0;

	if (words == 0 || words > FXT_RECORD_WORDS_MAX ||
	    fxt_header_type(record[0]) == FXT_TYPE_LARGE || fxt_header_words(record[0]) != words) {
		drop(ring, 1, 0, now, now);
		return false;
	}
	if (!has_room(ring, produced, in_front + bytes)) {
		drop(ring, 1, bytes, now, now);
		return false;
	}
	if (in_front != 0)
		write_drop_record(ring, produced);
	copy_in(ring, produced + in_front, record, bytes);
	ring_count(&ring->records_written, 1);
	publish(ring, produced + in_front + bytes);
	return true;
}

void fxt_ring_count_drops(struct fxt_ring *ring, uint64_t records, uint64_t first, uint64_t last)
{
	if (records != 0)
		drop(ring, records, 0, first, last);
}

bool fxt_ring_flush_drops(struct fxt_ring *ring)
{
	uint64_t produced = atomic_load_explicit(&ring->produced, memory_order_relaxed);

	/* Bounded by the room in the ring. */
	while (ring->pending.records != 0) {
		if (!has_room(ring, produced, FXT_DROP_RECORD_WORDS * sizeof(uint64_t)))
			return false;
		write_drop_record(ring, produced);
		produced += FXT_DROP_RECORD_WORDS * sizeof(uint64_t);
		publish(ring, produced);
	}
	return true;
}

size_t fxt_ring_size_available(const struct fxt_ring *ring)
{
	return atomic_load_explicit(&ring->produced, memory_order_acquire) -
	       atomic_load_explicit(&ring->consumed, memory_order_relaxed);
}

size_t fxt_ring_read(struct fxt_ring *ring, void *buffer, size_t bytes)
{
	/* Acquire: pairs with publish(), the records up to here are complete. */
	uint64_t produced = atomic_load_explicit(&ring->produced, memory_order_acquire);
	uint64_t begin = atomic_load_explicit(&ring->consumed, memory_order_relaxed);
	uint64_t end = begin;
	bool damaged = false;

	/* At least one word per turn, bounded by what is there. */
	while (end != produced) {
		/* A record begins at a multiple of 8, so that its header never wraps. */
		uint64_t header = ring->buffer[(end & (ring->size - 1)) / sizeof(uint64_t)];
		uint64_t record = fxt_header_words(header) * sizeof(uint64_t);

		if (record == 0 || record > produced - end) {
			damaged = true;
			break;
		}
		if (record > bytes - (end - begin))
			break;
		end += record;
	}
	if (end != begin)
		copy_out(ring, begin, buffer, end - begin);
	if (damaged) {
		ring_count(&ring->bytes_discarded, produced - end);
		atomic_store_explicit(&ring->consumed, produced, memory_order_release);
	} else {
		/* Release: the copying is over before the producer may reuse the space. */
		atomic_store_explicit(&ring->consumed, end, memory_order_release);
	}
	return end - begin;
}

struct fxt_ring_totals fxt_ring_totals(const struct fxt_ring *ring)
{
	return (struct fxt_ring_totals){
		.records_written =
			atomic_load_explicit(&ring->records_written, memory_order_relaxed),
		.records_dropped =
			atomic_load_explicit(&ring->records_dropped, memory_order_relaxed),
		.bytes_dropped = atomic_load_explicit(&ring->bytes_dropped, memory_order_relaxed),
		.bytes_discarded =
			atomic_load_explicit(&ring->bytes_discarded, memory_order_relaxed),
	};
}
