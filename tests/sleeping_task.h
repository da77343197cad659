/* Stacks of tasks that do not run: images have hundreds of them. */
#ifndef TESTS_SLEEPING_TASK_H
#define TESTS_SLEEPING_TASK_H

#include "guest-introspection/linux/linux_kernel.h"

/* arch/x86/include/asm/switch_to.h, as __switch_to_asm pushes it. */
enum inactive_task_frame {
	INACTIVE_R15,
	INACTIVE_R14,
	INACTIVE_R13,
	INACTIVE_R12,
	INACTIVE_BX,
	INACTIVE_BP,
	INACTIVE_RETURN_ADDRESS,
	INACTIVE_WORDS,
};

/* The registers of a task that does not run, as guest_unwind() takes them: from what
 * __switch_to_asm left on its stack (struct inactive_task_frame), at `thread_sp`, which is
 * task_struct.thread.sp. `root` is the guest-physical address of its page tables (mm->pgd), 0
 * for a kernel thread. False, `out` untouched: the stack cannot be read. */
static inline bool linux_sleeping_task_registers(const struct guest_memory *memory,
						 const struct linux_kernel *kernel,
						 uint64_t thread_sp, uint64_t root,
						 struct guest_cpu *out)
{
	uint64_t frame[INACTIVE_WORDS];
	struct guest_cpu cpu = {
		.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
		.cr3 = root ? root : kernel->space.root,
		.cr4 = X86_CR4_PAE | (kernel->space.mode == ADDRESSING_5_LEVEL ? X86_CR4_LA57 : 0),
		.efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
		.cs = {.long_mode = true},
	};

	if (guest_read_virtual(&kernel->space, NULL, memory, gva(thread_sp), frame,
			       sizeof(frame)) != TRANSLATE_OK)
		return false;
	cpu.gpr[GUEST_R15] = frame[INACTIVE_R15];
	cpu.gpr[GUEST_R14] = frame[INACTIVE_R14];
	cpu.gpr[GUEST_R13] = frame[INACTIVE_R13];
	cpu.gpr[GUEST_R12] = frame[INACTIVE_R12];
	cpu.gpr[GUEST_RBX] = frame[INACTIVE_BX];
	cpu.gpr[GUEST_RBP] = frame[INACTIVE_BP];
	cpu.gpr[GUEST_RSP] = thread_sp + sizeof(frame);
	cpu.rip = frame[INACTIVE_RETURN_ADDRESS];
	*out = cpu;
	return true;
}

#endif
