/* Stacks over hostile memory and registers: bounded, and every frame behind the leaf is unlike a
 * data page. Input: registers, then guest memory. */
#include "base/cursor.h"
#include "guest-introspection/unwind/unwind.h"
#include "tests/buffer_memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	struct guest_cpu cpu = {0};
	uint8_t flags = cursor_u8(&cursor);
	unsigned capacity = cursor_u8(&cursor) % 40;
	uint64_t *pcs = malloc(capacity ? capacity * sizeof(*pcs) : 1);
	struct buffer_memory memory;
	struct unwind_stack stack;
	struct address_space space;

	cpu.cr0 = (flags & 1 ? X86_CR0_PROTECTED : 0) | ((flags & 3) == 3 ? X86_CR0_PAGING : 0);
	cpu.cr4 = X86_CR4_PSE | (flags & 4 ? X86_CR4_PAE : 0) | (flags & 8 ? X86_CR4_LA57 : 0);
	cpu.efer = flags & 16 ? X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE : 0;
	cpu.cs.long_mode = flags & 32;
	cpu.cs.default_size = flags & 64;
	cpu.cpl = flags & 128 ? 3 : 0;
	cpu.cr3 = cursor_u16(&cursor);
	cpu.cs.base = cursor_u16(&cursor);
	cpu.ss.base = cursor_u16(&cursor);
	cpu.rip = cursor_u64(&cursor);
	cpu.gpr[GUEST_RSP] = cursor_u64(&cursor);
	cpu.gpr[GUEST_RBP] = cursor_u64(&cursor);
	memory = buffer_memory_over((uint8_t *)(uintptr_t)data + cursor.offset,
				    cursor_left(&cursor));
	stack = guest_unwind(&memory.memory, NULL, &cpu, pcs, capacity);
	if (stack.count > capacity || stack.end < STACK_END_ROOT || stack.end > STACK_END_NO_RULE ||
	    (capacity > 0 && stack.count == 0))
		abort();
	space = address_space_of(&cpu);
	for (unsigned i = 1; i < stack.count; i++) {
		struct translation translation;

		if (guest_translate(&space, &memory.memory, gva(pcs[i]), &translation) !=
			    TRANSLATE_OK ||
		    !translation.executable || (cpu.cpl == 3 && !translation.user))
			abort();
	}
	free(pcs);
	return 0;
}
