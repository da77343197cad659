#include "guest-introspection/elf/address_index.h"

#include <stdlib.h>

gp_status_t address_index_make(const uint32_t *addresses, uint32_t count, unsigned block_shift,
			       uint32_t block_limit, struct address_index *out)
{
	uint64_t size = (uint64_t)addresses[count - 1] + 1;
	struct address_index made = {.block_shift = block_shift};
	uint32_t item = 0;

	while ((size >> made.block_shift) + 1 > block_limit)
		made.block_shift++;
	made.block_count = (uint32_t)(size >> made.block_shift) + 1;
	made.blocks = malloc(address_index_bytes(&made));
	if (!made.blocks)
		return GP_ERR_NO_MEMORY;
	for (uint32_t block = 0; block < made.block_count; block++) {
		uint64_t first = (uint64_t)block << made.block_shift;

		while (item + 1 < count && addresses[item + 1] <= first)
			item++;
		made.blocks[block] = item;
	}
	made.blocks[made.block_count] = count - 1;
	*out = made;
	return GP_OK;
}

void address_index_deinit(struct address_index *index)
{
	free(index->blocks);
	*index = (struct address_index){0};
}
