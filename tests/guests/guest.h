/* What the tiny guests share: ports, console, command line, ends.
 *
 * Freestanding, general-purpose registers only, so that they run where KVM emulates guests in
 * software too. One program with several roles; the kernel command line chooses:
 *
 *   run=tree|nested|count|spaces|exits|idle|smp|memory|hostile   what to do (default: tree)
 *   rounds=N     how often (default: by role; 0: for ever)
 *   depth=N      nested, count: calls on top of each other (default: 40)
 *   cpus=N       smp: CPUs to start, this one included
 *   how=NAME     hostile: what to abuse
 *   end=poweroff|acpi|cf9|i8042|triple|halt|unemulatable|mmio   afterwards (default: poweroff)
 *   text=WORD    printed on a line of its own at the beginning of the end
 */
#ifndef TESTS_GUESTS_GUEST_H
#define TESTS_GUESTS_GUEST_H

#include <stdint.h>

/* xen/include/public/arch-x86/hvm/start_info.h */
struct start_info {
	uint32_t magic, version, flags, module_count;
	uint64_t module_list, command_line, rsdp, memory_map;
	uint32_t memory_map_entries, reserved;
};

struct memory_range {
	uint64_t start, size;
	uint32_t type, reserved;
};

static inline __attribute__((always_inline)) void out8(uint16_t port, uint8_t value)
{
	__asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}

static inline __attribute__((always_inline)) void out32(uint16_t port, uint32_t value)
{
	__asm__ volatile("outl %0, %1" ::"a"(value), "Nd"(port));
}

static inline __attribute__((always_inline)) uint8_t in8(uint16_t port)
{
	uint8_t value;

	__asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline __attribute__((always_inline)) void write32(uintptr_t address, uint32_t value)
{
	*(volatile uint32_t *)address = value;
}

static inline __attribute__((always_inline)) uint32_t read32(uintptr_t address)
{
	return *(volatile uint32_t *)address;
}

/* Two instructions per iteration, whatever the compiler thinks. */
#define COUNT_DOWN(iterations)                                                       \
	do {                                                                         \
		uint32_t left_ = (iterations);                                       \
		__asm__ volatile("1: subl $1, %0\n\tjnz 1b" : "+r"(left_) : : "cc"); \
	} while (0)

/* Where run=count counts what it has done, for who can read the guest's memory. */
#define PROGRESS_ADDRESS 0x1ff000

/* main.c */
void print(const char *text);
void print_number(uint64_t number);
const char *option(const char *name); /* its value, up to a space; NULL: not given */
int option_is(const char *name, const char *value);
uint32_t option_number(const char *name, uint32_t otherwise);
const struct start_info *start_information(void);

/* The roles. `rounds` 0: for ever. */
void run_tree(uint32_t rounds);
void run_nested(uint32_t rounds, uint32_t depth);
void run_count(uint32_t depth);
void run_spaces(uint32_t rounds);
void run_exits(uint32_t rounds);
void run_idle(uint32_t rounds);
void run_smp(uint32_t rounds, uint32_t cpus);
void run_memory(void);
void run_hostile(const char *how, uint32_t rounds);

#endif
