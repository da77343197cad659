/* What the tests over memory images share: which there are, and the kernel in one, prepared. */
#ifndef TESTS_UNIT_IMAGE_SUPPORT_H
#define TESTS_UNIT_IMAGE_SUPPORT_H

#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "tests/image_memory.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <time.h>

#define IMAGE_NAME_LENGTH 64
#define IMAGE_LIMIT 32

struct prepared_image {
	char name[IMAGE_NAME_LENGTH];
	struct image image;
	const struct guest_memory *memory;
	struct linux_kernel kernel;
	struct symbol_table symbols; /* vmlinux's */
};

/* Fills `names` with the images present; skips the test when there are none. */
static inline unsigned image_list(char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH])
{
	DIR *directory = opendir(IMAGE_DIRECTORY);
	struct dirent *entry;
	unsigned count = 0;

	while (directory && count < IMAGE_LIMIT && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			snprintf(names[count++], IMAGE_NAME_LENGTH, "%.63s", entry->d_name);
	if (directory)
		closedir(directory);
	if (count == 0)
		cr_skip_test("no memory images in " IMAGE_DIRECTORY
			     ": run tests/images/make-image.sh");
	return count;
}

/* False when the image is not whole (perhaps being made). Only with `self` where it stays. */
__attribute__((noinline, unused)) static bool prepared_image_init(struct prepared_image *self,
								  const char *name)
{
	struct error error = {0};

	memset(self, 0, sizeof(*self));
	snprintf(self->name, sizeof(self->name), "%s", name);
	if (!image_open(&self->image, name))
		return false;
	self->memory = &self->image.memory.memory;
	cr_assert_eq(linux_kernel_find(self->memory, self->image.cpus, self->image.cpu_count,
				       &self->kernel, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(linux_kallsyms_read(self->memory, &self->kernel, &self->symbols, &error),
		     GP_OK, "%s: %s", name, error.text);
	return true;
}

static inline void prepared_image_deinit(struct prepared_image *self)
{
	symbol_table_deinit(&self->symbols);
	image_close(&self->image);
}

static inline bool prepared_image_read(const struct prepared_image *self, uint64_t address,
				       void *buffer, size_t size)
{
	return guest_read_virtual(&self->kernel.space, NULL, self->memory, gva(address), buffer,
				  size) == TRANSLATE_OK;
}

/* A file of truth; NULL when this image has none. */
static inline FILE *image_fopen(const char *image, const char *file)
{
	char path[256];

	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.63s/%.63s", image, file);
	return fopen(path, "re");
}

/* A symbol as the guest's own /proc/kallsyms says it is. */
struct image_symbol {
	uint64_t start;
	char kind;
	char name[512];
};

/* For qsort(). */
static inline int image_symbol_compare(const void *left, const void *right)
{
	const struct image_symbol *a = left;
	const struct image_symbol *b = right;
	int order;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	order = strcmp(a->name, b->name);
	return order ? order : a->kind - b->kind;
}

/* CPU time of this process. */
static inline double seconds_used(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
