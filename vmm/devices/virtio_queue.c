#include "vmm/devices/virtio_queue.h"

#include <stdatomic.h>
#include <string.h>

/* Virtio 1.2, 2.7.5. */
struct descriptor {
	uint64_t gpa;
	uint32_t size;
	uint16_t flags;
	uint16_t next;
};
_Static_assert(sizeof(struct descriptor) == 16, "2.7.5");

#define DESCRIPTOR_NEXT 1
#define DESCRIPTOR_WRITABLE 2
#define DESCRIPTOR_INDIRECT 4

/* Virtio 1.2, 2.7.8. */
struct used_element {
	uint32_t head;
	uint32_t written;
};
_Static_assert(sizeof(struct used_element) == 8, "2.7.8");

/* Offsets within the rings; both begin with flags and index. */
#define RING_INDEX 2
#define RING_ENTRIES 4
#define AVAILABLE_NO_INTERRUPT 1

static uint64_t used_event_offset(const struct virtio_queue *queue)
{
	return RING_ENTRIES + UINT64_C(2) * queue->size;
}

static uint64_t available_event_offset(const struct virtio_queue *queue)
{
	return RING_ENTRIES + sizeof(struct used_element) * queue->size;
}

/* A 16-bit field of a ring that the guest reads or writes at the same time. Its address is even,
 * for virtio_queue_is_valid() saw to the ring's. NULL only if the guest gave a ring outside RAM,
 * which that function refuses, too. */
static uint16_t *ring_field(const struct virtio_queue *queue, uint64_t ring, uint64_t offset)
{
	return guest_ram_at(queue->ram, gpa(ring + offset), sizeof(uint16_t));
}

static uint16_t load_field(const struct virtio_queue *queue, uint64_t ring, uint64_t offset)
{
	const uint16_t *field = ring_field(queue, ring, offset);

	return field ? __atomic_load_n(field, __ATOMIC_ACQUIRE) : 0;
}

static void store_field(const struct virtio_queue *queue, uint64_t ring, uint64_t offset,
			uint16_t value)
{
	uint16_t *field = ring_field(queue, ring, offset);

	if (field)
		__atomic_store_n(field, value, __ATOMIC_RELEASE);
}

void virtio_queue_reset(struct virtio_queue *queue)
{
	*queue = (struct virtio_queue){.ram = queue->ram};
}

bool virtio_queue_is_valid(const struct virtio_queue *queue)
{
	uint16_t size = queue->size;

	if (size == 0 || size > VIRTIO_QUEUE_SIZE_MAX || (size & (size - 1)))
		return false;
	/* Alignment: 2.7, table. The event fields behind the rings are there in any case. */
	if (queue->descriptors % 16 || queue->available % 2 || queue->used % 4)
		return false;
	return guest_ram_at(queue->ram, gpa(queue->descriptors),
			    size * sizeof(struct descriptor)) &&
	       guest_ram_at(queue->ram, gpa(queue->available),
			    used_event_offset(queue) + sizeof(uint16_t)) &&
	       guest_ram_at(queue->ram, gpa(queue->used),
			    available_event_offset(queue) + sizeof(uint16_t));
}

/* Appends one buffer; false when the guest broke a rule. */
static bool add_part(const struct virtio_queue *queue, const struct descriptor *descriptor,
		     struct virtio_chain *chain)
{
	bool writable = descriptor->flags & DESCRIPTOR_WRITABLE;
	void *host = guest_ram_at(queue->ram, gpa(descriptor->gpa), descriptor->size);

	if (!host || (!writable && chain->writable_count > 0))
		return false;
	chain->parts[chain->readable_count + chain->writable_count] =
		(struct iovec){host, descriptor->size};
	if (writable) {
		chain->writable_count++;
		chain->writable_size += descriptor->size;
	} else {
		chain->readable_count++;
		chain->readable_size += descriptor->size;
	}
	return true;
}

/* Follows the chain from `head`. Each descriptor is read once, to a copy; the loop ends after
 * queue->size of them, the table that points to an indirect one not counted (2.7.5.3.1). */
static bool read_chain(const struct virtio_queue *queue, uint16_t head, struct virtio_chain *chain)
{
	uint64_t table = queue->descriptors;
	uint32_t table_size = queue->size;
	bool is_indirect = false;
	uint16_t next = head;

	chain->head = head;
	chain->readable_count = chain->writable_count = 0;
	chain->readable_size = chain->writable_size = 0;
	for (unsigned seen = 0; seen < queue->size;) {
		struct descriptor descriptor;

		if (next >= table_size ||
		    !guest_ram_read(queue->ram, gpa(table + next * sizeof(descriptor)), &descriptor,
				    sizeof(descriptor)))
			return false;
		if (descriptor.flags & DESCRIPTOR_INDIRECT) {
			if (!queue->indirect || is_indirect ||
			    (descriptor.flags & DESCRIPTOR_NEXT) || descriptor.size == 0 ||
			    descriptor.size % sizeof(descriptor))
				return false;
			is_indirect = true;
			table = descriptor.gpa;
			table_size = descriptor.size / sizeof(descriptor);
			next = 0;
			continue;
		}
		if (!add_part(queue, &descriptor, chain))
			return false;
		seen++;
		if (!(descriptor.flags & DESCRIPTOR_NEXT))
			return true;
		next = descriptor.next;
	}
	return false;
}

static enum virtio_queue_result break_queue(struct virtio_queue *queue)
{
	queue->broken = true;
	return VIRTIO_QUEUE_BROKEN;
}

/* How many heads wait; more than there can be when the guest's index is nonsense. */
static uint16_t count_available(const struct virtio_queue *queue)
{
	return load_field(queue, queue->available, RING_INDEX) - queue->available_seen;
}

enum virtio_queue_result virtio_queue_pop(struct virtio_queue *queue, struct virtio_chain *chain)
{
	uint16_t count, head;

	if (queue->broken)
		return VIRTIO_QUEUE_BROKEN;
	count = count_available(queue);
	if (count == 0 && queue->event_index) {
		/* Ask for a notification at the next head, then look again: a head made
		 * available before the guest saw the question comes without one (2.7.10). */
		store_field(queue, queue->used, available_event_offset(queue),
			    queue->available_seen);
		atomic_thread_fence(memory_order_seq_cst);
		count = count_available(queue);
	}
	if (count == 0)
		return VIRTIO_QUEUE_EMPTY;
	if (count > queue->size)
		return break_queue(queue);
	head = load_field(queue, queue->available,
			  RING_ENTRIES + UINT64_C(2) * (queue->available_seen & (queue->size - 1)));
	queue->available_seen++;
	return read_chain(queue, head, chain) ? VIRTIO_QUEUE_CHAIN : break_queue(queue);
}

void virtio_queue_push(struct virtio_queue *queue, uint16_t head, uint32_t written)
{
	struct used_element element = {head, written};

	guest_ram_write(queue->ram,
			gpa(queue->used + RING_ENTRIES +
			    sizeof(element) * (queue->used_index & (queue->size - 1))),
			&element, sizeof(element));
	queue->used_index++;
	/* Releases the element and the data before it. */
	store_field(queue, queue->used, RING_INDEX, queue->used_index);
}

bool virtio_queue_wants_interrupt(struct virtio_queue *queue)
{
	uint16_t told = queue->used_index_told;
	uint16_t now = queue->used_index;
	uint16_t event;

	if (now == told)
		return false;
	queue->used_index_told = now;
	/* The guest writes its wish, then looks at the index; we wrote the index, now look at
	 * the wish: one of the two sees the other (2.7.7). */
	atomic_thread_fence(memory_order_seq_cst);
	if (!queue->event_index)
		return !(load_field(queue, queue->available, 0) & AVAILABLE_NO_INTERRUPT);
	event = load_field(queue, queue->available, used_event_offset(queue));
	return (uint16_t)(now - event - 1) < (uint16_t)(now - told);
}

static size_t min_size(uint64_t a, uint64_t b)
{
	return (size_t)(a < b ? a : b);
}

/* Copies up to `size` bytes from `offset` of the parts on; into the guest if `to_guest`. */
static size_t copy_parts(const struct iovec *parts, unsigned count, uint64_t offset, char *bytes,
			 size_t size, bool to_guest)
{
	size_t done = 0;

	for (unsigned i = 0; i < count && done < size; i++) {
		size_t piece;
		char *part;

		if (offset >= parts[i].iov_len) {
			offset -= parts[i].iov_len;
			continue;
		}
		part = (char *)parts[i].iov_base + offset;
		piece = min_size(parts[i].iov_len - offset, size - done);
		memcpy(to_guest ? part : bytes + done, to_guest ? bytes + done : part, piece);
		done += piece;
		offset = 0;
	}
	return done;
}

size_t virtio_chain_read(const struct virtio_chain *chain, uint64_t offset, void *out, size_t size)
{
	return copy_parts(chain->parts, chain->readable_count, offset, out, size, false);
}

size_t virtio_chain_write(const struct virtio_chain *chain, uint64_t offset, const void *bytes,
			  size_t size)
{
	/* They are only read. */
	return copy_parts(chain->parts + chain->readable_count, chain->writable_count, offset,
			  (char *)(uintptr_t)bytes, size, true);
}
