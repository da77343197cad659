/* Two address spaces whose stacks lie at the same linear addresses in different memory. Code is
 * shared, too: only who reads a stack through the right page tables sees who called. */
#include "tests/guests/guest.h"

#if GUEST_LEVELS == 4

#define SHARED_LINEAR UINT64_C(0x40000000) /* where both stacks are, in 2 MiB of their own */
#define PRESENT_WRITABLE 0x3u
#define LARGE 0x80u
#define ADDRESS_MASK UINT64_C(0x000ffffffffff000)

struct tables {
	uint64_t level4[512];
	uint64_t level3[512];
	uint64_t level2[512];
} __attribute__((aligned(4096)));

static struct tables spaces[2];
/* 2 MiB pages of RAM that nothing else uses. */
static const uint64_t stack_pages[2] = {UINT64_C(6) << 20, UINT64_C(10) << 20};

void shared_work(uint32_t iterations);
void space_one(void);
void space_two(void);

void shared_work(uint32_t iterations)
{
	COUNT_DOWN(iterations);
}

void space_one(void)
{
	shared_work(75000);
}

void space_two(void)
{
	shared_work(25000);
}

static void make_space(struct tables *tables, uint64_t stack_page, const uint64_t *level3_now)
{
	tables->level4[0] = (uint64_t)(uintptr_t)tables->level3 | PRESENT_WRITABLE;
	tables->level3[0] = level3_now[0]; /* code, data and the first stack, as they are */
	tables->level3[1] = (uint64_t)(uintptr_t)tables->level2 | PRESENT_WRITABLE;
	tables->level2[0] = stack_page | LARGE | PRESENT_WRITABLE;
}

/* Calls `work` in the address space `root` on a stack at the shared address, as its root frame. */
static void run_in(uint64_t root, void (*work)(void))
{
	uint64_t top = SHARED_LINEAR + 0x10000;

	__asm__ volatile("pushq %%rbp\n\t"
			 "movq %%cr3, %%rax\n\t"
			 "pushq %%rax\n\t"
			 "movq %%rsp, %%rbx\n\t"
			 "movq %0, %%cr3\n\t"
			 "movq %2, %%rsp\n\t"
			 "xorl %%ebp, %%ebp\n\t"
			 "call *%1\n\t"
			 "movq %%rbx, %%rsp\n\t"
			 "popq %%rax\n\t"
			 "movq %%rax, %%cr3\n\t"
			 "popq %%rbp"
			 :
			 : "r"(root), "r"(work), "r"(top)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
			   "memory", "cc");
}

void run_spaces(uint32_t rounds)
{
	const uint64_t *level4, *level3;
	uint64_t root;

	__asm__ volatile("movq %%cr3, %0" : "=r"(root));
	level4 = (const uint64_t *)(uintptr_t)(root & ADDRESS_MASK);
	level3 = (const uint64_t *)(uintptr_t)(level4[0] & ADDRESS_MASK);
	for (int i = 0; i < 2; i++)
		make_space(&spaces[i], stack_pages[i], level3);
	do {
		run_in((uint64_t)(uintptr_t)&spaces[0], space_one);
		run_in((uint64_t)(uintptr_t)&spaces[1], space_two);
	} while (!rounds || --rounds);
}

#else

void run_spaces(uint32_t rounds)
{
	(void)rounds;
	print("no spaces in this mode\n");
}

#endif
