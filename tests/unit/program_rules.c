/* When the unwind rules of a program are prepared, and when again. With a memory image; skips
 * without one. */
#include "guest-introspection/linux/eh_frame_process.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "tests/image_tasks.h"

#include <criterion/criterion.h>
#include <dirent.h>

#define MILLISECOND UINT64_C(1000000)
#define START (1000 * MILLISECOND)

/* Memory in which one word is another, and pages of files are not there. */
struct changed_memory {
	struct guest_memory memory;
	const struct guest_memory *under;
	uint64_t word_at; /* 0: none */
	uint64_t word;
	bool without_files;
};

/* Nothing but pages of files is read in pieces as large as this. */
#define FILE_PIECE 1024

static bool read_changed(const struct guest_memory *memory, gpa_t address, void *buffer,
			 size_t size)
{
	const struct changed_memory *self = container_of((struct guest_memory *)(uintptr_t)memory,
							 struct changed_memory, memory);

	if (self->without_files && size > FILE_PIECE)
		return false;
	if (self->word_at && address.value == self->word_at && size == sizeof(self->word)) {
		memcpy(buffer, &self->word, size);
		return true;
	}
	return guest_memory_read(self->under, address, buffer, size);
}

/* Copies that are never found, or not yet. */
struct no_copies {
	struct file_copies copies;
	enum file_copy_result result;
	unsigned asked;
};

static enum file_copy_result find_none(struct file_copies *copies,
				       const struct file_copy_wanted *wanted,
				       const struct file_source **out)
{
	struct no_copies *self = container_of(copies, struct no_copies, copies);

	(void)wanted;
	(void)out;
	self->asked++;
	return self->result;
}

static struct image_kernel kernel;
static struct changed_memory changed;
static struct linux_files files;
static struct linux_mappings mappings;
static struct linux_page_cache cache;
static struct program_rules rules;
static uint64_t mm;

/* The first image that has programs whose rules are needed. */
static bool find_image(char *name, size_t size, unsigned *tid)
{
	DIR *directory = opendir(IMAGE_DIRECTORY);
	struct dirent *entry;
	bool found = false;

	while (directory && !found && (entry = readdir(directory))) {
		AUTO_FCLOSE FILE *trees = NULL;
		char path[512], line[1024], program[32];

		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/calltrees", entry->d_name);
		trees = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
		snprintf(name, size, "%.99s", entry->d_name);
		while (trees && !found && fgets(line, sizeof(line), trees))
			found = sscanf(line, "%*u %u %31s", tid, program) == 2 &&
				!strcmp(program, "dynamic-nofp");
	}
	if (directory)
		closedir(directory);
	return found;
}

static void begin(void)
{
	struct error error = {0};
	struct translation translation;
	char name[100];
	unsigned tid;
	uint64_t task;

	if (!find_image(name, sizeof(name), &tid))
		cr_skip_test("no memory images with call trees in " IMAGE_DIRECTORY
			     ": run tests/images/make-image.sh");
	cr_assert(image_kernel_open(&kernel, name, &error), "%s", error.text);
	changed = (struct changed_memory){.memory = {.read = read_changed},
					  .under = &kernel.image.memory.memory};
	cr_assert_eq(linux_files_init(&changed.memory, &kernel.kernel, &kernel.symbols, kernel.btf,
				      &files, &error),
		     GP_OK);
	cr_assert_eq(linux_mappings_init(&files, &kernel.symbols, kernel.btf, &mappings, &error),
		     GP_OK);
	cr_assert_eq(linux_page_cache_init(&changed.memory, &kernel.kernel, &kernel.symbols,
					   kernel.btf, &cache, &error),
		     GP_OK);
	task = image_find_task(&kernel, tid);
	cr_assert_neq(task, 0);
	mm = image_word(&kernel, task + image_offset(&kernel, "task_struct", "mm"), 8);
	cr_assert_eq(guest_translate(&kernel.kernel.space, changed.under,
				     gva(mm + mappings.mm_stack_start), &translation),
		     TRANSLATE_OK);
	changed.word_at = translation.gpa.value;
	changed.word = image_word(&kernel, mm + mappings.mm_stack_start, 8);
}

static void end(void)
{
	program_rules_deinit(&rules);
	image_kernel_close(&kernel);
}

TestSuite(program_rules, .init = begin, .fini = end, .timeout = 60);

static bool want(struct file_copies *copies, uint64_t at)
{
	return program_rules_want(&rules, &mappings, &cache, copies, mm, at);
}

Test(program_rules, what_was_prepared_is_not_prepared_again_at_once)
{
	const struct unwind_program *list[PROGRAM_RULES_MAX];

	cr_assert(want(NULL, START));
	cr_assert_eq(program_rules_list(&rules, list), 1);
	cr_assert(!want(NULL, START + MILLISECOND));
	cr_assert(!want(NULL, START + 499 * MILLISECOND));
	cr_assert(want(NULL, START + 500 * MILLISECOND));
	/* Less and less often. */
	cr_assert(!want(NULL, START + 1100 * MILLISECOND));
	cr_assert(want(NULL, START + 1500 * MILLISECOND));
}

/* Linux gives the struct of a process that has ended to the next one. */
Test(program_rules, another_program_in_the_same_struct_is_prepared_at_once)
{
	cr_assert(want(NULL, START));
	cr_assert(want(NULL, START + 500 * MILLISECOND));
	cr_assert(!want(NULL, START + 501 * MILLISECOND));
	changed.word -= 4096;
	cr_assert(want(NULL, START + 502 * MILLISECOND));
	cr_assert(!want(NULL, START + 503 * MILLISECOND));
	/* It has a first wait of its own. */
	cr_assert(want(NULL, START + 1002 * MILLISECOND));
}

Test(program_rules, files_that_are_being_looked_for_are_asked_for_soon)
{
	struct no_copies copies = {.copies = {.find = find_none}, .result = FILE_COPY_LATER};
	unsigned before;

	changed.without_files = true;
	want(&copies.copies, START);
	cr_assert_gt(copies.asked, 0);
	for (unsigned i = 1; i < 20; i++) {
		before = copies.asked;
		want(&copies.copies, START + i * 100 * MILLISECOND);
		cr_assert_gt(copies.asked, before, "%u", i);
	}
	/* When nothing is to be had there is no hurry. */
	copies.result = FILE_COPY_NONE;
	want(&copies.copies, START + 2000 * MILLISECOND);
	before = copies.asked;
	want(&copies.copies, START + 2100 * MILLISECOND);
	cr_assert_eq(copies.asked, before);
}
