/* The guest's memory as the VMM lays it out. */
#include "vmm/devices/guest_ram.h"

#include <criterion/criterion.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

/* KVM maps a huge page only where both addresses are the same within one. */
Test(guest_ram, guest_and_host_addresses_agree_within_a_huge_page)
{
	static const uint64_t sizes[] = {UINT64_C(1) << 20, UINT64_C(129) << 20, UINT64_C(5) << 30};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct guest_ram ram;

		cr_assert_eq(guest_ram_init(&ram, sizes[i], NULL), GP_OK);
		cr_assert_eq(ram.size, sizes[i]);
		cr_assert_eq(ram.region_count, sizes[i] > GUEST_RAM_HOLE_START ? 2 : 1);
		for (unsigned n = 0; n < ram.region_count; n++)
			cr_assert_eq(((uintptr_t)ram.regions[n].host ^ ram.regions[n].gpa) %
					     HUGE_PAGE,
				     0, "%llu bytes, region %u", (unsigned long long)sizes[i], n);
		/* All of it is there, to the last byte. */
		for (unsigned n = 0; n < ram.region_count; n++) {
			const struct guest_ram_region *region = &ram.regions[n];

			region->host[0] = 1;
			region->host[region->size - 1] = 2;
			cr_assert_eq(*(uint8_t *)guest_ram_at(
					     &ram, (gpa_t){region->gpa + region->size - 1}, 1),
				     2);
			cr_assert_null(
				guest_ram_at(&ram, (gpa_t){region->gpa + region->size - 1}, 2));
		}
		guest_ram_deinit(&ram);
	}
}

Test(guest_ram, more_than_an_address_space_is_refused)
{
	struct guest_ram ram;

	cr_assert_neq(guest_ram_init(&ram, UINT64_MAX - (1 << 20) + 1, NULL), GP_OK);
	cr_assert_neq(guest_ram_init(&ram, UINT64_C(1) << 62, NULL), GP_OK);
}
