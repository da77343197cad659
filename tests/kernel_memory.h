/* A made-up kernel's memory in a buffer, with structures where we put them, for tests and fuzzers
 * of what reads tasks and modules.
 *
 *   gpa 0x1000   page tables: all of the buffer at KERNEL_DIRECT, as Linux's direct map has it,
 *                and the TSS of each CPU at KERNEL_TSS + number * 4096
 *   gpa 0xc000   per-CPU areas, two pages each, the TSS in the second
 *   gpa 0x10000  data
 */
#ifndef TESTS_KERNEL_MEMORY_H
#define TESTS_KERNEL_MEMORY_H

#include "guest-introspection/linux/linux_modules.h"
#include "guest-introspection/linux/linux_reader.h"
#include "guest-introspection/linux/linux_task.h"
#include "tests/buffer_memory.h"

#define KERNEL_DIRECT UINT64_C(0xffff888000000000)
#define KERNEL_TSS UINT64_C(0xfffffe0000003000)
#define KERNEL_ROOT UINT64_C(0x1000)
#define KERNEL_AREAS UINT64_C(0xc000)
#define KERNEL_AREA_SIZE UINT64_C(0x2000)
#define KERNEL_CPUS 2u
#define KERNEL_DATA UINT64_C(0x10000)
#define KERNEL_SIZE UINT64_C(0x50000)

struct kernel_memory {
	struct buffer_memory memory;
	uint8_t bytes[KERNEL_SIZE];
};

static inline void kernel_memory_init(struct kernel_memory *self)
{
	memset(self->bytes, 0, sizeof(self->bytes));
	self->memory = buffer_memory_over(self->bytes, sizeof(self->bytes));
	self->memory.next_table = KERNEL_ROOT + 0x1000;
	buffer_map(&self->memory, KERNEL_ROOT, 4, KERNEL_DIRECT,
		   0 | PAGE_PRESENT | PAGE_WRITABLE | PAGE_LARGE, 2);
	for (unsigned i = 0; i < KERNEL_CPUS; i++)
		buffer_map(&self->memory, KERNEL_ROOT, 4, KERNEL_TSS + i * UINT64_C(4096),
			   (KERNEL_AREAS + i * KERNEL_AREA_SIZE + 0x1000) | PAGE_PRESENT, 1);
}

static inline struct address_space kernel_memory_space(void)
{
	return address_space_at(KERNEL_ROOT, ADDRESSING_4_LEVEL);
}

/* Offsets in our task_struct. */
enum {
	TASK_STACK = 0,
	TASK_FLAGS = 8,
	TASK_MM = 16,
	TASK_ACTIVE_MM = 24,
	TASK_TID = 32,
	TASK_PID = 36,
	TASK_LEADER = 40,
	TASK_COMM = 48,
	TASK_TASKS = 64,
	TASK_THREAD_NODE = 80,
	TASK_SIGNAL = 96,
	TASK_START_TIME = 104,
	TASK_WORKER = 112,
	TASK_SIZE = 128,
	SIGNAL_THREAD_HEAD = 8,
	MM_PGD = 16,
	THREAD_FULL_NAME = 24,
	/* Where things are in the data. */
	DATA_PER_CPU_OFFSET = 0,
	DATA_CPU_COUNT = 64,
	DATA_CAPABILITIES = 72,
	DATA_INIT_MM = 128,
	DATA_INIT_TASK = 256,
	PER_CPU_CURRENT = 0x40,
	PER_CPU_IRQ_STACK = 0x48,
	PER_CPU_TSS = 0x1000,
};

/* Not refreshed yet. */
static inline void kernel_memory_task_layout(struct linux_task_layout *out)
{
	const uint64_t data = KERNEL_DIRECT + KERNEL_DATA;

	memset(out, 0, sizeof(*out));
	out->space = kernel_memory_space();
	out->current = PER_CPU_CURRENT;
	out->tss = PER_CPU_TSS;
	out->irq_stack = PER_CPU_IRQ_STACK;
	out->per_cpu_offset = data + DATA_PER_CPU_OFFSET;
	out->per_cpu_boot = 0x1234;
	out->cpu_count_address = data + DATA_CPU_COUNT;
	out->capability_address = data + DATA_CAPABILITIES;
	out->init_task = data + DATA_INIT_TASK;
	out->init_mm = data + DATA_INIT_MM;
	out->stack_size = 0x4000;
	out->switches[0].start = UINT64_C(0xffffffff81000000);
	out->switches[0].end = UINT64_C(0xffffffff81000100);
	out->stack = TASK_STACK;
	out->flags = TASK_FLAGS;
	out->mm = TASK_MM;
	out->active_mm = TASK_ACTIVE_MM;
	out->tid = TASK_TID;
	out->pid = TASK_PID;
	out->group_leader = TASK_LEADER;
	out->comm = TASK_COMM;
	out->tasks = TASK_TASKS;
	out->thread_node = TASK_THREAD_NODE;
	out->signal = TASK_SIGNAL;
	out->start_time = TASK_START_TIME;
	out->worker_private = TASK_WORKER;
	out->thread_full_name = THREAD_FULL_NAME;
	out->mm_pgd = MM_PGD;
	out->thread_head = SIGNAL_THREAD_HEAD;
	/* Two, so that both are put together rightly. */
	out->windows[0] = (struct linux_task_window){.offset = 0, .size = 32, .packed = 0};
	out->windows[1] = (struct linux_task_window){.offset = 32, .size = 80, .packed = 32};
	out->window_count = 2;
}

/* Offsets in our struct module; `modules` is at the start of the data. */
enum {
	MODULE_STATE = 0,
	MODULE_LIST = 8,
	MODULE_NAME = 24,
	MODULE_KALLSYMS = 80,
	MODULE_ORC_COUNT = 88,
	MODULE_ORC_IPS = 96,
	MODULE_ORC_ENTRIES = 104,
	MODULE_MEMORY = 112, /* two blocks of 16 bytes, or seven */
	MODULE_SIZE = 224,
	MODULE_TYPES = 7,
};

static inline struct linux_module_layout kernel_memory_module_layout(bool types)
{
	return (struct linux_module_layout){.space = kernel_memory_space(),
					    .head = KERNEL_DIRECT + KERNEL_DATA,
					    .list = MODULE_LIST,
					    .name = MODULE_NAME,
					    .state = MODULE_STATE,
					    .kallsyms = MODULE_KALLSYMS,
					    .unformed = 3,
					    .core = MODULE_MEMORY,
					    .init = MODULE_MEMORY + 16,
					    .layout_base = 0,
					    .layout_size = 8,
					    .layout_text_size = 12,
					    .memory = MODULE_MEMORY,
					    .memory_size = 16,
					    .memory_types = types ? MODULE_TYPES : 0,
					    .memory_base = 0,
					    .memory_length = 8,
					    .text_type = 0,
					    .init_text_type = 4,
					    .symtab = 0,
					    .symbol_count = 8,
					    .strtab = 16,
					    .typetab = 24,
					    .orc_ips = MODULE_ORC_IPS,
					    .orc_entries = MODULE_ORC_ENTRIES,
					    .orc_count = MODULE_ORC_COUNT,
					    .notes = 0x20,
					    .note_count = 8,
					    .note_array = 16,
					    .note_list = LINUX_MEMBER_MISSING,
					    .note_bytes = 32,
					    .note_size = 8,
					    .note_contents = 16};
}

#endif
