/* Kernels that follow the Multiboot Specification, version 0.6.96: an ELF file, or any other bytes
 * with addresses in their Multiboot header. Finds the header in a file, and writes what such a
 * kernel is told. Version 2 of the specification is another protocol, which is only recognised.
 */
#ifndef VMM_BOOT_MULTIBOOT_H
#define VMM_BOOT_MULTIBOOT_H

#include "base/error.h"
#include "vmm/devices/guest_ram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What EAX holds when a Multiboot kernel starts; EBX holds the address of the information. */
#define MULTIBOOT_LOADER_MAGIC 0x2badb002u

struct multiboot_header {
	uint32_t flags;
	uint64_t offset; /* of the header in the file */
	/* With MULTIBOOT_HAS_ADDRESSES; guest-physical. 0 for an end means "to the end of the file"
	 * and "nothing behind it". */
	uint32_t header_address;
	uint32_t load_address;
	uint32_t load_end;
	uint32_t zero_end;
	uint32_t entry;
};

enum {
	MULTIBOOT_WANTS_MEMORY = 1u << 1,
	MULTIBOOT_WANTS_VIDEO = 1u << 2,
	MULTIBOOT_HAS_ADDRESSES = 1u << 16,
	/* Of these a loader that does not know one must not start the kernel. */
	MULTIBOOT_REQUIRED_MASK = 0xffff,
};

/* Looks for the header in the first 8 KiB, where it has to be. False when there is none. */
bool multiboot_find_header(const uint8_t *bytes, size_t size, struct multiboot_header *out);

/* Is there a header of version 2? */
bool multiboot_is_version_2(const uint8_t *bytes, size_t size);

/* What the kernel is told. All addresses are guest-physical and below 4 GiB. */
struct multiboot_facts {
	uint64_t command_line;
	uint64_t initrd; /* its only module, of this size; none when 0 */
	uint64_t initrd_size;
	const struct memory_range *ranges;
	unsigned range_count; /* at most MULTIBOOT_RANGES_MAX */
};

#define MULTIBOOT_RANGES_MAX 8

/* Writes all of that to guest memory, less than a page from `address` on. False when it does not
 * fit the guest's memory. */
bool multiboot_write_facts(const struct multiboot_facts *facts, const struct guest_ram *ram,
			   uint64_t address);

#endif
