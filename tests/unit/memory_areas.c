/* Lists of mappings: what may be guest memory, and what is one mapping in several lines. */
#include "attach/memory_areas.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

static struct memory_areas parse(const char *maps)
{
	struct memory_areas areas;

	memory_areas_parse(maps, &areas);
	return areas;
}

Test(memory_areas, large_writable_mappings_are_found_the_largest_first)
{
	struct memory_areas areas =
		parse("55d0c0000000-55d0c0800000 r-xp 00000000 08:01 77 /usr/bin/qemu\n"
		      "55d0c1000000-55d0c3000000 rw-p 00000000 00:00 0 [heap]\n"
		      "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n"
		      "7f1000000000-7f1040000000 rw-s 00001000 00:01 1234 /memfd:ram (deleted)\n"
		      "7f1050000000-7f1060000000 r--p 00000000 08:01 78 /usr/share/rom\n"
		      "7f2000000000-7f2000003000 rw-s 00000000 00:0e 99 anon_inode:kvm-vcpu:0\n"
		      "7ffd00000000-7ffd00400000 rw-p 00000000 00:00 0 [stack]\n");

	cr_assert_eq(areas.count, 2);
	cr_assert_eq(areas.areas[0].start, 0x7f1000000000);
	cr_assert_eq(areas.areas[0].size, UINT64_C(1) << 30);
	cr_assert(areas.areas[0].shared);
	cr_assert_eq(areas.areas[0].inode, 1234);
	cr_assert_eq(areas.areas[0].device, makedev(0, 1));
	cr_assert_eq(areas.areas[0].offset, 0x1000);
	cr_assert_eq(areas.areas[1].size, UINT64_C(2) << 20);
	cr_assert(!areas.areas[1].shared);
}

Test(memory_areas, parts_of_one_file_that_go_on_are_one_area)
{
	struct memory_areas areas =
		parse("7f1000000000-7f1000400000 rw-s 00000000 00:01 5 /memfd:ram (deleted)\n"
		      "7f1000400000-7f1000800000 rw-s 00400000 00:01 5 /memfd:ram (deleted)\n"
		      "7f1000800000-7f1000c00000 rw-s 00000000 00:01 5 /memfd:ram (deleted)\n");

	cr_assert_eq(areas.count, 2);
	cr_assert_eq(areas.areas[0].size, 8 << 20);
	cr_assert_eq(areas.areas[1].start, 0x7f1000800000);
}

Test(memory_areas, anonymous_neighbours_stay_apart)
{
	/* Their flags differ: one is the guest's, with huge pages, the other is not. */
	struct memory_areas areas = parse("7f1000000000-7f1000200000 rw-p 00000000 00:00 0 \n"
					  "7f1000200000-7f1001200000 rw-p 00000000 00:00 0 \n");

	cr_assert_eq(areas.count, 2);
	cr_assert_eq(areas.areas[0].start, 0x7f1000200000);
}

Test(memory_areas, of_too_many_the_largest_stay)
{
	char maps[64 * 80] = "";
	struct memory_areas areas;

	for (unsigned i = 0; i < 64; i++)
		snprintf(maps + strlen(maps), 80, "%llx-%llx rw-p 00000000 00:00 0 \n",
			 0x7f0000000000ull + i * 0x10000000ull,
			 0x7f0000000000ull + i * 0x10000000ull + ((i * 7 % 64) + 1) * 0x100000ull);
	areas = parse(maps);
	cr_assert_eq(areas.count, MEMORY_AREAS_MAX);
	for (unsigned i = 0; i < MEMORY_AREAS_MAX; i++)
		cr_assert_eq(areas.areas[i].size, (uint64_t)(64 - i) << 20);
}

Test(memory_areas, what_is_no_line_is_passed_over)
{
	cr_assert_eq(parse("").count, 0);
	cr_assert_eq(parse("\n\n").count, 0);
	cr_assert_eq(parse("7f1000000000 rw-p\nxyz\n-\n").count, 0);
	cr_assert_eq(parse("2000000-1000000 rw-p 00000000 00:00 0 \n").count, 0);
	cr_assert_eq(parse("7f1000000000-7f1010000000 rw-p 00000000 00:00 0").count, 1);
}
