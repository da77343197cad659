/* Frame-pointer stacks: what is found, what ends them, and that nothing is invented. */
#include "guest-introspection/unwind/unwind.h"
#include "tests/stack_ends.h"
#include "tests/buffer_memory.h"

#include <criterion/criterion.h>

#define SIZE (UINT64_C(1) << 20)
#define ROOT UINT64_C(0x1000)
#define DEPTH 16

/* Guest layout: code and stack pages, virtual = physical + OFFSET */
#define OFFSET UINT64_C(0xffffffff80000000)
#define CODE UINT64_C(0x40000)
#define STACK UINT64_C(0x50000)
#define TOP (STACK + 0x1000)

static uint8_t bytes[SIZE];
static struct buffer_memory memory;
static struct guest_cpu cpu;
static uint64_t pcs[DEPTH];

static void map(uint64_t base, uint64_t physical, uint64_t flags)
{
	buffer_map(&memory, ROOT, 4, base + physical, physical | PAGE_PRESENT | flags, 1);
}

static void setup(void)
{
	memory = buffer_memory_over(bytes, SIZE);
	memory.next_table = 0x2000;
	cpu = (struct guest_cpu){.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				 .cr3 = ROOT,
				 .cr4 = X86_CR4_PAE,
				 .efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				 .cs = {.long_mode = true}};
	for (unsigned i = 0; i < 4; i++) {
		map(OFFSET, CODE + i * 4096, 0);
		map(OFFSET, STACK + i * 4096, PAGE_WRITABLE | PAGE_NO_EXECUTE);
	}
	memset(bytes + CODE, 0x90, 4 * 4096);
	/* calls that end at CODE+0x105, 0x205, ... */
	for (unsigned i = 1; i < 32; i++)
		bytes[CODE + i * 0x100] = 0xe8;
	cpu.rip = OFFSET + CODE + 0x50;
	cpu.gpr[GUEST_RSP] = OFFSET + STACK + 0x100;
	cpu.gpr[GUEST_RBP] = OFFSET + STACK + 0x110;
}

TestSuite(unwind, .init = setup);

static uint64_t call_end(unsigned number)
{
	return OFFSET + CODE + number * 0x100 + 5;
}

static void put_frame(uint64_t at, uint64_t frame_pointer, uint64_t return_address)
{
	buffer_put(&memory, at, frame_pointer, 8);
	buffer_put(&memory, at + 8, return_address, 8);
}

/* Frames at STACK + 0x110, 0x130, ...; the last one's saved frame pointer is 0. */
static void put_chain(unsigned frames)
{
	for (unsigned i = 0; i < frames; i++)
		put_frame(STACK + 0x110 + i * 0x20,
			  i + 1 < frames ? OFFSET + STACK + 0x130 + i * 0x20 : 0, call_end(i + 1));
}

static void put_code(uint64_t at, const char *code, unsigned size)
{
	memcpy(bytes + CODE + at, code, size);
}

static void assert_stack(unsigned count, enum stack_end end)
{
	struct unwind_stack stack = guest_unwind(&memory.memory, NULL, &cpu, pcs, DEPTH);

	cr_assert_eq(stack.count, count, "%u frames, %s", stack.count, stack_end_string(stack.end));
	cr_assert_eq(stack.end, end, "%s", stack_end_string(stack.end));
}

Test(unwind, a_chain_is_followed_to_its_root)
{
	put_chain(3);
	assert_stack(4, STACK_END_ROOT);
	cr_assert_eq(pcs[0], cpu.rip);
	for (unsigned i = 1; i < 4; i++)
		cr_assert_eq(pcs[i], call_end(i));
}

Test(unwind, the_depth_limit_is_told_from_a_stack_that_just_fits)
{
	struct unwind_stack stack;

	put_chain(15);
	assert_stack(16, STACK_END_ROOT);
	put_chain(16);
	assert_stack(16, STACK_END_DEPTH_LIMIT);
	stack = guest_unwind(&memory.memory, NULL, &cpu, pcs, 0);
	cr_assert_eq(stack.count, 0);
	cr_assert_eq(stack.end, STACK_END_DEPTH_LIMIT);
	stack = guest_unwind(&memory.memory, NULL, &cpu, pcs, 1);
	cr_assert_eq(stack.count, 1);
	cr_assert_eq(stack.end, STACK_END_DEPTH_LIMIT);
}

Test(unwind, return_address_zero_is_the_root)
{
	put_frame(STACK + 0x110, OFFSET + STACK + 0x130, 0);
	assert_stack(1, STACK_END_ROOT);
}

Test(unwind, bad_frame_pointers_end_the_stack)
{
	put_chain(3);
	put_frame(STACK + 0x130, OFFSET + STACK + 0x130, call_end(2));
	assert_stack(3, STACK_END_BAD_POINTER);
	put_frame(STACK + 0x130, OFFSET + STACK + 0x110, call_end(2));
	assert_stack(3, STACK_END_BAD_POINTER);
	put_frame(STACK + 0x130, OFFSET + STACK + 0x155, call_end(2));
	assert_stack(3, STACK_END_BAD_POINTER);
	put_frame(STACK + 0x130, UINT64_C(0x123456789abcdef0), call_end(2));
	assert_stack(3, STACK_END_BAD_POINTER);
	put_frame(STACK + 0x130, UINT64_MAX - 7, call_end(2));
	assert_stack(3, STACK_END_BAD_POINTER);
	put_frame(STACK + 0x130, OFFSET + STACK + 0x8000, call_end(2));
	assert_stack(3, STACK_END_NOT_PRESENT);
	map(OFFSET, 0x58000, 0);
	buffer_map(&memory, ROOT, 4, OFFSET + 0x58000, UINT64_C(0x7fff0000) | PAGE_PRESENT, 1);
	assert_stack(3, STACK_END_OUTSIDE_MEMORY);
}

Test(unwind, a_frame_may_lie_across_two_pages_of_the_stack)
{
	uint64_t edge = STACK + 0x1000;

	/* Its frame pointer is the last word of a page; then both pages are used in turn. */
	cpu.gpr[GUEST_RBP] = OFFSET + edge - 8;
	put_frame(edge - 8, OFFSET + edge + 0x1ff0, call_end(1));
	put_frame(edge + 0x1ff0, 0, call_end(2));
	assert_stack(3, STACK_END_ROOT);
	cr_assert_eq(pcs[1], call_end(1));
	cr_assert_eq(pcs[2], call_end(2));
	/* The page with the frame pointer is not there. */
	buffer_map(&memory, ROOT, 4, OFFSET + STACK, 0, 1);
	assert_stack(1, STACK_END_NOT_PRESENT);
}

Test(unwind, a_stack_over_several_pages_of_code_and_stack_is_whole)
{
	/* Physical pages in another order than linear ones: nothing may be read by neighbourhood.
	 */
	for (unsigned i = 0; i < 2; i++)
		buffer_map(&memory, ROOT, 4, OFFSET + STACK + (uint64_t)(i + 1) * 4096,
			   (STACK + (uint64_t)(2 - i) * 4096) | PAGE_PRESENT | PAGE_WRITABLE |
				   PAGE_NO_EXECUTE,
			   1);
	put_frame(STACK + 0x110, OFFSET + STACK + 0x1010, call_end(17));
	put_frame(STACK + 0x2010, OFFSET + STACK + 0x2020, call_end(1));
	put_frame(STACK + 0x1020, 0, call_end(18));
	assert_stack(4, STACK_END_ROOT);
	cr_assert_eq(pcs[1], call_end(17));
	cr_assert_eq(pcs[2], call_end(1));
	cr_assert_eq(pcs[3], call_end(18));
}

Test(unwind, a_frame_pointer_below_the_stack_pointer_is_just_a_register)
{
	put_chain(2);
	cpu.gpr[GUEST_RSP] = OFFSET + STACK + 0x200;
	assert_stack(1, STACK_END_BAD_POINTER);
}

/* Code without frame pointers holds in RBP what it likes: here a variable right below a return
 * address. That address is one of a caller, and between it and the leaf there are others. */
Test(unwind, a_pointer_to_a_variable_is_no_frame_pointer)
{
	const uint64_t variables[] = {0xfffffff3, 1, OFFSET + STACK + 0x110, OFFSET + STACK + 0x100,
				      UINT64_C(0xff1a9651831ba100)};

	for (unsigned i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		put_frame(STACK + 0x110, variables[i], call_end(1));
		assert_stack(1, STACK_END_NO_RULE);
	}
	/* Behind an indirect call nothing is known of the function. */
	put_code(0x820, "\xff\xd0", 2);
	put_frame(STACK + 0x110, 1, OFFSET + CODE + 0x822);
	assert_stack(1, STACK_END_NO_RULE);
	/* Nor does a caller that is found otherwise vouch for the register. */
	put_code(0x40, "\x5b\xc3", 2); /* pop rbx; ret */
	cpu.rip = OFFSET + CODE + 0x40;
	put_frame(STACK + 0x100, 0, call_end(9));
	assert_stack(2, STACK_END_NO_RULE);
	cr_assert_eq(pcs[1], call_end(9));
}

Test(unwind, the_first_of_a_chain_may_have_stored_anything)
{
	/* A call to a function that stores RBP and sets it up, as an entry point in assembler has
	 * it. */
	put_code(0x100, "\xe8\xfb\x06\0\0", 5);
	put_code(0x800, "\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", 8);
	put_frame(STACK + 0x110, 0xfffffff3, call_end(1));
	assert_stack(2, STACK_END_BAD_POINTER);
	cr_assert_eq(pcs[1], call_end(1));
	put_code(0x800, "\xf3\x0f\x1e\xfa\x53\x48\x89\xfb", 8);
	assert_stack(1, STACK_END_NO_RULE);
	/* Where it is not the leaf's, what is below it has shown that there are frame pointers. */
	put_chain(2);
	put_frame(STACK + 0x130, 0xfffffff3, call_end(2));
	assert_stack(3, STACK_END_BAD_POINTER);
	cr_assert_eq(pcs[2], call_end(2));
}

Test(unwind, return_addresses_must_be_code_behind_a_call)
{
	put_frame(STACK + 0x110, 0, call_end(1) + 1);
	assert_stack(1, STACK_END_NO_RULE);
	put_frame(STACK + 0x110, 0, OFFSET + STACK + 0x20);
	assert_stack(1, STACK_END_BAD_POINTER);
	put_frame(STACK + 0x110, 0, OFFSET + 0x70000);
	assert_stack(1, STACK_END_NOT_PRESENT);
	put_frame(STACK + 0x110, 0, UINT64_C(0x0000900000000000));
	assert_stack(1, STACK_END_BAD_POINTER);
	/* user code under a supervisor leaf */
	map(0, CODE, PAGE_USER);
	put_frame(STACK + 0x110, 0, CODE + 0x105);
	assert_stack(1, STACK_END_BAD_POINTER);
}

Test(unwind, every_form_of_call_is_known)
{
	static const struct {
		const char *code;
		unsigned size;
		bool call;
	} forms[] = {
		{"\xe8\x11\x22\x33\x44", 5, true},          /* call rel32 */
		{"\xff\xd0", 2, true},                      /* call rax */
		{"\x41\xff\xd3", 3, true},                  /* call r11 */
		{"\xff\x10", 2, true},                      /* call [rax] */
		{"\xff\x14\xc8", 3, true},                  /* call [rax+rcx*8] */
		{"\xff\x14\xc5\x11\x22\x33\x44", 7, true},  /* call [rax*8+disp32] */
		{"\xff\x50\x18", 3, true},                  /* call [rax+0x18] */
		{"\xff\x54\x24\x08", 4, true},              /* call [rsp+8] */
		{"\xff\x90\x11\x22\x33\x44", 6, true},      /* call [rax+disp32] */
		{"\xff\x94\xc1\x11\x22\x33\x44", 7, true},  /* call [rcx+rax*8+disp32] */
		{"\xff\x15\x11\x22\x33\x44", 6, true},      /* call [rip+disp32] */
		{"\xff\x20", 2, false},                     /* jmp [rax] */
		{"\xff\xe0", 2, false},                     /* jmp rax */
		{"\xe9\x11\x22\x33\x44", 5, false},         /* jmp rel32 */
		{"\xff\x14", 2, false},                     /* SIB cut off */
		{"\xff\x50", 2, false},                     /* displacement cut off */
		{"\x9a\x11\x22\x33\x44\x08\x00", 7, false}, /* far call: not in 64-bit code */
		{"\x48\x89\x45\xf8", 4, false},
	};

	for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		memset(bytes + CODE + 0x800, 0x90, 0x40);
		put_code(0x820 - forms[i].size, forms[i].code, forms[i].size);
		put_frame(STACK + 0x110, 0, OFFSET + CODE + 0x820);
		assert_stack(forms[i].call ? 2 : 1,
			     forms[i].call ? STACK_END_ROOT : STACK_END_NO_RULE);
	}
}

Test(unwind, a_call_at_the_end_of_the_page_before_counts_where_it_is_mapped)
{
	put_code(0xffb, "\xe8\0\0\0\0", 5);
	put_frame(STACK + 0x110, 0, OFFSET + CODE + 0x1000);
	assert_stack(2, STACK_END_ROOT);
	put_code(0xffb, "\x90\x90\x90\xe8\0\0\0\0", 8);
	put_frame(STACK + 0x110, 0, OFFSET + CODE + 0x1003);
	assert_stack(2, STACK_END_ROOT);
	map(OFFSET, CODE, 0);
	buffer_map(&memory, ROOT, 4, OFFSET + CODE, 0, 1);
	cpu.rip = OFFSET + CODE + 0x1500;
	assert_stack(1, STACK_END_NO_RULE);
	/* the bytes in its own page still do */
	put_code(0x1000, "\xff\xd0", 2);
	put_frame(STACK + 0x110, 0, OFFSET + CODE + 0x1002);
	assert_stack(2, STACK_END_ROOT);
}

Test(unwind, user_frames_stay_in_user_pages)
{
	cpu.cpl = 3;
	for (unsigned i = 0; i < 4; i++) {
		map(0, CODE + i * 4096, PAGE_USER);
		map(0, STACK + i * 4096, PAGE_USER | PAGE_WRITABLE | PAGE_NO_EXECUTE);
	}
	cpu.rip = CODE + 0x50;
	cpu.gpr[GUEST_RSP] = STACK + 0x100;
	cpu.gpr[GUEST_RBP] = STACK + 0x110;
	put_frame(STACK + 0x110, STACK + 0x130, CODE + 0x105);
	put_frame(STACK + 0x130, 0, CODE + 0x205);
	assert_stack(3, STACK_END_ROOT);
	put_frame(STACK + 0x130, 0, call_end(2));
	assert_stack(2, STACK_END_BAD_POINTER);
	cpu.gpr[GUEST_RBP] = OFFSET + STACK + 0x110;
	assert_stack(1, STACK_END_BAD_POINTER);
}

Test(unwind, a_kernel_in_user_pages_is_followed)
{
	for (unsigned i = 0; i < 4; i++) {
		map(OFFSET, CODE + i * 4096, PAGE_USER);
		map(OFFSET, STACK + i * 4096, PAGE_USER | PAGE_WRITABLE);
	}
	put_chain(2);
	assert_stack(3, STACK_END_ROOT);
}

Test(unwind, a_kernel_leaf_does_not_follow_a_user_frame_pointer)
{
	for (unsigned i = 0; i < 4; i++)
		map(0x10000000, STACK + i * 4096, PAGE_USER | PAGE_WRITABLE);
	cpu.gpr[GUEST_RSP] = 0x10000000 + STACK + 0x100;
	cpu.gpr[GUEST_RBP] = 0x10000000 + STACK + 0x110;
	put_chain(1);
	assert_stack(1, STACK_END_BAD_POINTER);
}

Test(unwind, a_leaf_before_its_prologue_keeps_its_caller)
{
	static const struct {
		const char *code;
		unsigned size;
		unsigned at;
	} entries[] = {
		{"\x55\x48\x89\xe5", 4, 0},
		{"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", 8, 0},
		{"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", 8, 4},
		{"\xf3\x0f\x1e\xfa\x0f\x1f\x44\x00\x00\x55\x48\x8b\xec", 13, 0},
		{"\x0f\x1f\x44\x00\x00\x55\x48\x89\xe5", 9, 0},
		{"\xc9\xc3", 2, 1},
		{"\x5d\xc3", 2, 1},
		{"\x5d\xc2\x10\x00", 4, 1},
		{"\xf3\xc3", 2, 0},
		{"\x5d\xe9\x11\x22\x33\x44", 6, 1},
	};

	put_chain(2);
	buffer_put(&memory, STACK + 0x100, call_end(9), 8);
	for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		put_code(0x40, entries[i].code, entries[i].size);
		cpu.rip = OFFSET + CODE + 0x40 + entries[i].at;
		assert_stack(4, STACK_END_ROOT);
		cr_assert_eq(pcs[1], call_end(9), "case %u", i);
		cr_assert_eq(pcs[2], call_end(1), "case %u", i);
	}
}

Test(unwind, a_leaf_between_push_and_move_keeps_its_caller)
{
	static const struct {
		const char *code;
		unsigned size;
		unsigned at;
	} entries[] = {
		{"\x55\x48\x89\xe5", 4, 1},
		{"\x55\x48\x8b\xec", 4, 1},
		{"\x5d\xc3", 2, 0},
		{"\x5d\xe9\x11\x22\x33\x44", 6, 0},
	};

	put_chain(2);
	put_frame(STACK + 0x100, OFFSET + STACK + 0x110, call_end(9));
	cpu.gpr[GUEST_RBP] = 0x12345; /* not looked at */
	for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		put_code(0x40, entries[i].code, entries[i].size);
		cpu.rip = OFFSET + CODE + 0x40 + entries[i].at;
		/* the frame at 0x100 overlaps nothing: 0x110 is the caller's */
		assert_stack(4, STACK_END_ROOT);
		cr_assert_eq(pcs[1], call_end(9), "case %u", i);
		cr_assert_eq(pcs[2], call_end(1), "case %u", i);
	}
}

Test(unwind, leave_and_the_body_use_the_frame)
{
	put_chain(2);
	buffer_put(&memory, STACK + 0x100, call_end(9), 8);
	put_code(0x40, "\xc9\xc3", 2);
	cpu.rip = OFFSET + CODE + 0x40;
	assert_stack(3, STACK_END_ROOT);
	cr_assert_eq(pcs[1], call_end(1));
	/* push rbp as a mere spill, a move without a push before it: no proof */
	put_code(0x40, "\x55\x53\x48\x89\xe5", 5);
	assert_stack(3, STACK_END_ROOT);
	cpu.rip += 2;
	assert_stack(3, STACK_END_ROOT);
}

Test(unwind, a_return_to_no_call_is_not_papered_over)
{
	put_chain(2);
	put_code(0x40, "\x90\xc3", 2);
	cpu.rip = OFFSET + CODE + 0x41;
	buffer_put(&memory, STACK + 0x100, call_end(9) + 3, 8);
	assert_stack(1, STACK_END_NO_RULE);
}

Test(unwind, thirty_two_bit_frames_in_compatibility_mode)
{
	cpu.cpl = 3;
	cpu.cs = (struct guest_segment){.default_size = true};
	for (unsigned i = 0; i < 4; i++) {
		map(0, CODE + i * 4096, PAGE_USER);
		map(0, STACK + i * 4096, PAGE_USER | PAGE_WRITABLE | PAGE_NO_EXECUTE);
	}
	cpu.rip = CODE + 0x50;
	/* the upper halves are stale in 32-bit code */
	cpu.gpr[GUEST_RSP] = UINT64_C(0xdead00000000) + STACK + 0x100;
	cpu.gpr[GUEST_RBP] = UINT64_C(0xdead00000000) + STACK + 0x104;
	buffer_put(&memory, STACK + 0x104, STACK + 0x124, 4);
	buffer_put(&memory, STACK + 0x108, CODE + 0x105, 4);
	buffer_put(&memory, STACK + 0x124, 0, 4);
	buffer_put(&memory, STACK + 0x128, CODE + 0x205, 4);
	assert_stack(3, STACK_END_ROOT);
	cr_assert_eq(pcs[1], CODE + 0x105);
	cr_assert_eq(pcs[2], CODE + 0x205);
	put_code(0x50, "\xf3\x0f\x1e\xfb\x55\x89\xe5", 7);
	buffer_put(&memory, STACK + 0x100, CODE + 0x305, 4);
	assert_stack(4, STACK_END_ROOT);
	cr_assert_eq(pcs[1], CODE + 0x305);
}

Test(unwind, without_paging_and_with_segment_bases)
{
	cpu = (struct guest_cpu){.cr0 = X86_CR0_PROTECTED,
				 .cs = {.base = CODE, .default_size = true},
				 .ss = {.base = STACK, .default_size = true}};
	cpu.rip = 0x50;
	cpu.gpr[GUEST_RSP] = 0x100;
	cpu.gpr[GUEST_RBP] = 0x110;
	buffer_put(&memory, STACK + 0x110, 0x130, 4);
	buffer_put(&memory, STACK + 0x114, 0x105, 4);
	buffer_put(&memory, STACK + 0x130, 0, 4);
	buffer_put(&memory, STACK + 0x134, 0x205, 4);
	assert_stack(3, STACK_END_ROOT);
	cr_assert_eq(pcs[0], CODE + 0x50);
	cr_assert_eq(pcs[2], CODE + 0x205);
}

Test(unwind, sixteen_bit_code_has_a_leaf_only)
{
	cpu = (struct guest_cpu){.cs = {.base = 0xffff0000}, .rip = 0xfff0};
	assert_stack(1, STACK_END_NO_RULE);
	cr_assert_eq(pcs[0], 0xfffffff0);
}

Test(unwind, a_leaf_that_is_not_mapped_is_still_the_leaf)
{
	put_chain(1);
	cpu.rip = OFFSET + 0x90000;
	assert_stack(2, STACK_END_ROOT);
	cr_assert_eq(pcs[0], OFFSET + 0x90000);
}
