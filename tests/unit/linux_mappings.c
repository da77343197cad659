/* Mappings of processes, from made-up memory and from that of real kernels. */
#include "guest-introspection/linux_mappings.h"

#include "base/cleanup.h"
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
			cr_assert_str_eq(check.text, truth, "%s: process %u:\n%s\nnot\n%s",
					 names[i], image.processes[k].pid, check.text, truth);
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

	tasks_image_list(names);
	cr_assert(tasks_image_init(&image, names[0]));
	for (unsigned k = 0; k < image.process_count; k++) {
		unsigned left = 3;
		struct linux_mappings_walk walk;

		if (!image.processes[k].mm)
			continue;
		walk = linux_mappings_walk(&image.mappings, image.processes[k].mm, count_mapping,
					   &left);
		cr_assert_eq(walk.count, 3);
		cr_assert(!walk.complete);
	}
	tasks_image_deinit(&image);
}
