/* Stacks of real programs by their .eh_frame: the call trees that the programs of the memory images
 * have published are found whole, with and without frame pointers. Skips without the images. */
#include "guest-introspection/linux/eh_frame_process.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "tests/stack_ends.h"
#include "tests/image_tasks.h"

#include <criterion/criterion.h>
#include <dirent.h>

#define DEPTH 128
#define IMAGE_LIMIT 32
#define NAME_LENGTH 64

static unsigned list_images(char names[IMAGE_LIMIT][NAME_LENGTH])
{
	DIR *directory = opendir(IMAGE_DIRECTORY);
	struct dirent *entry;
	unsigned count = 0;
	char path[512];

	while (directory && count < IMAGE_LIMIT && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.63s/calltrees", entry->d_name);
		if (entry->d_name[0] != '.' && access(path, R_OK) == 0)
			snprintf(names[count++], NAME_LENGTH, "%.63s", entry->d_name);
	}
	if (directory)
		closedir(directory);
	if (count == 0)
		cr_skip_test("no memory images with call trees in " IMAGE_DIRECTORY
			     ": run tests/images/make-image.sh");
	return count;
}

/* An image and all that is needed to prepare its processes. */
struct guest {
	struct image_kernel kernel;
	struct linux_files files;
	struct linux_mappings mappings;
	struct linux_page_cache cache;
	struct eh_frame_files *rules;
	struct file_copies *copies;
};

static void guest_open(struct guest *guest, const char *name)
{
	const struct guest_memory *memory = &guest->kernel.image.memory.memory;
	struct error error = {0};

	cr_assert(image_kernel_open(&guest->kernel, name, &error), "%s: %s", name, error.text);
	cr_assert_eq(linux_files_init(memory, &guest->kernel.kernel, &guest->kernel.symbols,
				      guest->kernel.btf, &guest->files, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(linux_mappings_init(&guest->files, &guest->kernel.symbols, guest->kernel.btf,
					 &guest->mappings, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(linux_page_cache_init(memory, &guest->kernel.kernel, &guest->kernel.symbols,
					   guest->kernel.btf, &guest->cache, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(eh_frame_files_create(&guest->rules, &error), GP_OK);
}

static void guest_close(struct guest *guest)
{
	eh_frame_files_destroy(guest->rules);
	image_kernel_close(&guest->kernel);
}

static uint64_t mm_of(const struct guest *guest, uint64_t task)
{
	return image_word(&guest->kernel, task + image_offset(&guest->kernel, "task_struct", "mm"),
			  8);
}

struct kind {
	const char *name;
	unsigned percent; /* goal */
	bool prepared;    /* 64-bit */
	unsigned tasks;
	unsigned exact;  /* every frame of the known tree, and none in between or missing */
	unsigned rooted; /* and down to where the thread began */
};

/* The known frames, innermost first: contiguous, whatever the library has above and below. */
static bool holds_tree(const uint64_t *pcs, unsigned count, const uint64_t *tree, unsigned frames)
{
	for (unsigned i = 0; i + frames <= count; i++)
		if (memcmp(pcs + i, tree, frames * sizeof(*tree)) == 0)
			return true;
	return false;
}

static void check_task(struct guest *guest, const char *line, struct kind *kind, unsigned tid)
{
	const struct guest_memory *memory = &guest->kernel.image.memory.memory;
	struct eh_frame_process *process = NULL;
	struct unwind_stack stack;
	struct guest_cpu cpu;
	struct error error = {0};
	uint64_t pcs[DEPTH];
	uint64_t truth[16];
	unsigned frames = 0;
	uint64_t task = image_find_task(&guest->kernel, tid);
	bool exact;

	for (const char *at = strchr(line, '@'); at && frames < 16; at = strchr(at + 1, '@'))
		if (at[1] != '?')
			truth[frames++] = strtoull(at + 1, NULL, 16);
	if (!task || !image_task_registers(&guest->kernel, task, &cpu))
		return;
	if (kind->prepared) {
		struct eh_frame_process_counts counts;

		cr_assert_eq(eh_frame_process_create(guest->rules, &guest->mappings, &guest->cache,
						     guest->copies, mm_of(guest, task), &process,
						     &error),
			     GP_OK, "%s", error.text);
		counts = eh_frame_process_counts(process);
		/* One maps a file of data as if it were code. */
		cr_expect_geq(counts.with_rules + (strstr(line, " main@") ? 1 : 0),
			      counts.code_mappings);
		cr_expect(counts.complete);
	} else {
		cr_assert_neq(eh_frame_process_create(guest->rules, &guest->mappings, &guest->cache,
						      guest->copies, mm_of(guest, task), &process,
						      &error),
			      GP_OK);
	}
	stack = guest_unwind_program(memory, linux_stack_unwind_kernel(guest->kernel.stack),
				     process ? eh_frame_process_program(process) : NULL, &cpu, pcs,
				     DEPTH);
	exact = holds_tree(pcs + stack.user_frame, stack.count - stack.user_frame, truth, frames);
	kind->tasks++;
	kind->exact += exact;
	kind->rooted += exact && stack.end == STACK_END_ROOT;
	if (!exact || (kind->prepared && stack.end != STACK_END_ROOT)) {
		fprintf(stderr, "%s: %s", stack_end_string(stack.end), line);
		for (unsigned k = stack.user_frame; k < stack.count; k++)
			fprintf(stderr, " %#" PRIx64, pcs[k]);
		fprintf(stderr, "\n");
	}
	eh_frame_process_destroy(guest->rules, process);
}

/* The guest's files as the image keeps them: by build id, without one by size. */
struct kept_files {
	struct file_copies copies;
	unsigned count;
	struct file_buffer files[32];
	unsigned given;
};

static enum file_copy_result give(struct file_copies *copies, const struct file_copy_wanted *wanted,
				  const struct file_source **out)
{
	struct kept_files *self = container_of(copies, struct kept_files, copies);

	cr_assert(wanted->code);
	for (unsigned i = 0; i < self->count; i++) {
		struct elf_image image;

		if (elf_image_read(&self->files[i].source, &image, NULL) != GP_OK ||
		    (wanted->build_id_size
			     ? memcmp(image.build_id, wanted->build_id, wanted->build_id_size) != 0
			     : wanted->size != self->files[i].size))
			continue;
		*out = &self->files[i].source;
		self->given++;
		return FILE_COPY_FOUND;
	}
	return FILE_COPY_NONE;
}

static void take_back(struct file_copies *copies, const struct file_source *source)
{
	(void)copies;
	(void)source;
}

static void kept_files_load(struct kept_files *self, const char *name)
{
	struct dirent *entry;
	char path[512];
	DIR *directory;

	*self = (struct kept_files){.copies = {.find = give, .release = take_back}};
	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/files", name);
	directory = opendir(path);
	while (directory && self->count < ARRAY_SIZE(self->files) && (entry = readdir(directory))) {
		AUTO_FCLOSE FILE *file = NULL;
		long size;
		char *bytes;

		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/files/%.255s", name,
			 entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) <= 0)
			continue;
		rewind(file);
		bytes = malloc((size_t)size);
		cr_assert_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
		self->files[self->count++] = file_buffer_over(bytes, (size_t)size);
	}
	closedir(directory);
	cr_assert_gt(self->count, 5);
}

static void kept_files_free(struct kept_files *self)
{
	for (unsigned i = 0; i < self->count; i++)
		free((void *)(uintptr_t)self->files[i].bytes);
}

/* All programs of an image whose call trees are known. */
static void check_image(struct guest *guest, const char *image)
{
	struct kind kinds[] = {
		{.name = "static-fp", .percent = 99, .prepared = true},
		{.name = "dynamic-fp", .percent = 99, .prepared = true},
		{.name = "static-nofp", .percent = 95, .prepared = true},
		{.name = "dynamic-nofp", .percent = 95, .prepared = true},
	};
	AUTO_FCLOSE FILE *file = NULL;
	char path[512];
	char line[1024];

	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/calltrees", image);
	file = fopen(path, "re");
	cr_assert(file);
	while (fgets(line, sizeof(line), file)) {
		char name[32];
		char way[32];
		unsigned tid;

		if (sscanf(line, "%*u %u %31s %31s", &tid, name, way) != 3 ||
		    strncmp(way, "spin", 4) == 0)
			continue;
		for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++)
			if (strcmp(name, kinds[k].name) == 0)
				check_task(guest, line, &kinds[k], tid);
	}
	for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
		fprintf(stderr, "%s: %s: %u of %u call trees whole, %u to the root\n", image,
			kinds[k].name, kinds[k].exact, kinds[k].tasks, kinds[k].rooted);
		cr_expect_gt(kinds[k].tasks, 10);
		cr_expect_geq(kinds[k].exact * 100, kinds[k].tasks * kinds[k].percent);
	}
}

Test(eh_frame_process, call_trees_of_sleeping_programs_are_whole)
{
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names);

	for (unsigned i = 0; i < count; i++) {
		struct guest guest = {0};

		guest_open(&guest, names[i]);
		check_image(&guest, names[i]);
		guest_close(&guest);
	}
}

/* Memory in which three of four pages of files are not there: what else is read of it is smaller.
 */
struct holed_memory {
	struct guest_memory memory;
	const struct guest_memory *whole;
};

static bool read_with_holes(const struct guest_memory *memory, gpa_t address, void *buffer,
			    size_t size)
{
	const struct holed_memory *self =
		container_of((struct guest_memory *)(uintptr_t)memory, struct holed_memory, memory);

	if (size > 2048 && address.value / 4096 * 0x9e3779b1u >> 30 & 3)
		return false;
	return guest_memory_read(self->whole, address, buffer, size);
}

/* Programs on a disk of which little is cached: the rules come from copies of the files. */
Test(eh_frame_process, call_trees_are_whole_with_little_in_the_page_cache_but_copies)
{
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names);

	for (unsigned i = 0; i < count; i++) {
		struct guest guest = {0};
		struct holed_memory holes;
		struct kept_files kept;

		guest_open(&guest, names[i]);
		kept_files_load(&kept, names[i]);
		holes = (struct holed_memory){.memory = {.read = read_with_holes},
					      .whole = guest.cache.memory};
		guest.cache.memory = &holes.memory;
		guest.copies = &kept.copies;
		check_image(&guest, names[i]);
		cr_expect_geq(kept.given, 3); /* once for each file */
		guest_close(&guest);
		kept_files_free(&kept);
	}
}
