/* What introspection costs: stacks of 4, 16 and 64 frames, finding a kernel, reading kallsyms, all
 * that a capture asks of a guest (goal: 1 us on top of frame pointers), all that is learned before
 * (goals: 300 ms, 16 MiB).
 *
 * Machines differ, so each figure stands next to its ratio to a memcpy of the same run. The
 * kernel figures need build/images (tests/images/make-image.sh). */
#include "base/cleanup.h"
#include "guest-introspection/linux/eh_frame_process.h"
#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/linux/linux_modules.h"
#include "guest-introspection/linux/linux_task.h"
#include "guest-introspection/unwind/unwind.h"
#include "guest-introspection/linux/linux_guest.h"
#include "tests/stack_ends.h"
#include "tests/bench/framed_guest.h"
#include "tests/image_tasks.h"

#include <dirent.h>
#include <malloc.h>
#include <time.h>

#define ROUNDS 31
#define BATCH 2000
#define COPY_SIZE (1u << 20)

/* Nanoseconds of this thread: what others on the machine do must not count. */
static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare_double(const void *left, const void *right)
{
	double a = *(const double *)left;
	double b = *(const double *)right;

	return a < b ? -1 : a > b;
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_double);
	return values[count / 2];
}

/* Nanoseconds to copy 1 MiB, the yardstick. */
static double measure_copy(void)
{
	AUTO_FREE uint8_t *from = malloc(COPY_SIZE);
	AUTO_FREE uint8_t *to = malloc(COPY_SIZE);
	double times[ROUNDS];

	memset(from, 1, COPY_SIZE);
	memset(to, 2, COPY_SIZE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		double start = now();

		memcpy(to, from, COPY_SIZE);
		__asm__ volatile("" : : "r"(to) : "memory");
		times[i] = now() - start;
	}
	return median(times, ROUNDS);
}

static void measure_unwind(unsigned frames, double copy)
{
	struct framed_guest guest;
	double times[ROUNDS];
	uint64_t pcs[128];
	uint64_t reads = 0;
	struct unwind_stack stack = {0};

	framed_guest_init(&guest, frames);
	for (unsigned i = 0; i < ROUNDS; i++) {
		double start = now();

		for (unsigned k = 0; k < BATCH; k++) {
			stack = guest_unwind(&guest.memory.memory, NULL, &guest.cpu, pcs, 128);
			__asm__ volatile("" : : "r"(pcs) : "memory");
		}
		times[i] = (now() - start) / BATCH;
	}
	guest.memory.reads = &reads;
	guest_unwind(&guest.memory.memory, NULL, &guest.cpu, pcs, 128);
	printf("unwind  %2u frames (%s)  %8.0f ns  %6.4f of copying 1 MiB  %llu guest reads\n",
	       stack.count, stack_end_string(stack.end), median(times, ROUNDS),
	       median(times, ROUNDS) / copy, (unsigned long long)reads);
	free(guest.bytes);
}

/* A line of /proc/self/status, in KiB. */
static size_t status_of(const char *name)
{
	AUTO_FCLOSE FILE *file = fopen("/proc/self/status", "re");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			return strtoull(line + strlen(name), NULL, 10);
	return 0;
}

/* Makes the peak of resident memory start anew (proc(5), clear_refs). */
static void reset_peak(void)
{
	AUTO_FCLOSE FILE *file = fopen("/proc/self/clear_refs", "we");

	if (file)
		fputs("5", file);
}

static void measure_image(const char *name, double copy)
{
	enum { REPEAT = 7 };
	struct image image;
	struct linux_kernel kernel;
	struct symbol_table table;
	struct error error;
	double find[REPEAT];
	double read[REPEAT];
	size_t peak = 0;
	size_t kept = 0;
	size_t symbols = 0;

	if (!image_open(&image, name)) {
		printf("%s: not whole, left out\n", name);
		return;
	}
	/* Resident from here on, so that only our own memory is counted below. */
	for (uint64_t at = 0; at < image.memory.size; at += 4096)
		(void)*(volatile uint8_t *)&image.memory.bytes[at];
	for (unsigned i = 0; i < REPEAT; i++) {
		size_t before;
		double start = now();

		if (linux_kernel_find(&image.memory.memory, image.cpus, image.cpu_count, &kernel,
				      &error) != GP_OK) {
			printf("%s: %s\n", name, error.text);
			goto done;
		}
		find[i] = now() - start;
		malloc_trim(0);
		reset_peak();
		before = status_of("VmRSS:");
		start = now();
		if (linux_kallsyms_read(&image.memory.memory, &kernel, &table, &error) != GP_OK) {
			printf("%s: %s\n", name, error.text);
			goto done;
		}
		read[i] = now() - start;
		if (i == 0) {
			peak = status_of("VmHWM:") - before;
			kept = table.capacity * sizeof(*table.entries) + table.names_capacity;
			symbols = table.count;
		}
		symbol_table_deinit(&table);
	}
	printf("%-14s find %5.1f ms (%4.1f x)  kallsyms %5.1f ms (%4.0f x)  %zu symbols, "
	       "%.1f MiB kept, %.1f MiB at most while reading\n",
	       name, median(find, REPEAT) / 1e6, find[REPEAT / 2] / copy,
	       median(read, REPEAT) / 1e6, read[REPEAT / 2] / copy, symbols,
	       (double)kept / (1 << 20), (double)peak / 1024);
done:
	image_close(&image);
}

/* All that the sampler learns of a kernel before samples say everything: where it is, symbols,
 * types, tasks, modules, how stacks are unwound. Goals: 300 ms, 16 MiB. */
static void measure_learning(const char *name, double copy)
{
	enum { REPEAT = 5 };
	bool known[IMAGE_CPUS];
	double times[REPEAT];
	size_t peak = 0, kept = 0;
	struct error error = {0};
	struct image image;

	if (!image_open(&image, name))
		return;
	memset(known, true, sizeof(known));
	for (uint64_t at = 0; at < image.memory.size; at += 4096)
		(void)*(volatile uint8_t *)&image.memory.bytes[at];
	for (unsigned i = 0; i < REPEAT; i++) {
		struct linux_guest *guest =
			linux_guest_create(&image.memory.memory, image.cpu_count, NULL, NULL);
		size_t before;
		double start;

		malloc_trim(0);
		reset_peak();
		before = status_of("VmRSS:");
		start = now();
		if (!guest ||
		    linux_guest_learn(guest, image.cpus, known, image.cpu_count, &error) != GP_OK) {
			printf("%-14s not learned in one step: %s\n", name, error.text);
			linux_guest_destroy(guest);
			image_close(&image);
			return;
		}
		times[i] = now() - start;
		if (i == 0) {
			peak = status_of("VmHWM:") - before;
			malloc_trim(0);
			kept = status_of("VmRSS:") - before;
		}
		linux_guest_destroy(guest);
	}
	printf("%-14s ready in %5.1f ms (%4.0f x), %4.1f MiB kept, %4.1f MiB at most\n", name,
	       median(times, REPEAT) / 1e6, median(times, REPEAT) / copy, (double)kept / 1024,
	       (double)peak / 1024);
	image_close(&image);
}

#define TASK_LIMIT 400
#define USER_FRAMES 4

/* Stacks of all tasks that sleep, one after the other: kernel frames by ORC, then the program's by
 * frame pointers. Each is unwound from cold caches of its own, but warm ones of the machine. */
static void measure_stacks(const char *name, double copy)
{
	static struct guest_cpu cpus[TASK_LIMIT];
	AUTO_FCLOSE FILE *file = NULL;
	struct image_kernel kernel = {0};
	struct error error = {0};
	struct linux_stack *stack = NULL;
	double prepare[ROUNDS];
	double times[ROUNDS];
	uint64_t reads = 0;
	unsigned count = 0;
	unsigned kernel_frames = 0;
	unsigned user_frames = 0;
	char text[512];
	uint64_t pcs[128];

	snprintf(text, sizeof(text), IMAGE_DIRECTORY "/%.99s/tasks", name);
	file = fopen(text, "re");
	if (!file || !image_kernel_open(&kernel, name, &error))
		return;
	while (fgets(text, sizeof(text), file) && count < TASK_LIMIT) {
		unsigned tid;
		uint64_t task;

		if (sscanf(text, "%*u %u %*u %*u S", &tid) == 1 &&
		    (task = image_find_task(&kernel, tid)) != 0 &&
		    image_task_registers(&kernel, task, &cpus[count]))
			count++;
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		double start = now();

		if (linux_stack_create(&kernel.image.memory.memory, &kernel.kernel, &kernel.symbols,
				       &stack, NULL, &error) != GP_OK)
			return;
		prepare[i] = now() - start;
		linux_stack_destroy(stack);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		double start = now();

		for (unsigned k = 0; k < count; k++) {
			guest_unwind(&kernel.image.memory.memory,
				     linux_stack_unwind_kernel(kernel.stack), &cpus[k], pcs, 128);
			__asm__ volatile("" : : "r"(pcs) : "memory");
		}
		times[i] = (now() - start) / count;
	}
	kernel.image.memory.reads = &reads;
	for (unsigned k = 0; k < count; k++) {
		struct unwind_stack found =
			guest_unwind(&kernel.image.memory.memory,
				     linux_stack_unwind_kernel(kernel.stack), &cpus[k], pcs, 128);

		kernel_frames += found.user_frame;
		user_frames += found.count - found.user_frame;
	}
	printf("%-14s ORC ready in %4.1f ms (%3.0f x), %u entries, %.1f MiB kept; stack of %.1f "
	       "kernel + %.1f user frames: %5.0f ns, %6.4f of copying 1 MiB, %.1f guest reads\n",
	       name, median(prepare, ROUNDS) / 1e6, prepare[ROUNDS / 2] / copy,
	       linux_stack_orc(kernel.stack)->kernel.count,
	       (linux_stack_orc(kernel.stack)->kernel.count * 10.0 +
		(double)address_index_bytes(&linux_stack_orc(kernel.stack)->kernel.index)) /
		       (1 << 20),
	       (double)kernel_frames / count, (double)user_frames / count, median(times, ROUNDS),
	       median(times, ROUNDS) / copy, (double)reads / count);
	image_kernel_close(&kernel);
}

/* What a capture asks: which task runs on a vCPU, and a stack of 5 to 7 kernel frames and 3 to 5 of
 * a program, by the rules of both. Next to as many frames of our own guest by frame pointers. */
static void measure_samples(const char *name, struct image_kernel *kernel,
			    const struct guest_cpu *cpus, struct eh_frame_process *const *processes,
			    unsigned count)
{
	static struct linux_task_layout layout;
	const struct guest_memory *memory = &kernel->image.memory.memory;
	const struct unwind_kernel *unwind = linux_stack_unwind_kernel(kernel->stack);
	struct linux_task_cpu remembered[IMAGE_CPUS] = {0};
	const struct guest_cpu *chosen[TASK_LIMIT];
	const struct unwind_program *programs[TASK_LIMIT];
	unsigned depths[TASK_LIMIT], kernel_frames = 0;
	struct translation_cache cache;
	struct framed_guest framed;
	double identity[ROUNDS], walk[ROUNDS], frames[ROUNDS];
	unsigned found = 0;
	struct error error;
	uint64_t reads[2] = {0};
	uint64_t pcs[128];

	if (linux_task_layout_init(memory, &kernel->kernel, &kernel->symbols, kernel->btf, &layout,
				   &error) != GP_OK)
		return;
	for (unsigned k = 0; k < count; k++) {
		const struct unwind_program *program = eh_frame_process_program(processes[k]);
		struct unwind_stack stack =
			guest_unwind_program(memory, unwind, program, &cpus[k], pcs, 128);

		if (stack.user_frame < 5 || stack.user_frame > 7 ||
		    stack.count < stack.user_frame + USER_FRAMES)
			continue;
		kernel_frames += stack.user_frame;
		depths[found] = stack.user_frame + USER_FRAMES;
		chosen[found] = &cpus[k];
		programs[found++] = program;
	}
	if (found == 0)
		return;
	framed_guest_init(&framed, 10);
	for (unsigned i = 0; i <= ROUNDS; i++) {
		double times[4];

		times[0] = now();
		kernel->image.memory.reads = i == ROUNDS ? &reads[0] : NULL;
		for (unsigned k = 0; k < BATCH; k++) {
			unsigned vcpu = k % kernel->image.cpu_count;
			struct linux_task task;

			translation_cache_clear(&cache);
			linux_task_current(&layout, memory, &cache, &kernel->image.cpus[vcpu],
					   &remembered[vcpu], &task);
			__asm__ volatile("" : : "r"(&task) : "memory");
		}
		times[1] = now();
		kernel->image.memory.reads = i == ROUNDS ? &reads[1] : NULL;
		for (unsigned k = 0; k < BATCH; k++) {
			guest_unwind_program(memory, unwind, programs[k % found], chosen[k % found],
					     pcs, depths[k % found]);
			__asm__ volatile("" : : "r"(pcs) : "memory");
		}
		times[2] = now();
		for (unsigned k = 0; k < BATCH; k++) {
			guest_unwind(&framed.memory.memory, NULL, &framed.cpu, pcs, 128);
			__asm__ volatile("" : : "r"(pcs) : "memory");
		}
		times[3] = now();
		if (i == ROUNDS)
			break;
		identity[i] = (times[1] - times[0]) / BATCH;
		walk[i] = (times[2] - times[1]) / BATCH;
		frames[i] = (times[3] - times[2]) / BATCH;
	}
	printf("%-14s sample: identity %4.0f ns, %4.1f guest reads; stack of %.1f + %d frames "
	       "%4.0f ns, %4.1f guest reads; together %5.0f ns, %5.0f ns on top of 10 frames by "
	       "frame pointers\n",
	       name, median(identity, ROUNDS), (double)reads[0] / BATCH,
	       (double)kernel_frames / found, USER_FRAMES, median(walk, ROUNDS),
	       (double)reads[1] / BATCH, median(identity, ROUNDS) + median(walk, ROUNDS),
	       median(identity, ROUNDS) + median(walk, ROUNDS) - median(frames, ROUNDS));
	free(framed.bytes);
}

/* The same of 64-bit programs with known call trees: with frame pointers only, then with the rules
 * of their .eh_frame. */
static void measure_programs(const char *name, double copy)
{
	static struct guest_cpu cpus[TASK_LIMIT];
	static struct eh_frame_process *processes[TASK_LIMIT];
	AUTO_FCLOSE FILE *file = NULL;
	struct image_kernel kernel = {0};
	const struct guest_memory *memory = &kernel.image.memory.memory;
	struct error error = {0};
	struct linux_files files;
	struct linux_mappings mappings;
	struct linux_page_cache cache;
	struct eh_frame_files *rules = NULL;
	double first = 0;
	double prepare = 0;
	unsigned count = 0;
	char text[1024];
	uint64_t pcs[128];

	snprintf(text, sizeof(text), IMAGE_DIRECTORY "/%.99s/calltrees", name);
	file = fopen(text, "re");
	if (!file || !image_kernel_open(&kernel, name, &error))
		return;
	if (linux_files_init(memory, &kernel.kernel, &kernel.symbols, kernel.btf, &files, &error) !=
		    GP_OK ||
	    linux_mappings_init(&files, &kernel.symbols, kernel.btf, &mappings, &error) != GP_OK ||
	    linux_page_cache_init(memory, &kernel.kernel, &kernel.symbols, kernel.btf, &cache,
				  &error) != GP_OK ||
	    eh_frame_files_create(&rules, &error) != GP_OK) {
		printf("%s: %s\n", name, error.text);
		image_kernel_close(&kernel);
		return;
	}
	while (fgets(text, sizeof(text), file) && count < TASK_LIMIT) {
		unsigned tid;
		uint64_t task;
		double start;

		if (sscanf(text, "%*u %u", &tid) != 1 || strstr(text, " spin") ||
		    !(task = image_find_task(&kernel, tid)) ||
		    !image_task_registers(&kernel, task, &cpus[count]))
			continue;
		start = now();
		if (eh_frame_process_create(
			    rules, &mappings, &cache, NULL,
			    image_word(&kernel, task + image_offset(&kernel, "task_struct", "mm"),
				       8),
			    &processes[count], &error) != GP_OK)
			continue;
		prepare += now() - start;
		first = first > 0 ? first : now() - start;
		count++;
	}
	for (unsigned with = 0; with < 2 && count > 0; with++) {
		double times[ROUNDS];
		uint64_t reads = 0;
		unsigned user_frames = 0;
		unsigned rooted = 0;

		for (unsigned i = 0; i <= ROUNDS; i++) {
			double start = now();

			kernel.image.memory.reads = i == ROUNDS ? &reads : NULL;
			for (unsigned k = 0; k < count; k++) {
				struct unwind_stack found = guest_unwind_program(
					memory, linux_stack_unwind_kernel(kernel.stack),
					with ? eh_frame_process_program(processes[k]) : NULL,
					&cpus[k], pcs, 128);

				__asm__ volatile("" : : "r"(pcs) : "memory");
				if (i < ROUNDS)
					continue;
				user_frames += found.count - found.user_frame;
				rooted += found.end == STACK_END_ROOT;
			}
			if (i < ROUNDS)
				times[i] = (now() - start) / count;
		}
		printf("%-14s programs %s: %.1f user frames, %3u of %u to the root: %5.0f ns a "
		       "stack, %6.4f of copying 1 MiB, %.1f guest reads\n",
		       name, with ? ".eh_frame      " : "frame pointers ",
		       (double)user_frames / count, rooted, count, median(times, ROUNDS),
		       median(times, ROUNDS) / copy, (double)reads / count);
	}
	if (count > 0)
		printf("%-14s rules of the first process ready in %.2f ms, of one on average in "
		       "%.2f ms\n",
		       name, first / 1e6, prepare / count / 1e6);
	measure_samples(name, &kernel, cpus, processes, count);
	for (unsigned k = 0; k < count; k++)
		eh_frame_process_destroy(rules, processes[k]);
	eh_frame_files_destroy(rules);
	image_kernel_close(&kernel);
}

int main(void)
{
	static void (*const measures[])(const char *name, double copy) = {
		measure_image, measure_learning, measure_stacks, measure_programs};
	double copy = measure_copy();
	DIR *directory;
	struct dirent *entry;

	printf("copying 1 MiB: %.0f ns (the x of the ratios)\n", copy);
	measure_unwind(4, copy);
	measure_unwind(16, copy);
	measure_unwind(64, copy);
	directory = opendir(IMAGE_DIRECTORY);
	if (!directory) {
		printf("kernel figures: left out, no images (tests/images/make-image.sh)\n");
		return 0;
	}
	for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++) {
		rewinddir(directory);
		while ((entry = readdir(directory)))
			if (entry->d_name[0] != '.')
				measures[i](entry->d_name, copy);
	}
	closedir(directory);
	return 0;
}
