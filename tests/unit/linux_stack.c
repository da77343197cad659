/* Stacks of real kernels: those of tasks that sleep equal what the guest says of them, kernel and
 * user. Runs over build/images, made by tests/images/make-image.sh; skips without it. */
#include "base/cleanup.h"
#include "tests/stack_ends.h"
#include "tests/image_tasks.h"

#include <criterion/criterion.h>
#include <dirent.h>

#define DEPTH 128
#define IMAGE_LIMIT 32
#define NAME_LENGTH 64

/* The images that have `file`; skips the test when there are none. */
static unsigned list_images(char names[IMAGE_LIMIT][NAME_LENGTH], const char *file)
{
	DIR *directory = opendir(IMAGE_DIRECTORY);
	struct dirent *entry;
	unsigned count = 0;
	char path[512];

	while (directory && count < IMAGE_LIMIT && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.63s/%s", entry->d_name, file);
		if (entry->d_name[0] != '.' && access(path, R_OK) == 0)
			snprintf(names[count++], NAME_LENGTH, "%.63s", entry->d_name);
	}
	if (directory)
		closedir(directory);
	if (count == 0)
		cr_skip_test("no memory images with %s in " IMAGE_DIRECTORY
			     ": run tests/images/make-image.sh",
			     file);
	return count;
}

static FILE *open_truth(const char *image, const char *file)
{
	char path[512];

	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/%s", image, file);
	return fopen(path, "re");
}

struct name {
	uint64_t start;
	char name[128];
};

/* The guest's own kallsyms, modules included. */
struct names {
	struct name *names;
	size_t count;
};

static int compare_names(const void *left, const void *right)
{
	const struct name *a = left;
	const struct name *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static struct names read_names(const char *image)
{
	struct names names = {.names = calloc(1 << 18, sizeof(*names.names))};
	AUTO_FCLOSE FILE *file = open_truth(image, "kallsyms");
	char line[1024];

	cr_assert(file && names.names);
	while (fgets(line, sizeof(line), file) && names.count < 1 << 18)
		if (sscanf(line, "%" SCNx64 " %*c %127s", &names.names[names.count].start,
			   names.names[names.count].name) == 2)
			names.count++;
	qsort(names.names, names.count, sizeof(*names.names), compare_names);
	return names;
}

/* Is `text`, "name+0x12/0x34 ...", the address `pc`? Several symbols may have one address, and
 * several addresses one name. */
static bool is_at(const struct names *names, const char *text, uint64_t pc)
{
	const char *plus = strchr(text, '+');
	uint64_t start = plus ? pc - strtoull(plus + 1, NULL, 16) : pc;
	size_t low = 0;
	size_t high = names->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (names->names[middle].start < start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; plus && low < names->count && names->names[low].start == start; low++)
		if (strlen(names->names[low].name) == (size_t)(plus - text) &&
		    strncmp(names->names[low].name, text, (size_t)(plus - text)) == 0)
			return true;
	return false;
}

struct comparison {
	const struct image_kernel *kernel;
	const struct names *names;
	uint64_t scheduler_start;
	uint64_t scheduler_end;
	unsigned stacks;
	unsigned equal;
};

/* One task: `lines` are those of /proc/PID/stack, which leaves the scheduler's frames out. */
static void compare_stack(struct comparison *with, unsigned tid, char lines[DEPTH][256],
			  unsigned line_count)
{
	uint64_t task = image_find_task(with->kernel, tid);
	struct guest_cpu cpu;
	struct unwind_stack stack;
	uint64_t pcs[DEPTH];
	unsigned line = 0;
	bool equal = true;

	if (!task || line_count == 0)
		return; /* running, or gone */
	with->stacks++;
	cr_assert(image_task_registers(with->kernel, task, &cpu));
	stack = guest_unwind(&with->kernel->image.memory.memory,
			     linux_stack_unwind_kernel(with->kernel->stack), &cpu, pcs, DEPTH);
	for (unsigned i = 0; i < stack.user_frame && equal; i++) {
		if (pcs[i] >= with->scheduler_start && pcs[i] < with->scheduler_end)
			continue;
		equal = line < line_count && is_at(with->names, lines[line], pcs[i]);
		line++;
	}
	equal = equal && line == line_count;
	with->equal += equal;
	if (equal)
		return;
	fprintf(stderr, "task %u: %u kernel frames of %u, %s; the guest says\n", tid,
		stack.user_frame, stack.count, stack_end_string(stack.end));
	for (unsigned i = 0; i < line_count; i++)
		fprintf(stderr, "  %s", lines[i]);
	for (unsigned i = 0; i < stack.user_frame; i++) {
		struct symbol symbol = {.name = "?"};

		symbol_table_find(&with->kernel->symbols, pcs[i], &symbol);
		fprintf(stderr, "  found %#" PRIx64 " %s+%#" PRIx64 "\n", pcs[i], symbol.name,
			pcs[i] - symbol.start);
	}
}

Test(linux_stack, sleeping_tasks_equal_proc_stack)
{
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names, "stacks");

	for (unsigned i = 0; i < count; i++) {
		struct image_kernel kernel;
		struct error error = {0};
		struct names truth = read_names(names[i]);
		AUTO_FCLOSE FILE *file = open_truth(names[i], "stacks");
		char lines[DEPTH][256];
		char line[256];
		unsigned line_count = 0;
		unsigned tid = 0;
		struct comparison with = {.kernel = &kernel, .names = &truth};

		cr_assert(image_kernel_open(&kernel, names[i], &error), "%s: %s", names[i],
			  error.text);
		cr_assert_gt(kernel.modules, 0);
		with.scheduler_start = image_symbol(&kernel, "__sched_text_start");
		with.scheduler_end = image_symbol(&kernel, "__sched_text_end");
		while (fgets(line, sizeof(line), file)) {
			if (line[0] == '=') {
				compare_stack(&with, tid, lines, line_count);
				cr_assert_eq(sscanf(line, "== %*u %u", &tid), 1);
				line_count = 0;
			} else if (strncmp(line, "[<0>] ", 6) == 0 && line_count < DEPTH) {
				strcpy(lines[line_count++], line + 6);
			}
		}
		compare_stack(&with, tid, lines, line_count);
		fprintf(stderr, "%s: %u of %u sleeping tasks' stacks equal\n", names[i], with.equal,
			with.stacks);
		cr_assert_gt(with.stacks, 50, "%s", names[i]);
		cr_assert_geq(with.equal * 100, with.stacks * 98, "%s", names[i]);
		free(truth.names);
		image_kernel_close(&kernel);
	}
}

/* Where each sleeping thread's program entered the kernel. */
Test(linux_stack, sleeping_tasks_go_on_where_the_program_entered)
{
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names, "syscalls");

	for (unsigned i = 0; i < count; i++) {
		struct image_kernel kernel;
		struct error error = {0};
		AUTO_FCLOSE FILE *file = open_truth(names[i], "syscalls");
		char line[512];
		unsigned tasks = 0;
		unsigned equal = 0;

		cr_assert(image_kernel_open(&kernel, names[i], &error), "%s", error.text);
		while (fgets(line, sizeof(line), file)) {
			const char *last = strrchr(line, ' ');
			uint64_t user_pc = last ? strtoull(last, NULL, 16) : 0;
			uint64_t pcs[DEPTH];
			struct unwind_stack stack;
			struct guest_cpu cpu;
			uint64_t task;
			unsigned tid;

			/* Of a task that runs, or is about to, the guest cannot tell. */
			if (sscanf(line, "%*u %u", &tid) != 1 || strstr(line, "running") ||
			    strstr(line, " -1 "))
				continue;
			task = image_find_task(&kernel, tid);
			if (!task || !image_task_registers(&kernel, task, &cpu))
				continue;
			stack = guest_unwind(&kernel.image.memory.memory,
					     linux_stack_unwind_kernel(kernel.stack), &cpu, pcs,
					     DEPTH);
			tasks++;
			if (user_pc ? stack.user_frame < stack.count &&
					      pcs[stack.user_frame] == user_pc
				    : stack.user_frame == stack.count &&
					      stack.end == STACK_END_ROOT)
				equal++;
			else
				fprintf(stderr, "%s: user frame %u of %u, %s; truth: %s", names[i],
					stack.user_frame, stack.count, stack_end_string(stack.end),
					line);
		}
		fprintf(stderr, "%s: %u of %u sleeping tasks enter user code or end right\n",
			names[i], equal, tasks);
		cr_assert_gt(tasks, 50);
		cr_assert_geq(equal * 100, tasks * 98);
		image_kernel_close(&kernel);
	}
}

/* The programs of these images have their call tree published by themselves. */
Test(linux_stack, call_trees_of_sleeping_programs_with_frame_pointers)
{
	static const char *const kinds[] = {"static-fp", "dynamic-fp", "static-32"};
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names, "calltrees");

	for (unsigned i = 0; i < count; i++) {
		struct image_kernel kernel;
		struct error error = {0};
		unsigned tasks[3] = {0};
		unsigned exact[3] = {0};
		AUTO_FCLOSE FILE *file = open_truth(names[i], "calltrees");
		char line[1024];

		cr_assert(image_kernel_open(&kernel, names[i], &error), "%s", error.text);
		while (fgets(line, sizeof(line), file)) {
			uint64_t truth[16];
			unsigned frames = 0;
			char kind[32];
			char way[32];
			unsigned tid;
			uint64_t pcs[DEPTH];
			struct unwind_stack stack;
			struct guest_cpu cpu;
			uint64_t task;
			unsigned which = 0;
			unsigned found = 0;

			if (sscanf(line, "%*u %u %31s %31s", &tid, kind, way) != 3 ||
			    strncmp(way, "spin", 4) == 0)
				continue;
			while (which < 3 && strcmp(kind, kinds[which]) != 0)
				which++;
			if (which == 3)
				continue;
			for (char *at = strchr(line, '@'); at && frames < 16;
			     at = strchr(at + 1, '@'))
				if (at[1] != '?')
					truth[frames++] = strtoull(at + 1, NULL, 16);
			frames--; /* the last one called main or the thread: libc's */
			task = image_find_task(&kernel, tid);
			if (!task || !image_task_registers(&kernel, task, &cpu))
				continue;
			stack = guest_unwind(&kernel.image.memory.memory,
					     linux_stack_unwind_kernel(kernel.stack), &cpu, pcs,
					     DEPTH);
			tasks[which]++;
			for (unsigned k = stack.user_frame; k < stack.count && found < frames; k++)
				found += pcs[k] == truth[found];
			exact[which] += found == frames;
			if (found < frames) {
				fprintf(stderr, "%s: %s %u %s: %u of %u frames; %s:", names[i],
					kind, tid, way, found, frames, stack_end_string(stack.end));
				for (unsigned k = stack.user_frame; k < stack.count; k++)
					fprintf(stderr, " %#" PRIx64, pcs[k]);
				fprintf(stderr, "\n");
			}
		}
		/* Missing are those that sleep in a library's function that has a frame, and no
		 * frame pointer to it: rules for these are in its .eh_frame. */
		for (unsigned which = 0; which < 3; which++) {
			fprintf(stderr, "%s: %s: %u of %u call trees whole\n", names[i],
				kinds[which], exact[which], tasks[which]);
			cr_assert(which == 2 || tasks[which] > 10);
			cr_assert_geq(exact[which] * 10, tasks[which] * (which == 2 ? 8 : 9));
		}
		image_kernel_close(&kernel);
	}
}

/* The vCPUs as they were when the image was made: in a loop of a program, or idle. */
Test(linux_stack, stopped_vcpus_are_complete)
{
	char names[IMAGE_LIMIT][NAME_LENGTH];
	unsigned count = list_images(names, "registers");
	unsigned in_kernel = 0;

	for (unsigned i = 0; i < count; i++) {
		struct image_kernel kernel = {0};
		struct error error = {0};

		cr_assert(image_open(&kernel.image, names[i]));
		cr_assert(image_kernel_prepare(&kernel, &error), "%s: %s", names[i], error.text);
		for (unsigned k = 0; k < kernel.image.cpu_count; k++) {
			const struct guest_cpu *cpu = &kernel.image.cpus[k];
			uint64_t pcs[DEPTH];
			struct unwind_stack stack = guest_unwind(
				&kernel.image.memory.memory,
				linux_stack_unwind_kernel(kernel.stack), cpu, pcs, DEPTH);

			if (cpu->cpl == 3) {
				cr_assert_eq(stack.user_frame, 0);
				continue;
			}
			in_kernel++;
			cr_assert(stack.user_frame < stack.count || stack.end == STACK_END_ROOT,
				  "%s vCPU %u: %u frames, %s", names[i], k, stack.count,
				  stack_end_string(stack.end));
			cr_assert_gt(stack.count, 2);
		}
		image_kernel_close(&kernel);
	}
	cr_assert_gt(in_kernel, 0);
}
