/* Chooses a role, plays it, ends the machine as it was told. */
#include "tests/guests/guest.h"

#define COM1 0x3f8
#define ACPI_SLEEP_CONTROL 0x600
#define ACPI_SLEEP_STATUS 0x601
#define ACPI_RESET 0x602
#define ACPI_RESET_VALUE 1
#define RESET_PORT 0xcf9
#define KEYBOARD_COMMAND 0x64
#define DEVICE_HOLE 0xd0000000u

extern uint32_t boot_parameters;

void guest_main(uint32_t cpu);

const struct start_info *start_information(void)
{
	return (const struct start_info *)(uintptr_t)boot_parameters;
}

void print(const char *text)
{
	for (; *text; text++)
		out8(COM1, (uint8_t)*text);
}

void print_number(uint64_t number)
{
	for (int shift = 60; shift >= 0; shift -= 4)
		out8(COM1, (uint8_t) "0123456789abcdef"[number >> shift & 15]);
}

const char *option(const char *name)
{
	const char *at = (const char *)(uintptr_t)start_information()->command_line;

	while (*at) {
		const char *want = name;

		while (*want && *at == *want) {
			at++;
			want++;
		}
		if (!*want && *at == '=')
			return at + 1;
		while (*at && *at != ' ')
			at++;
		while (*at == ' ')
			at++;
	}
	return 0;
}

int option_is(const char *name, const char *value)
{
	const char *given = option(name);

	if (!given)
		return 0;
	while (*value && *given == *value) {
		given++;
		value++;
	}
	return !*value && (!*given || *given == ' ');
}

uint32_t option_number(const char *name, uint32_t otherwise)
{
	const char *given = option(name);
	uint32_t number = 0;

	if (!given)
		return otherwise;
	for (; *given >= '0' && *given <= '9'; given++)
		number = number * 10 + (uint32_t)(*given - '0');
	return number;
}

/* No interrupt table, and a selector beyond the GDT: #GP, #DF, shutdown. */
static void triple_fault(void)
{
	struct {
		uint16_t limit;
		uint64_t base;
	} __attribute__((packed)) none = {0, 0};

	__asm__ volatile("lidt %0\n\tmov %1, %%ds" : : "m"(none), "r"(0xfff8));
}

/* An instruction that KVM's emulator does not know, on memory that needs it. */
static void unemulatable(void)
{
#ifdef __x86_64__
	__asm__ volatile("cmpxchg16b (%0)"
			 :
			 : "r"((uintptr_t)DEVICE_HOLE), "a"(0), "b"(0), "c"(0), "d"(0)
			 : "memory", "cc");
#endif
}

static void end(void)
{
	const char *text = option("text");

	if (text) {
		while (*text && *text != ' ')
			out8(COM1, (uint8_t)*text++);
		print("\n");
	}
	if (option_is("how", "panic"))
		print("Kernel panic - not syncing: as told\n");
	if (option_is("end", "acpi"))
		out8(ACPI_RESET, ACPI_RESET_VALUE);
	else if (option_is("end", "cf9"))
		out8(RESET_PORT, 6);
	else if (option_is("end", "i8042"))
		out8(KEYBOARD_COMMAND, 0xfe);
	else if (option_is("end", "triple"))
		triple_fault();
	else if (option_is("end", "unemulatable"))
		unemulatable();
	else if (option_is("end", "mmio"))
		((void (*)(void))(uintptr_t)DEVICE_HOLE)();
	else if (option_is("end", "halt"))
		for (;;)
			__asm__ volatile("cli\n\thlt");
	out8(ACPI_SLEEP_STATUS, 0x80);
	out8(ACPI_SLEEP_CONTROL, 5 << 2 | 0x20);
	print("nothing ended this machine\n");
}

void guest_main(uint32_t cpu)
{
	const char *how = option("how");

	(void)cpu;
	print("guest started\n");
	if (option_is("run", "nested"))
		run_nested(option_number("rounds", 1), option_number("depth", 40));
	else if (option_is("run", "count"))
		run_count(option_number("depth", 12));
	else if (option_is("run", "spaces"))
		run_spaces(option_number("rounds", 10));
	else if (option_is("run", "exits"))
		run_exits(option_number("rounds", 1));
	else if (option_is("run", "idle"))
		run_idle(option_number("rounds", 0));
	else if (option_is("run", "smp"))
		run_smp(option_number("rounds", 1), option_number("cpus", 1));
	else if (option_is("run", "memory"))
		run_memory();
	else if (option_is("run", "hostile") && how)
		run_hostile(how, option_number("rounds", 1));
	else
		run_tree(option_number("rounds", 1));
	end();
}
