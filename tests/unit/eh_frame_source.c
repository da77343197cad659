/* User stacks by .eh_frame rules: each kind of rule, frame pointers in between, and what is still
 * checked of them. */
#include "guest-introspection/unwind/eh_frame_source.h"

#include "tests/stack_ends.h"
#include "tests/buffer_memory.h"

#include <criterion/criterion.h>

#define SIZE (UINT64_C(1) << 20)
#define ROOT UINT64_C(0x2000)
#define DEPTH 16
#define PROGRAM UINT64_C(0x555500000000)         /* linear - physical */
#define BIAS (PROGRAM + CODE - UINT64_C(0x1000)) /* the file has its code at 0x1000 */
#define CODE UINT64_C(0x40000)
#define STACK UINT64_C(0x50000)
#define OTHER_STACK UINT64_C(0x60000)

static uint8_t bytes[SIZE];
static struct buffer_memory memory;
static struct guest_cpu cpu;
static uint64_t pcs[DEPTH];

/* The file's code: a row each 0x100 bytes. */
static uint32_t addresses[] = {0, 0x100, 0x200, 0x300, 0x400, 0x500, 0x600, 0x700, 0x800};
static uint16_t numbers[] = {1, 2, 0, 3, 4, 5, 6, 7, 0};
static uint32_t blocks[] = {0, 8};
static struct eh_frame_rule rules[] = {
	{.kind = EH_FRAME_NO_RULE},
	/* 0: 24 bytes of frame, rbp in it; rbx as it was */
	{.kind = EH_FRAME_CALL,
	 .base = GUEST_RSP,
	 .offset = 24,
	 .return_address = -8,
	 .saved = UNWIND_BIT(GUEST_RBP),
	 .preserved = UNWIND_BIT(GUEST_RBX),
	 .at = {[GUEST_RBP] = -16}},
	/* 100: found by rbx */
	{.kind = EH_FRAME_CALL,
	 .base = GUEST_RBX,
	 .offset = 16,
	 .return_address = -8,
	 .preserved = UNWIND_BIT(GUEST_RBP)},
	/* 300: nobody's caller */
	{.kind = EH_FRAME_ROOT},
	/* 400: linkage */
	{.kind = EH_FRAME_LINKAGE,
	 .base = GUEST_RSP,
	 .threshold = 11,
	 .offset = 8,
	 .return_address = -8,
	 .preserved = UNWIND_BIT(GUEST_RBP)},
	/* 500: a stack that was aligned: the CFA is in memory, rbx near rbp */
	{.kind = EH_FRAME_CALL,
	 .base = GUEST_RBP,
	 .dereference = true,
	 .offset = -8,
	 .offset_after = 0,
	 .return_address = -8,
	 .saved = UNWIND_BIT(GUEST_RBP) | UNWIND_BIT(GUEST_RBX),
	 .from_base = UNWIND_BIT(GUEST_RBP) | UNWIND_BIT(GUEST_RBX),
	 .at = {[GUEST_RBP] = 0, [GUEST_RBX] = -16}},
	/* 600: signal */
	{.kind = EH_FRAME_SIGNAL,
	 .base = GUEST_RSP,
	 .return_address = 168,
	 .saved = UNWIND_BIT(GUEST_RSP) | UNWIND_BIT(GUEST_RBP),
	 .at = {[GUEST_RSP] = 160, [GUEST_RBP] = 120}},
	/* 700: found by a register that is not known in a caller */
	{.kind = EH_FRAME_CALL, .base = GUEST_R10, .offset = 16, .return_address = -8},
};
static struct eh_frame table = {.base = 0x1000,
				.row_count = 9,
				.rule_count = 8,
				.addresses = addresses,
				.numbers = numbers,
				.rules = rules,
				.index = {.blocks = blocks, .block_count = 1, .block_shift = 12}};
static struct eh_frame_mapping mapping;
static struct eh_frame_source source;
static struct unwind_program program;

static uint64_t code(uint64_t offset)
{
	return PROGRAM + CODE + offset;
}

static uint64_t stack(uint64_t offset)
{
	return PROGRAM + STACK + offset;
}

static void put(uint64_t offset, uint64_t value)
{
	buffer_put(&memory, STACK + offset, value, 8);
}

static void setup(void)
{
	memory = buffer_memory_over(bytes, SIZE);
	memory.next_table = 0x4000;
	cpu = (struct guest_cpu){.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				 .cr3 = ROOT,
				 .cr4 = X86_CR4_PAE,
				 .efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				 .cs = {.long_mode = true},
				 .cpl = 3};
	buffer_map(&memory, ROOT, 4, PROGRAM + CODE, CODE | PAGE_PRESENT | PAGE_USER, 1);
	buffer_map(&memory, ROOT, 4, PROGRAM + STACK,
		   STACK | PAGE_PRESENT | PAGE_USER | PAGE_WRITABLE | PAGE_NO_EXECUTE, 1);
	buffer_map(&memory, ROOT, 4, PROGRAM + OTHER_STACK,
		   OTHER_STACK | PAGE_PRESENT | PAGE_USER | PAGE_WRITABLE | PAGE_NO_EXECUTE, 1);
	memset(bytes + CODE, 0x90, 4096);
	/* Calls that end at 0x45, 0x145, ... */
	for (unsigned i = 0; i < 16; i++)
		bytes[CODE + i * 0x100 + 0x40] = 0xe8;
	mapping = (struct eh_frame_mapping){
		.start = code(0), .end = code(0x1000), .bias = BIAS, .table = &table};
	eh_frame_source_init(&source, &mapping, 1);
	program = (struct unwind_program){.root = ROOT, .source = &source.source};
	cpu.rip = code(0x20);
	cpu.gpr[GUEST_RSP] = stack(0x100);
	cpu.gpr[GUEST_RBP] = 0x1234;
}

TestSuite(eh_frame_source, .init = setup);

static void assert_stack(const uint64_t *expected, unsigned count, enum stack_end end)
{
	struct unwind_stack found =
		guest_unwind_program(&memory.memory, NULL, &program, &cpu, pcs, DEPTH);

	cr_assert_eq(found.user_frame, 0);
	for (unsigned i = 0; i < count && i < found.count; i++)
		cr_expect_eq(pcs[i], expected[i], "frame %u: %#llx", i, (unsigned long long)pcs[i]);
	cr_assert_eq(found.count, count, "%u frames, %s", found.count, stack_end_string(found.end));
	cr_assert_eq(found.end, end, "%s", stack_end_string(found.end));
}

#define ASSERT_STACK(end, ...)                                                        \
	do {                                                                          \
		const uint64_t expected_[] = {__VA_ARGS__};                           \
		assert_stack(expected_, sizeof(expected_) / sizeof(*expected_), end); \
	} while (0)

Test(eh_frame_source, registers_are_carried_from_frame_to_frame)
{
	cpu.gpr[GUEST_RBX] = stack(0x180);
	put(0x110, code(0x145)); /* by rsp + 24; that one by rbx, which was kept */
	put(0x188, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x145), code(0x345));
}

Test(eh_frame_source, frame_pointers_go_on_where_there_is_no_rule)
{
	put(0x108, stack(0x200)); /* rbp of the caller, at 0x245: without a rule */
	put(0x110, code(0x245));
	put(0x200, stack(0x300));
	put(0x208, code(0x45)); /* and one with */
	put(0x220, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x245), code(0x45), code(0x345));
}

Test(eh_frame_source, linkage_tables_by_the_place_in_the_entry)
{
	cpu.rip = code(0x420);
	put(0x100, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x345));
	cpu.rip = code(0x42b);
	put(0x100, 7);
	put(0x108, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x345));
}

Test(eh_frame_source, a_frame_whose_stack_was_aligned)
{
	cpu.rip = code(0x520);
	cpu.gpr[GUEST_RBP] = stack(0x140);
	put(0x130, stack(0x280)); /* rbx */
	put(0x138, stack(0x1f0)); /* CFA */
	put(0x140, stack(0x240)); /* rbp */
	put(0x1e8, code(0x145));  /* who is found by rbx */
	put(0x288, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x145), code(0x345));
}

Test(eh_frame_source, a_signal_is_crossed_to_the_exact_place)
{
	/* The program was at 0x420 with another stack. What the kernel returns to is not behind a
	 * call, and glibc has its function begin a byte before. */
	put(0x110, code(0x601));
	put(0x118 + 120, 0);
	put(0x118 + 160, PROGRAM + OTHER_STACK);
	put(0x118 + 168, code(0x420));
	buffer_put(&memory, OTHER_STACK, code(0x345), 8);
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x601), code(0x420), code(0x345));
	/* Data is no code, whatever is saved. */
	put(0x118 + 168, stack(0));
	ASSERT_STACK(STACK_END_BAD_POINTER, cpu.rip, code(0x601));
}

Test(eh_frame_source, signals_within_signals_are_bounded)
{
	/* A frame that says it interrupted itself, for ever. */
	cpu.rip = code(0x620);
	put(0x100 + 160, stack(0x100));
	put(0x100 + 168, code(0x620));
	{
		struct unwind_stack found =
			guest_unwind_program(&memory.memory, NULL, &program, &cpu, pcs, DEPTH);

		cr_assert_lt(found.count, DEPTH);
		cr_assert_eq(found.end, STACK_END_BAD_POINTER);
	}
}

Test(eh_frame_source, return_addresses_are_checked_all_the_same)
{
	put(0x110, code(0x344)); /* not behind a call */
	ASSERT_STACK(STACK_END_NO_RULE, cpu.rip);
	put(0x110, stack(0x40));
	ASSERT_STACK(STACK_END_BAD_POINTER, cpu.rip);
	put(0x110, 0);
	ASSERT_STACK(STACK_END_ROOT, cpu.rip);
}

Test(eh_frame_source, a_rule_by_an_unknown_register_is_none)
{
	/* R10 is not known in a caller; rbp is, and 0 in it is the end. */
	put(0x108, 0);
	put(0x110, code(0x745));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x745));
	/* In the leaf it is. */
	cpu.rip = code(0x720);
	cpu.gpr[GUEST_R10] = stack(0x180);
	put(0x188, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x345));
}

Test(eh_frame_source, another_address_space_does_without)
{
	put(0x110, code(0x345));
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x345));
	program.root = 0x8000;
	{
		struct unwind_stack found =
			guest_unwind_program(&memory.memory, NULL, &program, &cpu, pcs, DEPTH);

		cr_assert_eq(found.count, 1); /* rbp is 0x1234 */
	}
	/* PCID, and the program's half of two tables, are the same one. */
	program.root = ROOT;
	cpu.cr3 = ROOT | 5;
	cpu.cr4 |= UINT64_C(1) << 17;
	ASSERT_STACK(STACK_END_ROOT, cpu.rip, code(0x345));
}

Test(eh_frame_source, code_outside_its_mappings_has_no_rule)
{
	mapping.end = code(0x20);
	put(0x110, code(0x345));
	{
		struct unwind_stack found =
			guest_unwind_program(&memory.memory, NULL, &program, &cpu, pcs, DEPTH);

		cr_assert_eq(found.count, 1);
	}
	eh_frame_source_init(&source, NULL, 0);
	cr_assert_eq(guest_unwind_program(&memory.memory, NULL, &program, &cpu, pcs, DEPTH).count,
		     1);
}

Test(eh_frame_source, programs_are_found_by_their_mm)
{
	const struct unwind_program one = {.mm = 10};
	const struct unwind_program two = {.mm = 20};
	const struct unwind_program three = {.mm = 30};
	const struct unwind_program *const programs[] = {&one, &two, &three};

	cr_assert_eq(unwind_program_find(programs, 3, 10), &one);
	cr_assert_eq(unwind_program_find(programs, 3, 20), &two);
	cr_assert_eq(unwind_program_find(programs, 3, 30), &three);
	cr_assert_null(unwind_program_find(programs, 3, 5));
	cr_assert_null(unwind_program_find(programs, 3, 25));
	cr_assert_null(unwind_program_find(programs, 3, 35));
	cr_assert_null(unwind_program_find(NULL, 0, 10));
}
