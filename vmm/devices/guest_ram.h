/* The RAM of our own VM: where it lies in guest-physical space and in this process.
 *
 * Every access of the VMM to guest memory goes through the functions here: there is no
 * other place that turns a guest-physical address into a host pointer. The guest writes
 * this memory at any time from other threads, so what is read once must not be read again
 * to be checked: copy, then check the copy.
 *
 * Layout: up to 3 GiB below the 4 GiB hole (0xc0000000 up), the rest from 4 GiB up.
 */
#ifndef VMM_DEVICES_GUEST_RAM_H
#define VMM_DEVICES_GUEST_RAM_H

#include "base/address.h"
#include "base/error.h"
#include "guest-introspection/x86/guest_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_RAM_HOLE_START UINT64_C(0xc0000000)
#define GUEST_RAM_HOLE_END UINT64_C(0x100000000)

struct guest_ram_region {
	uint64_t gpa;
	uint64_t size;
	uint8_t *host; /* agrees with gpa within 2 MiB */
};

struct guest_ram {
	struct guest_memory memory; /* read-only view for introspection */
	struct guest_ram_region regions[2];
	unsigned region_count;
	uint64_t size; /* bytes, all regions */
};

/* A piece of the memory map that a guest is told; types as in e820 and ACPI 6.5, section 15. PVH's
 * format (boot.c). */
enum { MEMORY_RANGE_RAM = 1, MEMORY_RANGE_RESERVED = 2 };

struct memory_range {
	uint64_t start;
	uint64_t size;
	uint32_t type;
	uint32_t reserved;
};

/* Reserves `size` bytes (a multiple of 4 KiB) of guest memory, untouched and zero. */
gp_status_t guest_ram_init(struct guest_ram *ram, uint64_t size, struct error *error);
void guest_ram_deinit(struct guest_ram *ram);

/* The host address of `size` bytes at `address`, or NULL when not all of them are RAM of
 * one region. For bulk transfers; the bytes may change under the caller. */
void *guest_ram_at(const struct guest_ram *ram, gpa_t address, uint64_t size);

/* Copies out of and into guest memory; false when not all bytes are RAM. */
bool guest_ram_read(const struct guest_ram *ram, gpa_t address, void *buffer, size_t size);
bool guest_ram_write(const struct guest_ram *ram, gpa_t address, const void *buffer, size_t size);

#endif
