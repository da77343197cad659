/* The well-behaved roles: known call trees, port exits, idling, several CPUs, memory. */
#include "tests/guests/guest.h"

/* The tree: run_tree calls branch_a, which calls leaf_70 and branch_b, ... Of all iterations 70 %
 * are in leaf_70, 20 % in leaf_20, 8 % in leaf_8, 2 % in leaf_2. The rest of the code is a few
 * dozen instructions per round; tests/kvm/sampling.c knows the bound. */
void leaf_70(void);
void leaf_20(void);
void leaf_8(void);
void leaf_2(void);
void branch_a(void);
void branch_b(void);
void branch_c(void);

void leaf_70(void)
{
	COUNT_DOWN(42000);
}

void leaf_20(void)
{
	COUNT_DOWN(12000);
}

void leaf_8(void)
{
	COUNT_DOWN(4800);
}

void leaf_2(void)
{
	COUNT_DOWN(1200);
}

void branch_c(void)
{
	leaf_8();
	leaf_2();
}

void branch_b(void)
{
	leaf_20();
	branch_c();
}

void branch_a(void)
{
	leaf_70();
	branch_b();
}

void run_tree(uint32_t rounds)
{
	do
		branch_a();
	while (!rounds || --rounds);
}

/* Recursion, 40 deep unless told otherwise: for depth limits. */
void nest(uint32_t depth);
void nest(uint32_t depth)
{
	if (depth)
		nest(depth - 1);
	else
		COUNT_DOWN(100000);
	__asm__ volatile(""); /* the call is not the last thing */
}

void run_nested(uint32_t rounds, uint32_t depth)
{
	do
		nest(depth);
	while (!rounds || --rounds);
}

/* For ever, below `depth` calls: how fast shows in memory. */
void count_at(uint32_t depth);
void count_at(uint32_t depth)
{
	volatile uint64_t *progress = (volatile uint64_t *)(uintptr_t)PROGRESS_ADDRESS;

	if (depth)
		count_at(depth - 1);
	else
		while (++*progress)
			;
	__asm__ volatile(""); /* the call is not the last thing */
}

void run_count(uint32_t depth)
{
	count_at(depth);
}

/* Leaves the guest as often as it can; port 0x80 is nobody's. */
void run_exits(uint32_t rounds)
{
	do
		out8(0x80, 0);
	while (!rounds || --rounds);
}

/* Halts for ever with interrupts on and none to come; nothing else happens. */
void run_idle(uint32_t rounds)
{
	do
		__asm__ volatile("sti\n\thlt\n\tcli");
	while (!rounds || --rounds);
}

/* Local APIC, Intel SDM 3A chapter 11: interrupt command register. */
#define LOCAL_APIC 0xfee00000u
#define APIC_SPURIOUS (LOCAL_APIC + 0xf0)
#define APIC_COMMAND_LOW (LOCAL_APIC + 0x300)
#define APIC_COMMAND_HIGH (LOCAL_APIC + 0x310)
#define COMMAND_INIT 0x4500
#define COMMAND_STARTUP 0x4600
#define AP_START_PAGE 0x10

extern const uint8_t ap_start[], ap_start_end[];
static volatile uint32_t cpus_up = 1;
static volatile uint32_t work_rounds;
static volatile uint32_t cpus_done[4];

void cpu_work_0(void);
void cpu_work_1(void);
void cpu_work_2(void);
void cpu_work_3(void);
void ap_main(uint32_t cpu);

/* One function per CPU, so that a sample tells whose it is. */
void cpu_work_0(void)
{
	COUNT_DOWN(5000);
}

void cpu_work_1(void)
{
	COUNT_DOWN(5000);
}

void cpu_work_2(void)
{
	COUNT_DOWN(5000);
}

void cpu_work_3(void)
{
	COUNT_DOWN(5000);
}

void ap_main(uint32_t cpu)
{
	uint32_t rounds;

	cpus_up = cpus_up + 1; /* CPUs are started one after the other */
	rounds = work_rounds;
	do {
		if (cpu == 1)
			cpu_work_1();
		else if (cpu == 2)
			cpu_work_2();
		else
			cpu_work_3();
	} while (!rounds || --rounds);
	cpus_done[cpu & 3] = 1;
}

void run_smp(uint32_t rounds, uint32_t cpus)
{
	uint8_t *to = (uint8_t *)(AP_START_PAGE << 12);
	uint32_t all = 0, round = rounds;

	if (cpus > 4)
		cpus = 4;
	work_rounds = rounds;
	for (const uint8_t *from = ap_start; from < ap_start_end; from++)
		*to++ = *from;
	write32(APIC_SPURIOUS, 0x1ff);
	for (uint32_t cpu = 1; cpu < cpus; cpu++) {
		write32(APIC_COMMAND_HIGH, cpu << 24);
		write32(APIC_COMMAND_LOW, COMMAND_INIT);
		COUNT_DOWN(1000);
		write32(APIC_COMMAND_HIGH, cpu << 24);
		write32(APIC_COMMAND_LOW, COMMAND_STARTUP | AP_START_PAGE);
		while (cpus_up < cpu + 1)
			__asm__ volatile("pause");
	}
	print("cpus ");
	print_number(cpus_up);
	print("\n");
	do
		cpu_work_0();
	while (!round || --round);
	while (all != cpus - 1) {
		all = 0;
		for (uint32_t cpu = 1; cpu < cpus; cpu++)
			all += cpus_done[cpu];
	}
}

/* Writes to the first and last word of every range of RAM from 1 MiB up and reads it back. */
void run_memory(void)
{
	const struct start_info *info = start_information();
	const struct memory_range *ranges =
		(const struct memory_range *)(uintptr_t)info->memory_map;
	uint64_t total = 0;

	for (uint32_t i = 0; i < info->memory_map_entries; i++) {
		uint64_t first = ranges[i].start, last = first + ranges[i].size - 4;

		if (ranges[i].type != 1)
			continue;
		total += ranges[i].size;
		if (last > UINTPTR_MAX || first < 0x100000)
			continue;
		write32((uintptr_t)first, 0x12345678);
		write32((uintptr_t)last, 0x9abcdef0);
		if (read32((uintptr_t)first) != 0x12345678 || read32((uintptr_t)last) != 0x9abcdef0)
			print("memory is not there\n");
	}
	print("memory ");
	print_number(total);
	print("\n");
}
