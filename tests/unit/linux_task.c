/* The current task of a vCPU and all tasks, as the guest itself says they are. */
#include "base/cleanup.h"
#include "guest-introspection/linux/linux_task.h"
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
				/* These images have one program, a shell that may have been
				 * interrupted. */
				cr_assert_str_eq(task.name, "init", "%s: %s", names[i], task.name);
				cr_assert_eq(task.pid, 1);
				cr_assert(!task.kernel_thread);
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

/* A made-up system: CPU 0 runs the thread of a program, CPU 1 a kernel thread. Offsets in the data;
 * page tables need not be there to be compared. */
enum {
	IDLE = DATA_INIT_TASK,
	LEADER = 512,
	THREAD = 768,
	KERNEL_THREAD = 1024,
	SIGNALS = 2048,
	PROGRAM_MM = 2560,
	KTHREAD = 3000,
	FULL_NAME = 3100,
};

#define PROGRAM_ROOT UINT64_C(0x20000)
#define PROGRAM_CR3 (PROGRAM_ROOT | 0x5)
#define STACK_AT (KERNEL_DIRECT + 0x18000)
#define PF_KTHREAD 0x200000u

static uint64_t linear(uint64_t offset)
{
	return KERNEL_DIRECT + KERNEL_DATA + offset;
}

static void put(struct kernel_memory *kernel, uint64_t offset, uint64_t value, unsigned size)
{
	buffer_put(&kernel->memory, KERNEL_DATA + offset, value, size);
}

static void put_task(struct kernel_memory *kernel, uint64_t task, int tid, uint64_t leader, int pid,
		     uint64_t mm, uint64_t active_mm, const char *name)
{
	put(kernel, task + TASK_STACK, STACK_AT, 8);
	put(kernel, task + TASK_FLAGS, mm ? 0x400000 : PF_KTHREAD, 4);
	put(kernel, task + TASK_MM, mm, 8);
	put(kernel, task + TASK_ACTIVE_MM, active_mm, 8);
	put(kernel, task + TASK_TID, (uint32_t)tid, 4);
	put(kernel, task + TASK_PID, (uint32_t)pid, 4);
	put(kernel, task + TASK_LEADER, linear(leader), 8);
	put(kernel, task + TASK_START_TIME, (uint64_t)tid * 1000, 8);
	memcpy(kernel->bytes + KERNEL_DATA + task + TASK_COMM, name, strlen(name));
}

static void put_ring(struct kernel_memory *kernel, const uint64_t *nodes, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		put(kernel, nodes[i], linear(nodes[(i + 1) % count]), 8);
		put(kernel, nodes[(i + 1) % count] + 8, linear(nodes[i]), 8);
	}
}

static void put_threads(struct kernel_memory *kernel, unsigned signal, uint64_t first,
			uint64_t second)
{
	uint64_t at = SIGNALS + signal * UINT64_C(64);
	const uint64_t nodes[] = {at + SIGNAL_THREAD_HEAD, first + TASK_THREAD_NODE,
				  second + TASK_THREAD_NODE};

	put(kernel, first + TASK_SIGNAL, linear(at), 8);
	put_ring(kernel, nodes, second ? 3 : 2);
}

static void set_current(struct kernel_memory *kernel, unsigned cpu, uint64_t task)
{
	buffer_put(&kernel->memory, KERNEL_AREAS + cpu * KERNEL_AREA_SIZE + PER_CPU_CURRENT, task,
		   8);
}

static uint64_t area(unsigned cpu)
{
	return KERNEL_DIRECT + KERNEL_AREAS + cpu * KERNEL_AREA_SIZE;
}

static struct kernel_memory *make_kernel(struct linux_task_layout *layout)
{
	static struct kernel_memory kernel;
	const uint64_t tasks[] = {IDLE + TASK_TASKS, LEADER + TASK_TASKS,
				  KERNEL_THREAD + TASK_TASKS};

	kernel_memory_init(&kernel);
	for (unsigned i = 0; i < KERNEL_CPUS; i++)
		put(&kernel, DATA_PER_CPU_OFFSET + i * 8, area(i), 8);
	put(&kernel, DATA_CPU_COUNT, KERNEL_CPUS, 4);
	put(&kernel, DATA_INIT_MM + MM_PGD, UINT64_C(0xffffffff82000000), 8);
	put(&kernel, PROGRAM_MM + MM_PGD, KERNEL_DIRECT + PROGRAM_ROOT, 8);
	put_task(&kernel, IDLE, 0, IDLE, 0, 0, linear(DATA_INIT_MM), "swapper/0");
	put_task(&kernel, LEADER, 100, LEADER, 100, linear(PROGRAM_MM), linear(PROGRAM_MM),
		 "leader");
	put_task(&kernel, THREAD, 101, LEADER, 100, linear(PROGRAM_MM), linear(PROGRAM_MM),
		 "thread");
	put_task(&kernel, KERNEL_THREAD, 2, KERNEL_THREAD, 2, 0, linear(PROGRAM_MM),
		 "kthread_long_na");
	put(&kernel, KERNEL_THREAD + TASK_WORKER, linear(KTHREAD), 8);
	put(&kernel, KTHREAD + THREAD_FULL_NAME, linear(FULL_NAME), 8);
	memcpy(kernel.bytes + KERNEL_DATA + FULL_NAME, "kthread_long_name_whole", 23);
	put_ring(&kernel, tasks, 3);
	put_threads(&kernel, 0, IDLE, 0);
	put_threads(&kernel, 1, LEADER, THREAD);
	put_threads(&kernel, 2, KERNEL_THREAD, 0);
	set_current(&kernel, 0, linear(THREAD));
	set_current(&kernel, 1, linear(KERNEL_THREAD));
	kernel_memory_task_layout(layout);
	linux_task_layout_refresh(layout, &kernel.memory.memory);
	cr_assert(layout->settled);
	return &kernel;
}

/* A vCPU in user mode. */
static struct guest_cpu make_cpu(unsigned number, uint64_t cr3)
{
	struct guest_cpu cpu = {.rip = 0x401000, .cr3 = cr3, .cpl = 3};

	cpu.tr_base = KERNEL_TSS + number * UINT64_C(4096);
	return cpu;
}

static struct guest_cpu make_kernel_cpu(unsigned number, uint64_t cr3)
{
	struct guest_cpu cpu = make_cpu(number, cr3);

	cpu.cpl = 0;
	cpu.rip = UINT64_C(0xffffffff81234567);
	cpu.gs.base = area(number);
	cpu.gpr[GUEST_RSP] = STACK_AT + 0x3000;
	return cpu;
}

static enum linux_task_result ask(const struct linux_task_layout *layout,
				  struct kernel_memory *kernel, const struct guest_cpu *cpu,
				  struct linux_task *task)
{
	struct linux_task_cpu remembered = {0};
	struct translation_cache cache;

	translation_cache_clear(&cache);
	return linux_task_current(layout, &kernel->memory.memory, &cache, cpu, &remembered, task);
}

static void expect_check(const struct linux_task_layout *layout, struct kernel_memory *kernel,
			 struct guest_cpu cpu, enum linux_task_check check)
{
	struct linux_task task;

	cr_assert_eq(ask(layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_eq(task.check, check, "%d", task.check);
}

/* The guest goes on while it is looked at: it has set up some of its areas, or the page tables that
 * are known are those that it has left. */
Test(linux_task, per_cpu_areas_have_moved_when_all_have)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	const uint64_t last = DATA_PER_CPU_OFFSET + (KERNEL_CPUS - 1) * 8;

	put(kernel, last, layout.per_cpu_boot, 8);
	linux_task_layout_refresh(&layout, &kernel->memory.memory);
	cr_assert(!layout.settled);
	put(kernel, last, area(0), 8);
	linux_task_layout_refresh(&layout, &kernel->memory.memory);
	cr_assert(!layout.settled);
	put(kernel, last, KERNEL_DIRECT + (UINT64_C(1) << 30), 8);
	linux_task_layout_refresh(&layout, &kernel->memory.memory);
	cr_assert(!layout.settled);
	put(kernel, last, area(KERNEL_CPUS - 1), 8);
	linux_task_layout_refresh(&layout, &kernel->memory.memory);
	cr_assert(layout.settled);
}

Test(linux_task, a_program_s_thread)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	struct guest_cpu cpu = make_cpu(0, PROGRAM_CR3);
	struct linux_task task;
	char name[LINUX_TASK_NAME_SIZE];

	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_eq(task.address, linear(THREAD));
	cr_assert_eq(task.mm, linear(PROGRAM_MM));
	cr_assert_eq(task.stack, STACK_AT);
	cr_assert_eq(task.leader, linear(LEADER));
	cr_assert_eq(task.start_time, 101000);
	cr_assert_eq(task.pid, 100);
	cr_assert_eq(task.tid, 101);
	cr_assert_not(task.idle || task.kernel_thread);
	cr_assert_eq(task.check, LINUX_TASK_VERIFIED);
	cr_assert_str_eq(task.name, "thread");
	cr_assert(linux_task_name(&layout, &kernel->memory.memory, NULL, task.leader, name));
	cr_assert_str_eq(name, "leader");
}

Test(linux_task, user_mode_on_other_tables_is_contradicted)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	const uint64_t isolated = PROGRAM_CR3 | 0x1000;

	expect_check(&layout, kernel, make_cpu(0, PROGRAM_CR3 + 0x2000), LINUX_TASK_CONTRADICTED);
	expect_check(&layout, kernel, make_cpu(0, KERNEL_ROOT), LINUX_TASK_CONTRADICTED);
	/* Bits that are no address: PCID, linear-address masking. */
	expect_check(&layout, kernel, make_cpu(0, PROGRAM_CR3 | UINT64_C(3) << 61),
		     LINUX_TASK_VERIFIED);
	/* The page behind is a program's own only under isolation. */
	expect_check(&layout, kernel, make_cpu(0, isolated), LINUX_TASK_CONTRADICTED);
	put(kernel, DATA_CAPABILITIES, 1 << 11, 4);
	linux_task_layout_refresh(&layout, &kernel->memory.memory);
	expect_check(&layout, kernel, make_cpu(0, isolated), LINUX_TASK_VERIFIED);
	expect_check(&layout, kernel, make_cpu(0, PROGRAM_CR3), LINUX_TASK_VERIFIED);
	expect_check(&layout, kernel, make_cpu(0, PROGRAM_CR3 + 0x2000), LINUX_TASK_CONTRADICTED);
	/* A kernel thread is never in user mode. */
	expect_check(&layout, kernel, make_cpu(1, PROGRAM_CR3), LINUX_TASK_CONTRADICTED);
}

Test(linux_task, a_kernel_thread_borrows_tables_or_uses_the_kernel_s)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);

	expect_check(&layout, kernel, make_kernel_cpu(1, PROGRAM_CR3), LINUX_TASK_VERIFIED);
	expect_check(&layout, kernel, make_kernel_cpu(1, KERNEL_ROOT), LINUX_TASK_VERIFIED);
	expect_check(&layout, kernel, make_kernel_cpu(1, 0x30000), LINUX_TASK_CONTRADICTED);
	set_current(kernel, 1, linear(IDLE));
	expect_check(&layout, kernel, make_kernel_cpu(1, KERNEL_ROOT), LINUX_TASK_VERIFIED);
	expect_check(&layout, kernel, make_kernel_cpu(1, PROGRAM_CR3), LINUX_TASK_CONTRADICTED);
	/* A program in the kernel has its own. */
	expect_check(&layout, kernel, make_kernel_cpu(0, PROGRAM_CR3), LINUX_TASK_VERIFIED);
	expect_check(&layout, kernel, make_kernel_cpu(0, KERNEL_ROOT), LINUX_TASK_CONTRADICTED);
	/* Tables that cannot be looked up prove nothing. */
	put(kernel, PROGRAM_MM + MM_PGD, 42, 8);
	expect_check(&layout, kernel, make_kernel_cpu(0, PROGRAM_CR3), LINUX_TASK_UNCHECKED);
	put(kernel, THREAD + TASK_MM, 0x1000, 8);
	expect_check(&layout, kernel, make_kernel_cpu(0, PROGRAM_CR3), LINUX_TASK_UNCHECKED);
}

/* Between the change of the stack and that of the current task, both of one process. */
Test(linux_task, a_stack_that_is_another_task_s_contradicts)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	struct guest_cpu cpu = make_kernel_cpu(0, PROGRAM_CR3);
	const uint64_t irq_stack = KERNEL_DIRECT + 0x30000;
	static const struct {
		uint64_t stack;
		enum linux_task_check check;
	} cases[] = {
		{STACK_AT + 0x3000, LINUX_TASK_VERIFIED},
		{STACK_AT + 0x8000, LINUX_TASK_CONTRADICTED},
		{KERNEL_DIRECT + 0x30000 - 0x100, LINUX_TASK_VERIFIED}, /* an interrupt's */
		{KERNEL_DIRECT + 0x30000 - 0x3ff8, LINUX_TASK_VERIFIED},
		{KERNEL_DIRECT + 0x30000 - 0x4008, LINUX_TASK_CONTRADICTED},
		{KERNEL_DIRECT + 0x30000 + 0x10, LINUX_TASK_CONTRADICTED},
		{KERNEL_TSS + 0x10000, LINUX_TASK_VERIFIED}, /* an exception's */
		{0x7ffc12345678, LINUX_TASK_VERIFIED},       /* SYSCALL keeps the program's */
	};

	buffer_put(&kernel->memory, KERNEL_AREAS + PER_CPU_IRQ_STACK, irq_stack - 8, 8);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cpu.gpr[GUEST_RSP] = cases[i].stack;
		expect_check(&layout, kernel, cpu, cases[i].check);
	}
}

/* The same in a kernel that does not say where its interrupt stacks are. */
Test(linux_task, a_switch_of_threads_is_contradicted)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	struct guest_cpu cpu = make_kernel_cpu(0, PROGRAM_CR3);

	cpu.rip = layout.switches[0].start + 0x20;
	expect_check(&layout, kernel, cpu, LINUX_TASK_VERIFIED);
	cpu.gpr[GUEST_RSP] = STACK_AT + 0x4000;
	expect_check(&layout, kernel, cpu, LINUX_TASK_VERIFIED);
	cpu.gpr[GUEST_RSP] = STACK_AT + 0x8000;
	expect_check(&layout, kernel, cpu, LINUX_TASK_CONTRADICTED);
	cpu.gpr[GUEST_RSP] = STACK_AT - 8;
	expect_check(&layout, kernel, cpu, LINUX_TASK_CONTRADICTED);
	cpu.rip = layout.switches[0].end;
	expect_check(&layout, kernel, cpu, LINUX_TASK_VERIFIED);
}

Test(linux_task, its_own_stack_proves_a_task_on_other_tables)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	struct guest_cpu cpu = make_kernel_cpu(0, PROGRAM_CR3 + 0x2000);
	struct linux_task task;

	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_eq(task.check, LINUX_TASK_CONTRADICTED);
	cr_assert(task.own_stack);
	cpu.gpr[GUEST_RSP] = STACK_AT + 0x4008;
	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_not(task.own_stack);
	/* In user mode the stack pointer says nothing. */
	cpu.cpl = 3;
	cpu.gpr[GUEST_RSP] = STACK_AT + 0x1000;
	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_not(task.own_stack);
}

Test(linux_task, a_program_cannot_pose_as_another_cpu)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	struct guest_cpu cpu = make_cpu(0, PROGRAM_CR3);
	struct linux_task task;

	cpu.gs.base = area(1);
	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_eq(task.tid, 101);
	cpu.cpl = 0; /* behind an interrupt, before swapgs */
	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_eq(task.tid, 101);
}

Test(linux_task, without_a_tss_the_gs_base_of_the_kernel_is_learned)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	struct guest_cpu user = make_cpu(1, PROGRAM_CR3);
	struct guest_cpu cpu = make_kernel_cpu(1, PROGRAM_CR3);
	struct linux_task_cpu remembered = {0};
	struct linux_task task = {.tid = 42};

	layout.tss = 0;
	linux_task_layout_refresh(&layout, &kernel->memory.memory);
	user.gs.base = area(1);
	cr_assert_eq(linux_task_current(&layout, &kernel->memory.memory, NULL, &user, &remembered,
					&task),
		     LINUX_TASK_CPU_UNKNOWN);
	cpu.gs.base = area(1) + 8;
	cr_assert_eq(
		linux_task_current(&layout, &kernel->memory.memory, NULL, &cpu, &remembered, &task),
		LINUX_TASK_CPU_UNKNOWN);
	cr_assert_eq(task.tid, 42);
	cpu.gs.base = area(1);
	cr_assert_eq(
		linux_task_current(&layout, &kernel->memory.memory, NULL, &cpu, &remembered, &task),
		LINUX_TASK_FOUND);
	cr_assert_eq(task.tid, 2);
	cr_assert_eq(remembered.number, 1);
	/* From now on it is known in user mode, too. */
	user.gs.base = 0;
	set_current(kernel, 1, linear(LEADER));
	cr_assert_eq(linux_task_current(&layout, &kernel->memory.memory, NULL, &user, &remembered,
					&task),
		     LINUX_TASK_FOUND);
	cr_assert_eq(task.tid, 100);
	cr_assert_eq(task.check, LINUX_TASK_VERIFIED);
}

Test(linux_task, areas_that_boot_moves_are_learned_anew)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	const struct guest_memory *memory = &kernel->memory.memory;
	struct guest_cpu cpu = make_kernel_cpu(0, PROGRAM_CR3);
	struct linux_task_cpu remembered = {0};
	struct linux_task task;
	uint32_t before = layout.generation;

	linux_task_layout_refresh(&layout, memory);
	cr_assert_eq(layout.generation, before);
	cr_assert_eq(linux_task_current(&layout, memory, NULL, &cpu, &remembered, &task),
		     LINUX_TASK_FOUND);
	cr_assert_eq(task.tid, 101);
	/* The two areas change places, and with them the TSSs. */
	put(kernel, DATA_PER_CPU_OFFSET, area(1), 8);
	put(kernel, DATA_PER_CPU_OFFSET + 8, area(0), 8);
	cpu.tr_base = KERNEL_TSS + 4096;
	linux_task_layout_refresh(&layout, memory);
	cr_assert_neq(layout.generation, before);
	cr_assert_eq(linux_task_current(&layout, memory, NULL, &cpu, &remembered, &task),
		     LINUX_TASK_FOUND);
	cr_assert_eq(task.tid, 2);
	cr_assert_eq(remembered.number, 0);
	/* Before the areas are there, all are the same. */
	put(kernel, DATA_PER_CPU_OFFSET, area(0), 8);
	linux_task_layout_refresh(&layout, memory);
	cr_assert_not(layout.settled);
	put(kernel, DATA_CPU_COUNT, 1, 4);
	linux_task_layout_refresh(&layout, memory);
	cr_assert(layout.settled);
	put(kernel, DATA_PER_CPU_OFFSET, layout.per_cpu_boot, 8);
	linux_task_layout_refresh(&layout, memory);
	cr_assert_not(layout.settled);
	/* As many as the kernel is built for: no more than are there. */
	put(kernel, DATA_CPU_COUNT, 8192, 4);
	linux_task_layout_refresh(&layout, memory);
	cr_assert_eq(layout.area_count, LINUX_TASK_CPU_LIMIT);
}

Test(linux_task, what_is_no_task_is_not_reported)
{
	static struct linux_task_layout layout;
	static const struct {
		uint64_t at;
		uint64_t value;
		unsigned size;
	} damages[] = {
		{THREAD + TASK_TID, 0x80000000, 4},  {THREAD + TASK_TID, 0x400001, 4},
		{THREAD + TASK_PID, 0xffffffff, 4},  {THREAD + TASK_STACK, 0x1000, 8},
		{THREAD + TASK_LEADER, 0x400000, 8},
	};
	static const uint64_t pointers[] = {0,
					    1,
					    0x1000,
					    KERNEL_DIRECT + KERNEL_SIZE - 64,
					    KERNEL_DIRECT + KERNEL_DATA + 3,
					    UINT64_C(0x8000000000000000),
					    UINT64_MAX - 7};
	struct guest_cpu cpu = make_cpu(0, PROGRAM_CR3);
	struct linux_task task = {.tid = 42};

	for (unsigned i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct kernel_memory *kernel = make_kernel(&layout);

		put(kernel, damages[i].at, damages[i].value, damages[i].size);
		cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_UNREADABLE, "%u", i);
	}
	for (unsigned i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
		struct kernel_memory *kernel = make_kernel(&layout);

		set_current(kernel, 0, pointers[i]);
		cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_UNREADABLE, "%u", i);
	}
	cr_assert_eq(task.tid, 42);
}

Test(linux_task, names_end)
{
	static struct linux_task_layout layout;
	struct kernel_memory *kernel = make_kernel(&layout);
	const struct guest_memory *memory = &kernel->memory.memory;
	struct guest_cpu cpu = make_cpu(0, PROGRAM_CR3);
	struct linux_task task;
	char name[LINUX_TASK_LONG_NAME_SIZE];

	memset(kernel->bytes + KERNEL_DATA + THREAD + TASK_COMM, 'x', 16);
	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_str_eq(task.name, "xxxxxxxxxxxxxxx");
	/* What stands behind the end is none of ours. */
	memcpy(kernel->bytes + KERNEL_DATA + THREAD + TASK_COMM, "ab\0defghijklmno", 16);
	cr_assert_eq(ask(&layout, kernel, &cpu, &task), LINUX_TASK_FOUND);
	cr_assert_eq(memcmp(task.name, "ab\0\0\0\0\0\0\0\0\0\0\0\0\0", 16), 0);
	cr_assert(linux_task_long_name(&layout, memory, NULL, linear(KERNEL_THREAD), name));
	cr_assert_str_eq(name, "kthread_long_name_whole");
	cr_assert(linux_task_long_name(&layout, memory, NULL, linear(LEADER), name));
	cr_assert_str_eq(name, "leader");
	/* Another name is not the whole of this one. */
	kernel->bytes[KERNEL_DATA + FULL_NAME] = 'K';
	cr_assert(linux_task_long_name(&layout, memory, NULL, linear(KERNEL_THREAD), name));
	cr_assert_str_eq(name, "kthread_long_na");
	kernel->bytes[KERNEL_DATA + FULL_NAME] = 'k';
	memset(kernel->bytes + KERNEL_DATA + FULL_NAME + 15, 'x', 100);
	cr_assert(linux_task_long_name(&layout, memory, NULL, linear(KERNEL_THREAD), name));
	cr_assert_eq(strlen(name), LINUX_TASK_LONG_NAME_SIZE - 1);
	cr_assert_not(linux_task_name(&layout, memory, NULL, 0x1000, name));
}

static gp_status_t walk(const struct linux_task_layout *layout, struct kernel_memory *kernel,
			size_t limit, struct collected *found)
{
	struct error error;

	found->count = 0;
	found->stop_at = 0;
	return linux_task_walk(layout, &kernel->memory.memory, limit, collect, found, &error);
}

Test(linux_task, a_walk_over_damaged_lists_ends)
{
	static struct linux_task_layout layout;
	static struct collected found;
	struct kernel_memory *kernel = make_kernel(&layout);

	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_OK);
	cr_assert_eq(found.count, 4);
	cr_assert_eq(found.tasks[0].tid, 0);
	cr_assert_eq(found.tasks[1].tid, 100);
	cr_assert_eq(found.tasks[2].tid, 101);
	cr_assert_eq(found.tasks[3].tid, 2);
	cr_assert(found.tasks[3].kernel_thread);
	/* A circle of processes that does not come back to its head. */
	put(kernel, KERNEL_THREAD + TASK_TASKS, linear(LEADER + TASK_TASKS), 8);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 100);
	/* The same of threads. */
	kernel = make_kernel(&layout);
	put(kernel, THREAD + TASK_THREAD_NODE, linear(LEADER + TASK_THREAD_NODE), 8);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 100);
	/* A process without threads in a circle with itself. */
	kernel = make_kernel(&layout);
	put(kernel, LEADER + TASK_TASKS, linear(LEADER + TASK_TASKS), 8);
	put(kernel, SIGNALS + 64 + SIGNAL_THREAD_HEAD, linear(SIGNALS + 64 + SIGNAL_THREAD_HEAD),
	    8);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 1);
	/* A thread of another process, and lists that lead nowhere: the rest is visited. */
	kernel = make_kernel(&layout);
	put(kernel, THREAD + TASK_LEADER, linear(KERNEL_THREAD), 8);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 3);
	put(kernel, LEADER + TASK_SIGNAL, 0x1000, 8);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 2);
	put(kernel, LEADER + TASK_TASKS, 0x1000, 8);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 1);
	put(kernel, IDLE + TASK_TID, 1, 4);
	cr_assert_eq(walk(&layout, kernel, 100, &found), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(found.count, 0);
}
