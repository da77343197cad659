/* Looking an address up equals going through the whole list. */
#include "guest-introspection/elf/address_index.h"

#include <criterion/criterion.h>

static uint32_t last_at_or_before(const uint32_t *addresses, uint32_t count, uint32_t wanted)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < count; i++)
		if (addresses[i] <= wanted)
			found = i;
	return found;
}

static void check(const uint32_t *addresses, uint32_t count, unsigned shift, uint32_t limit)
{
	struct address_index index;

	cr_assert_eq(address_index_make(addresses, count, shift, limit, &index), GP_OK);
	cr_assert_leq(index.block_count, limit);
	for (uint32_t i = 0; i < count; i++)
		for (int step = -1; step <= 1; step++) {
			uint32_t wanted = addresses[i] + (uint32_t)step;

			if (addresses[i] + (int64_t)step < addresses[0] ||
			    addresses[i] + (int64_t)step > UINT32_MAX)
				continue;
			cr_assert_eq(address_index_find(&index, addresses, wanted),
				     last_at_or_before(addresses, count, wanted), "%x", wanted);
		}
	cr_assert_eq(address_index_find(&index, addresses, UINT32_MAX), count - 1);
	address_index_deinit(&index);
	cr_assert_null(index.blocks);
}

Test(address_index, finds_what_a_search_through_all_finds)
{
	uint32_t crowded[300], sparse[300], address = 7;

	for (uint32_t i = 0; i < 300; i++) {
		crowded[i] = i * 3;
		sparse[i] = address;
		address += 1 + (i * 2654435761u) % 9000000;
	}
	check(crowded, 300, 0, 1 << 20);
	check(crowded, 300, 6, 1 << 20);
	check(crowded, 300, 6, 2);
	check(sparse, 300, 8, 1 << 18);
	check(sparse, 300, 0, 16);
}

Test(address_index, lists_may_be_short_and_addresses_high)
{
	static const uint32_t one[] = {5}, zero[] = {0}, ends[] = {0, UINT32_MAX};

	check(one, 1, 6, 2);
	check(zero, 1, 0, 2);
	check(ends, 2, 8, 1 << 18);
	check(ends, 2, 0, 2);
}
