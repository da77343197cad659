#include "guest-introspection/linux/linux_task.h"

#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst: the direct map where it is not moved. */
#define DIRECT_MAP_4_LEVEL UINT64_C(0xffff888000000000)
#define DIRECT_MAP_5_LEVEL UINT64_C(0xff11000000000000)
#define KERNEL_MAP UINT64_C(0xffffffff80000000)
/* CPU_ENTRY_AREA_BASE: TSS, entry stack and exception stacks of each CPU. */
#define ENTRY_AREA UINT64_C(0xfffffe0000000000)
#define ENTRY_AREA_SIZE (UINT64_C(1) << 39)
#define UPPER_HALF (UINT64_C(1) << 63)

#define ROOT_ADDRESS UINT64_C(0x000ffffffffff000) /* in CR3: no PCID, no LAM bits */
#define ISOLATION_USER_ROOT UINT64_C(0x1000)      /* arch/x86/entry/calling.h */
#define FEATURE_PTI_WORD 7                        /* X86_FEATURE_PTI is 7 * 32 + 11, */
#define FEATURE_PTI (1u << 11)                    /* asm/cpufeatures.h */
#define TASK_KERNEL_THREAD 0x00200000u            /* PF_KTHREAD, linux/sched.h */
#define PID_LIMIT (4 << 20)                       /* PID_MAX_LIMIT, linux/threads.h */
#define STACK_SIZE 16384u                         /* THREAD_SIZE without KASAN */

/* Members nearer to each other than this are read at once. */
#define WINDOW_GAP 320u
#define PACKED_SIZE 3072u

#define PAGE UINT64_C(4096)

static bool read_kernel(const struct linux_task_layout *layout, const struct guest_memory *memory,
			struct translation_cache *cache, uint64_t address, void *buffer,
			size_t size)
{
	/* Nothing that is asked for here is ever in a program's memory. */
	return address >= UPPER_HALF &&
	       guest_read_virtual(&layout->space, cache, memory, gva(address), buffer, size) ==
		       TRANSLATE_OK;
}

static bool read_u64(const struct linux_task_layout *layout, const struct guest_memory *memory,
		     struct translation_cache *cache, uint64_t address, uint64_t *value)
{
	return read_kernel(layout, memory, cache, address, value, sizeof(*value));
}

/* Which members are asked for. */
struct wanted_member {
	const char *structure;
	const char *path;
	size_t target; /* a uint32_t in struct linux_task_layout */
	uint32_t size; /* bytes that it must have */
};

#define FIELD(name) offsetof(struct linux_task_layout, name)

static const struct wanted_member wanted_members[] = {
	{"task_struct", "stack", FIELD(stack), 8},
	{"task_struct", "flags", FIELD(flags), 4},
	{"task_struct", "mm", FIELD(mm), 8},
	{"task_struct", "active_mm", FIELD(active_mm), 8},
	{"task_struct", "pid", FIELD(tid), 4},
	{"task_struct", "tgid", FIELD(pid), 4},
	{"task_struct", "group_leader", FIELD(group_leader), 8},
	{"task_struct", "tasks", FIELD(tasks), 16},
	{"task_struct", "thread_node", FIELD(thread_node), 16},
	{"task_struct", "signal", FIELD(signal), 8},
	{"task_struct", "comm", FIELD(comm), LINUX_TASK_NAME_SIZE},
	{"signal_struct", "thread_head", FIELD(thread_head), 16},
	{"mm_struct", "pgd", FIELD(mm_pgd), 8},
};

static gp_status_t find_members(const struct btf *btf, struct linux_task_layout *layout,
				struct error *error)
{
	struct btf_member member;
	struct btf_member full_name;

	for (unsigned i = 0; i < sizeof(wanted_members) / sizeof(wanted_members[0]); i++) {
		const struct wanted_member *wanted = &wanted_members[i];

		if (!btf_find_member(btf, wanted->structure, wanted->path, &member) ||
		    member.bits || member.size != wanted->size)
			return error_set(error, GP_ERR_NOT_FOUND,
					 "the guest's BTF has no %s.%s as it is known: tasks have "
					 "no names",
					 wanted->structure, wanted->path);
		memcpy((char *)layout + wanted->target, &member.offset, sizeof(member.offset));
	}
	/* Without these there is a little less. */
	layout->has_start_time =
		(btf_find_member(btf, "task_struct", "start_boottime", &member) ||
		 btf_find_member(btf, "task_struct", "real_start_time", &member)) &&
		member.size == 8;
	layout->start_time = layout->has_start_time ? member.offset : layout->tid;
	if (btf_find_member(btf, "task_struct", "worker_private", &member) && member.size == 8 &&
	    btf_find_member(btf, "kthread", "full_name", &full_name) && full_name.size == 8) {
		layout->worker_private = member.offset;
		layout->thread_full_name = full_name.offset;
	}
	return GP_OK;
}

struct span {
	uint32_t offset;
	uint32_t size;
};

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
		{layout->start_time, layout->has_start_time ? 8 : 4},
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

static uint64_t symbol_address(const struct symbol_table *symbols, const char *name)
{
	struct symbol symbol;

	return symbol_table_find_name(symbols, name, &symbol) ? symbol.start : 0;
}

/* The per-CPU address of a variable that Linux 6.2 to 6.14 keep in a structure with what else is
 * hot. */
static bool find_hot(const struct symbol_table *symbols, const struct btf *btf, const char *name,
		     uint64_t *address)
{
	struct btf_member member;
	struct symbol symbol;

	if (btf_find_member(btf, "pcpu_hot", name, &member) &&
	    symbol_table_find_name(symbols, "pcpu_hot", &symbol)) {
		*address = symbol.start + member.offset;
		return true;
	}
	if (!symbol_table_find_name(symbols, name, &symbol))
		return false;
	*address = symbol.start;
	return true;
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

	if (!find_hot(symbols, btf, "current_task", &layout.current) &&
	    !find_hot(symbols, btf, "const_current_task", &layout.current))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no current_task: tasks have no names");
	layout.per_cpu_offset = symbol_address(symbols, "__per_cpu_offset");
	layout.init_task = symbol_address(symbols, "init_task");
	if (!layout.per_cpu_offset || !layout.init_task)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no %s: tasks have no names",
				 layout.init_task ? "__per_cpu_offset" : "init_task");
	status = find_members(btf, &layout, error);
	if (status != GP_OK)
		return status;
	make_windows(&layout);
	layout.init_mm = symbol_address(symbols, "init_mm");
	layout.per_cpu_boot = symbol_address(symbols, "__per_cpu_load");
	layout.tss = symbol_address(symbols, "cpu_tss_rw");
	find_hot(symbols, btf, "hardirq_stack_ptr", &layout.irq_stack);
	layout.cpu_count_address = symbol_address(symbols, "nr_cpu_ids");
	layout.direct_map_address = symbol_address(symbols, "page_offset_base");
	if (btf_find_member(btf, "cpuinfo_x86", "x86_capability", &member) &&
	    member.size > FEATURE_PTI_WORD * 4) {
		layout.capability_address = symbol_address(symbols, "boot_cpu_data");
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
	start = symbol_address(symbols, "init_stack");
	end = symbol_address(symbols, "__end_init_stack"); /* since Linux 6.11 */
	if (!end)
		end = symbol_address(symbols, "__end_init_task");
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
	struct translation_cache cache;
	uint32_t capabilities = 0;
	uint32_t count = 1;
	bool changed = false;

	translation_cache_clear(&cache);
	if (!layout->direct_map_address ||
	    !read_u64(layout, memory, &cache, layout->direct_map_address, &layout->direct_map))
		layout->direct_map = layout->space.mode == ADDRESSING_5_LEVEL ? DIRECT_MAP_5_LEVEL
									      : DIRECT_MAP_4_LEVEL;
	if (layout->capability_address)
		read_kernel(layout, memory, &cache, layout->capability_address, &capabilities,
			    sizeof(capabilities));
	layout->isolated = capabilities & FEATURE_PTI;
	/* Before the CPUs are counted it is the largest number that the kernel is built for. */
	if (layout->cpu_count_address)
		read_kernel(layout, memory, &cache, layout->cpu_count_address, &count,
			    sizeof(count));
	if (count == 0 || count > LINUX_TASK_CPU_LIMIT)
		count = LINUX_TASK_CPU_LIMIT;
	if (count != layout->area_count)
		changed = true;
	for (uint32_t i = 0; i < count; i++) {
		struct linux_cpu_area area = {.tss = UINT64_MAX};
		struct translation translation;

		if (!read_u64(layout, memory, &cache, layout->per_cpu_offset + i * 8,
			      &area.offset)) {
			count = i;
			break;
		}
		if (layout->tss && guest_translate_cached(&layout->space, &cache, memory,
							  gva(area.offset + layout->tss),
							  &translation) == TRANSLATE_OK)
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
static bool find_area(const struct linux_task_layout *layout, const struct guest_memory *memory,
		      struct translation_cache *cache, const struct guest_cpu *cpu,
		      struct linux_task_cpu *remembered)
{
	struct translation translation;
	uint64_t tss = UINT64_MAX;

	if (remembered->known && remembered->tr_base == cpu->tr_base &&
	    remembered->generation == layout->generation)
		return true;
	if (cpu->tr_base >= UPPER_HALF &&
	    guest_translate_cached(&layout->space, cache, memory, gva(cpu->tr_base),
				   &translation) == TRANSLATE_OK)
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
static bool read_task(const struct linux_task_layout *layout, const struct guest_memory *memory,
		      struct translation_cache *cache, uint64_t address, struct linux_task *out,
		      uint64_t *lent)
{
	struct linux_task task = {.address = address, .check = LINUX_TASK_UNCHECKED};
	uint8_t packed[PACKED_SIZE];
	uint32_t flags = 0;

	/* A task_struct is at least aligned to a pointer. */
	if (address % 8)
		return false;
	for (unsigned i = 0; i < layout->window_count; i++) {
		const struct linux_task_window *window = &layout->windows[i];

		if (!read_kernel(layout, memory, cache, address + window->offset,
				 packed + window->packed, window->size))
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
	if (layout->has_start_time)
		take(layout, packed, layout->start_time, &task.start_time, 8);
	if (task.tid < 0 || task.tid > PID_LIMIT || task.pid < 0 || task.pid > PID_LIMIT ||
	    (task.stack && task.stack < UPPER_HALF) || task.leader < UPPER_HALF)
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
static bool in_switch(const struct linux_task_layout *layout, const struct guest_memory *memory,
		      struct translation_cache *cache, const struct guest_cpu *cpu, uint64_t area,
		      const struct linux_task *task)
{
	uint64_t stack = cpu->gpr[GUEST_RSP];
	uint64_t top;

	if (task->own_stack || stack < UPPER_HALF || stack - ENTRY_AREA < ENTRY_AREA_SIZE)
		return false;
	if (layout->irq_stack && read_u64(layout, memory, cache, area + layout->irq_stack, &top) &&
	    top >= UPPER_HALF)
		return top + 8 - stack > layout->stack_size;
	/* Without it, by the code. */
	for (unsigned i = 0; i < 2; i++)
		if (cpu->rip >= layout->switches[i].start && cpu->rip < layout->switches[i].end)
			return true;
	return false;
}

static enum linux_task_check check(const struct linux_task_layout *layout,
				   const struct guest_memory *memory,
				   struct translation_cache *cache, const struct guest_cpu *cpu,
				   uint64_t area, const struct linux_task *task, uint64_t lent)
{
	uint64_t root = cpu->cr3 & ROOT_ADDRESS;
	uint64_t mm = task->mm ? task->mm : lent;
	uint64_t table;
	uint64_t pgd;

	if (cpu->cpl == 3 ? task->kernel_thread || !task->mm
			  : in_switch(layout, memory, cache, cpu, area, task))
		return LINUX_TASK_CONTRADICTED;
	/* Who needs no memory may run on the kernel's tables, whatever it has borrowed. */
	table = layout->space.root;
	if (!task->mm &&
	    (root == table || (layout->isolated && root == (table | ISOLATION_USER_ROOT))))
		return LINUX_TASK_VERIFIED;
	if (mm != layout->init_mm || !layout->init_mm) {
		if (!read_u64(layout, memory, cache, mm + layout->mm_pgd, &pgd) || pgd % PAGE ||
		    pgd < layout->direct_map || pgd - layout->direct_map > ROOT_ADDRESS ||
		    pgd >= KERNEL_MAP)
			return LINUX_TASK_UNCHECKED;
		table = pgd - layout->direct_map;
	}
	/* Without isolation the other page may be another process's table. */
	if (root == table || (layout->isolated && root == (table | ISOLATION_USER_ROOT)))
		return LINUX_TASK_VERIFIED;
	return LINUX_TASK_CONTRADICTED;
}

enum linux_task_result linux_task_current(const struct linux_task_layout *layout,
					  const struct guest_memory *memory,
					  struct translation_cache *cache,
					  const struct guest_cpu *cpu,
					  struct linux_task_cpu *remembered, struct linux_task *out)
{
	struct linux_task task;
	uint64_t address;
	uint64_t lent = 0;

	if (!find_area(layout, memory, cache, cpu, remembered))
		return LINUX_TASK_CPU_UNKNOWN;
	if (!read_u64(layout, memory, cache, remembered->offset + layout->current, &address) ||
	    !read_task(layout, memory, cache, address, &task, &lent))
		return LINUX_TASK_UNREADABLE;
	task.own_stack = cpu->cpl != 3 && task.stack &&
			 cpu->gpr[GUEST_RSP] - task.stack <= layout->stack_size;
	task.check = check(layout, memory, cache, cpu, remembered->offset, &task, lent);
	*out = task;
	return LINUX_TASK_FOUND;
}

bool linux_task_name(const struct linux_task_layout *layout, const struct guest_memory *memory,
		     struct translation_cache *cache, uint64_t address,
		     char name[static LINUX_TASK_NAME_SIZE])
{
	char text[LINUX_TASK_NAME_SIZE];

	if (!read_kernel(layout, memory, cache, address + layout->comm, text, sizeof(text)))
		return false;
	clean_name(text);
	memcpy(name, text, sizeof(text));
	return true;
}

bool linux_task_long_name(const struct linux_task_layout *layout, const struct guest_memory *memory,
			  struct translation_cache *cache, uint64_t address,
			  char name[static LINUX_TASK_LONG_NAME_SIZE])
{
	char text[LINUX_TASK_LONG_NAME_SIZE] = "";
	uint32_t flags;
	uint64_t thread;
	uint64_t full;

	if (!linux_task_name(layout, memory, cache, address, text))
		return false;
	/* kthread->full_name is set when comm cuts the name (kernel commit d6986ce24fc0). What
	 * lies behind it in its page may not be there, so it is read in pieces. */
	if (layout->worker_private &&
	    read_kernel(layout, memory, cache, address + layout->flags, &flags, sizeof(flags)) &&
	    (flags & TASK_KERNEL_THREAD) &&
	    read_u64(layout, memory, cache, address + layout->worker_private, &thread) &&
	    read_u64(layout, memory, cache, thread + layout->thread_full_name, &full) && full) {
		char longer[LINUX_TASK_LONG_NAME_SIZE] = "";

		for (size_t used = 0; used + 8 < sizeof(longer); used += 8) {
			char piece[8];

			if (!read_kernel(layout, memory, cache, full + used, piece, sizeof(piece)))
				break;
			memcpy(longer + used, piece, sizeof(piece));
			if (memchr(piece, 0, sizeof(piece)))
				break;
		}
		/* It is the same name, or it is none. */
		if (strncmp(longer, text, LINUX_TASK_NAME_SIZE - 1) == 0) {
			memset(text, 0, sizeof(text));
			memcpy(text, longer, strlen(longer));
		}
	}
	memcpy(name, text, sizeof(text));
	return true;
}

/* A walk over all tasks. */
struct walk {
	const struct linux_task_layout *layout;
	const struct guest_memory *memory;
	struct translation_cache cache;
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

	if (!read_u64(layout, walk->memory, &walk->cache, leader + layout->signal, &signal)) {
		walk->damaged = true;
		return true;
	}
	/* In use since Linux 3.14 (0c740d0afc3b); the only such list since 6.7. */
	head = signal + layout->thread_head;
	if (!read_u64(layout, walk->memory, &walk->cache, head, &node)) {
		walk->damaged = true;
		return true;
	}
	while (node != head) {
		struct linux_task task;
		uint64_t lent;

		if (walk->left == 0)
			return false;
		walk->left--;
		if (!read_task(layout, walk->memory, &walk->cache, node - layout->thread_node,
			       &task, &lent) ||
		    task.leader != leader) {
			walk->damaged = true;
			return true;
		}
		if (!visit(walk, &task))
			return false;
		if (!read_u64(layout, walk->memory, &walk->cache, node, &node)) {
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
			    .memory = memory,
			    .visit = visitor,
			    .context = context,
			    .left = limit};
	const uint64_t head = layout->init_task + layout->tasks;
	struct linux_task idle;
	uint64_t lent;
	uint64_t node = head;
	size_t processes = limit;

	translation_cache_clear(&walk.cache);
	if (limit == 0 ||
	    !read_task(layout, memory, &walk.cache, layout->init_task, &idle, &lent) || !idle.idle)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "the guest's first task is not where its symbols say");
	walk.left--;
	if (!visit(&walk, &idle))
		return GP_OK;
	while (read_u64(layout, memory, &walk.cache, node, &node) && node != head) {
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
