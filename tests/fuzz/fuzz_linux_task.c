/* Tasks from hostile memory. Input: a register byte each for RIP, RSP, CR3, GS and CPL, then the
 * memory from the per-CPU areas on. */
#include "tests/kernel_memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count_task(void *context, const struct linux_task *task)
{
	if (task->name[LINUX_TASK_NAME_SIZE - 1] || task->pid < 0 || task->tid < 0)
		abort();
	++*(size_t *)context;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct kernel_memory kernel;
	static struct linux_task_layout layout;
	struct linux_task_cpu remembered = {0};
	struct guest_cpu cpu = {0};
	struct linux_task task;
	char name[LINUX_TASK_LONG_NAME_SIZE];
	size_t visited = 0;
	struct error error;

	if (size < 5)
		return 0;
	cpu.rip = UINT64_C(0xffffffff81000000) + data[0];
	cpu.gpr[GUEST_RSP] = KERNEL_DIRECT + KERNEL_DATA + data[1] * 256;
	cpu.cr3 = data[2] * UINT64_C(4096);
	cpu.gs.base = KERNEL_DIRECT + data[3] * UINT64_C(4096);
	cpu.cpl = data[4] & 3;
	cpu.tr_base = KERNEL_TSS + (data[4] >> 2 & 3) * UINT64_C(4096);
	data += 5;
	size -= 5;
	kernel_memory_init(&kernel);
	if (size > KERNEL_SIZE - KERNEL_AREAS)
		size = KERNEL_SIZE - KERNEL_AREAS;
	memcpy(kernel.bytes + KERNEL_AREAS, data, size);
	kernel_memory_task_layout(&layout);
	linux_task_layout_refresh(&layout, &kernel.memory.memory);
	if (layout.area_count > LINUX_TASK_CPU_LIMIT)
		abort();
	for (unsigned i = 0; i < 2; i++) {
		if (linux_task_current(&layout, &kernel.memory.memory, NULL, &cpu, &remembered,
				       &task) != LINUX_TASK_FOUND)
			break;
		if (task.name[LINUX_TASK_NAME_SIZE - 1] || task.idle != (task.tid == 0))
			abort();
		linux_task_name(&layout, &kernel.memory.memory, NULL, task.leader, name);
		if (linux_task_long_name(&layout, &kernel.memory.memory, NULL, task.address,
					 name) &&
		    strnlen(name, sizeof(name)) == sizeof(name))
			abort();
		cpu.cpl = 0;
	}
	linux_task_walk(&layout, &kernel.memory.memory, 300, count_task, &visited, &error);
	if (visited > 300)
		abort();
	return 0;
}
