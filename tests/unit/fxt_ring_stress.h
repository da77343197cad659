/* Producer and consumer of a ring on two threads, every record checked. Without Criterion, because
 * that does not run under ThreadSanitizer: shared by tests/unit/fxt_ring.c and
 * tests/thread/fxt_ring.c.
 *
 * Every record carries its number and a check of it in every word. The consumer reads in small
 * pieces at times and yields, so that a small ring is full now and then. */
#ifndef TESTS_UNIT_FXT_RING_STRESS_H
#define TESTS_UNIT_FXT_RING_STRESS_H

#include "fxt/ring.h"

#include <pthread.h>
#include <sched.h>

struct fxt_ring_stress {
	uint64_t seen, dropped_records, dropped_bytes;
	uint64_t expected_bytes; /* of the records that drop records name */
	uint64_t last;           /* number that has been accounted for */
};

struct fxt_ring_stress_producer {
	struct fxt_ring *ring;
	uint64_t records;
	_Atomic bool done;
};

static inline size_t fxt_ring_stress_words(uint64_t number)
{
	return 3 + number * 7 % 40;
}

static inline void *fxt_ring_stress_produce(void *argument)
{
	struct fxt_ring_stress_producer *producer = argument;
	uint64_t words[64];

	for (uint64_t number = 1; number <= producer->records; number++) {
		size_t size = fxt_ring_stress_words(number);

		words[0] = fxt_header_with_size(FXT_TYPE_BLOB, size);
		words[1] = number;
		for (size_t i = 2; i < size; i++)
			words[i] = number * i;
		/* Yields after some of the drops only: both sides of the account are wanted. */
		if (!fxt_ring_write(producer->ring, words, size, number) && number % 8 == 0)
			sched_yield();
	}
	atomic_store(&producer->done, true);
	return NULL;
}

/* Between two records that arrive, a drop record tells exactly which are missing. Returns NULL or
 * what is wrong. */
static inline const char *fxt_ring_stress_check(struct fxt_ring_stress *stress,
						const uint64_t *words, size_t count)
{
	for (size_t i = 0; i < count; i += fxt_header_words(words[i])) {
		const uint64_t *at = words + i;
		size_t size = fxt_header_words(at[0]);

		if (size == 0 || size > count - i)
			return "a torn record";
		if (fxt_header_type(at[0]) == FXT_TYPE_EVENT) {
			uint64_t lost = at[4] >> 32;

			if (at[1] != stress->last + 1)
				return "a drop record does not start at the first drop";
			if (at[6] != stress->last + lost)
				return "a drop record does not end at the last drop";
			for (uint64_t number = at[1]; number <= at[6]; number++)
				stress->expected_bytes += fxt_ring_stress_words(number) * 8;
			stress->dropped_records += lost;
			stress->dropped_bytes += at[5] >> 32;
			stress->last += lost;
			continue;
		}
		if (at[1] != stress->last + 1)
			return "a record is missing or out of order";
		if (size != fxt_ring_stress_words(at[1]))
			return "a record of another size";
		for (size_t word = 2; word < size; word++)
			if (at[word] != at[1] * word)
				return "a record with foreign words";
		stress->last = at[1];
		stress->seen++;
	}
	return NULL;
}

/* Sends `records` through a fresh ring of FXT_RING_BYTES_MIN. Returns NULL or what is wrong. */
static inline const char *fxt_ring_stress(struct fxt_ring *ring, uint64_t records,
					  struct fxt_ring_stress *stress)
{
	struct fxt_ring_stress_producer producer = {.ring = ring, .records = records};
	static uint64_t out[FXT_RING_BYTES_MIN / 8];
	struct fxt_ring_totals totals;
	const char *wrong = NULL;
	pthread_t thread;
	bool done = false;

	if (pthread_create(&thread, NULL, fxt_ring_stress_produce, &producer) != 0)
		return "no thread";
	for (uint64_t turn = 0; !done; turn++) {
		size_t bytes;

		done = atomic_load(&producer.done);
		bytes = fxt_ring_read(ring, out, turn % 3 == 0 ? sizeof(out) : 1024);
		if (!wrong)
			wrong = fxt_ring_stress_check(stress, out, bytes / 8);
		if (bytes == 0)
			sched_yield();
	}
	pthread_join(thread, NULL);
	for (bool flushed = false; !flushed && !wrong;) {
		flushed = fxt_ring_flush_drops(ring);
		wrong = fxt_ring_stress_check(stress, out,
					      fxt_ring_read(ring, out, sizeof(out)) / 8);
	}
	if (wrong)
		return wrong;
	totals = fxt_ring_totals(ring);
	if (fxt_ring_size_available(ring) != 0 || totals.bytes_discarded != 0)
		return "something is left in the ring, or was thrown away";
	if (stress->seen != totals.records_written ||
	    stress->dropped_records != totals.records_dropped ||
	    stress->dropped_bytes != totals.bytes_dropped)
		return "the totals are not what arrived";
	if (stress->dropped_bytes != stress->expected_bytes)
		return "the bytes told are not those of the missing records";
	if (stress->seen + stress->dropped_records != records)
		return "seen and dropped are not all";
	return NULL;
}

#endif
