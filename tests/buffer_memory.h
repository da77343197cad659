/* Guest memory in a buffer, with page tables built in it, for tests, fuzzers and benches. */
#ifndef TESTS_BUFFER_MEMORY_H
#define TESTS_BUFFER_MEMORY_H

#include "base/container.h"
#include "guest-introspection/x86/guest_memory.h"

#include <string.h>

struct buffer_memory {
	struct guest_memory memory;
	uint8_t *bytes; /* gpa 0 up */
	uint64_t size;
	uint64_t next_table; /* gpa of the next free page for a page table */
	uint64_t *reads;     /* counts reads; may be NULL */
};

static inline bool buffer_memory_read(const struct guest_memory *memory, gpa_t address,
				      void *buffer, size_t size)
{
	const struct buffer_memory *self =
		container_of((struct guest_memory *)memory, struct buffer_memory, memory);

	if (self->reads)
		++*self->reads;
	if (address.value > self->size || size > self->size - address.value)
		return false;
	guest_memory_copy(buffer, self->bytes + address.value, size);
	return true;
}

static inline struct buffer_memory buffer_memory_over(void *bytes, uint64_t size)
{
	return (struct buffer_memory){
		.memory = {.read = buffer_memory_read}, .bytes = bytes, .size = size};
}

/* Puts a value of up to 8 bytes at a guest-physical address. */
static inline void buffer_put(struct buffer_memory *self, uint64_t address, uint64_t value,
			      unsigned size)
{
	memcpy(self->bytes + address, &value, size);
}

static inline uint64_t buffer_get(struct buffer_memory *self, uint64_t address, unsigned size)
{
	uint64_t value = 0;

	memcpy(&value, self->bytes + address, size);
	return value;
}

#define PAGE_PRESENT UINT64_C(1)
#define PAGE_WRITABLE UINT64_C(2)
#define PAGE_USER UINT64_C(4)
#define PAGE_LARGE UINT64_C(0x80)
#define PAGE_NO_EXECUTE (UINT64_C(1) << 63)

/* Maps one page at the level where its size is 4 KiB << (9 * (leaf_level - 1)), in tables of
 * `levels` levels with 8-byte entries below `root`. Upper levels allow everything. */
static inline void buffer_map(struct buffer_memory *self, uint64_t root, unsigned levels,
			      uint64_t virtual_address, uint64_t entry, unsigned leaf_level)
{
	uint64_t table = root;

	for (unsigned level = levels; level > leaf_level; level--) {
		uint64_t slot = table + ((virtual_address >> (12 + 9 * (level - 1))) & 0x1ff) * 8;
		uint64_t next = buffer_get(self, slot, 8);

		if (!next) {
			next = self->next_table | PAGE_PRESENT;
			if (!(levels == 3 && level == 3))
				next |= PAGE_WRITABLE | PAGE_USER;
			self->next_table += 4096;
			buffer_put(self, slot, next, 8);
		}
		table = next & UINT64_C(0x000ffffffffff000);
	}
	buffer_put(self, table + ((virtual_address >> (12 + 9 * (leaf_level - 1))) & 0x1ff) * 8,
		   entry, 8);
}

#endif
