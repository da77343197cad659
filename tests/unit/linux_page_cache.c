/* Files out of the page cache, of made-up memory and of real kernels. */
#include "guest-introspection/linux/linux_page_cache.h"

#include "base/cleanup.h"
#include "guest-introspection/linux/linux_file.h"
#include "tests/linux_layouts.h"
#include "tests/unit/tasks_image.h"

struct wanted_file {
	const char *path;
	struct linux_file file;
	bool found;
};

static bool look_for_file(void *context, const struct linux_mapping *mapping)
{
	struct wanted_file *wanted = context;

	if (mapping->kind == LINUX_MAPPING_FILE && strcmp(mapping->name, wanted->path) == 0) {
		wanted->file = mapping->file;
		wanted->found = true;
	}
	return !wanted->found;
}

/* What the guest has at `path`, as the image keeps it. */
static char *host_copy(const char *image, const char *path, size_t *size)
{
	const char *name = strrchr(path, '/') + 1;
	char file[256];

	if (strcmp(name, "file") == 0 || strcmp(name, "mounted") == 0)
		name = "plain";
	if (strcmp(name, "small") == 0) /* its first page */
		name = "pattern";
	snprintf(file, sizeof(file), "files/%s", name);
	return tasks_image_text(image, file, size);
}

static void compare_pages(struct tasks_image *image, const struct linux_file *file,
			  const char *path, const char *truth, unsigned *equal)
{
	size_t size;
	AUTO_FREE char *bytes = host_copy(image->base.name, path, &size);
	struct linux_cached_file cached;

	linux_cached_file_init(&cached, &image->cache, file);
	cr_assert(bytes, "%s", path);
	for (size_t page = 0; truth[page] == '0' || truth[page] == '1'; page++) {
		size_t offset = page * 4096;
		size_t left = file->size - offset < 4096 ? file->size - offset : 4096;
		char found[4096];
		gpa_t gpa;
		bool is_cached = truth[page] == '1';

		cr_assert_eq(linux_page_cache_find(&image->cache, file->mapping, page, &gpa),
			     is_cached, "%s: page %zu of %s", image->base.name, page, path);
		cr_assert_eq(file_source_read(&cached.source, offset, found, 4096),
			     is_cached ? left : 0, "%s: page %zu of %s", image->base.name, page,
			     path);
		/* The file of huge pages has the other one twice. */
		if (is_cached)
			cr_assert_eq(memcmp(found, bytes + offset % size, left), 0,
				     "%s: page %zu of %s", image->base.name, page, path);
		*equal += is_cached;
	}
}

Test(linux_page_cache, every_cached_page_equals_the_file)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		AUTO_FREE char *truth = NULL;
		char *line;
		char *rest;
		unsigned files = 0;
		unsigned equal = 0;

		if (!tasks_image_init(&image, names[i]))
			continue;
		truth = tasks_image_text(names[i], "cached", NULL);
		cr_assert(truth);
		for (line = strtok_r(truth, "\n", &rest); line;
		     line = strtok_r(NULL, "\n", &rest)) {
			struct wanted_file wanted = {.path = line};
			char *size = strchr(line, ' ');
			char *pages;

			cr_assert(size);
			*size++ = '\0';
			pages = strchr(size, ' ');
			cr_assert(pages);
			for (unsigned k = 0; k < image.process_count && !wanted.found; k++)
				if (image.processes[k].mm)
					linux_mappings_walk(&image.mappings, image.processes[k].mm,
							    look_for_file, &wanted);
			if (!wanted.found)
				continue; /* nobody maps it */
			cr_assert_eq(wanted.file.size, strtoull(size, NULL, 10));
			compare_pages(&image, &wanted.file, line, pages + 1, &equal);
			files++;
		}
		cr_assert_geq(files, 10, "%s: %u", names[i], files);
		cr_log_info("%s: %u pages of %u files equal", names[i], equal, files);
		tasks_image_deinit(&image);
	}
}

/* A made-up guest: pages of 4 KiB in a buffer, struct pages at PAGE_ARRAY, one file. */

#define WORLD_SIZE (1u << 20)
#define PAGE_ARRAY 0x8000u
#define MAPPING 0x2000u

struct world {
	uint8_t *bytes;
	struct buffer_memory memory;
	struct linux_page_cache cache;
	uint64_t next_node;
};

static void world_init(struct world *world)
{
	world->bytes = calloc(1, WORLD_SIZE);
	world->memory = buffer_memory_over(world->bytes, WORLD_SIZE);
	world->cache = layout_page_cache(&world->memory.memory, PAGE_ARRAY);
	world->next_node = 0x4000;
	for (unsigned frame = 0x40; frame < WORLD_SIZE / 4096; frame++)
		memset(world->bytes + frame * 4096, (int)frame, 4096);
}

/* The struct page of a frame, said to be page `index` of the file. */
static uint64_t put_page(struct world *world, unsigned frame, uint64_t index)
{
	uint64_t page = PAGE_ARRAY + frame * 64;

	buffer_put(&world->memory, page + world->cache.page_mapping, MAPPING, 8);
	buffer_put(&world->memory, page + world->cache.page_index, index, 8);
	return page;
}

static uint64_t add_node(struct world *world, unsigned shift)
{
	uint64_t node = world->next_node;

	world->next_node += 1024;
	world->bytes[node + world->cache.node_shift] = (uint8_t)shift;
	return node;
}

static void put_slot(struct world *world, uint64_t node, unsigned slot, uint64_t entry)
{
	buffer_put(&world->memory, node + world->cache.node_slots + slot * 8, entry, 8);
}

static void put_head(struct world *world, uint64_t entry)
{
	buffer_put(&world->memory, MAPPING + world->cache.mapping_head, entry, 8);
}

static unsigned frame_of(const struct world *world, uint64_t index)
{
	gpa_t page = gpa(0);

	return linux_page_cache_find(&world->cache, MAPPING, index, &page)
		       ? (unsigned)(page.value / 4096)
		       : 0;
}

/* A file that is mapped is at its path, whatever is mounted on the way there. */
struct paths_check {
	const struct linux_files *files;
	uint64_t task;
	unsigned found;
	unsigned outside; /* gone, or in another place for this process */
};

static bool check_path(void *context, const struct linux_mapping *mapping)
{
	struct paths_check *check = context;
	struct linux_file file;

	if (mapping->kind != LINUX_MAPPING_FILE || mapping->name[0] != '/' ||
	    strstr(mapping->name, " (deleted)"))
		return true;
	if (!linux_path_find(check->files, check->task, mapping->name, &file)) {
		check->outside++;
		return true;
	}
	/* Below overlayfs the numbers are those of the upper file, which has no pages. */
	cr_assert_eq(file.number, mapping->file.number, "%s", mapping->name);
	if (file.inode == mapping->file.inode) {
		cr_assert_eq(file.mapping, mapping->file.mapping);
		cr_assert_eq(file.size, mapping->file.size);
		cr_assert_eq(file.device_minor, mapping->file.device_minor);
		check->found++;
	}
	return true;
}

Test(linux_path, files_are_found_by_their_paths_across_mounts, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		struct paths_check check = {.files = &image.files};
		struct linux_file file;
		uint32_t next_offset, pid_offset, mm_offset, pid;
		uint64_t next, mm;
		struct symbol first;

		if (!tasks_image_init(&image, names[i]))
			continue;
		cr_assert(image.files.paths_known);
		next_offset = tasks_image_offset(&image, "task_struct", "tasks.next");
		pid_offset = tasks_image_offset(&image, "task_struct", "tgid");
		mm_offset = tasks_image_offset(&image, "task_struct", "mm");
		cr_assert(symbol_table_find_name(&image.base.symbols, "init_task", &first));
		cr_assert(prepared_image_read(&image.base, first.start + next_offset, &next, 8));
		while (next != first.start + next_offset) {
			uint32_t own;

			check.task = next - next_offset;
			cr_assert(prepared_image_read(&image.base, next, &next, 8));
			cr_assert(
				prepared_image_read(&image.base, check.task + pid_offset, &pid, 4));
			cr_assert(prepared_image_read(&image.base, check.task + mm_offset, &mm, 8));
			cr_assert(linux_path_own_pid(&image.files, check.task, &own));
			cr_assert_leq(own, pid);
			if (!mm)
				continue;
			linux_mappings_walk(&image.mappings, mm, check_path, &check);
			cr_assert_not(linux_path_find(&image.files, check.task, "/tmp/perf-1.map",
						      &file));
			cr_assert_not(
				linux_path_find(&image.files, check.task, "/bin/../init", &file));
		}
		cr_assert_gt(check.found, 100, "%s: %u, %u outside", names[i], check.found,
			     check.outside);
		cr_log_info("%s: %u found, %u outside", names[i], check.found, check.outside);
		/* No process, no path. */
		cr_assert_not(linux_path_find(&image.files, 0, "/init", &file));
		cr_assert_not(linux_path_own_pid(&image.files, 0, &pid));
		tasks_image_deinit(&image);
	}
}

Test(linux_page_cache, a_file_of_one_page_has_no_node)
{
	struct world world;

	world_init(&world);
	cr_assert_eq(frame_of(&world, 0), 0);
	put_head(&world, put_page(&world, 0x50, 0));
	cr_assert_eq(frame_of(&world, 0), 0x50);
	cr_assert_eq(frame_of(&world, 1), 0);
	free(world.bytes);
}

Test(linux_page_cache, nodes_siblings_and_folios_lead_to_pages)
{
	struct world world;
	uint64_t root;
	uint64_t low;
	uint64_t high;

	world_init(&world);
	root = add_node(&world, 6);
	low = add_node(&world, 0);
	high = add_node(&world, 0);
	put_head(&world, root + 2);
	put_slot(&world, root, 0, low + 2);
	put_slot(&world, root, 3, high + 2);
	put_slot(&world, low, 5, put_page(&world, 0x60, 5));
	/* A folio of four pages: an entry and three siblings of it. */
	put_slot(&world, high, 8, put_page(&world, 0x70, 3 * 64 + 8));
	for (unsigned i = 9; i < 12; i++)
		put_slot(&world, high, i, 8 << 2 | 2);
	/* One of 64 pages has its entry a level higher. */
	put_slot(&world, root, 10, put_page(&world, 0x80, 640));
	cr_assert_eq(frame_of(&world, 5), 0x60);
	cr_assert_eq(frame_of(&world, 4), 0);
	cr_assert_eq(frame_of(&world, 3 * 64 + 8), 0x70);
	cr_assert_eq(frame_of(&world, 3 * 64 + 11), 0x73);
	cr_assert_eq(frame_of(&world, 3 * 64 + 12), 0);
	cr_assert_eq(frame_of(&world, 640), 0x80);
	cr_assert_eq(frame_of(&world, 640 + 33), 0x80 + 33);
	/* Behind the end of the tree: not the same slot once more. */
	cr_assert_eq(frame_of(&world, 4096 + 5), 0);
	free(world.bytes);
}

Test(linux_page_cache, what_is_no_page_of_this_file_is_not_cached)
{
	struct world world;
	uint64_t node;
	uint64_t page;

	world_init(&world);
	node = add_node(&world, 0);
	put_head(&world, node + 2);
	put_slot(&world, node, 0, 0x1234 << 1 | 1); /* a value: on swap, or a shadow */
	page = put_page(&world, 0x50, 1);
	buffer_put(&world.memory, page + world.cache.page_mapping, MAPPING + 8, 8);
	put_slot(&world, node, 1, page);
	put_slot(&world, node, 2, put_page(&world, 0x51, 3));     /* another index */
	put_slot(&world, node, 3, put_page(&world, 0x52, 3) + 8); /* no struct page */
	put_slot(&world, node, 4, node + 2);                      /* a node without end */
	put_slot(&world, node, 5, 5 << 2 | 2);                    /* its own sibling */
	put_slot(&world, node, 6, 0x40);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(frame_of(&world, i), 0, "%u", i);
	free(world.bytes);
}

Test(linux_page_cache, reading_stops_at_what_is_not_cached_and_at_the_end)
{
	struct world world;
	struct linux_file file = {.mapping = MAPPING, .size = 4 * 4096 + 100};
	struct linux_cached_file cached;
	uint64_t node;
	uint8_t bytes[5 * 4096];

	world_init(&world);
	node = add_node(&world, 0);
	put_head(&world, node + 2);
	put_slot(&world, node, 0, put_page(&world, 0x50, 0));
	put_slot(&world, node, 1, put_page(&world, 0x60, 1));
	put_slot(&world, node, 3, put_page(&world, 0x55, 3));
	put_slot(&world, node, 4, put_page(&world, 0x56, 4));
	linux_cached_file_init(&cached, &world.cache, &file);
	cr_assert_eq(file_source_read(&cached.source, 100, bytes, sizeof(bytes)), 8192 - 100);
	cr_assert_eq(bytes[0], 0x50);
	cr_assert_eq(bytes[8192 - 101], 0x60);
	cr_assert_eq(file_source_read(&cached.source, 8192, bytes, 1), 0);
	cr_assert_eq(file_source_read(&cached.source, 4 * 4096 - 1, bytes, sizeof(bytes)), 101);
	cr_assert_eq(bytes[0], 0x55);
	cr_assert_eq(bytes[1], 0x56);
	cr_assert_eq(file_source_read(&cached.source, UINT64_MAX, bytes, 1), 0);
	free(world.bytes);
}
