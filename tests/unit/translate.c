/* Address translation: every paging mode, page size and right, and what the CPU refuses. */
#include "guest-introspection/x86/translate.h"
#include "tests/buffer_memory.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define SIZE (UINT64_C(1) << 20)
#define ROOT UINT64_C(0x1000)

static uint8_t bytes[SIZE];
static uint64_t reads;
static struct buffer_memory memory;

static void setup(void)
{
	memory = buffer_memory_over(bytes, SIZE);
	memory.next_table = 0x2000;
	memory.reads = &reads;
}

TestSuite(translate, .init = setup);

static enum translate_result translate(const struct address_space *space, uint64_t address,
				       struct translation *out)
{
	return guest_translate(space, &memory.memory, gva(address), out);
}

static struct guest_cpu long_mode_cpu(uint64_t root)
{
	return (struct guest_cpu){.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				  .cr3 = root,
				  .cr4 = X86_CR4_PAE,
				  .efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				  .cs = {.long_mode = true}};
}

Test(translate, the_mode_follows_the_control_registers)
{
	struct guest_cpu cpu = {0};

	cr_assert_eq(address_space_of(&cpu).mode, ADDRESSING_REAL);
	cpu.cr0 = X86_CR0_PROTECTED;
	cr_assert_eq(address_space_of(&cpu).mode, ADDRESSING_PROTECTED);
	cpu.cr0 |= X86_CR0_PAGING;
	cr_assert_eq(address_space_of(&cpu).mode, ADDRESSING_32_BIT);
	cpu.cr4 = X86_CR4_PAE;
	cr_assert_eq(address_space_of(&cpu).mode, ADDRESSING_PAE);
	cpu.efer = X86_EFER_LONG_MODE_ACTIVE;
	cr_assert_eq(address_space_of(&cpu).mode, ADDRESSING_4_LEVEL);
	cpu.cr4 |= X86_CR4_LA57;
	cr_assert_eq(address_space_of(&cpu).mode, ADDRESSING_5_LEVEL);
}

Test(translate, code_size_follows_the_segment)
{
	struct guest_cpu cpu = {0};

	cr_assert_eq(guest_code_size(&cpu), 16);
	cpu.cs.default_size = true;
	cr_assert_eq(guest_code_size(&cpu), 32);
	cpu.rflags = X86_RFLAGS_VIRTUAL_8086;
	cr_assert_eq(guest_code_size(&cpu), 16);
	cpu = long_mode_cpu(0);
	cr_assert_eq(guest_code_size(&cpu), 64);
	cpu.cs = (struct guest_segment){.default_size = true};
	cr_assert_eq(guest_code_size(&cpu), 32, "compatibility mode");
}

Test(translate, pcid_and_flags_are_no_part_of_the_root)
{
	cr_assert_eq(address_space_at(UINT64_C(0x8000000012345fff), ADDRESSING_4_LEVEL).root,
		     0x12345000);
	cr_assert_eq(address_space_at(0x12345fff, ADDRESSING_PAE).root, 0x12345fe0);
	cr_assert_eq(address_space_at(0x12345fff, ADDRESSING_32_BIT).root, 0x12345000);
}

Test(translate, no_paging_is_the_identity_in_32_bits)
{
	struct address_space space = address_space_at(0, ADDRESSING_PROTECTED);
	struct translation out;

	cr_assert_eq(translate(&space, 0xfffffff0, &out), TRANSLATE_OK);
	cr_assert_eq(out.gpa.value, 0xfffffff0);
	cr_assert(out.executable && out.writable);
	cr_assert_eq(translate(&space, UINT64_C(0x100000000), &out), TRANSLATE_NON_CANONICAL);
	cr_assert_eq(reads, 0);
}

Test(translate, two_levels_and_large_pages_of_32_bit_paging)
{
	struct address_space space = address_space_at(ROOT, ADDRESSING_32_BIT);
	struct translation out;

	buffer_put(&memory, ROOT + 0x300 * 4, 0x2000 | 7, 4);
	buffer_put(&memory, 0x2000 + 5 * 4, 0x00abc000 | 5, 4);
	cr_assert_eq(translate(&space, 0xc0005123, &out), TRANSLATE_OK);
	cr_assert_eq(out.gpa.value, 0x00abc123);
	cr_assert_eq(out.page_size, 4096);
	cr_assert(!out.writable && out.user && out.executable);
	cr_assert_eq(translate(&space, 0xc0006000, &out), TRANSLATE_NOT_PRESENT);

	/* PSE-36: bits 20:13 are address bits 39:32 */
	buffer_put(&memory, ROOT + 1 * 4, 0x00c00000 | 0x12 << 13 | 0x83, 4);
	cr_assert_eq(translate(&space, 0x00723456, &out), TRANSLATE_OK);
	cr_assert_eq(out.gpa.value, UINT64_C(0x1200c00000) + 0x323456);
	cr_assert_eq(out.page_size, 4 << 20);
	cr_assert(out.writable && !out.user);
	buffer_put(&memory, ROOT + 1 * 4, 0x00c00000 | 1 << 21 | 0x83, 4);
	cr_assert_eq(translate(&space, 0x00723456, &out), TRANSLATE_RESERVED);

	/* without CR4.PSE the same bit means nothing: the entry points to a table */
	buffer_put(&memory, ROOT + 1 * 4, 0x2000 | 0x83, 4);
	space.page_size = false;
	cr_assert_eq(translate(&space, 0x00405678, &out), TRANSLATE_OK);
	cr_assert_eq(out.gpa.value, 0x00abc678);
}

Test(translate, pae_has_no_rights_at_the_top)
{
	struct address_space space = address_space_at(ROOT + 0x20, ADDRESSING_PAE);
	struct translation out;

	buffer_map(&memory, ROOT + 0x20, 3, 0xc0200000,
		   UINT64_C(0xfedc200000) | PAGE_PRESENT | PAGE_LARGE | PAGE_NO_EXECUTE, 2);
	cr_assert_eq(translate(&space, 0xc0212345, &out), TRANSLATE_OK);
	cr_assert_eq(out.gpa.value, UINT64_C(0xfedc212345));
	cr_assert_eq(out.page_size, 2 << 20);
	cr_assert(!out.writable && !out.user && !out.executable);
	buffer_map(&memory, ROOT + 0x20, 3, 0xc0400000, 0x7000 | 7, 1);
	cr_assert_eq(translate(&space, 0xc0400fff, &out), TRANSLATE_OK);
	cr_assert_eq(out.gpa.value, 0x7fff);
	cr_assert(out.writable && out.user && out.executable);
	bytes[ROOT + 0x20 + 3 * 8] |= 0x20; /* "accessed", where there is no such bit */
	cr_assert_eq(translate(&space, 0xc0400fff, &out), TRANSLATE_OK);
	bytes[ROOT + 0x20 + 3 * 8] |= 4;
	cr_assert_eq(translate(&space, 0xc0400fff, &out), TRANSLATE_RESERVED);
}

Test(translate, four_and_five_levels_with_all_page_sizes)
{
	static const struct {
		enum addressing_mode mode;
		unsigned levels;
		uint64_t base;
	} cases[] = {{ADDRESSING_4_LEVEL, 4, UINT64_C(0xffff888000000000)},
		     {ADDRESSING_5_LEVEL, 5, UINT64_C(0xff11000000000000)}};

	for (unsigned i = 0; i < 2; i++) {
		struct address_space space = address_space_at(ROOT, cases[i].mode);
		struct translation out;
		uint64_t base = cases[i].base;

		memset(bytes, 0, sizeof(bytes));
		buffer_map(&memory, ROOT, cases[i].levels, base, 0x9000 | PAGE_PRESENT, 1);
		buffer_map(&memory, ROOT, cases[i].levels, base + (2 << 20),
			   0x600000 | 0x1000 /* PAT */ | PAGE_PRESENT | PAGE_LARGE | PAGE_USER, 2);
		buffer_map(&memory, ROOT, cases[i].levels, base + (1 << 30),
			   (UINT64_C(5) << 30) | PAGE_PRESENT | PAGE_LARGE | PAGE_WRITABLE |
				   UINT64_C(0x7ff0000000000000) /* ignored, protection key */,
			   3);
		cr_assert_eq(translate(&space, base + 0xabc, &out), TRANSLATE_OK);
		cr_assert_eq(out.gpa.value, 0x9abc);
		cr_assert_eq(out.page_size, 4096);
		cr_assert(!out.writable && !out.user && out.executable);
		cr_assert_eq(translate(&space, base + (2 << 20) + 0x12345, &out), TRANSLATE_OK);
		cr_assert_eq(out.gpa.value, 0x612345);
		cr_assert_eq(out.page_size, 2 << 20);
		cr_assert(out.user);
		cr_assert_eq(translate(&space, base + (1 << 30) + 0x7654321, &out), TRANSLATE_OK);
		cr_assert_eq(out.gpa.value, (UINT64_C(5) << 30) + 0x7654321);
		cr_assert_eq(out.page_size, 1 << 30);
		cr_assert(out.writable);
		cr_assert_eq(translate(&space, base + (UINT64_C(1) << 39), &out),
			     TRANSLATE_NOT_PRESENT);
	}
}

Test(translate, addresses_must_be_canonical)
{
	struct address_space four = address_space_at(ROOT, ADDRESSING_4_LEVEL);
	struct address_space five = address_space_at(ROOT, ADDRESSING_5_LEVEL);
	struct translation out;

	cr_assert_eq(translate(&four, UINT64_C(0x0000800000000000), &out), TRANSLATE_NON_CANONICAL);
	cr_assert_eq(translate(&four, UINT64_C(0xffff7fffffffffff), &out), TRANSLATE_NON_CANONICAL);
	cr_assert_eq(translate(&four, UINT64_C(0xffff800000000000), &out), TRANSLATE_NOT_PRESENT);
	cr_assert_eq(translate(&five, UINT64_C(0x0000800000000000), &out), TRANSLATE_NOT_PRESENT);
	cr_assert_eq(translate(&five, UINT64_C(0x0100000000000000), &out), TRANSLATE_NON_CANONICAL);
}

Test(translate, no_execute_counts_only_when_enabled_and_at_every_level)
{
	struct guest_cpu cpu = long_mode_cpu(ROOT);
	struct address_space space;
	struct translation out;

	buffer_map(&memory, ROOT, 4, 0x400000, 0x9000 | 7, 1);
	bytes[ROOT + 7] |= 0x80; /* bit 63 of the top entry */
	space = address_space_of(&cpu);
	cr_assert_eq(translate(&space, 0x400000, &out), TRANSLATE_OK);
	cr_assert_not(out.executable);
	cpu.efer &= ~X86_EFER_NO_EXECUTE;
	space = address_space_of(&cpu);
	cr_assert_eq(translate(&space, 0x400000, &out), TRANSLATE_OK);
	cr_assert(out.executable);
}

Test(translate, entries_that_fault_are_refused_and_the_result_untouched)
{
	struct address_space space = address_space_at(ROOT, ADDRESSING_4_LEVEL);
	struct translation out = {.gpa = {42}};

	buffer_map(&memory, ROOT, 4, 0, 0x9000 | 7, 1);
	bytes[ROOT] |= PAGE_LARGE; /* at the top level: reserved */
	cr_assert_eq(translate(&space, 0, &out), TRANSLATE_RESERVED);
	bytes[ROOT] &= ~PAGE_LARGE;
	buffer_map(&memory, ROOT, 4, 2 << 20, 0x602000 | PAGE_PRESENT | PAGE_LARGE, 2);
	cr_assert_eq(translate(&space, 2 << 20, &out), TRANSLATE_RESERVED);
	buffer_put(&memory, ROOT + 8, UINT64_C(0xfffff000) | 7, 8);
	cr_assert_eq(translate(&space, UINT64_C(1) << 39, &out), TRANSLATE_OUTSIDE_MEMORY);
	cr_assert_eq(out.gpa.value, 42);
}

Test(translate, nothing_is_written)
{
	struct address_space space = address_space_at(ROOT, ADDRESSING_4_LEVEL);
	struct translation out;
	static uint8_t before[SIZE];

	buffer_map(&memory, ROOT, 4, 0x400000, 0x9000 | 7, 1);
	memcpy(before, bytes, SIZE);
	cr_assert_eq(translate(&space, 0x400000, &out), TRANSLATE_OK);
	cr_assert_eq(memcmp(before, bytes, SIZE), 0);
}

Test(translate, reading_crosses_pages_that_are_not_neighbours)
{
	struct address_space space = address_space_at(ROOT, ADDRESSING_4_LEVEL);
	uint8_t buffer[8192];

	buffer_map(&memory, ROOT, 4, 0x400000, 0x20000 | 7, 1);
	buffer_map(&memory, ROOT, 4, 0x401000, 0x10000 | 7, 1);
	memset(bytes + 0x20000, 'a', 4096);
	memset(bytes + 0x10000, 'b', 4096);
	cr_assert_eq(guest_read_virtual(&space, NULL, &memory.memory, gva(0x400ffe), buffer, 4),
		     TRANSLATE_OK);
	cr_assert_eq(memcmp(buffer, "aabb", 4), 0);
	cr_assert_eq(guest_read_virtual(&space, NULL, &memory.memory, gva(0x401ffe), buffer, 4),
		     TRANSLATE_NOT_PRESENT);
	cr_assert_eq(
		guest_read_virtual(&space, NULL, &memory.memory, gva(UINT64_MAX - 1), buffer, 4),
		TRANSLATE_NON_CANONICAL);
	buffer_map(&memory, ROOT, 4, 0x402000, UINT64_C(0xdead000) | 7, 1);
	cr_assert_eq(guest_read_virtual(&space, NULL, &memory.memory, gva(0x401000), buffer, 8192),
		     TRANSLATE_OUTSIDE_MEMORY);
}

Test(translate, the_cache_answers_like_the_tables_and_spares_reads)
{
	struct address_space space = address_space_at(ROOT, ADDRESSING_4_LEVEL);
	static struct translation_cache cache;
	uint64_t walked;

	for (unsigned i = 0; i < 64; i++)
		buffer_map(&memory, ROOT, 4, 0x400000 + i * 4096,
			   (0x80000 + (i * 7 % 64) * 4096) | PAGE_PRESENT |
				   (i % 3 ? PAGE_USER : 0) | (i % 5 ? PAGE_WRITABLE : 0) |
				   (i % 2 ? PAGE_NO_EXECUTE : 0),
			   1);
	buffer_map(&memory, ROOT, 4, 0x40000000, (UINT64_C(3) << 30) | 0x83, 3);
	buffer_map(&memory, ROOT, 4, 0x600000, 0xa00000 | 0x85, 2);
	translation_cache_clear(&cache);
	srand(1);
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t address = i % 4 == 0   ? 0x40000000 + (uint64_t)rand() % (1 << 30)
				   : i % 4 == 1 ? 0x600000 + (uint64_t)rand() % (2 << 20)
						: 0x400000 + (uint64_t)rand() % (65 * 4096);
		struct translation cached = {0};
		struct translation plain = {0};

		cr_assert_eq(guest_translate_cached(&space, &cache, &memory.memory, gva(address),
						    &cached),
			     translate(&space, address, &plain));
		cr_assert_eq(cached.gpa.value, plain.gpa.value);
		cr_assert_eq(cached.page_size, plain.page_size);
		cr_assert_eq(cached.writable, plain.writable);
		cr_assert_eq(cached.user, plain.user);
		cr_assert_eq(cached.executable, plain.executable);
	}
	translation_cache_clear(&cache);
	reads = 0;
	for (unsigned i = 0; i < 100; i++) {
		struct translation out;

		cr_assert_eq(guest_translate_cached(&space, &cache, &memory.memory,
						    gva(0x400000 + i), &out),
			     TRANSLATE_OK);
	}
	cr_assert_eq(reads, 4);
	walked = reads;
	translation_cache_clear(&cache);
	{
		struct translation out;

		guest_translate_cached(&space, &cache, &memory.memory, gva(0x400000), &out);
	}
	cr_assert_eq(reads, walked + 4, "cleared means walked again");
}
