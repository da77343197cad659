/* Real kernels' memory: what introspection finds equals what the guest says of itself.
 *
 * Runs over build/images, which tests/images/make-image.sh makes; skips without it. */
#include "base/cleanup.h"
#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/linux/linux_stack.h"
#include "guest-introspection/unwind/unwind.h"
#include "tests/unit/image_support.h"

#include <criterion/criterion.h>

/* vmlinux's symbols as the guest printed them. */
static struct image_symbol *read_truth(const char *image, size_t *count)
{
	char path[256];
	char line[1024];
	size_t room = 1 << 18;
	struct image_symbol *truth = calloc(room, sizeof(*truth));
	FILE *file;

	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%s/kallsyms", image);
	file = fopen(path, "re");
	cr_assert(file && truth, "%s", path);
	*count = 0;
	while (fgets(line, sizeof(line), file)) {
		struct image_symbol *one = &truth[*count];
		unsigned long long start;

		if (strchr(line, '['))
			continue; /* a module's, or a trampoline's */
		cr_assert_eq(sscanf(line, "%llx %c %511s", &start, &one->kind, one->name), 3);
		one->start = start;
		cr_assert_lt(++*count, room);
	}
	fclose(file);
	qsort(truth, *count, sizeof(*truth), image_symbol_compare);
	return truth;
}

static const struct image_symbol *truth_find(const struct image_symbol *truth, size_t count,
					     const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(truth[i].name, name) == 0)
			return &truth[i];
	return NULL;
}

static void find_kernel(const char *name, struct image *image, struct linux_kernel *kernel)
{
	struct error error = {0};

	cr_assert(image_open(image, name), "%s", name);
	cr_assert_eq(linux_kernel_find(&image->memory.memory, image->cpus, image->cpu_count, kernel,
				       &error),
		     GP_OK, "%s: %s", name, error.text);
}

Test(kernel_image, every_kernel_symbol_equals_proc_kallsyms)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct image image;
		struct linux_kernel kernel;
		struct symbol_table table;
		struct error error = {0};
		size_t truth_count;
		AUTO_FREE struct image_symbol *truth = read_truth(names[i], &truth_count);
		AUTO_FREE struct image_symbol *found = NULL;

		find_kernel(names[i], &image, &kernel);
		cr_assert_eq(linux_kallsyms_read(&image.memory.memory, &kernel, &table, &error),
			     GP_OK, "%s: %s", names[i], error.text);
		cr_assert_eq(table.count, truth_count, "%s: %zu of %zu", names[i], table.count,
			     truth_count);
		found = calloc(table.count, sizeof(*found));
		for (size_t k = 0; k < table.count; k++) {
			struct symbol symbol = symbol_table_get(&table, k);

			found[k].start = symbol.start;
			found[k].kind = symbol.kind;
			snprintf(found[k].name, sizeof(found[k].name), "%s", symbol.name);
		}
		qsort(found, table.count, sizeof(*found), image_symbol_compare);
		for (size_t k = 0; k < table.count; k++)
			cr_assert_eq(image_symbol_compare(&found[k], &truth[k]), 0,
				     "%s: %llx %c %s, the guest says %llx %c %s", names[i],
				     (unsigned long long)found[k].start, found[k].kind,
				     found[k].name, (unsigned long long)truth[k].start,
				     truth[k].kind, truth[k].name);
		cr_log_info("%s: %zu symbols equal", names[i], table.count);
		symbol_table_deinit(&table);
		image_close(&image);
	}
}

Test(kernel_image, the_kernel_is_found_from_each_vcpu_alone)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		size_t truth_count;
		AUTO_FREE struct image_symbol *truth = read_truth(names[i], &truth_count);
		const struct image_symbol *text = truth_find(truth, truth_count, "_text");
		const struct image_symbol *text_end = truth_find(truth, truth_count, "_etext");
		const struct image_symbol *swapper = truth_find(truth, truth_count, "init_top_pgt");
		struct image image;
		struct linux_kernel all;

		cr_assert(text && text_end && swapper);
		find_kernel(names[i], &image, &all);
		for (unsigned cpu = 0; cpu < image.cpu_count; cpu++) {
			struct linux_kernel kernel;
			struct translation translation;

			cr_assert_eq(linux_kernel_find(&image.memory.memory, &image.cpus[cpu], 1,
						       &kernel, NULL),
				     GP_OK, "%s vCPU %u", names[i], cpu);
			cr_assert_eq(kernel.text_base, text->start, "%s", names[i]);
			cr_assert_geq(kernel.text_end, text_end->start, "%s", names[i]);
			cr_assert_lt(kernel.text_end - text_end->start, 2 << 20, "%s", names[i]);
			cr_assert_eq(strncmp(kernel.banner, "Linux version ", 14), 0);
			cr_assert(strstr(kernel.banner, " #1 SMP "), "%s", kernel.banner);
			cr_assert_eq(guest_translate(&kernel.space, &image.memory.memory,
						     gva(swapper->start), &translation),
				     TRANSLATE_OK);
			cr_assert_eq(translation.gpa.value, kernel.space.root, "%s vCPU %u",
				     names[i], cpu);
		}
		image_close(&image);
	}
}

/* Debian's kernels have no frame pointers: without their tables there is a leaf, and as many
 * callers as its instructions and theirs prove. */
Test(kernel_image, no_frame_is_invented)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct image image;
		struct linux_kernel kernel;
		struct symbol_table table;
		struct linux_stack *tables;
		struct error error = {0};

		find_kernel(names[i], &image, &kernel);
		cr_assert_eq(linux_kallsyms_read(&image.memory.memory, &kernel, &table, &error),
			     GP_OK);
		cr_assert_eq(linux_stack_create(&image.memory.memory, &kernel, &table, &tables,
						NULL, &error),
			     GP_OK);
		for (unsigned cpu = 0; cpu < image.cpu_count; cpu++) {
			uint64_t pcs[64];
			uint64_t truth[64];
			struct unwind_stack stack =
				guest_unwind(&image.memory.memory, NULL, &image.cpus[cpu], pcs, 64);
			struct unwind_stack whole = guest_unwind(&image.memory.memory,
								 linux_stack_unwind_kernel(tables),
								 &image.cpus[cpu], truth, 64);

			cr_assert_geq(stack.count, 1);
			cr_assert_eq(pcs[0], image.cpus[cpu].rip);
			if (image.cpus[cpu].cpl != 0)
				continue;
			cr_assert_leq(stack.count, whole.count);
			cr_assert_arr_eq(pcs, truth, stack.count * sizeof(*pcs), "%s vCPU %u",
					 names[i], cpu);
		}
		linux_stack_destroy(tables);
		symbol_table_deinit(&table);
		image_close(&image);
	}
}

Test(kernel_image, memory_without_a_kernel_is_refused)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	struct image image;
	struct linux_kernel kernel = {.text_base = 42};
	struct error error;

	image_list(names);
	cr_assert(image_open(&image, names[0]));
	cr_assert_eq(linux_kernel_find(&image.memory.memory, image.cpus, 0, &kernel, &error),
		     GP_ERR_NOT_FOUND);
	for (unsigned cpu = 0; cpu < image.cpu_count; cpu++)
		image.cpus[cpu].cr0 = X86_CR0_PROTECTED;
	cr_assert_eq(linux_kernel_find(&image.memory.memory, image.cpus, image.cpu_count, &kernel,
				       &error),
		     GP_ERR_NOT_FOUND);
	cr_assert_eq(kernel.text_base, 42);
	image_close(&image);
}
