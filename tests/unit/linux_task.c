/* The current task of a vCPU and all tasks, as the guest itself says they are. */
#include "base/cleanup.h"
#include "guest-introspection/linux_task.h"
#include "tests/kernel_memory.h"
#include "tests/unit/image_support.h"

#include <criterion/criterion.h>

static void make_layout(struct prepared_image *image, struct linux_task_layout *layout)
{
	struct error error = {0};
	struct btf *btf;
	double begin = seconds_used();
	double parsed;

	cr_assert_eq(linux_btf_read(image->memory, &image->kernel, &image->symbols, &btf, &error),
		     GP_OK, "%s: %s", image->name, error.text);
	parsed = seconds_used();
	cr_assert_eq(linux_task_layout_init(image->memory, &image->kernel, &image->symbols, btf,
					    layout, &error),
		     GP_OK, "%s: %s", image->name, error.text);
	cr_log_info("%s: BTF %.1f ms, layout %.1f ms, %u windows, %u CPUs", image->name,
		    (parsed - begin) * 1e3, (seconds_used() - parsed) * 1e3, layout->window_count,
		    layout->area_count);
	btf_destroy(btf);
	cr_assert(layout->settled, "%s", image->name);
}

/* One line of build/images/NAME/tasks. */
struct truth {
	int pid;
	int tid;
	int parent;
	int kernel_thread;
	char state;
	int cpu;
	char name[128];
};

/* NULL when this image has none. */
static struct truth *read_truth(const char *image, size_t *count)
{
	const size_t room = 4096;
	struct truth *truth;
	char line[512];
	FILE *file;

	file = image_fopen(image, "tasks");
	*count = 0;
	if (!file)
		return NULL;
	truth = calloc(room, sizeof(*truth));
	cr_assert(truth);
	while (fgets(line, sizeof(line), file)) {
		struct truth *one = &truth[*count];

		cr_assert_eq(sscanf(line, "%d %d %d %d %c %d %127[^\n]", &one->pid, &one->tid,
				    &one->parent, &one->kernel_thread, &one->state, &one->cpu,
				    one->name),
			     7, "%s", line);
		cr_assert_lt(++*count, room);
	}
	fclose(file);
	return truth;
}

static const struct truth *find_truth(const struct truth *truth, size_t count, int tid)
{
	for (size_t i = 0; i < count; i++)
		if (truth[i].tid == tid)
			return &truth[i];
	return NULL;
}

/* What cannot be the same any more at the stop. */
static bool has_moved_on(const char *name)
{
	return strcmp(name, "truth") == 0 || strcmp(name, "gzip") == 0 || strcmp(name, "sh") == 0 ||
	       strcmp(name, "init") == 0;
}

Test(linux_task, every_vcpu_s_task_is_the_one_that_runs)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		static struct linux_task_layout layout;
		struct prepared_image image;
		size_t truth_count;
		AUTO_FREE struct truth *truth = read_truth(names[i], &truth_count);
		uint32_t numbers = 0;

		if (!prepared_image_init(&image, names[i]))
			continue;
		make_layout(&image, &layout);
		for (unsigned k = 0; k < image.image.cpu_count; k++) {
			const struct guest_cpu *cpu = &image.image.cpus[k];
			struct linux_task_cpu remembered = {0};
			struct linux_task task = {0};
			struct translation_cache cache;
			char process[LINUX_TASK_NAME_SIZE];

			translation_cache_clear(&cache);
			cr_assert_eq(linux_task_current(&layout, image.memory, &cache, cpu,
							&remembered, &task),
				     LINUX_TASK_FOUND, "%s vCPU %u", names[i], k);
			cr_assert(linux_task_name(&layout, image.memory, &cache, task.leader,
						  process));
			cr_log_info("%s vCPU %u (CPU %u, CPL %u): %s, %d/%d %s%s%s", names[i], k,
				    remembered.number, cpu->cpl, task.name, task.pid, task.tid,
				    task.idle ? "idle " : "",
				    task.kernel_thread ? "kernel thread " : "",
				    task.check == LINUX_TASK_VERIFIED ? "verified" : "NOT");
			cr_assert_eq(task.check, LINUX_TASK_VERIFIED, "%s vCPU %u: %d", names[i], k,
				     task.check);
			cr_assert_eq(numbers & 1u << remembered.number, 0);
			numbers |= 1u << remembered.number;
			/* Where the GS base says the same, it must be the same. */
			if (cpu->cpl == 0 && cpu->gs.base >> 63)
				cr_assert_eq(cpu->gs.base, remembered.offset);
			cr_assert_eq(task.idle, task.tid == 0);
			if (task.idle) {
				char idle[LINUX_TASK_NAME_SIZE];

				snprintf(idle, sizeof(idle), "swapper/%u", remembered.number);
				cr_assert_str_eq(task.name, idle);
				cr_assert(task.kernel_thread);
				cr_assert_eq(cpu->cpl, 0);
				continue;
			}
			if (!truth) {
				/* These images have one program, a shell. */
				cr_assert_str_eq(task.name, "init", "%s: %s", names[i], task.name);
				cr_assert_eq(task.pid, 1);
				cr_assert_eq(cpu->cpl, 3);
				continue;
			}
			const struct truth *wanted = find_truth(truth, truth_count, task.tid);

			/* A program that spins, or what the guest does behind its last file. */
			cr_assert(wanted, "%s: %d %s", names[i], task.tid, task.name);
			cr_assert_eq(wanted->pid, task.pid);
			cr_assert_eq(wanted->kernel_thread, task.kernel_thread);
			if (!has_moved_on(wanted->name) && !task.kernel_thread) {
				cr_assert_eq(wanted->state, 'R', "%s: %s", names[i], task.name);
				cr_assert_str_eq(wanted->name, task.name);
			}
		}
		prepared_image_deinit(&image);
	}
}

/* The same process under each root that is not its own, and each thread that does not fit. */
Test(linux_task, page_tables_of_another_process_contradict)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);
	unsigned tried = 0;

	for (unsigned i = 0; i < count; i++) {
		static struct linux_task_layout layout;
		struct prepared_image image;

		if (!prepared_image_init(&image, names[i]))
			continue;
		make_layout(&image, &layout);
		for (unsigned k = 0; k < image.image.cpu_count; k++) {
			struct guest_cpu cpu = image.image.cpus[k];
			struct linux_task_cpu remembered = {0};
			struct linux_task task = {0};

			cr_assert_eq(linux_task_current(&layout, image.memory, NULL, &cpu,
							&remembered, &task),
				     LINUX_TASK_FOUND);
			if (task.kernel_thread)
				continue;
			tried++;
			for (uint64_t flip = UINT64_C(1) << 13; flip < UINT64_C(1) << 40;
			     flip <<= 1) {
				struct guest_cpu other = cpu;

				other.cr3 ^= flip;
				linux_task_current(&layout, image.memory, NULL, &other, &remembered,
						   &task);
				cr_assert_eq(task.check, LINUX_TASK_CONTRADICTED);
			}
			/* The neighbouring page is its own only with isolation. */
			cpu.cr3 ^= 1 << 12;
			linux_task_current(&layout, image.memory, NULL, &cpu, &remembered, &task);
			cr_assert_eq(task.check,
				     layout.isolated ? LINUX_TASK_VERIFIED
						     : LINUX_TASK_CONTRADICTED,
				     "%s", names[i]);
			/* As make-image.sh boots them. */
			cr_assert_eq(layout.isolated,
				     strstr(names[i], "pti") || strstr(names[i], "-cloud-tasks"),
				     "%s", names[i]);
		}
		prepared_image_deinit(&image);
	}
	cr_assert_gt(tried, 0);
}

struct collected {
	struct linux_task tasks[4096];
	size_t count;
	size_t stop_at;
};

static bool collect(void *context, const struct linux_task *task)
{
	struct collected *collected = context;

	cr_assert_lt(collected->count, 4096);
	collected->tasks[collected->count++] = *task;
	return collected->count != collected->stop_at;
}

/* Does the guest's own name for it agree? A worker's has what it works on behind it. */
static bool names_agree(const struct truth *truth, const char *name, const char *long_name)
{
	if (strncmp(truth->name, "kworker/", 8) == 0)
		return strncmp(truth->name, name, strlen(name)) == 0 ||
		       strncmp(truth->name, name, 10) == 0;
	/* Of a work queue's rescuer the guest tells the short name, we tell the whole. */
	return strcmp(truth->name, long_name) == 0 || strcmp(truth->name, name) == 0 ||
	       has_moved_on(truth->name);
}

Test(linux_task, the_walk_finds_all_tasks_with_their_names)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);
	unsigned walked = 0;

	for (unsigned i = 0; i < count; i++) {
		static struct linux_task_layout layout;
		static struct collected found;
		struct prepared_image image;
		struct error error = {0};
		size_t truth_count;
		size_t equal = 0;
		size_t gone = 0;
		AUTO_FREE struct truth *truth = read_truth(names[i], &truth_count);
		double begin;

		if (!prepared_image_init(&image, names[i]))
			continue;
		make_layout(&image, &layout);
		found.count = 0;
		found.stop_at = 0;
		begin = seconds_used();
		cr_assert_eq(linux_task_walk(&layout, image.memory, 4096, collect, &found, &error),
			     GP_OK, "%s: %s", names[i], error.text);
		begin = seconds_used() - begin;
		cr_assert_gt(found.count, 20);
		cr_assert_str_eq(found.tasks[0].name, "swapper/0");
		for (size_t k = 0; truth && k < truth_count; k++) {
			char long_name[LINUX_TASK_LONG_NAME_SIZE];
			const struct linux_task *task = NULL;

			for (size_t t = 0; t < found.count; t++)
				if (found.tasks[t].tid == truth[k].tid)
					task = &found.tasks[t];
			if (!task && (has_moved_on(truth[k].name) ||
				      strncmp(truth[k].name, "kworker/", 8) == 0)) {
				gone++;
				continue;
			}
			cr_assert(task, "%s: %d %s is not found", names[i], truth[k].tid,
				  truth[k].name);
			cr_assert_eq(task->pid, truth[k].pid, "%s: %d", names[i], task->tid);
			cr_assert_eq(task->kernel_thread, truth[k].kernel_thread);
			cr_assert(linux_task_long_name(&layout, image.memory, NULL, task->address,
						       long_name));
			cr_assert(names_agree(&truth[k], task->name, long_name), "%s: %s is %s",
				  names[i], long_name, truth[k].name);
			cr_assert_eq(task->mm == 0, task->kernel_thread || truth[k].state == 'Z');
			equal++;
		}
		if (truth) {
			cr_assert_leq(found.count, equal + 1 + 4, "%s: %zu tasks, %zu in truth",
				      names[i], found.count, truth_count);
			walked++;
		}
		cr_log_info("%s: %zu tasks in %.2f ms, %zu as the guest says, %zu gone", names[i],
			    found.count, begin * 1e3, equal, gone);
		/* An end by the visitor, and by the limit. */
		size_t all = found.count;

		found.count = 0;
		found.stop_at = 5;
		cr_assert_eq(linux_task_walk(&layout, image.memory, 4096, collect, &found, NULL),
			     GP_OK);
		cr_assert_eq(found.count, 5);
		found.count = 0;
		found.stop_at = 0;
		cr_assert_eq(linux_task_walk(&layout, image.memory, all - 1, collect, &found, NULL),
			     GP_ERR_IO_DATA_INTEGRITY);
		cr_assert_eq(found.count, all - 1);
		cr_assert_eq(linux_task_walk(&layout, image.memory, all, collect, &found, NULL),
			     GP_OK);
		prepared_image_deinit(&image);
	}
	if (!walked)
		cr_skip_test("no image whose name ends in -tasks: run tests/images/make-image.sh");
}

Test(linux_task, costs_a_handful_of_reads)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		static struct linux_task_layout layout;
		struct prepared_image image;
		struct linux_task_cpu remembered = {0};
		struct linux_task task;
		struct translation_cache cache;
		const unsigned rounds = 100000;
		uint64_t cold;
		uint64_t reads = 0;
		double begin;

		if (!prepared_image_init(&image, names[i]))
			continue;
		make_layout(&image, &layout);
		translation_cache_clear(&cache);
		linux_task_current(&layout, image.memory, &cache, image.image.cpus, &remembered,
				   &task);
		translation_cache_clear(&cache);
		image.image.memory.reads = &reads;
		cr_assert_eq(linux_task_current(&layout, image.memory, &cache, image.image.cpus,
						&remembered, &task),
			     LINUX_TASK_FOUND);
		cold = reads;
		reads = 0;
		linux_task_current(&layout, image.memory, &cache, image.image.cpus, &remembered,
				   &task);
		image.image.memory.reads = NULL;
		begin = seconds_used();
		for (unsigned k = 0; k < rounds; k++)
			linux_task_current(&layout, image.memory, &cache, image.image.cpus,
					   &remembered, &task);
		begin = seconds_used() - begin;
		cr_log_info("%s: %llu reads with an empty cache, %llu with a warm one, %.0f ns",
			    names[i], (unsigned long long)cold, (unsigned long long)reads,
			    begin / rounds * 1e9);
		/* The cache is small, and two of the pages may share a place in it. */
		cr_assert_leq(cold, 24);
		cr_assert_leq(reads, 16);
		prepared_image_deinit(&image);
	}
}
