/* A split virtqueue, seen from the device (virtio 1.2, 2.7).
 *
 *   descriptor table   queue_size × { u64 gpa, u32 size, u16 flags, u16 next }
 *   available ring     u16 flags, u16 index, u16 heads[queue_size], u16 used_event
 *   used ring          u16 flags, u16 index, { u32 head, u32 written }[queue_size], u16 avail_event
 *
 * The guest is hostile and writes all three while we read them: every descriptor is copied
 * once and the copy is checked; a chain has at most queue_size parts (indirect tables
 * included); an available index that runs more than queue_size ahead, a head or a next
 * outside the table, a buffer outside RAM, readable parts after writable ones and nested
 * indirect tables are errors, after which the queue is broken until reset.
 *
 * Threads: one at a time; the transport's lock sees to it.
 */
#ifndef VMM_DEVICES_VIRTIO_QUEUE_H
#define VMM_DEVICES_VIRTIO_QUEUE_H

#include "vmm/devices/guest_ram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define VIRTIO_QUEUE_SIZE_MAX 256

struct virtio_queue {
	const struct guest_ram *ram;
	/* Set by the guest through the transport. */
	uint16_t size;
	bool ready;
	uint64_t descriptors;
	uint64_t available;
	uint64_t used;
	/* Ours. */
	bool event_index; /* VIRTIO_F_RING_EVENT_IDX was agreed on */
	bool indirect;    /* VIRTIO_F_INDIRECT_DESC was agreed on */
	bool broken;
	uint16_t available_seen;  /* index of the next head to take */
	uint16_t used_index;      /* what the used ring's index says */
	uint16_t used_index_told; /* used_index when the guest was interrupted last */
};

/* One request: its buffers in host memory, device-readable parts first. */
struct virtio_chain {
	uint16_t head;
	unsigned readable_count; /* parts[0 .. readable_count) */
	unsigned writable_count; /* parts[readable_count .. + writable_count) */
	uint64_t readable_size;  /* bytes */
	uint64_t writable_size;  /* bytes */
	struct iovec parts[VIRTIO_QUEUE_SIZE_MAX];
};

enum virtio_queue_result {
	VIRTIO_QUEUE_CHAIN,  /* there is one, in *chain */
	VIRTIO_QUEUE_EMPTY,  /* nothing to do; the guest will notify */
	VIRTIO_QUEUE_BROKEN, /* the guest broke the rules: the device needs a reset */
};

/* Back to the state after power-on. */
void virtio_queue_reset(struct virtio_queue *queue);

/* Whether size and the three addresses the guest gave are usable: a power of two up to
 * VIRTIO_QUEUE_SIZE_MAX, aligned, wholly in RAM. */
bool virtio_queue_is_valid(const struct virtio_queue *queue);

/* Takes the next request. At VIRTIO_QUEUE_EMPTY the guest has been asked to notify again. */
enum virtio_queue_result virtio_queue_pop(struct virtio_queue *queue, struct virtio_chain *chain);

/* Gives a request back with `written` bytes in its writable parts. */
void virtio_queue_push(struct virtio_queue *queue, uint16_t head, uint32_t written);

/* Whether the guest wants an interrupt for what was pushed since the last call. */
bool virtio_queue_wants_interrupt(struct virtio_queue *queue);

/* Copies bytes from the readable, or to the writable parts, from `offset` bytes on; returns
 * how many (fewer when the parts end). */
size_t virtio_chain_read(const struct virtio_chain *chain, uint64_t offset, void *out, size_t size);
size_t virtio_chain_write(const struct virtio_chain *chain, uint64_t offset, const void *bytes,
			  size_t size);

#endif
