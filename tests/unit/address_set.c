#include "naming/address_set.h"

#include <criterion/criterion.h>

Test(address_set, keeps_each_address_once_with_its_mark_while_it_grows)
{
	struct address_set set = {0};
	size_t place;

	for (int pass = 0; pass < 2; pass++) {
		for (uint64_t i = 1; i <= 50000; i++) {
			cr_assert(address_set_place(&set, i * 4096, &place));
			cr_assert_eq(set.addresses[place], i * 4096);
			cr_assert_eq(set.marks[place], pass ? i % 200 : 0);
			set.marks[place] = (uint8_t)(i % 200);
		}
		cr_assert_eq(set.count, 50000);
	}
	cr_assert_geq(set.capacity, 2 * set.count, "too full to be fast");
	address_set_deinit(&set);
	cr_assert_eq(set.count, 0);
	cr_assert(address_set_place(&set, UINT64_MAX, &place));
	address_set_deinit(&set);
}
