/* Files out of the page cache, of made-up memory and of real kernels. */
#include "guest-introspection/linux_page_cache.h"

#include "base/cleanup.h"
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
