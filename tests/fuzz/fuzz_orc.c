/* ORC tables and stacks of a Linux kernel, both forged: bounded, nothing but executable pages of
 * the right privilege among the return addresses. Input: registers, then what is in the guest's
 * pages: two of text, two of stacks, one of a program's text, one of its stack, one with the
 * tables and the TSS. Page tables are the fuzzer's own. */
#include "base/cursor.h"
#include "guest-introspection/linux/linux_stack.h"
#include "guest-introspection/unwind/unwind.h"
#include "tests/buffer_memory.h"

#include <stdlib.h>

#define SIZE 0x10000
#define ROOT 0x1000
#define OFFSET UINT64_C(0xffffffff80000000)
#define TEXT 0x8000
#define STACK 0xa000
#define USER_TEXT 0xc000
#define USER_STACK 0xd000
#define TABLES 0xe000
#define ENTRIES 0xe200
#define MODULE_PLACES 0xe800
#define MODULE_ENTRIES 0xe900
#define TSS 0xef00
#define DEPTH 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_symbol(struct symbol_table *symbols, const char *name, uint64_t address)
{
	if (symbol_table_add(symbols, OFFSET + address, 0, 't', name, strlen(name)) != GP_OK)
		abort();
}

static void build(struct buffer_memory *memory)
{
	memory->next_table = 0x2000;
	for (uint64_t at = TEXT; at < USER_TEXT; at += 4096)
		buffer_map(memory, ROOT, 4, OFFSET + at,
			   at | PAGE_PRESENT | (at < STACK ? 0 : PAGE_NO_EXECUTE), 1);
	buffer_map(memory, ROOT, 4, OFFSET + TABLES, TABLES | PAGE_PRESENT | PAGE_NO_EXECUTE, 1);
	buffer_map(memory, ROOT, 4, USER_TEXT, USER_TEXT | PAGE_PRESENT | PAGE_USER, 1);
	buffer_map(memory, ROOT, 4, USER_STACK,
		   USER_STACK | PAGE_PRESENT | PAGE_USER | PAGE_NO_EXECUTE, 1);
}

static void check(const struct guest_memory *memory, const struct guest_cpu *cpu,
		  const struct linux_stack *stack, unsigned capacity)
{
	uint64_t pcs[DEPTH];
	struct address_space space = address_space_of(cpu);
	struct unwind_stack found =
		guest_unwind(memory, linux_stack_unwind_kernel(stack), cpu, pcs, capacity);

	if (found.count > capacity || found.user_frame > capacity ||
	    (capacity && found.count == 0) || found.user_frame > found.count ||
	    found.end < STACK_END_ROOT || found.end > STACK_END_NO_RULE)
		abort();
	for (unsigned i = 1; i < found.count; i++) {
		struct translation translation;

		if (i == found.user_frame)
			continue;
		if (guest_translate(&space, memory, gva(pcs[i]), &translation) != TRANSLATE_OK ||
		    !translation.executable || translation.user != (i > found.user_frame))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[SIZE];
	struct cursor cursor = cursor_over(data, size);
	struct buffer_memory memory = buffer_memory_over(bytes, SIZE);
	struct linux_kernel kernel = {.space = address_space_at(ROOT, ADDRESSING_4_LEVEL)};
	struct guest_cpu cpu = {.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				.cr3 = ROOT,
				.cr4 = X86_CR4_PAE,
				.efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				.cs = {.long_mode = true},
				.tr_base = OFFSET + TSS};
	uint8_t flags = cursor_u8(&cursor);
	unsigned capacity = cursor_u8(&cursor) % (DEPTH + 1);
	unsigned count = cursor_u8(&cursor) % 86;
	struct symbol_table symbols;
	struct linux_stack *stack;
	struct orc_module module = {.addresses = OFFSET + MODULE_PLACES,
				    .entries = OFFSET + MODULE_ENTRIES,
				    .text_start = OFFSET + TEXT + 0x1800,
				    .text_size = 0x800};
	struct error error;

	module.count = cursor_u8(&cursor);
	cpu.rip = OFFSET + TEXT + cursor_u16(&cursor) % 0x2000;
	for (unsigned i = 0; i < GUEST_REGISTER_COUNT; i++)
		cpu.gpr[i] = (flags & 1 ? 0 : OFFSET) + cursor_u16(&cursor);
	if (cursor.failed)
		return 0;
	memset(bytes, 0, sizeof(bytes));
	build(&memory);
	memcpy(bytes + TEXT, data + cursor.offset,
	       cursor_left(&cursor) < SIZE - TEXT ? cursor_left(&cursor) : SIZE - TEXT);
	symbol_table_init(&symbols);
	if (!(flags & 2)) {
		add_symbol(&symbols, "__start_orc_unwind_ip", TABLES);
		add_symbol(&symbols, "__stop_orc_unwind_ip", TABLES + count * 4);
		add_symbol(&symbols, "__start_orc_unwind", ENTRIES);
		add_symbol(&symbols, "__stop_orc_unwind", ENTRIES + count * 6);
	}
	add_symbol(&symbols, "ret_from_fork", TEXT + 0x100);
	add_symbol(&symbols, "__switch_to_asm", TEXT + 0x200);
	add_symbol(&symbols, "__x86_indirect_thunk_rax", TEXT + 0x300);
	add_symbol(&symbols, "__entry_text_start", TEXT + 0x400);
	add_symbol(&symbols, "entry_SYSCALL_64", TEXT + 0x400);
	add_symbol(&symbols, "entry_SYSRETQ_end", TEXT + 0x500);
	add_symbol(&symbols, "entry_SYSCALL_compat", TEXT + 0x600);
	add_symbol(&symbols, "__entry_text_end", TEXT + 0x700);
	symbol_table_finish(&symbols);
	if (linux_stack_create(&memory.memory, &kernel, &symbols, &stack, &error, &error) ==
	    GP_OK) {
		linux_stack_add_module(stack, &memory.memory, &module, &error);
		check(&memory.memory, &cpu, stack, capacity);
		linux_stack_destroy(stack);
	}
	symbol_table_deinit(&symbols);
	return 0;
}
