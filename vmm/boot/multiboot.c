#include "vmm/boot/multiboot.h"

#include <string.h>

#define HEADER_MAGIC 0x1badb002u
#define HEADER_MAGIC_2 0xe85250d6u

enum {
	SEARCH = 8192,     /* the header lies wholly in these first bytes, aligned to 4 */
	SEARCH_2 = 32768,  /* version 2: aligned to 8 */
	SHORT_HEADER = 12, /* magic, flags, checksum */
	LONG_HEADER = 32,  /* five addresses more */
};

static uint32_t word(const uint8_t *bytes, size_t offset)
{
	uint32_t value;

	memcpy(&value, bytes + offset, sizeof(value));
	return value;
}

bool multiboot_find_header(const uint8_t *bytes, size_t size, struct multiboot_header *out)
{
	if (size > SEARCH)
		size = SEARCH;
	for (size_t at = 0; at + SHORT_HEADER <= size; at += 4) {
		uint32_t flags;

		if (word(bytes, at) != HEADER_MAGIC)
			continue;
		flags = word(bytes, at + 4);
		if (HEADER_MAGIC + flags + word(bytes, at + 8) != 0)
			continue;
		*out = (struct multiboot_header){.flags = flags, .offset = at};
		if (flags & MULTIBOOT_HAS_ADDRESSES) {
			if (at + LONG_HEADER > size)
				continue;
			out->header_address = word(bytes, at + 12);
			out->load_address = word(bytes, at + 16);
			out->load_end = word(bytes, at + 20);
			out->zero_end = word(bytes, at + 24);
			out->entry = word(bytes, at + 28);
		}
		return true;
	}
	return false;
}

bool multiboot_is_version_2(const uint8_t *bytes, size_t size)
{
	if (size > SEARCH_2)
		size = SEARCH_2;
	/* Magic, architecture (0: i386), length, checksum. */
	for (size_t at = 0; at + 16 <= size; at += 8)
		if (word(bytes, at) == HEADER_MAGIC_2 && word(bytes, at + 4) == 0 &&
		    HEADER_MAGIC_2 + word(bytes, at + 8) + word(bytes, at + 12) == 0)
			return true;
	return false;
}

/* "Boot information format" of the specification. */
struct information {
	uint32_t flags;
	uint32_t lower_kib; /* memory from 0 up */
	uint32_t upper_kib; /* memory from 1 MiB up, to the first hole */
	uint32_t boot_device;
	uint32_t command_line;
	uint32_t module_count;
	uint32_t modules;
	uint32_t symbols[4];
	uint32_t map_length; /* bytes */
	uint32_t map;
	uint32_t drives_length;
	uint32_t drives;
	uint32_t configuration_table;
	uint32_t loader_name;
};
_Static_assert(sizeof(struct information) == 68, "up to and with the loader's name");

enum {
	INFORMATION_MEMORY = 1u << 0,
	INFORMATION_COMMAND_LINE = 1u << 2,
	INFORMATION_MODULES = 1u << 3,
	INFORMATION_MAP = 1u << 6,
	INFORMATION_LOADER_NAME = 1u << 9,
};

struct module {
	uint32_t start;
	uint32_t end;
	uint32_t text;
	uint32_t reserved;
};
_Static_assert(sizeof(struct module) == 16, "as specified");

struct map_entry {
	uint32_t size; /* of what follows this word */
	uint64_t start;
	uint64_t length;
	uint32_t type;
} __attribute__((packed));
_Static_assert(sizeof(struct map_entry) == 24, "as specified");

struct block {
	struct information information;
	struct module module;
	struct map_entry map[MULTIBOOT_RANGES_MAX];
	char loader_name[16];
	char no_text[4];
};

#define HIGH_MEMORY UINT64_C(0x100000)

bool multiboot_write_facts(const struct multiboot_facts *facts, const struct guest_ram *ram,
			   uint64_t address)
{
	struct block block = {.loader_name = "guestprof"};
	struct information *information = &block.information;
	const uint32_t base = (uint32_t)address;

	if (facts->range_count > MULTIBOOT_RANGES_MAX)
		return false;
	information->flags = INFORMATION_MEMORY | INFORMATION_COMMAND_LINE | INFORMATION_MAP |
			     INFORMATION_LOADER_NAME;
	information->command_line = (uint32_t)facts->command_line;
	information->loader_name = base + offsetof(struct block, loader_name);
	information->map = base + offsetof(struct block, map);
	information->map_length = facts->range_count * (uint32_t)sizeof(struct map_entry);
	for (unsigned i = 0; i < facts->range_count; i++) {
		const struct memory_range *range = &facts->ranges[i];

		block.map[i] = (struct map_entry){.size = sizeof(struct map_entry) - 4,
						  .start = range->start,
						  .length = range->size,
						  .type = range->type};
		if (range->type == MEMORY_RANGE_RAM && range->start == 0)
			information->lower_kib = (uint32_t)(range->size >> 10);
		else if (range->type == MEMORY_RANGE_RAM && range->start == HIGH_MEMORY)
			information->upper_kib = (uint32_t)(range->size >> 10);
	}
	if (facts->initrd_size) {
		information->flags |= INFORMATION_MODULES;
		information->module_count = 1;
		information->modules = base + offsetof(struct block, module);
		block.module = (struct module){
			.start = (uint32_t)facts->initrd,
			.end = (uint32_t)(facts->initrd + facts->initrd_size),
			.text = base + offsetof(struct block, no_text),
		};
	}
	return guest_ram_write(ram, gpa(address), &block, sizeof(block));
}
