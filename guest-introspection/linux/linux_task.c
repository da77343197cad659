#include "guest-introspection/linux/linux_task.h"

#include "base/container.h"
#include "guest-introspection/linux/linux_reader.h"

#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst: the direct map where it is not moved. */
#define DIRECT_MAP_4_LEVEL UINT64_C(0xffff888000000000)
#define DIRECT_MAP_5_LEVEL UINT64_C(0xff11000000000000)
#define KERNEL_MAP UINT64_C(0xffffffff80000000)
/* CPU_ENTRY_AREA_BASE: TSS, entry stack and exception stacks of each CPU. */
#define ENTRY_AREA UINT64_C(0xfffffe0000000000)
#define ENTRY_AREA_SIZE (UINT64_C(1) << 39)

#define FEATURE_PTI_WORD 7             /* X86_FEATURE_PTI is 7 * 32 + 11, */
#define FEATURE_PTI (1u << 11)         /* asm/cpufeatures.h */
#define TASK_KERNEL_THREAD 0x00200000u /* PF_KTHREAD, linux/sched.h */
#define PID_LIMIT (4 << 20)            /* PID_MAX_LIMIT, linux/threads.h */
#define STACK_SIZE 16384u              /* THREAD_SIZE without KASAN */

/* Members nearer to each other than this are read at once. */
#define WINDOW_GAP 320u
#define PACKED_SIZE 3072u

#define PAGE UINT64_C(4096)

#define FIELD(name) offsetof(struct linux_task_layout, name)

static const struct linux_member members[] = {
	{"task_struct", "stack", 8, LINUX_REQUIRED, FIELD(stack)},
	{"task_struct", "flags", 4, LINUX_REQUIRED, FIELD(flags)},
	{"task_struct", "mm", 8, LINUX_REQUIRED, FIELD(mm)},
	{"task_struct", "active_mm", 8, LINUX_REQUIRED, FIELD(active_mm)},
	{"task_struct", "pid", 4, LINUX_REQUIRED, FIELD(tid)},
	{"task_struct", "tgid", 4, LINUX_REQUIRED, FIELD(pid)},
	{"task_struct", "group_leader", 8, LINUX_REQUIRED, FIELD(group_leader)},
	{"task_struct", "tasks", 16, LINUX_REQUIRED, FIELD(tasks)},
	{"task_struct", "thread_node", 16, LINUX_REQUIRED, FIELD(thread_node)},
	{"task_struct", "signal", 8, LINUX_REQUIRED, FIELD(signal)},
	{"task_struct", "comm", LINUX_TASK_NAME_SIZE, LINUX_REQUIRED, FIELD(comm)},
	{"signal_struct", "thread_head", 16, LINUX_REQUIRED, FIELD(thread_head)},
	{"mm_struct", "pgd", 8, LINUX_REQUIRED, FIELD(mm_pgd)},
	{"task_struct", "start_boottime", 8, LINUX_OPTIONAL, FIELD(start_time)},
	{"task_struct", "real_start_time", 8, LINUX_OPTIONAL, FIELD(start_time)},
	{"task_struct", "worker_private", 8, LINUX_OPTIONAL, FIELD(worker_private)},
	{"kthread", "full_name", 8, LINUX_OPTIONAL, FIELD(thread_full_name)},
};
#undef FIELD

struct span {
	uint32_t offset;
	uint32_t size;
};

static bool has_start_time(const struct linux_task_layout *layout)
{
	return layout->start_time != LINUX_MEMBER_MISSING;
}

/* Makes as few windows as is reasonable of the members that are read together. */
static void make_windows(struct linux_task_layout *layout)
{
	struct span spans[LINUX_TASK_FIELDS] = {
		{layout->stack, 8},
		{layout->flags, 4},
		{layout->mm, 8},
		{layout->active_mm, 8},
		{layout->tid, 4},
		{layout->pid, 4},
		{layout->group_leader, 8},
		{layout->comm, LINUX_TASK_NAME_SIZE},
		/* In the place of one that is missing, one that is there already. */
		{has_start_time(layout) ? layout->start_time : layout->mm, 8},
	};
	uint32_t packed = 0;

	for (unsigned i = 1; i < LINUX_TASK_FIELDS; i++) {
		struct span span = spans[i];
		unsigned at = i;

		for (; at > 0 && spans[at - 1].offset > span.offset; at--)
			spans[at] = spans[at - 1];
		spans[at] = span;
	}
	layout->window_count = 0;
	for (unsigned i = 0; i < LINUX_TASK_FIELDS;) {
		uint32_t start = spans[i].offset;
		uint32_t end = start + spans[i].size;

		for (i++; i < LINUX_TASK_FIELDS && spans[i].offset - end < WINDOW_GAP; i++)
			if (spans[i].offset + spans[i].size > end)
				end = spans[i].offset + spans[i].size;
		layout->windows[layout->window_count++] =
			(struct linux_task_window){.offset = start,
						   .size = (uint16_t)(end - start),
						   .packed = (uint16_t)packed};
		packed += end - start;
	}
	_Static_assert(LINUX_TASK_FIELDS * (WINDOW_GAP + LINUX_TASK_NAME_SIZE) < PACKED_SIZE,
		       "all windows fit");
}

/* The per-CPU address of a variable that Linux 6.2 to 6.14 keep in a structure with what else is
 * hot. */
static uint64_t find_hot(const struct symbol_table *symbols, const struct btf *btf,
			 const char *name)
{
	struct btf_member member;
	uint64_t hot = 0;

	/* Looking for a symbol that is not there goes through all of them. */
	if (btf_find_member(btf, "pcpu_hot", name, &member))
		hot = linux_symbol_address(symbols, "pcpu_hot");
	return hot ? hot + member.offset : linux_symbol_address(symbols, name);
}

gp_status_t linux_task_layout_init(const struct guest_memory *memory,
				   const struct linux_kernel *kernel,
				   const struct symbol_table *symbols, const struct btf *btf,
				   struct linux_task_layout *out, struct error *error)
{
	static const char *const switches[] = {"__switch_to_asm", "__switch_to"};
	/* Only what comes before `areas` is filled before the end. */
	struct linux_task_layout layout = {.space = kernel->space, .stack_size = STACK_SIZE};
	struct btf_member member;
	uint64_t start;
	uint64_t end;
	gp_status_t status;

	layout.current = find_hot(symbols, btf, "current_task");
	if (!layout.current)
		layout.current = find_hot(symbols, btf, "const_current_task");
	layout.per_cpu_offset = linux_symbol_address(symbols, "__per_cpu_offset");
	layout.init_task = linux_symbol_address(symbols, "init_task");
	if (!layout.current || !layout.per_cpu_offset || !layout.init_task)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no %s: tasks have no names",
				 !layout.current     ? "current_task"
				 : !layout.init_task ? "init_task"
						     : "__per_cpu_offset");
	status = linux_find_members(btf, members, ARRAY_SIZE(members), &layout, error);
	if (status != GP_OK)
		return status;
	make_windows(&layout);
	layout.init_mm = linux_symbol_address(symbols, "init_mm");
	layout.per_cpu_boot = linux_symbol_address(symbols, "__per_cpu_load");
	layout.tss = linux_symbol_address(symbols, "cpu_tss_rw");
	layout.irq_stack = find_hot(symbols, btf, "hardirq_stack_ptr");
	layout.cpu_count_address = linux_symbol_address(symbols, "nr_cpu_ids");
	layout.direct_map_address = linux_symbol_address(symbols, "page_offset_base");
	if (btf_find_member(btf, "cpuinfo_x86", "x86_capability", &member) &&
	    member.size > FEATURE_PTI_WORD * 4) {
		layout.capability_address = linux_symbol_address(symbols, "boot_cpu_data");
		if (layout.capability_address)
			layout.capability_address += member.offset + FEATURE_PTI_WORD * 4;
	}
	for (unsigned i = 0; i < 2; i++) {
		struct symbol symbol;

		if (symbol_table_find_name(symbols, switches[i], &symbol)) {
			layout.switches[i].start = symbol.start;
			layout.switches[i].end = symbol.start + symbol.size;
		}
	}
	start = linux_symbol_address(symbols, "init_stack");
	end = linux_symbol_address(symbols, "__end_init_stack"); /* since Linux 6.11 */
	if (!end)
		end = linux_symbol_address(symbols, "__end_init_task");
	if (start && end > start && end - start >= 2 * PAGE && end - start <= 64 * PAGE)
		layout.stack_size = (uint32_t)(end - start);
	linux_task_layout_refresh(&layout, memory);
	*out = layout;
	return GP_OK;
}

/* Set up one after the other, by setup_per_cpu_areas(). Tables that lack one of them are those of
 * early boot, which the kernel frees. */
static bool areas_have_moved(const struct linux_task_layout *layout)
{
	const struct linux_cpu_area *areas = layout->areas;

	for (uint32_t i = 0; i < layout->area_count; i++)
		if (areas[i].offset == 0 || areas[i].offset == layout->per_cpu_boot ||
		    (i > 0 && areas[i].offset == areas[0].offset) ||
		    (layout->tss && areas[i].tss == UINT64_MAX))
			return false;
	return layout->area_count > 0;
}

void linux_task_layout_refresh(struct linux_task_layout *layout, const struct guest_memory *memory)
{
	struct linux_reader reader = linux_reader_of(memory, &layout->space);
	uint32_t capabilities = 0;
	uint32_t count = 1;
	bool changed = false;

	if (!layout->direct_map_address ||
	    !linux_read_u64(&reader, layout->direct_map_address, &layout->direct_map))
		layout->direct_map = layout->space.mode == ADDRESSING_5_LEVEL ? DIRECT_MAP_5_LEVEL
									      : DIRECT_MAP_4_LEVEL;
	if (layout->capability_address)
		linux_read(&reader, layout->capability_address, &capabilities,
			   sizeof(capabilities));
	layout->isolated = capabilities & FEATURE_PTI;
	/* Before the CPUs are counted it is the largest number that the kernel is built for. */
	if (layout->cpu_count_address)
		linux_read(&reader, layout->cpu_count_address, &count, sizeof(count));
	if (count == 0 || count > LINUX_TASK_CPU_LIMIT)
		count = LINUX_TASK_CPU_LIMIT;
	if (count != layout->area_count)
		changed = true;
	for (uint32_t i = 0; i < count; i++) {
		struct linux_cpu_area area = {.tss = UINT64_MAX};
		struct translation translation;

		if (!linux_read_u64(&reader, layout->per_cpu_offset + i * 8, &area.offset)) {
			count = i;
			break;
		}
		if (layout->tss &&
		    linux_translate(&reader, area.offset + layout->tss, &translation))
			area.tss = translation.gpa.value;
		if (area.offset != layout->areas[i].offset || area.tss != layout->areas[i].tss)
			changed = true;
		layout->areas[i] = area;
	}
	layout->area_count = count;
	layout->generation += changed;
	layout->settled = areas_have_moved(layout);
}

/* Which CPU of Linux's this is. Its TSS tells for certain; where there is none yet, the GS base in
 * kernel mode does. Also in kernel mode it can be a program's, right behind an interrupt: but
 * then only a hostile one looks like a CPU's. */
static bool find_area(const struct linux_task_layout *layout, struct linux_reader *reader,
		      const struct guest_cpu *cpu, struct linux_task_cpu *remembered)
{
	struct translation translation;
	uint64_t tss = UINT64_MAX;

	if (remembered->known && remembered->tr_base == cpu->tr_base &&
	    remembered->generation == layout->generation)
		return true;
	if (cpu->tr_base >= LINUX_KERNEL_HALF &&
	    linux_translate(reader, cpu->tr_base, &translation))
		tss = translation.gpa.value;
	for (unsigned by_gs = 0; by_gs < 2; by_gs++) {
		for (uint32_t i = 0; i < layout->area_count; i++) {
			const struct linux_cpu_area *area = &layout->areas[i];

			if (by_gs ? cpu->gs.base != area->offset
				  : tss == UINT64_MAX || tss != area->tss)
				continue;
			*remembered = (struct linux_task_cpu){.tr_base = cpu->tr_base,
							      .offset = area->offset,
							      .generation = layout->generation,
							      .number = i,
							      .known = true};
			return true;
		}
		if (cpu->cpl == 3)
			break;
	}
	return false;
}

static void take(const struct linux_task_layout *layout, const uint8_t *packed, uint32_t offset,
		 void *value, size_t size)
{
	for (unsigned i = 0; i < layout->window_count; i++) {
		const struct linux_task_window *window = &layout->windows[i];

		if (offset >= window->offset && offset - window->offset < window->size) {
			memcpy(value, packed + window->packed + (offset - window->offset), size);
			return;
		}
	}
}

static void clean_name(char name[static LINUX_TASK_NAME_SIZE])
{
	size_t length;

	name[LINUX_TASK_NAME_SIZE - 1] = 0;
	length = strlen(name);
	memset(name + length, 0, LINUX_TASK_NAME_SIZE - length);
}

/* Reads the task_struct at `address`; `*lent` is active_mm. */
static bool read_task(const struct linux_task_layout *layout, struct linux_reader *reader,
		      uint64_t address, struct linux_task *out, uint64_t *lent)
{
	struct linux_task task = {.address = address, .check = LINUX_TASK_UNCHECKED};
	uint8_t packed[PACKED_SIZE];
	uint32_t flags = 0;

	/* A task_struct is at least aligned to a pointer. */
	if (address % 8)
		return false;
	for (unsigned i = 0; i < layout->window_count; i++) {
		const struct linux_task_window *window = &layout->windows[i];

		if (!linux_read(reader, address + window->offset, packed + window->packed,
				window->size))
			return false;
	}
	take(layout, packed, layout->stack, &task.stack, 8);
	take(layout, packed, layout->flags, &flags, 4);
	take(layout, packed, layout->mm, &task.mm, 8);
	take(layout, packed, layout->active_mm, lent, 8);
	take(layout, packed, layout->tid, &task.tid, 4);
	take(layout, packed, layout->pid, &task.pid, 4);
	take(layout, packed, layout->group_leader, &task.leader, 8);
	take(layout, packed, layout->comm, task.name, sizeof(task.name));
	if (has_start_time(layout))
		take(layout, packed, layout->start_time, &task.start_time, 8);
	if (task.tid < 0 || task.tid > PID_LIMIT || task.pid < 0 || task.pid > PID_LIMIT ||
	    (task.stack && task.stack < LINUX_KERNEL_HALF) || task.leader < LINUX_KERNEL_HALF)
		return false;
	clean_name(task.name);
	task.idle = task.tid == 0;
	task.kernel_thread = flags & TASK_KERNEL_THREAD;
	*out = task;
	return true;
}

/* Is the vCPU, in the kernel, between the change of the stack and of the current task? It is when
 * its stack is neither this task's nor one that is no task's: interrupts, exceptions and system
 * calls come in on those of the entry code and of interrupts, or, a system call, still on the
 * program's. */
static bool in_switch(const struct linux_task_layout *layout, struct linux_reader *reader,
		      const struct guest_cpu *cpu, uint64_t area, const struct linux_task *task)
{
	uint64_t stack = cpu->gpr[GUEST_RSP];
	uint64_t top;

	if (task->own_stack || stack < LINUX_KERNEL_HALF || stack - ENTRY_AREA < ENTRY_AREA_SIZE)
		return false;
	if (layout->irq_stack && linux_read_u64(reader, area + layout->irq_stack, &top) &&
	    top >= LINUX_KERNEL_HALF)
		return top + 8 - stack > layout->stack_size;
	/* Without it, by the code. */
	for (unsigned i = 0; i < 2; i++)
		if (cpu->rip >= layout->switches[i].start && cpu->rip < layout->switches[i].end)
			return true;
	return false;
}

static enum linux_task_check check(const struct linux_task_layout *layout,
				   struct linux_reader *reader, const struct guest_cpu *cpu,
				   uint64_t area, const struct linux_task *task, uint64_t lent)
{
	uint64_t root = cpu->cr3 & X86_TABLE_ADDRESS;
	uint64_t mm = task->mm ? task->mm : lent;
	uint64_t table;
	uint64_t pgd;

	if (cpu->cpl == 3 ? task->kernel_thread || !task->mm
			  : in_switch(layout, reader, cpu, area, task))
		return LINUX_TASK_CONTRADICTED;
	/* Who needs no memory may run on the kernel's tables, whatever it has borrowed. */
	table = layout->space.root;
	if (!task->mm &&
	    (root == table || (layout->isolated && root == (table | X86_ISOLATION_BIT))))
		return LINUX_TASK_VERIFIED;
	if (mm != layout->init_mm || !layout->init_mm) {
		if (!linux_read_u64(reader, mm + layout->mm_pgd, &pgd) || pgd % PAGE ||
		    pgd < layout->direct_map || pgd - layout->direct_map > X86_TABLE_ADDRESS ||
		    pgd >= KERNEL_MAP)
			return LINUX_TASK_UNCHECKED;
		table = pgd - layout->direct_map;
	}
	/* Without isolation the other page may be another process's table. */
	if (root == table || (layout->isolated && root == (table | X86_ISOLATION_BIT)))
		return LINUX_TASK_VERIFIED;
	return LINUX_TASK_CONTRADICTED;
}

enum linux_task_result linux_task_current(const struct linux_task_layout *layout,
					  const struct guest_memory *memory,
					  struct translation_cache *cache,
					  const struct guest_cpu *cpu,
					  struct linux_task_cpu *remembered, struct linux_task *out)
{
	struct linux_reader reader;
	struct linux_task task;
	uint64_t address;
	uint64_t lent = 0;

	linux_reader_share(&reader, memory, &layout->space, cache);
	if (!find_area(layout, &reader, cpu, remembered))
		return LINUX_TASK_CPU_UNKNOWN;
	if (!linux_read_u64(&reader, remembered->offset + layout->current, &address) ||
	    !read_task(layout, &reader, address, &task, &lent))
		return LINUX_TASK_UNREADABLE;
	task.own_stack = cpu->cpl != 3 && task.stack &&
			 cpu->gpr[GUEST_RSP] - task.stack <= layout->stack_size;
	task.check = check(layout, &reader, cpu, remembered->offset, &task, lent);
	*out = task;
	return LINUX_TASK_FOUND;
}

static bool read_name(const struct linux_task_layout *layout, struct linux_reader *reader,
		      uint64_t address, char name[static LINUX_TASK_NAME_SIZE])
{
	char text[LINUX_TASK_NAME_SIZE];

	if (!linux_read(reader, address + layout->comm, text, sizeof(text)))
		return false;
	clean_name(text);
	memcpy(name, text, sizeof(text));
	return true;
}

bool linux_task_name(const struct linux_task_layout *layout, const struct guest_memory *memory,
		     struct translation_cache *cache, uint64_t address,
		     char name[static LINUX_TASK_NAME_SIZE])
{
	struct linux_reader reader;

	linux_reader_share(&reader, memory, &layout->space, cache);
	return read_name(layout, &reader, address, name);
}

bool linux_task_long_name(const struct linux_task_layout *layout, const struct guest_memory *memory,
			  struct translation_cache *cache, uint64_t address,
			  char name[static LINUX_TASK_LONG_NAME_SIZE])
{
	char text[LINUX_TASK_LONG_NAME_SIZE] = "", longer[LINUX_TASK_LONG_NAME_SIZE];
	struct linux_reader reader;
	uint64_t thread, full;
	uint32_t flags;
	size_t length;

	linux_reader_share(&reader, memory, &layout->space, cache);
	if (!read_name(layout, &reader, address, text))
		return false;
	/* kthread->full_name is set when comm cuts the name (kernel commit d6986ce24fc0). It is the
	 * same name, or it is none. */
	if (layout->worker_private != LINUX_MEMBER_MISSING &&
	    layout->thread_full_name != LINUX_MEMBER_MISSING &&
	    linux_read_u32(&reader, address + layout->flags, &flags) &&
	    (flags & TASK_KERNEL_THREAD) &&
	    linux_read_u64(&reader, address + layout->worker_private, &thread) &&
	    linux_read_u64(&reader, thread + layout->thread_full_name, &full) && full) {
		length = linux_read_text(&reader, full, longer, sizeof(longer));
		if (strncmp(longer, text, LINUX_TASK_NAME_SIZE - 1) == 0)
			memcpy(text, longer, length);
	}
	memcpy(name, text, sizeof(text));
	return true;
}

/* A walk over all tasks. */
struct walk {
	const struct linux_task_layout *layout;
	struct linux_reader reader;
	linux_task_visit *visit;
	void *context;
	size_t left; /* tasks and list entries together end the walk */
	bool ended;  /* by the visitor */
	bool damaged;
};

static bool visit(struct walk *walk, const struct linux_task *task)
{
	if (walk->visit(walk->context, task))
		return true;
	walk->ended = true;
	return false;
}

/* The threads of the process that `leader` leads, itself among them. False ends the walk. */
static bool walk_threads(struct walk *walk, uint64_t leader)
{
	const struct linux_task_layout *layout = walk->layout;
	uint64_t signal;
	uint64_t head;
	uint64_t node;

	if (!linux_read_u64(&walk->reader, leader + layout->signal, &signal)) {
		walk->damaged = true;
		return true;
	}
	/* In use since Linux 3.14 (0c740d0afc3b); the only such list since 6.7. */
	head = signal + layout->thread_head;
	if (!linux_read_u64(&walk->reader, head, &node)) {
		walk->damaged = true;
		return true;
	}
	while (node != head) {
		struct linux_task task;
		uint64_t lent;

		if (walk->left == 0)
			return false;
		walk->left--;
		if (!read_task(layout, &walk->reader, node - layout->thread_node, &task, &lent) ||
		    task.leader != leader) {
			walk->damaged = true;
			return true;
		}
		if (!visit(walk, &task))
			return false;
		if (!linux_read_u64(&walk->reader, node, &node)) {
			walk->damaged = true;
			return true;
		}
	}
	return true;
}

gp_status_t linux_task_walk(const struct linux_task_layout *layout,
			    const struct guest_memory *memory, size_t limit,
			    linux_task_visit *visitor, void *context, struct error *error)
{
	struct walk walk = {.layout = layout,
			    .reader = linux_reader_of(memory, &layout->space),
			    .visit = visitor,
			    .context = context,
			    .left = limit};
	const uint64_t head = layout->init_task + layout->tasks;
	struct linux_task idle;
	uint64_t lent;
	uint64_t node = head;
	size_t processes = limit;

	if (limit == 0 || !read_task(layout, &walk.reader, layout->init_task, &idle, &lent) ||
	    !idle.idle)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "the guest's first task is not where its symbols say");
	walk.left--;
	if (!visit(&walk, &idle))
		return GP_OK;
	while (linux_read_u64(&walk.reader, node, &node) && node != head) {
		/* A process without threads takes a step, too. */
		if (processes-- == 0 || !walk_threads(&walk, node - layout->tasks))
			break;
	}
	if (walk.ended)
		return GP_OK;
	if (node != head || walk.damaged)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "the guest's list of tasks ends before its end after %zu tasks "
				 "(changed meanwhile, damaged, or longer)",
				 limit - walk.left);
	return GP_OK;
}
