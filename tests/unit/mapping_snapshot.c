/* Mapping snapshots: what a later one says about an earlier one. */
#include "naming/mapping_snapshot.h"

#include <criterion/criterion.h>

static struct mapping_snapshot snapshot, later;

static void clean_up(void)
{
	mapping_snapshot_deinit(&snapshot);
	mapping_snapshot_deinit(&later);
}

TestSuite(mapping_snapshot, .fini = clean_up);

static struct linux_mapping code(uint64_t start, uint64_t end, uint64_t inode)
{
	return (struct linux_mapping){.start = start,
				      .end = end,
				      .executable = true,
				      .kind = LINUX_MAPPING_FILE,
				      .file = {.inode = inode, .mapping = inode, .number = inode},
				      .name = "/bin/file"};
}

static void add(struct mapping_snapshot *to, uint64_t start, uint64_t end, uint64_t inode,
		bool sampled)
{
	struct linux_mapping area = code(start, end, inode);

	cr_assert(mapping_snapshot_add(to, &area, sampled));
}

static bool contradicts(uint64_t start, uint64_t end, uint64_t inode)
{
	struct linux_mapping area = code(start, end, inode);

	return mapping_snapshot_contradicts(&snapshot, &area);
}

Test(mapping_snapshot, finds_the_mapping_of_an_address)
{
	cr_assert_null(mapping_snapshot_find(&snapshot, 0x1000));
	add(&snapshot, 0x1000, 0x2000, 1, false);
	add(&snapshot, 0x3000, 0x5000, 2, true);
	cr_assert_null(mapping_snapshot_find(&snapshot, 0xfff));
	cr_assert_eq(mapping_snapshot_find(&snapshot, 0x1000)->area.file.inode, 1);
	cr_assert_eq(mapping_snapshot_find(&snapshot, 0x1fff)->area.file.inode, 1);
	cr_assert_null(mapping_snapshot_find(&snapshot, 0x2000));
	cr_assert_eq(mapping_snapshot_find(&snapshot, 0x4fff)->area.file.inode, 2);
	cr_assert_null(mapping_snapshot_find(&snapshot, UINT64_MAX));
}

Test(mapping_snapshot, another_file_or_shift_at_a_sampled_place_contradicts_it)
{
	add(&snapshot, 0x1000, 0x2000, 1, false);
	add(&snapshot, 0x3000, 0x5000, 2, true);
	cr_assert_not(contradicts(0x1000, 0x2000, 7), "nothing was sampled there");
	cr_assert_not(contradicts(0x2000, 0x3000, 7));
	cr_assert_not(contradicts(0x5000, 0x6000, 7));
	cr_assert_not(contradicts(0x3000, 0x5000, 2));
	cr_assert(contradicts(0x4000, 0x6000, 7));
	cr_assert(contradicts(0x2000, 0x4000, 2), "the same file, elsewhere");
}

Test(mapping_snapshot, what_was_sampled_outlives_its_mapping)
{
	add(&snapshot, 0x1000, 0x2000, 1, true);
	add(&snapshot, 0x3000, 0x5000, 2, true);
	add(&snapshot, 0x6000, 0x7000, 3, false);
	snapshot.mappings.items[1].written = true;
	add(&later, 0x3000, 0x5000, 2, false);
	add(&later, 0x8000, 0x9000, 4, false);
	mapping_snapshot_update(&snapshot, &later);
	cr_assert_eq(later.mappings.count, 0);
	cr_assert_eq(snapshot.mappings.count, 3);
	cr_assert(mapping_snapshot_find(&snapshot, 0x1000)->sampled);
	cr_assert(mapping_snapshot_find(&snapshot, 0x3000)->sampled);
	cr_assert(mapping_snapshot_find(&snapshot, 0x3000)->written);
	cr_assert_null(mapping_snapshot_find(&snapshot, 0x6000));
	cr_assert_not(mapping_snapshot_find(&snapshot, 0x8000)->sampled);
	mapping_snapshot_trim(&snapshot);
	cr_assert_eq(snapshot.mappings.count, 2);
	cr_assert_null(mapping_snapshot_find(&snapshot, 0x8000));
}

Test(mapping_snapshot, a_mapping_that_grew_or_was_split_is_written_again)
{
	add(&snapshot, 0x3000, 0x5000, 2, true);
	snapshot.mappings.items[0].written = true;
	add(&later, 0x3000, 0x4000, 2, false);
	add(&later, 0x4000, 0x6000, 2, false);
	later.mappings.items[1].area.offset = 0x1000;
	mapping_snapshot_update(&snapshot, &later);
	cr_assert_eq(snapshot.mappings.count, 2);
	for (int i = 0; i < 2; i++) {
		cr_assert(snapshot.mappings.items[i].sampled);
		cr_assert_not(snapshot.mappings.items[i].written);
	}
}

Test(mapping_snapshot, is_bounded)
{
	struct linux_mapping area;
	unsigned added = 0;

	for (uint64_t i = 1; i < 2 * MAPPING_SNAPSHOT_MAX; i++) {
		area = code(i * 0x1000, i * 0x1000 + 0x1000, i);
		added += mapping_snapshot_add(&snapshot, &area, false);
	}
	cr_assert_eq(added, MAPPING_SNAPSHOT_EXECUTABLE_MAX);
	for (uint64_t i = 1; i < 2 * MAPPING_SNAPSHOT_MAX; i++)
		added += mapping_snapshot_add(&snapshot, &area, true);
	cr_assert_eq(added, MAPPING_SNAPSHOT_MAX);
}
