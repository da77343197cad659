/* Finding a kernel, then its symbols, in hostile guest memory. Input: registers, then 4 KiB pages
 * that serve as guest memory; the first is the page-table root. */
#include "base/cursor.h"
#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "tests/buffer_memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	struct guest_cpu cpu = {.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				.efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				.idt_limit = 0xfff};
	uint8_t flags = cursor_u8(&cursor);
	struct buffer_memory memory;
	struct linux_kernel kernel;
	struct symbol_table table;
	struct error error;

	cpu.cr4 = X86_CR4_PAE | (flags & 1 ? X86_CR4_LA57 : 0);
	cpu.cr3 = flags & 2 ? 0x1000 : 0;
	cpu.idt_base = cursor_u64(&cursor);
	cpu.rip = cursor_u64(&cursor);
	if (cursor.failed)
		return 0;
	memory = buffer_memory_over((uint8_t *)(uintptr_t)data + cursor.offset,
				    cursor_left(&cursor));
	if (linux_kernel_find(&memory.memory, &cpu, 1, &kernel, &error) != GP_OK)
		return 0;
	/* The image's 2 MiB steps are cheap to claim; what a pass over 1 GiB costs is known. */
	if (kernel.image_end - kernel.text_base > (UINT64_C(16) << 20))
		kernel.image_end = kernel.text_base + (UINT64_C(16) << 20);
	if (linux_kallsyms_read(&memory.memory, &kernel, &table, &error) == GP_OK)
		symbol_table_deinit(&table);
	return 0;
}
