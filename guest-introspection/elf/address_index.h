/* Which item of a sorted list of addresses holds for an address: a list of functions or of unwind
 * rules, looked up with a vCPU stopped.
 *
 * Addresses are cut into blocks of equal size, and for each block the index says where in the list
 * it begins: what is left to search is a handful of items, whatever the length of the list.
 */
#ifndef GUEST_INTROSPECTION_ELF_ADDRESS_INDEX_H
#define GUEST_INTROSPECTION_ELF_ADDRESS_INDEX_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct address_index {
	uint32_t *blocks; /* the last item at or before each block's first byte; one block more */
	uint32_t block_count;
	unsigned block_shift;
};

/* Of `count` >= 1 addresses, rising; blocks are 1 << `block_shift` bytes, or more so that there are
 * no more than `block_limit` >= 2 of them. GP_ERR_NO_MEMORY leaves `out` untouched. */
gp_status_t address_index_make(const uint32_t *addresses, uint32_t count, unsigned block_shift,
			       uint32_t block_limit, struct address_index *out);

void address_index_deinit(struct address_index *index);

static inline size_t address_index_bytes(const struct address_index *index)
{
	return ((size_t)index->block_count + 1) * sizeof(*index->blocks);
}

/* The last item at or before `wanted`, which is not below the first. `addresses` are those that
 * the index was made of. */
static inline uint32_t address_index_find(const struct address_index *index,
					  const uint32_t *addresses, uint32_t wanted)
{
	uint32_t block = (uint32_t)((uint64_t)wanted >> index->block_shift); /* by up to 32 */
	uint32_t low;
	uint32_t high;

	if (block >= index->block_count)
		return index->blocks[index->block_count];
	low = index->blocks[block];
	high = index->blocks[block + 1];
	while (low < high) {
		uint32_t middle = low + (high - low + 1) / 2;

		if (addresses[middle] <= wanted)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

#endif
