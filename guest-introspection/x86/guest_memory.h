/* Guest-physical memory as everything above sees it: one read operation.
 *
 * Implementations: the RAM of our own VM (vmm/devices/guest_ram.h), another process's memory, a
 * buffer in a test. There is no write: introspection is read-only by construction.
 */
#ifndef GUEST_INTROSPECTION_X86_GUEST_MEMORY_H
#define GUEST_INTROSPECTION_X86_GUEST_MEMORY_H

#include "base/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct guest_memory {
	/* Required. Copies `size` bytes at `address` to `buffer`. True only when all of them
	 * are backed by memory; false leaves `buffer` in an unspecified state. Must neither
	 * allocate, lock nor block: it is called while a vCPU is stopped. Any thread. */
	bool (*read)(const struct guest_memory *memory, gpa_t address, void *buffer, size_t size);
};

static inline bool guest_memory_read(const struct guest_memory *memory, gpa_t address, void *buffer,
				     size_t size)
{
	return memory->read(memory, address, buffer, size);
}

/* For implementations whose memory is mapped: memcpy(), but one word or two, which most reads
 * ask for (entries of page tables, stacks), are a load instead of a call. */
static inline void guest_memory_copy(void *buffer, const void *from, size_t size)
{
	if (size == sizeof(uint64_t))
		memcpy(buffer, from, sizeof(uint64_t));
	else if (size == 2 * sizeof(uint64_t))
		memcpy(buffer, from, 2 * sizeof(uint64_t));
	else
		memcpy(buffer, from, size);
}

#endif
