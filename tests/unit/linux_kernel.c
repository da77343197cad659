/* Finding a kernel in a made-up guest: isolation, five levels, holes, and nothing there. */
#include "guest-introspection/linux/linux_kernel.h"
#include "tests/buffer_memory.h"

#include <criterion/criterion.h>

#define SIZE (UINT64_C(8) << 20)
#define ROOT UINT64_C(0x10000)
#define USER_ROOT (ROOT + 0x1000)
#define IDT UINT64_C(0xfffffe0000000000)
#define IDT_PAGE UINT64_C(0x3000)
#define TEXT UINT64_C(0xffffffff8da00000)
#define IMAGE UINT64_C(0x200000) /* physical */

static uint8_t bytes[SIZE];
static struct buffer_memory memory;
static struct guest_cpu cpu;
static struct linux_kernel kernel;

/* An image of 4 MiB: 2 MiB of text, 1 MiB of read-only data with a hole, the rest writable. */
static void make_guest(unsigned levels)
{
	uint64_t handler = TEXT + 0x1234;

	memset(bytes, 0, sizeof(bytes));
	memory = buffer_memory_over(bytes, SIZE);
	memory.next_table = 0x20000;
	cpu = (struct guest_cpu){.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
				 .cr3 = ROOT | 5, /* and a PCID */
				 .cr4 = X86_CR4_PAE | (levels == 5 ? X86_CR4_LA57 : 0),
				 .efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
				 .cs = {.long_mode = true},
				 .idt_base = IDT,
				 .idt_limit = 0xfff};
	buffer_map(&memory, ROOT, levels, TEXT, IMAGE | PAGE_PRESENT | PAGE_LARGE, 2);
	for (uint64_t at = 0x200000; at < 0x400000; at += 4096)
		buffer_map(&memory, ROOT, levels, TEXT + at,
			   at == 0x201000 ? 0
					  : ((IMAGE + at) | PAGE_PRESENT | PAGE_NO_EXECUTE |
					     (at >= 0x300000 ? PAGE_WRITABLE : 0)),
			   1);
	buffer_map(&memory, ROOT, levels, IDT, IDT_PAGE | PAGE_PRESENT | PAGE_NO_EXECUTE, 1);
	buffer_put(&memory, IDT_PAGE + 14 * 16, handler & 0xffff, 2);
	buffer_put(&memory, IDT_PAGE + 14 * 16 + 5, 0x8e, 1);
	buffer_put(&memory, IDT_PAGE + 14 * 16 + 6, handler >> 16 & 0xffff, 2);
	buffer_put(&memory, IDT_PAGE + 14 * 16 + 8, handler >> 32, 4);
	/* across a page, behind the hole; and words that only look like it */
	strcpy((char *)bytes + IMAGE + 0x202ffa, "Linux version 6.1.0 #1 SMP x\n");
	strcpy((char *)bytes + IMAGE + 0x200100, "Linux version of the driver\n");
	strcpy((char *)bytes + IMAGE + 0x200200, "Linux version 6.1.0 # SMP x\n");
	/* swapper_pg_dir in the image has what the root has */
	memcpy(bytes + IMAGE + 0x310000, bytes + ROOT, 4096);
	memset(&kernel, 0, sizeof(kernel));
}

static gp_status_t find(void)
{
	return linux_kernel_find(&memory.memory, &cpu, 1, &kernel, NULL);
}

static void assert_found(void)
{
	cr_assert_eq(find(), GP_OK);
	cr_assert_eq(kernel.text_base, TEXT);
	cr_assert_eq(kernel.text_end, TEXT + 0x200000);
	cr_assert_eq(kernel.image_end, TEXT + 0x400000);
	cr_assert_eq(kernel.space.root, IMAGE + 0x310000);
	cr_assert_str_eq(kernel.banner, "Linux version 6.1.0 #1 SMP x");
}

Test(linux_kernel, found_with_four_and_five_levels)
{
	make_guest(4);
	assert_found();
	make_guest(5);
	assert_found();
}

Test(linux_kernel, found_from_user_mode_under_isolation)
{
	make_guest(4);
	/* The user's tables: the entry code's 2 MiB and the IDT only. */
	buffer_map(&memory, USER_ROOT, 4, TEXT, IMAGE | PAGE_PRESENT | PAGE_LARGE, 2);
	buffer_map(&memory, USER_ROOT, 4, IDT, IDT_PAGE | PAGE_PRESENT, 1);
	cpu.cr3 = USER_ROOT;
	cpu.cpl = 3;
	cpu.rip = 0x401000;
	assert_found();
}

Test(linux_kernel, the_instruction_pointer_does_without_an_idt)
{
	make_guest(4);
	cpu.idt_limit = 0;
	cr_assert_eq(find(), GP_ERR_NOT_FOUND);
	cpu.rip = TEXT + 0x5000;
	assert_found();
}

Test(linux_kernel, an_unprotected_image_early_in_boot)
{
	make_guest(4);
	buffer_map(&memory, ROOT, 4, TEXT + 0x200000,
		   (IMAGE + 0x200000) | PAGE_PRESENT | PAGE_LARGE | PAGE_WRITABLE, 2);
	cr_assert_eq(find(), GP_OK);
	cr_assert_eq(kernel.text_base, TEXT);
	cr_assert_eq(kernel.text_end, TEXT + 0x400000);
	cr_assert_str_eq(kernel.banner, "Linux version 6.1.0 #1 SMP x");
}

Test(linux_kernel, a_banner_without_a_build_number_does)
{
	make_guest(4);
	bytes[IMAGE + 0x202ffa] = 'X';
	cr_assert_eq(find(), GP_OK);
	cr_assert_str_eq(kernel.banner, "Linux version 6.1.0 # SMP x");
}

Test(linux_kernel, without_one_nothing_is_claimed)
{
	make_guest(4);
	kernel.text_base = 42;
	bytes[IMAGE + 0x202ffa] = bytes[IMAGE + 0x200200] = 'X';
	cr_assert_eq(find(), GP_ERR_NOT_FOUND);
	make_guest(4);
	kernel.text_base = 42;
	cpu.cr4 = 0;
	cpu.efer = 0;
	cr_assert_eq(find(), GP_ERR_NOT_FOUND, "32-bit paging");
	cpu.cr0 = 0;
	cr_assert_eq(find(), GP_ERR_NOT_FOUND, "real mode");
	make_guest(4);
	kernel.text_base = 42;
	cpu.cr3 = UINT64_C(0xffffffff000);
	cr_assert_eq(find(), GP_ERR_NOT_FOUND, "page tables outside memory");
	cr_assert_eq(linux_kernel_find(&memory.memory, NULL, 0, &kernel, NULL), GP_ERR_NOT_FOUND);
	cr_assert_eq(kernel.text_base, 42);
}
