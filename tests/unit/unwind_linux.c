/* A Linux kernel's stacks over memory made by hand: each kind of ORC entry, the entry code's
 * windows, the way on into the program, and what must not be believed. */
#include "guest-introspection/linux/linux_stack.h"
#include "tests/sleeping_task.h"
#include "tests/stack_ends.h"
#include "tests/orc_builder.h"

#include <criterion/criterion.h>

#define SIZE (UINT64_C(2) << 20)
#define ROOT UINT64_C(0x2000) /* the kernel's; the program's with isolation at 0x3000 */
#define USER_ROOT UINT64_C(0x3000)
#define OFFSET UINT64_C(0xffffffff80000000)
#define TEXT UINT64_C(0x100000)
#define STACK UINT64_C(0x120000)
#define IRQ_STACK UINT64_C(0x124000)
#define ENTRY_STACK UINT64_C(0x128000)
#define TSS UINT64_C(0x129000)
#define TABLES UINT64_C(0x130000)
#define USER_TEXT UINT64_C(0x140000) /* mapped at the same address */
#define USER_STACK UINT64_C(0x150000)
#define USER_32_STACK UINT64_C(0x152000)
#define DEPTH 16

/* Functions, from TEXT on. */
#define FUNCTION(number) (TEXT + (number)*0x100)
#define LINEAR(physical) (OFFSET + (physical))
#define CALL_END(number) LINEAR(FUNCTION(number) + 0x45)
#define LEAF 0         /* return address on top */
#define SAVES_BP 1     /* sp+24, bp saved at -16 */
#define USES_BP 2      /* bp+16, bp saved at -16 */
#define ALIGNS 3       /* R10, then [bp-8] from +0x80 on, bp saved at bp+0 */
#define ON_IRQ_STACK 4 /* [sp] */
#define HAS_REGS 5     /* pt_regs at sp */
#define HAS_FRAME 6    /* interrupt frame at sp+8 */
#define UNKNOWN 7
#define START 8
#define FORK 9
#define THUNK 10
#define GENERATED 40 /* no entries */
#define FREED 36     /* in a page of its own */
#define ENTRY 12     /* the entry text, to 15 */
#define ENTRY_32 13
#define INT80 14
#define HAS_FRAME_32 15 /* in the entry text */
#define RETURN_THUNK 11

static uint8_t bytes[SIZE];
static struct buffer_memory memory;
static struct guest_cpu cpu;
static struct symbol_table symbols;
static struct orc_builder builder;
static struct linux_stack *linux_stack;
static struct linux_kernel kernel;
static uint64_t pcs[DEPTH];

static void map(uint64_t linear, uint64_t physical, uint64_t flags)
{
	buffer_map(&memory, ROOT, 4, linear, physical | PAGE_PRESENT | flags, 1);
}

static void add_symbol(const char *name, uint64_t address)
{
	cr_assert_eq(symbol_table_add(&symbols, address, 0, 't', name, strlen(name)), GP_OK);
}

static void put_code(uint64_t physical, const char *code, unsigned size)
{
	memcpy(bytes + physical, code, size);
}

static void call(unsigned number, unsigned sp, int sp_offset, unsigned bp, int bp_offset)
{
	orc_put(&builder, LINEAR(FUNCTION(number)), ORC_CALL, sp, sp_offset, bp, bp_offset);
}

static void put_tables(enum orc_format format)
{
	builder = (struct orc_builder){.memory = &memory,
				       .format = format,
				       .offset = OFFSET,
				       .addresses = TABLES,
				       .entries = TABLES + 0x1000};
	call(LEAF, ORC_REGISTER_SP, 8, 0, 0);
	call(SAVES_BP, ORC_REGISTER_SP, 24, ORC_REGISTER_PREVIOUS_SP, -16);
	call(USES_BP, ORC_REGISTER_BP, 16, ORC_REGISTER_PREVIOUS_SP, -16);
	call(ALIGNS, ORC_REGISTER_R10, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ALIGNS) + 0x20), ORC_CALL, ORC_REGISTER_BP_INDIRECT, -8,
		ORC_REGISTER_BP, 0);
	call(ON_IRQ_STACK, ORC_REGISTER_SP_INDIRECT, 8, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(HAS_REGS)), ORC_REGS, ORC_REGISTER_SP, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(HAS_FRAME)), ORC_REGS_PARTIAL, ORC_REGISTER_SP, 8, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(UNKNOWN)), ORC_UNDEFINED, 0, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(START)), ORC_END, 0, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(THUNK)), ORC_UNDEFINED, 0, 0, 0, 0);
	call(RETURN_THUNK, ORC_REGISTER_SP, 8, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ENTRY)), ORC_END, 0, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ENTRY) + 0x40), ORC_REGS, ORC_REGISTER_SP, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ENTRY) + 0x80), ORC_END, 0, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ENTRY_32)), ORC_END, 0, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ENTRY_32) + 0x40), ORC_REGS, ORC_REGISTER_SP, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(ENTRY_32) + 0x80), ORC_REGS, ORC_REGISTER_SP, -120, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(INT80)), ORC_END, 0, 0, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(HAS_FRAME_32)), ORC_REGS_PARTIAL, ORC_REGISTER_SP, 8, 0,
		0);
	orc_put(&builder, LINEAR(FUNCTION(16)), ORC_CALL, ORC_REGISTER_SP, 8, 0, 0);
	/* Most entries of a kernel are these. */
	for (unsigned i = 0; i < 32; i++)
		orc_put(&builder, LINEAR(FUNCTION(16) + 1 + i), ORC_CALL, ORC_REGISTER_SP,
			16 + (int)i * 8, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(17)), ORC_UNDEFINED, 0, 0, 0, 0);
	/* Generated code is not in the kernel's image, but behind it. */
	call(FREED, ORC_REGISTER_SP, 8, 0, 0);
	orc_put(&builder, LINEAR(FUNCTION(FREED) + 0x100), ORC_UNDEFINED, 0, 0, 0, 0);
}

static void create(void)
{
	struct error note;
	struct error error = {0};

	symbol_table_init(&symbols);
	if (builder.count) {
		add_symbol("__start_orc_unwind_ip", LINEAR(TABLES));
		add_symbol("__stop_orc_unwind_ip", LINEAR(TABLES) + builder.count * 4);
		add_symbol("__start_orc_unwind", LINEAR(TABLES + 0x1000));
		add_symbol("__stop_orc_unwind", LINEAR(TABLES + 0x1000) + builder.count * 6);
	}
	add_symbol("ret_from_fork", LINEAR(FUNCTION(FORK)));
	add_symbol("__x86_indirect_thunk_rax", LINEAR(FUNCTION(THUNK)));
	add_symbol("other", LINEAR(FUNCTION(THUNK) + 0x80));
	add_symbol("__entry_text_start", LINEAR(FUNCTION(ENTRY)));
	add_symbol("entry_SYSCALL_64", LINEAR(FUNCTION(ENTRY)));
	add_symbol("entry_SYSRETQ_end", LINEAR(FUNCTION(ENTRY) + 0xa0));
	add_symbol("__x86_return_thunk", LINEAR(FUNCTION(RETURN_THUNK)));
	add_symbol("other_32", LINEAR(FUNCTION(RETURN_THUNK) + 0x80));
	add_symbol("entry_SYSCALL_compat", LINEAR(FUNCTION(ENTRY_32)));
	add_symbol("entry_SYSRETL_compat_unsafe_stack", LINEAR(FUNCTION(ENTRY_32) + 0x80));
	add_symbol("entry_SYSRETL_compat_end", LINEAR(FUNCTION(ENTRY_32) + 0xa0));
	add_symbol("__entry_text_end", LINEAR(FUNCTION(16)));
	add_symbol("_sinittext", LINEAR(FUNCTION(FREED)));
	add_symbol("_einittext", LINEAR(FUNCTION(FREED) + 0x100));
	symbol_table_finish(&symbols);
	cr_assert_eq(
		linux_stack_create(&memory.memory, &kernel, &symbols, &linux_stack, &note, &error),
		GP_OK, "%s", error.text);
}

static void setup(void)
{
	memory = buffer_memory_over(bytes, SIZE);
	memory.next_table = 0x4000;
	kernel = (struct linux_kernel){.space = address_space_at(ROOT, ADDRESSING_4_LEVEL)};
	cpu = (struct guest_cpu){.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				 .cr3 = ROOT,
				 .cr4 = X86_CR4_PAE,
				 .efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				 .cs = {.long_mode = true},
				 .tr_base = LINEAR(TSS)};
	for (uint64_t at = TEXT; at < STACK; at += 4096)
		map(LINEAR(at), at, 0);
	for (uint64_t at = STACK; at < USER_TEXT; at += 4096)
		map(LINEAR(at), at, PAGE_WRITABLE | PAGE_NO_EXECUTE);
	for (uint64_t at = USER_TEXT; at < USER_STACK; at += 4096)
		map(at, at, PAGE_USER);
	for (uint64_t at = USER_STACK; at < USER_STACK + 0x4000; at += 4096)
		map(at, at, PAGE_USER | PAGE_WRITABLE | PAGE_NO_EXECUTE);
	/* Isolation: the program's half whole in both, not executable in the kernel's. */
	buffer_put(&memory, USER_ROOT, buffer_get(&memory, ROOT, 8), 8);
	buffer_put(&memory, ROOT, buffer_get(&memory, ROOT, 8) | PAGE_NO_EXECUTE, 8);
	memset(bytes + TEXT, 0x90, STACK - TEXT);
	for (unsigned i = 0; i < 64; i++)
		bytes[FUNCTION(i) + 0x40] = 0xe8;
	memset(bytes + USER_TEXT, 0x90, 0x1000);
	for (unsigned i = 1; i < 8; i++)
		bytes[USER_TEXT + i * 0x100] = 0xe8;
	/* mov %rsp, %gs:0x6014: the second instruction of the entry */
	put_code(FUNCTION(ENTRY_32) + 3, "\x41\x89\xe0", 3); /* mov %esp, %r8d */
	put_code(FUNCTION(ENTRY) + 3, "\x65\x48\x89\x24\x25\x14\x60\x00\x00", 9);
	buffer_put(&memory, TSS + 4, LINEAR(TSS), 8); /* sp0: the top of the entry stack */
	put_tables(ORC_FORMAT_3);
}

static void teardown(void)
{
	linux_stack_destroy(linux_stack);
	symbol_table_deinit(&symbols);
}

TestSuite(unwind_linux, .init = setup, .fini = teardown);

static void put(uint64_t physical, uint64_t value)
{
	buffer_put(&memory, physical, value, 8);
}

static void put_interrupt_frame(uint64_t physical, uint64_t rip, uint64_t cs, uint64_t rsp,
				uint64_t ss)
{
	put(physical, rip);
	put(physical + 8, cs);
	put(physical + 16, 0x246);
	put(physical + 24, rsp);
	put(physical + 32, ss);
}

/* User code at USER_TEXT + 0x50 with two callers. */
static void put_user(uint64_t physical)
{
	put_interrupt_frame(physical, USER_TEXT + 0x50, 0x33, USER_STACK + 0x100, 0x2b);
}

#define USER_FRAME_POINTER (USER_STACK + 0x110)

static void put_user_stack(void)
{
	put(USER_STACK + 0x110, USER_STACK + 0x130);
	put(USER_STACK + 0x118, USER_TEXT + 0x105);
	put(USER_STACK + 0x130, 0);
	put(USER_STACK + 0x138, USER_TEXT + 0x205);
}

static struct unwind_stack unwind(void)
{
	if (!linux_stack)
		create();
	return guest_unwind(&memory.memory, linux_stack_unwind_kernel(linux_stack), &cpu, pcs,
			    DEPTH);
}

static void assert_pcs(unsigned user_frame, enum stack_end end, unsigned count,
		       const uint64_t *expected)
{
	struct unwind_stack stack = unwind();

	for (unsigned i = 0; i < count && i < stack.count; i++)
		cr_assert_eq(pcs[i], expected[i], "frame %u is %#llx, not %#llx", i,
			     (unsigned long long)pcs[i], (unsigned long long)expected[i]);
	cr_assert_eq(stack.count, count, "%u frames, %s", stack.count, stack_end_string(stack.end));
	cr_assert_eq(stack.end, end, "%s", stack_end_string(stack.end));
	cr_assert_eq(stack.user_frame, user_frame, "%u", stack.user_frame);
}

#define ASSERT_STACK(user_frame, end, ...)                                 \
	assert_pcs(user_frame, end, sizeof((uint64_t[]){__VA_ARGS__}) / 8, \
		   (uint64_t[]){__VA_ARGS__})

static void at(uint64_t physical_pc, uint64_t rsp)
{
	cpu.rip = LINEAR(physical_pc);
	cpu.gpr[GUEST_RSP] = LINEAR(rsp);
}

Test(unwind_linux, calls_are_followed_to_the_start_of_the_thread)
{
	static const enum orc_format formats[] = {ORC_FORMAT_1, ORC_FORMAT_2, ORC_FORMAT_3,
						  ORC_FORMAT_4};

	for (unsigned i = 0; i < 4; i++) {
		put_tables(formats[i]);
		if (linux_stack)
			teardown();
		linux_stack = NULL;
		create();
		at(FUNCTION(LEAF) + 4, STACK + 0x100);
		cpu.gpr[GUEST_RBP] = 0x1234;
		put(STACK + 0x100, CALL_END(SAVES_BP));
		put(STACK + 0x110, LINEAR(STACK + 0x140)); /* bp, of who called SAVES_BP */
		put(STACK + 0x118, CALL_END(USES_BP));
		put(STACK + 0x140, 0x5678);
		put(STACK + 0x148, CALL_END(START));
		ASSERT_STACK(4, STACK_END_ROOT, cpu.rip, CALL_END(SAVES_BP), CALL_END(USES_BP),
			     CALL_END(START));
	}
}

Test(unwind_linux, a_start_needs_no_call_before_it)
{
	at(FUNCTION(LEAF), STACK + 0x100);
	put(STACK + 0x100, LINEAR(FUNCTION(START) + 0x20));
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, LINEAR(FUNCTION(START) + 0x20));
	put(STACK + 0x100, LINEAR(FUNCTION(LEAF) + 0x20));
	ASSERT_STACK(1, STACK_END_NO_RULE, cpu.rip);
	put(STACK + 0x100, LINEAR(STACK));
	ASSERT_STACK(1, STACK_END_BAD_POINTER, cpu.rip);
}

Test(unwind_linux, freed_start_up_text_is_still_the_bottom_of_a_stack)
{
	at(FUNCTION(LEAF), STACK + 0x100);
	put(STACK + 0x100, CALL_END(FREED));
	put(STACK + 0x108, LINEAR(FUNCTION(START) + 0x20));
	memset(bytes + FUNCTION(FREED), 0xcc, 0x100);
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(FREED), LINEAR(FUNCTION(START) + 0x20));
	map(LINEAR(TEXT + 0x2000), TEXT + 0x2000, PAGE_NO_EXECUTE | PAGE_WRITABLE);
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(FREED), LINEAR(FUNCTION(START) + 0x20));
}

Test(unwind_linux, aligned_stacks_are_followed)
{
	at(FUNCTION(ALIGNS) + 4, STACK + 0x100);
	cpu.gpr[GUEST_R10] = LINEAR(STACK + 0x188);
	put(STACK + 0x180, CALL_END(START));
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(START));
	/* later: the CFA at [bp - 8], the caller's bp at [bp] */
	at(FUNCTION(ALIGNS) + 0x30, STACK + 0x100);
	cpu.gpr[GUEST_RBP] = LINEAR(STACK + 0x140);
	put(STACK + 0x138, LINEAR(STACK + 0x188));
	put(STACK + 0x140, LINEAR(STACK + 0x1a0));
	put(STACK + 0x180, CALL_END(USES_BP));
	put(STACK + 0x1a8, CALL_END(START));
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(USES_BP), CALL_END(START));
	/* R10 is not known above a call */
	at(FUNCTION(LEAF), STACK + 0x100);
	bytes[FUNCTION(ALIGNS) + 0x10] = 0xe8;
	put(STACK + 0x100, LINEAR(FUNCTION(ALIGNS) + 0x15));
	ASSERT_STACK(2, STACK_END_NO_RULE, cpu.rip, LINEAR(FUNCTION(ALIGNS) + 0x15));
}

Test(unwind_linux, other_stacks_are_entered_and_left)
{
	at(FUNCTION(LEAF), IRQ_STACK + 0x100);
	put(IRQ_STACK + 0x100, CALL_END(ON_IRQ_STACK));
	put(IRQ_STACK + 0x108, LINEAR(STACK + 0x100)); /* the task's stack is at a lower address */
	put(STACK + 0x100, CALL_END(START));
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(ON_IRQ_STACK), CALL_END(START));
}

Test(unwind_linux, a_stack_may_be_left_by_a_frame_pointer)
{
	at(FUNCTION(LEAF), IRQ_STACK + 0x100);
	cpu.gpr[GUEST_RBP] = LINEAR(STACK + 0x140); /* the task's stack, at a lower address */
	put(IRQ_STACK + 0x100, CALL_END(USES_BP));
	put(STACK + 0x140, 0);
	put(STACK + 0x148, CALL_END(START));
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(USES_BP), CALL_END(START));
	/* but not where frame pointers are all there is to go by */
	put(IRQ_STACK + 0x100, CALL_END(GENERATED));
	ASSERT_STACK(2, STACK_END_BAD_POINTER, cpu.rip, CALL_END(GENERATED));
}

Test(unwind_linux, going_round_by_frame_pointers_has_an_end)
{
	struct unwind_stack stack;

	/* A frame that claims to be its own caller. */
	at(FUNCTION(USES_BP) + 4, STACK + 0x100);
	cpu.gpr[GUEST_RBP] = LINEAR(STACK + 0x140);
	put(STACK + 0x140, LINEAR(STACK + 0x140));
	put(STACK + 0x148, CALL_END(USES_BP));
	stack = unwind();
	cr_assert_leq(stack.count, DEPTH);
	cr_assert_eq(stack.end, STACK_END_BAD_POINTER, "%s", stack_end_string(stack.end));
}

Test(unwind_linux, going_round_in_circles_has_an_end)
{
	struct unwind_stack stack;

	at(FUNCTION(ON_IRQ_STACK), STACK + 0x100);
	put(STACK + 0x100, LINEAR(STACK + 0xf8));
	put(STACK + 0xf8, CALL_END(ON_IRQ_STACK));
	stack = unwind();
	cr_assert_leq(stack.count, DEPTH);
	cr_assert_eq(stack.end, STACK_END_BAD_POINTER, "%s", stack_end_string(stack.end));
}

Test(unwind_linux, an_interrupted_kernel_goes_on_with_its_own_registers)
{
	at(FUNCTION(LEAF), IRQ_STACK + 0x100);
	put(IRQ_STACK + 0x100, CALL_END(HAS_REGS));
	/* pt_regs at +0x108: bp and R10 are used further on */
	put(IRQ_STACK + 0x108 + 32, LINEAR(STACK + 0x140));
	put(IRQ_STACK + 0x108 + 56, LINEAR(STACK + 0x138));
	put_interrupt_frame(IRQ_STACK + 0x108 + 128, LINEAR(FUNCTION(ALIGNS)), 0x10,
			    LINEAR(STACK + 0x100), 0x18);
	put(STACK + 0x130, CALL_END(USES_BP));
	put(STACK + 0x148, CALL_END(START));
	/* ALIGNS is looked up at its first byte, not before it */
	ASSERT_STACK(5, STACK_END_ROOT, cpu.rip, CALL_END(HAS_REGS), LINEAR(FUNCTION(ALIGNS)),
		     CALL_END(USES_BP), CALL_END(START));
}

Test(unwind_linux, saved_registers_lead_into_the_program_with_isolation)
{
	put_user_stack();
	at(FUNCTION(LEAF), STACK + 0x100);
	put(STACK + 0x100, CALL_END(HAS_REGS));
	put(STACK + 0x108 + 32, USER_FRAME_POINTER);
	put_user(STACK + 0x108 + 128);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(HAS_REGS), USER_TEXT + 0x50,
		     USER_TEXT + 0x105, USER_TEXT + 0x205);
	/* without isolation: the kernel's tables as they are */
	buffer_put(&memory, ROOT, buffer_get(&memory, ROOT, 8) & ~PAGE_NO_EXECUTE, 8);
	memset(bytes + USER_ROOT, 0, 4096);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(HAS_REGS), USER_TEXT + 0x50,
		     USER_TEXT + 0x105, USER_TEXT + 0x205);
}

Test(unwind_linux, an_interrupt_frame_keeps_the_other_registers)
{
	put_user_stack();
	at(FUNCTION(HAS_FRAME), STACK + 0x100);
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	put_user(STACK + 0x108);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
}

Test(unwind_linux, programs_of_32_bits_have_frames_of_4_bytes)
{
	at(FUNCTION(HAS_FRAME), STACK + 0x100);
	cpu.gpr[GUEST_RBP] = UINT64_C(0xdead00000000) + USER_32_STACK + 0x108;
	put_interrupt_frame(STACK + 0x108, USER_TEXT + 0x50, 0x23, USER_32_STACK + 0x100, 0x2b);
	buffer_put(&memory, USER_32_STACK + 0x108, 0, 4);
	buffer_put(&memory, USER_32_STACK + 0x10c, USER_TEXT + 0x305, 4);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x305);
	/* a segment of the program's own: who knows where it is */
	put_interrupt_frame(STACK + 0x108, USER_TEXT + 0x50, 0x0f, USER_32_STACK + 0x100, 0x2b);
	ASSERT_STACK(1, STACK_END_NO_RULE, cpu.rip, USER_TEXT + 0x50);
}

Test(unwind_linux, a_new_task_ends_at_its_start_or_in_its_program)
{
	put_user_stack();
	at(FUNCTION(LEAF), STACK + 0x100);
	put(STACK + 0x100, CALL_END(FORK));
	/* a kernel thread: no registers of a program */
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(FORK));
	put(STACK + 0x108 + 32, USER_FRAME_POINTER);
	put_user(STACK + 0x108 + 128);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(FORK), USER_TEXT + 0x50,
		     USER_TEXT + 0x105, USER_TEXT + 0x205);
	/* never ran: its first address was called by nobody */
	put(STACK + 0x100, LINEAR(FUNCTION(FORK)));
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, LINEAR(FUNCTION(FORK)), USER_TEXT + 0x50,
		     USER_TEXT + 0x105, USER_TEXT + 0x205);
	/* a kernel's thread of a program */
	put(STACK + 0x108 + 128, 0);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, LINEAR(FUNCTION(FORK)));
}

Test(unwind_linux, in_the_way_in_of_a_system_call)
{
	put_user_stack();
	cpu.gpr[GUEST_RCX] = USER_TEXT + 0x50;
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	/* before RSP is saved it is the program's */
	cpu.rip = LINEAR(FUNCTION(ENTRY) + 3);
	cpu.gpr[GUEST_RSP] = USER_STACK + 0x100;
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
	/* then it is CR3 for a while, and the program's is in the TSS */
	cpu.rip = LINEAR(FUNCTION(ENTRY) + 12);
	cpu.gpr[GUEST_RSP] = ROOT;
	put(TSS + 20, USER_STACK + 0x100);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
	/* with the program's tables still, or again, loaded */
	cpu.cr3 = USER_ROOT;
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
	cpu.gpr[GUEST_RCX] = LINEAR(FUNCTION(LEAF));
	ASSERT_STACK(1, STACK_END_NO_RULE, cpu.rip);
}

Test(unwind_linux, in_the_way_out_of_a_system_call)
{
	put_user_stack();
	cpu.gpr[GUEST_RCX] = USER_TEXT + 0x50;
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	cpu.rip = LINEAR(FUNCTION(ENTRY) + 0x90);
	/* the program's RSP is the first word of the entry stack */
	cpu.gpr[GUEST_RSP] = LINEAR(TSS) - 16;
	cpu.gpr[GUEST_RDI] = ROOT;
	put(TSS - 8, USER_STACK + 0x100);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
	/* loaded */
	cpu.gpr[GUEST_RSP] = USER_STACK + 0x100;
	put(TSS - 8, 0);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
}

Test(unwind_linux, in_the_way_out_of_an_exception)
{
	put_user_stack();
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	cpu.rip = LINEAR(FUNCTION(INT80) + 0x10);
	/* not copied to the entry stack yet: where RDI points */
	cpu.gpr[GUEST_RSP] = LINEAR(TSS) - 16;
	cpu.gpr[GUEST_RDI] = LINEAR(STACK + 0x800);
	put_user(STACK + 0x810);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
	/* copied */
	put_user(TSS - 40);
	put(STACK + 0x810 + 8, 0);
	cpu.gpr[GUEST_RSP] = LINEAR(TSS) - 48;
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x105,
		     USER_TEXT + 0x205);
	/* nothing there that a CPU would have pushed */
	put(TSS - 32, 0x10);
	ASSERT_STACK(1, STACK_END_NO_RULE, cpu.rip);
	cpu.tr_base = 0;
	ASSERT_STACK(1, STACK_END_NO_RULE, cpu.rip);
}

Test(unwind_linux, an_nmi_in_the_way_in_uses_the_registers_it_saved)
{
	put_user_stack();
	at(FUNCTION(LEAF), IRQ_STACK + 0x100);
	put(IRQ_STACK + 0x100, CALL_END(HAS_REGS));
	put(IRQ_STACK + 0x108 + 32, USER_FRAME_POINTER);
	put(IRQ_STACK + 0x108 + 88, USER_TEXT + 0x50); /* RCX */
	put_interrupt_frame(IRQ_STACK + 0x108 + 128, LINEAR(FUNCTION(ENTRY) + 12), 0x10, ROOT,
			    0x18);
	put(TSS + 20, USER_STACK + 0x100);
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(HAS_REGS), LINEAR(FUNCTION(ENTRY) + 12),
		     USER_TEXT + 0x50, USER_TEXT + 0x105, USER_TEXT + 0x205);
}

Test(unwind_linux, retpolines_hide_nothing)
{
	at(FUNCTION(THUNK), STACK + 0x100);
	put(STACK + 0x100, CALL_END(START));
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(START));
	/* inside its own call */
	put(STACK + 0xf8, LINEAR(FUNCTION(THUNK) + 5));
	cpu.gpr[GUEST_RSP] -= 8;
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(START));
	/* the target in place of the return address */
	put(STACK + 0xf8, LINEAR(FUNCTION(LEAF)));
	bytes[FUNCTION(THUNK) + 0x10] = 0xc3;
	at(FUNCTION(THUNK) + 0x10, STACK + 0xf8);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(START));
}

Test(unwind_linux, a_return_thunk_that_ends_a_retpoline)
{
	put(STACK + 0x108, CALL_END(START));
	at(FUNCTION(RETURN_THUNK), STACK + 0x100);
	put(STACK + 0x100, CALL_END(SAVES_BP));
	put(STACK + 0x118, CALL_END(START));
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(SAVES_BP), CALL_END(START));
	/* where the retpoline goes to */
	put(STACK + 0x100, LINEAR(FUNCTION(LEAF)));
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, CALL_END(START));
}

Test(unwind_linux, in_the_way_out_of_a_32_bit_system_call)
{
	cpu.rip = LINEAR(FUNCTION(ENTRY_32) + 0x90);
	cpu.gpr[GUEST_RCX] = USER_TEXT + 0x50;
	cpu.gpr[GUEST_RSP] = USER_32_STACK + 0x104;
	cpu.gpr[GUEST_RBP] = USER_32_STACK + 0x108;
	buffer_put(&memory, USER_32_STACK + 0x108, 0, 4);
	buffer_put(&memory, USER_32_STACK + 0x10c, USER_TEXT + 0x305, 4);
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x305);
	/* interrupted there, with a stack pointer that no 64-bit code has */
	at(FUNCTION(HAS_FRAME), IRQ_STACK + 0x100);
	put_interrupt_frame(IRQ_STACK + 0x108, LINEAR(FUNCTION(ENTRY_32) + 0x90), 0x10,
			    USER_32_STACK + 0x104, 0x18);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, LINEAR(FUNCTION(ENTRY_32) + 0x90),
		     USER_TEXT + 0x50, USER_TEXT + 0x305);
}

Test(unwind_linux, in_the_way_in_of_a_32_bit_system_call)
{
	cpu.gpr[GUEST_RCX] = USER_TEXT + 0x50;
	cpu.gpr[GUEST_RBP] = USER_32_STACK + 0x108;
	buffer_put(&memory, USER_32_STACK + 0x108, 0, 4);
	buffer_put(&memory, USER_32_STACK + 0x10c, USER_TEXT + 0x305, 4);
	cpu.rip = LINEAR(FUNCTION(ENTRY_32) + 3);
	cpu.gpr[GUEST_RSP] = USER_32_STACK + 0x100;
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x305);
	cpu.rip = LINEAR(FUNCTION(ENTRY_32) + 6);
	cpu.gpr[GUEST_RSP] = ROOT;
	cpu.gpr[GUEST_R8] = USER_32_STACK + 0x100;
	ASSERT_STACK(1, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x50, USER_TEXT + 0x305);
}

Test(unwind_linux, error_entry_leaves_registers_where_the_tables_see_a_frame)
{
	put_user_stack();
	/* sync_regs(), called with pt_regs on the entry stack */
	at(FUNCTION(LEAF), STACK + 0x100);
	put(STACK + 0x100, LINEAR(FUNCTION(HAS_FRAME_32) + 0x45));
	put(STACK + 0x108 + 32, USER_FRAME_POINTER);
	put_user(STACK + 0x108 + 128);
	ASSERT_STACK(2, STACK_END_ROOT, cpu.rip, LINEAR(FUNCTION(HAS_FRAME_32) + 0x45),
		     USER_TEXT + 0x50, USER_TEXT + 0x105, USER_TEXT + 0x205);
}

Test(unwind_linux, undefined_places_end_a_stack_but_for_its_leaf)
{
	at(FUNCTION(UNKNOWN), STACK + 0x100);
	put(STACK + 0x100, CALL_END(UNKNOWN));
	put(STACK + 0x108, CALL_END(START));
	cpu.gpr[GUEST_RBP] = LINEAR(STACK + 0x100);
	ASSERT_STACK(2, STACK_END_NO_RULE, cpu.rip, CALL_END(UNKNOWN));
}

Test(unwind_linux, generated_code_is_crossed_by_its_frame_pointer)
{
	at(FUNCTION(LEAF), STACK + 0x100);
	cpu.gpr[GUEST_RBP] = LINEAR(STACK + 0x140);
	put(STACK + 0x100, CALL_END(GENERATED));
	put(STACK + 0x140, 0x1234);
	put(STACK + 0x148, CALL_END(START));
	ASSERT_STACK(3, STACK_END_ROOT, cpu.rip, CALL_END(GENERATED), CALL_END(START));
	/* no frame: no start either */
	cpu.gpr[GUEST_RBP] = 0;
	ASSERT_STACK(2, STACK_END_NO_RULE, cpu.rip, CALL_END(GENERATED));
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	put_user_stack();
	ASSERT_STACK(2, STACK_END_BAD_POINTER, cpu.rip, CALL_END(GENERATED));
}

Test(unwind_linux, the_depth_limit_counts_both_sides)
{
	struct unwind_stack stack;

	put_user_stack();
	at(FUNCTION(HAS_FRAME), STACK + 0x100);
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	put_user(STACK + 0x108);
	create();
	stack = guest_unwind(&memory.memory, linux_stack_unwind_kernel(linux_stack), &cpu, pcs, 1);
	cr_assert_eq(stack.count, 1);
	cr_assert_eq(stack.user_frame, 1);
	cr_assert_eq(stack.end, STACK_END_DEPTH_LIMIT);
	stack = guest_unwind(&memory.memory, linux_stack_unwind_kernel(linux_stack), &cpu, pcs, 2);
	cr_assert_eq(stack.count, 2);
	cr_assert_eq(stack.user_frame, 1);
	cr_assert_eq(stack.end, STACK_END_DEPTH_LIMIT);
}

Test(unwind_linux, a_vcpu_in_user_code_needs_no_kernel)
{
	put_user_stack();
	cpu.cpl = 3;
	cpu.cr3 = USER_ROOT;
	cpu.rip = USER_TEXT + 0x50;
	cpu.gpr[GUEST_RSP] = USER_STACK + 0x100;
	cpu.gpr[GUEST_RBP] = USER_FRAME_POINTER;
	ASSERT_STACK(0, STACK_END_ROOT, cpu.rip, USER_TEXT + 0x105, USER_TEXT + 0x205);
}

Test(unwind_linux, a_kernel_with_frame_pointers_marks_saved_registers)
{
	builder.count = 0; /* no tables */
	create();
	cr_assert_eq(linux_stack_orc(linux_stack)->kernel.count, 0);
	put_user_stack();
	at(FUNCTION(LEAF), IRQ_STACK + 0x100);
	cpu.gpr[GUEST_RBP] = LINEAR(IRQ_STACK + 0x110);
	put(IRQ_STACK + 0x110, LINEAR(IRQ_STACK + 0x121)); /* pt_regs at +0x120 */
	put(IRQ_STACK + 0x118, CALL_END(ENTRY));
	put(IRQ_STACK + 0x120 + 32, LINEAR(STACK + 0x140));
	put_interrupt_frame(IRQ_STACK + 0x120 + 128, LINEAR(FUNCTION(LEAF) + 9), 0x10,
			    LINEAR(STACK + 0x100), 0x18);
	put(STACK + 0x140, 0); /* do_syscall_64: entered from a program */
	put(STACK + 0x148, CALL_END(ENTRY));
	put(STACK + 0x150 + 32, USER_FRAME_POINTER);
	put_user(STACK + 0x150 + 128);
	ASSERT_STACK(4, STACK_END_ROOT, cpu.rip, CALL_END(ENTRY), LINEAR(FUNCTION(LEAF) + 9),
		     CALL_END(ENTRY), USER_TEXT + 0x50, USER_TEXT + 0x105, USER_TEXT + 0x205);
	/* a kernel thread */
	put(STACK + 0x148, CALL_END(FORK));
	ASSERT_STACK(4, STACK_END_ROOT, cpu.rip, CALL_END(ENTRY), LINEAR(FUNCTION(LEAF) + 9),
		     CALL_END(FORK));
}

Test(unwind_linux, registers_of_a_sleeping_task)
{
	struct guest_cpu task = {.rip = 42};

	for (unsigned i = 0; i < 6; i++)
		put(STACK + 0x100 + i * 8, 0x1000 + i);
	put(STACK + 0x130, CALL_END(SAVES_BP));
	put(STACK + 0x148, CALL_END(START));
	cr_assert(linux_sleeping_task_registers(&memory.memory, &kernel, LINEAR(STACK + 0x100), 0,
						&task));
	cr_assert_eq(task.gpr[GUEST_R15], 0x1000);
	cr_assert_eq(task.gpr[GUEST_RBX], 0x1004);
	cr_assert_eq(task.gpr[GUEST_RBP], 0x1005);
	cpu = task;
	ASSERT_STACK(2, STACK_END_ROOT, CALL_END(SAVES_BP), CALL_END(START));
	cr_assert_not(linux_sleeping_task_registers(&memory.memory, &kernel, 0x123456, 0, &task));
	cr_assert_eq(task.rip, cpu.rip);
}
