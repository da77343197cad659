/* Mappings of processes, from made-up memory and from that of real kernels. */
#include "guest-introspection/linux/linux_mappings.h"

#include "base/cleanup.h"
#include "tests/linux_layouts.h"
#include "tests/unit/tasks_image.h"

struct maps_check {
	char *text; /* what /proc/PID/maps would say, as far as it is compared */
	size_t size;
	FILE *stream;
	unsigned anonymous;
};

/* A line of /proc/PID/maps (fs/proc/task_mmu.c); of the name only newlines are escaped there. */
static bool print_mapping(void *context, const struct linux_mapping *mapping)
{
	struct maps_check *check = context;
	char line[256];
	int width = snprintf(line, sizeof(line), "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu ",
			     (unsigned long)mapping->start, (unsigned long)mapping->end,
			     mapping->readable ? 'r' : '-', mapping->writable ? 'w' : '-',
			     mapping->executable ? 'x' : '-', mapping->shared ? 's' : 'p',
			     (unsigned long)mapping->offset, mapping->file.device_major,
			     mapping->file.device_minor, (unsigned long)mapping->file.number);

	fputs(line, check->stream);
	if (mapping->name[0])
		for (; width < 73; width++)
			fputc(' ', check->stream);
	for (const char *at = mapping->name; *at; at++)
		if (*at == '\n')
			fputs("\\012", check->stream);
		else
			fputc(*at, check->stream);
	fputc('\n', check->stream);
	return true;
}

/* Tells the first line that differs. */
static void expect_same_lines(const char *image, unsigned pid, const char *found, const char *truth)
{
	while (*found || *truth) {
		size_t length = strcspn(found, "\n");
		size_t wanted = strcspn(truth, "\n");

		cr_assert(length == wanted && memcmp(found, truth, length) == 0,
			  "%s, process %u:\n%.*s\nis not\n%.*s", image, pid, (int)length, found,
			  (int)wanted, truth);
		found += length + (found[length] != 0);
		truth += wanted + (truth[wanted] != 0);
	}
}

static bool count_mapping(void *context, const struct linux_mapping *mapping)
{
	unsigned *left = context;

	cr_assert(mapping->start < mapping->end);
	return --*left > 0;
}

Test(linux_mappings, every_process_equals_proc_maps)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		unsigned compared = 0;
		unsigned lines = 0;

		if (!tasks_image_init(&image, names[i]))
			continue;
		for (unsigned k = 0; k < image.process_count; k++) {
			struct maps_check check = {0};
			struct linux_mappings_walk walk;
			AUTO_FREE char *truth =
				tasks_image_section(&image, "maps", image.processes[k].pid);

			if (!truth || !image.processes[k].mm ||
			    !tasks_image_is_settled(&image, image.processes[k].pid))
				continue;
			check.stream = open_memstream(&check.text, &check.size);
			walk = linux_mappings_walk(&image.mappings, image.processes[k].mm,
						   print_mapping, &check);
			fclose(check.stream);
			cr_assert(walk.complete, "%s: %u", names[i], image.processes[k].pid);
			expect_same_lines(names[i], image.processes[k].pid, check.text, truth);
			compared++;
			lines += walk.count;
			free(check.text);
		}
		cr_assert_gt(compared, 30, "%s: %u", names[i], compared);
		cr_log_info("%s: %u processes, %u mappings equal", names[i], compared, lines);
		tasks_image_deinit(&image);
	}
}

Test(linux_mappings, a_walk_ends_when_it_is_told_to)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	struct tasks_image image;
	unsigned tried = 0;

	tasks_image_list(names);
	cr_assert(tasks_image_init(&image, names[0]));
	for (unsigned k = 0; k < image.process_count; k++) {
		unsigned left = 3;
		struct linux_mappings_walk walk;
		AUTO_FREE char *truth = tasks_image_section(&image, "maps", image.processes[k].pid);

		/* One that came later may be about to start its program, with a stack alone. */
		if (!truth || !image.processes[k].mm ||
		    !tasks_image_is_settled(&image, image.processes[k].pid))
			continue;
		tried++;
		walk = linux_mappings_walk(&image.mappings, image.processes[k].mm, count_mapping,
					   &left);
		cr_assert_eq(walk.count, 3);
		cr_assert(!walk.complete);
	}
	cr_assert_gt(tried, 30);
	tasks_image_deinit(&image);
}

/* A made-up guest. */

#define WORLD_SIZE (1u << 20)
#define WORLD_MM 0x1000u
#define VM_READ 1u
#define VM_EXEC 4u

struct world {
	uint8_t *bytes;
	struct buffer_memory memory;
	struct linux_files files;
	struct linux_mappings mappings;
	uint64_t next; /* free bytes; nodes need their alignment */
	uint64_t reads;
};

static void world_init(struct world *world)
{
	world->bytes = calloc(1, WORLD_SIZE);
	world->memory = buffer_memory_over(world->bytes, WORLD_SIZE);
	world->reads = 0;
	world->memory.reads = &world->reads;
	world->files = layout_files(&world->memory.memory);
	world->mappings = layout_mappings(&world->files);
	world->next = 0x2000;
}

static void world_deinit(struct world *world)
{
	free(world->bytes);
}

static uint64_t take(struct world *world, size_t size)
{
	uint64_t address = world->next;

	world->next += (size + 255) & ~(size_t)255;
	cr_assert_leq(world->next, WORLD_SIZE);
	return address;
}

static void put(struct world *world, uint64_t address, uint64_t value)
{
	buffer_put(&world->memory, address, value, 8);
}

static uint64_t add_area(struct world *world, uint64_t start, uint64_t end, uint64_t flags)
{
	uint64_t area = take(world, LAYOUT_AREA_SIZE);

	put(world, area + world->mappings.area_start, start);
	put(world, area + world->mappings.area_end, end);
	put(world, area + world->mappings.area_mm, WORLD_MM);
	put(world, area + world->mappings.area_flags, flags);
	return area;
}

enum node_type { LEAF = 1, RANGE, ALLOCATION };

/* An entry for an empty node, as its parent has it. */
static uint64_t add_node(struct world *world, enum node_type type)
{
	return take(world, 256) | (uint64_t)type << 3 | 4;
}

static void put_slot(struct world *world, uint64_t node, unsigned slot, uint64_t pivot,
		     uint64_t entry)
{
	const struct linux_mappings *mappings = &world->mappings;
	uint64_t address = node & ~UINT64_C(0xff);
	bool allocation = (node >> 3 & 15) == ALLOCATION;
	uint32_t pivots = allocation ? mappings->allocation_pivots : mappings->range_pivots;

	if (slot < pivots)
		put(world,
		    address + slot * 8 +
			    (allocation ? mappings->node_allocation_pivots
					: mappings->node_range_pivots),
		    pivot);
	put(world,
	    address + slot * 8 +
		    (allocation ? mappings->node_allocation_slots : mappings->node_range_slots),
	    entry);
}

static void put_root(struct world *world, uint64_t node)
{
	put(world, WORLD_MM + world->mappings.mm_tree, node | 2);
}

struct seen {
	unsigned count;
	uint64_t starts[512];
	char names[16][LINUX_PATH_SIZE];
	enum linux_mapping_kind kinds[16];
};

static bool see(void *context, const struct linux_mapping *mapping)
{
	struct seen *seen = context;

	if (seen->count < 512)
		seen->starts[seen->count] = mapping->start;
	if (seen->count < 16) {
		seen->kinds[seen->count] = mapping->kind;
		snprintf(seen->names[seen->count], LINUX_PATH_SIZE, "%s", mapping->name);
	}
	seen->count++;
	return true;
}

static struct linux_mappings_walk walk(struct world *world, struct seen *seen)
{
	memset(seen, 0, sizeof(*seen));
	return linux_mappings_walk(&world->mappings, WORLD_MM, see, seen);
}

Test(linux_mappings, a_tree_of_all_kinds_of_nodes_is_walked_in_order)
{
	struct world world;
	struct seen seen;
	struct linux_mappings_walk result;
	uint64_t root;
	uint64_t range;
	uint64_t full;
	uint64_t part;

	world_init(&world);
	/* Full: 16 entries, of which the last has no pivot. Part: three, the last pivot is 0,
	 * behind it what an earlier use has left. */
	full = add_node(&world, LEAF);
	for (unsigned i = 0; i < 16; i++)
		put_slot(&world, full, i, 0x10000 + i * 0x1000 + 0xfff,
			 add_area(&world, 0x10000 + i * 0x1000, 0x11000 + i * 0x1000, VM_READ));
	part = add_node(&world, LEAF);
	put_slot(&world, part, 0, 0x2ffff, 0); /* a gap */
	put_slot(&world, part, 1, 0x30fff, add_area(&world, 0x30000, 0x31000, VM_EXEC));
	put_slot(&world, part, 2, 0, add_area(&world, 0x40000, 0x41000, VM_READ));
	put_slot(&world, part, 3, 0x777, add_area(&world, 0x50000, 0x51000, VM_READ));
	range = add_node(&world, RANGE);
	put_slot(&world, range, 0, 0x1ffff, full);
	put_slot(&world, range, 1, 0x4ffff, part);
	put_slot(&world, range, 2, 0x777, full); /* behind the node's maximum */
	root = add_node(&world, ALLOCATION);
	put_slot(&world, root, 0, 0x4ffff, range);
	part = add_node(&world, LEAF);
	put_slot(&world, part, 0, UINT64_MAX, add_area(&world, 0x60000, 0x61000, VM_READ));
	put_slot(&world, part, 1, 0, add_area(&world, 0x70000, 0x71000, VM_READ));
	put_slot(&world, root, 1, UINT64_MAX, part);
	put_root(&world, root);

	result = walk(&world, &seen);
	cr_assert(result.complete);
	cr_assert_eq(result.count, 19, "%u", result.count);
	for (unsigned i = 0; i < 16; i++)
		cr_assert_eq(seen.starts[i], 0x10000 + i * 0x1000);
	cr_assert_eq(seen.starts[16], 0x30000);
	cr_assert_eq(seen.starts[17], 0x40000);
	cr_assert_eq(seen.starts[18], 0x60000);
	world_deinit(&world);
}

Test(linux_mappings, before_6_1_mappings_are_a_list)
{
	struct world world;
	struct seen seen;
	struct linux_mappings_walk result;
	uint64_t last = 0;

	world_init(&world);
	world.mappings.mm_tree = LINUX_MEMBER_MISSING;
	for (unsigned i = 5; i > 0; i--) {
		uint64_t area = add_area(&world, i * 0x10000, i * 0x10000 + 0x1000, VM_READ);

		put(&world, area + world.mappings.area_next, last);
		last = area;
	}
	put(&world, WORLD_MM + world.mappings.mm_list, last);
	result = walk(&world, &seen);
	cr_assert(result.complete);
	cr_assert_eq(seen.count, 5);
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(seen.starts[i], (i + 1) * 0x10000);

	/* One that goes in a circle ends. */
	put(&world, last + world.mappings.area_next, last);
	result = walk(&world, &seen);
	cr_assert(!result.complete);
	cr_assert_eq(seen.count, 1);
	world_deinit(&world);
}

Test(linux_mappings, the_kernels_names_are_told)
{
	struct world world;
	struct seen seen;
	uint64_t leaf;
	uint64_t area;
	uint64_t special;
	uint64_t text;

	world_init(&world);
	leaf = add_node(&world, LEAF);
	put(&world, WORLD_MM + world.mappings.mm_heap_start, 0x10800);
	put(&world, WORLD_MM + world.mappings.mm_heap_end, 0x11000);
	put(&world, WORLD_MM + world.mappings.mm_stack_start, 0x30800);
	put_slot(&world, leaf, 0, 0x10fff, add_area(&world, 0x10000, 0x11000, VM_READ));
	area = add_area(&world, 0x20000, 0x21000, VM_READ);
	text = take(&world, 64);
	memcpy(world.bytes + text + world.mappings.name_text, "by hand", 8);
	put(&world, area + world.mappings.area_name, text);
	put_slot(&world, leaf, 1, 0x20fff, area);
	put_slot(&world, leaf, 2, 0x30fff, add_area(&world, 0x30000, 0x31000, VM_READ));
	area = add_area(&world, 0x40000, 0x41000, VM_EXEC);
	special = take(&world, 64);
	text = take(&world, 64);
	memcpy(world.bytes + text, "[vdso]", 7);
	put(&world, special + world.mappings.special_name, text);
	put(&world, area + world.mappings.area_operations, LAYOUT_SPECIAL_OPERATIONS);
	put(&world, area + world.mappings.area_private, special);
	put_slot(&world, leaf, 3, UINT64_MAX, area);
	put_root(&world, leaf);

	cr_assert(walk(&world, &seen).complete);
	cr_assert_eq(seen.count, 4);
	cr_assert_str_eq(seen.names[0], "[heap]");
	cr_assert_eq(seen.kinds[0], LINUX_MAPPING_HEAP);
	cr_assert_str_eq(seen.names[1], "[anon:by hand]");
	cr_assert_eq(seen.kinds[1], LINUX_MAPPING_ANONYMOUS);
	cr_assert_str_eq(seen.names[2], "[stack]");
	cr_assert_str_eq(seen.names[3], "[vdso]");
	cr_assert_eq(seen.kinds[3], LINUX_MAPPING_SPECIAL);
	world_deinit(&world);
}

Test(linux_mappings, what_is_not_rising_or_another_process_s_is_left_out)
{
	struct world world;
	struct seen seen;
	struct linux_mappings_walk result;
	uint64_t leaf;
	uint64_t foreign;

	world_init(&world);
	leaf = add_node(&world, LEAF);
	foreign = add_area(&world, 0x20000, 0x21000, VM_READ);
	put(&world, foreign + world.mappings.area_mm, 0x666000);
	put_slot(&world, leaf, 0, 0x10fff, add_area(&world, 0x10000, 0x12000, VM_READ));
	put_slot(&world, leaf, 1, 0x11fff, add_area(&world, 0x11000, 0x13000, VM_READ));
	put_slot(&world, leaf, 2, 0x20fff, foreign);
	put_slot(&world, leaf, 3, 0x30fff, add_area(&world, 0x31000, 0x30000, VM_READ));
	put_slot(&world, leaf, 4, 0x40fff, WORLD_SIZE * 2); /* not in memory */
	put_slot(&world, leaf, 5, UINT64_MAX, add_area(&world, 0x50000, 0x51000, VM_READ));
	put_root(&world, leaf);
	result = walk(&world, &seen);
	cr_assert(!result.complete);
	cr_assert_eq(seen.count, 2, "%u", seen.count);
	cr_assert_eq(seen.starts[1], 0x50000);
	world_deinit(&world);
}

Test(linux_mappings, a_tree_that_contains_itself_costs_a_bounded_time)
{
	struct world world;
	struct seen seen;
	struct linux_mappings_walk result;
	uint64_t node;

	world_init(&world);
	node = add_node(&world, RANGE);
	for (unsigned i = 0; i < 16; i++)
		put_slot(&world, node, i, (i + 1) << 20, node);
	put_root(&world, node);
	result = walk(&world, &seen);
	cr_assert(!result.complete);
	cr_assert_eq(seen.count, 0);
	cr_assert_lt(world.reads, 100000, "%llu", (unsigned long long)world.reads);
	world_deinit(&world);
}

/* Paths. */

static uint64_t add_dentry(struct world *world, const char *name, uint64_t parent)
{
	uint64_t dentry = take(world, 64);
	uint64_t text = take(world, 256);

	memcpy(world->bytes + text, name, strlen(name));
	put(world, dentry + world->files.dentry_parent, parent ? parent : dentry);
	put(world, dentry + world->files.dentry_name, text);
	buffer_put(&world->memory, dentry + world->files.dentry_name_length, strlen(name), 4);
	put(world, dentry + world->files.dentry_hashed, 1);
	return dentry;
}

/* `parent` 0: mounted nowhere, the root of all. */
static uint64_t add_mount(struct world *world, uint64_t root, uint64_t parent, uint64_t mountpoint)
{
	uint64_t mount = take(world, 64);

	put(world, mount + world->files.mount_parent, parent ? parent : mount);
	put(world, mount + world->files.mount_mountpoint, mountpoint);
	put(world, mount + world->files.mount_vfsmount + world->files.vfsmount_root, root);
	return mount;
}

static uint64_t add_file(struct world *world, uint64_t mount, uint64_t dentry)
{
	uint64_t file = take(world, 64);

	put(world, file + world->files.file_mount, mount + world->files.mount_vfsmount);
	put(world, file + world->files.file_dentry, dentry);
	return file;
}

static const char *path_of(struct world *world, uint64_t file)
{
	static char path[LINUX_PATH_SIZE];
	unsigned steps = LINUX_PATH_STEPS;

	return linux_file_path(&world->files, file, &steps, path) ? path : NULL;
}

Test(linux_file, paths_go_up_through_mounts)
{
	struct world world;
	uint64_t outer_root;
	uint64_t outer;
	uint64_t inner_root;
	uint64_t inner;
	uint64_t file;
	uint64_t operations;

	world_init(&world);
	outer_root = add_dentry(&world, "/", 0);
	outer = add_mount(&world, outer_root, 0, outer_root);
	inner_root = add_dentry(&world, "/", 0);
	inner = add_mount(&world, inner_root, outer,
			  add_dentry(&world, "mnt", add_dentry(&world, "srv", outer_root)));
	file = add_dentry(&world, "lib.so", add_dentry(&world, "dir", inner_root));
	cr_assert_str_eq(path_of(&world, add_file(&world, inner, file)), "/srv/mnt/dir/lib.so");
	cr_assert_str_eq(path_of(&world, add_file(&world, inner, inner_root)), "/srv/mnt");
	cr_assert_str_eq(path_of(&world, add_file(&world, outer, outer_root)), "/");

	put(&world, file + world.files.dentry_hashed, 0);
	cr_assert_str_eq(path_of(&world, add_file(&world, inner, file)),
			 "/srv/mnt/dir/lib.so (deleted)");

	/* Files without a directory name themselves. */
	file = add_dentry(&world, "memfd:jit", 0);
	operations = take(&world, 64);
	put(&world, operations + world.files.operations_name, LAYOUT_SIMPLE_NAME);
	put(&world, file + world.files.dentry_operations, operations);
	cr_assert_str_eq(path_of(&world, add_file(&world, inner, file)), "/memfd:jit (deleted)");
	put(&world, operations + world.files.operations_name, LAYOUT_ANONYMOUS_NAME);
	cr_assert_str_eq(path_of(&world, add_file(&world, inner, file)), "anon_inode:memfd:jit");
	world_deinit(&world);
}

Test(linux_file, of_a_file_below_another_file_system_the_opened_path_is_told)
{
	struct world world;
	struct linux_file found;
	uint64_t root;
	uint64_t mount;
	uint64_t file;
	uint64_t lower;
	uint64_t upper;
	uint64_t upper_inode;
	uint64_t lower_inode;
	uint64_t device;

	world_init(&world);
	root = add_dentry(&world, "/", 0);
	mount = add_mount(&world, root, 0, root);
	lower = add_dentry(&world, "lower", root);
	upper = add_dentry(&world, "upper", root);
	file = add_file(&world, mount, lower);
	lower_inode = take(&world, 64);
	upper_inode = take(&world, 64);
	device = take(&world, 64);
	put(&world, lower_inode + world.files.inode_number, 1);
	put(&world, lower_inode + world.files.inode_size, 5000);
	put(&world, lower_inode + world.files.inode_superblock, device);
	put(&world, upper_inode + world.files.inode_number, 2);
	put(&world, upper_inode + world.files.inode_superblock, device);
	put(&world, file + world.files.file_inode, lower_inode);
	put(&world, upper + world.files.dentry_inode, upper_inode);
	put(&world, file + world.files.backing_mount, mount + world.files.mount_vfsmount);
	put(&world, file + world.files.backing_dentry, upper);

	cr_assert_str_eq(path_of(&world, file), "/lower");
	cr_assert(linux_file_read(&world.files, file, &found));
	cr_assert_eq(found.number, 1);
	/* Only with the flag, and only what is one path. */
	put(&world, mount + world.files.mount_vfsmount + world.files.vfsmount_superblock, device);
	put(&world, file + world.files.file_mode, 1 << 29);
	cr_assert_str_eq(path_of(&world, file), "/lower");
	put(&world, upper + world.files.dentry_superblock, device);
	cr_assert_str_eq(path_of(&world, file), "/upper");
	cr_assert(linux_file_read(&world.files, file, &found));
	cr_assert_eq(found.number, 2);
	cr_assert_eq(found.inode, lower_inode);
	cr_assert_eq(found.size, 5000);
	world_deinit(&world);
}

Test(linux_file, paths_that_do_not_end_are_none)
{
	struct world world;
	uint64_t root;
	uint64_t mount;
	uint64_t one;
	uint64_t two;
	unsigned steps = 10;
	char path[LINUX_PATH_SIZE];

	world_init(&world);
	root = add_dentry(&world, "/", 0);
	mount = add_mount(&world, root, 0, root);
	one = add_dentry(&world, "one", root);
	two = add_dentry(&world, "two", one);
	put(&world, one + world.files.dentry_parent, two);
	cr_assert_null(path_of(&world, add_file(&world, mount, two)));
	cr_assert_eq(linux_file_path(&world.files, add_file(&world, mount, two), &steps, path), 0);
	cr_assert_eq(steps, 0);
	/* Mounts in a circle. */
	two = add_mount(&world, root, mount, root);
	put(&world, mount + world.files.mount_parent, two);
	cr_assert_null(path_of(&world, add_file(&world, mount, root)));
	/* A name longer than names are. */
	mount = add_mount(&world, root, 0, root);
	one = add_dentry(&world, "one", root);
	buffer_put(&world.memory, one + world.files.dentry_name_length, 256, 4);
	cr_assert_null(path_of(&world, add_file(&world, mount, one)));
	world_deinit(&world);
}
