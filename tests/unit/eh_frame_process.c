/* Stacks of real programs by their .eh_frame: the call trees that the programs of the memory images
 * have published are found whole, with and without frame pointers. Skips without the images. */
#include "guest-introspection/eh_frame_process.h"

#include "base/cleanup.h"
#include "base/container.h"
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
						     NULL, mm_of(guest, task), &process, &error),
			     GP_OK, "%s", error.text);
		counts = eh_frame_process_counts(process);
		/* One maps a file of data as if it were code. */
		cr_expect_geq(counts.with_rules + (strstr(line, " main@") ? 1 : 0),
			      counts.code_mappings);
		cr_expect(counts.complete);
	} else {
		cr_assert_neq(eh_frame_process_create(guest->rules, &guest->mappings, &guest->cache,
						      NULL, mm_of(guest, task), &process, &error),
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

Test(eh_frame_process, call_trees_of_sleeping_programs_are_whole)
{
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names);

	for (unsigned i = 0; i < count; i++) {
		struct kind kinds[] = {
			{.name = "static-fp", .percent = 99, .prepared = true},
			{.name = "dynamic-fp", .percent = 99, .prepared = true},
			{.name = "static-nofp", .percent = 95, .prepared = true},
			{.name = "dynamic-nofp", .percent = 95, .prepared = true},
		};
		struct guest guest = {0};
		AUTO_FCLOSE FILE *file = NULL;
		char path[512];
		char line[1024];

		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/calltrees", names[i]);
		file = fopen(path, "re");
		cr_assert(file);
		guest_open(&guest, names[i]);
		while (fgets(line, sizeof(line), file)) {
			char name[32];
			char way[32];
			unsigned tid;

			if (sscanf(line, "%*u %u %31s %31s", &tid, name, way) != 3 ||
			    strncmp(way, "spin", 4) == 0)
				continue;
			for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++)
				if (strcmp(name, kinds[k].name) == 0)
					check_task(&guest, line, &kinds[k], tid);
		}
		for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
			fprintf(stderr, "%s: %s: %u of %u call trees whole, %u to the root\n",
				names[i], kinds[k].name, kinds[k].exact, kinds[k].tasks,
				kinds[k].rooted);
			cr_expect_gt(kinds[k].tasks, 10);
			cr_expect_geq(kinds[k].exact * 100, kinds[k].tasks * kinds[k].percent);
		}
		guest_close(&guest);
	}
}
