/* Puts a kernel, its command line and its initramfs into guest memory, and says in what
 * state the first vCPU starts.
 *
 * Guest-physical layout below 1 MiB, ours to give (e820 calls it usable: a kernel takes it
 * over once it has read what it needs):
 *
 *   0x00400  what a PC's BIOS would have left: COM1, end of low memory
 *   0x00500  GDT: null, null, code (selector 0x10), data (selector 0x18)
 *   0x06000  PVH start_info, or Multiboot information; module list, memory map
 *   0x07000  zero page (struct boot_params)
 *   0x09000  page tables: 4 GiB mapped one to one with 2 MiB pages (6 pages)
 *   0x0fff0  stack
 *   0x20000  command line
 *   0x9fc00  end of low memory; from here to 1 MiB reserved
 *   0xe0000  ACPI tables (acpi.h)
 *   0xffff0  what a guest finds that restarts through the firmware's entry
 */
#ifndef VMM_BOOT_BOOT_H
#define VMM_BOOT_BOOT_H

#include "base/error.h"
#include "vmm/devices/guest_ram.h"
#include "vmm/boot/kernel_image.h"

#include <stdint.h>

enum boot_mode {
	BOOT_LONG_MODE,      /* 64-bit, paging on */
	BOOT_PROTECTED_MODE, /* 32-bit, paging off */
};

/* Where the first vCPU starts, and the registers in which a kernel is told where to read on. */
struct boot_state {
	enum boot_mode mode;
	uint64_t rip;
	uint64_t rsp;
	uint64_t rax; /* Multiboot: the loader's magic number */
	uint64_t rbx; /* PVH: start_info; Multiboot: its information */
	uint64_t rsi; /* Linux: the zero page */
	uint64_t page_tables;
	uint64_t gdt;
};

/* What the user gave, opened before any VM exists. */
struct boot_files {
	struct kernel_image kernel;
	const char *command_line; /* never edited */
	const char *initrd_path;  /* NULL: none */
	int initrd_fd;            /* -1: none */
	uint64_t initrd_size;
};

/* Opens and checks all files, and that they fit a guest of `ram_size` bytes. */
gp_status_t boot_files_open(const char *kernel, const char *initrd, const char *command_line,
			    uint64_t ram_size, struct boot_files *files, struct error *error);
void boot_files_close(struct boot_files *files);

/* Fills guest memory. `acpi_rsdp` is where the ACPI root pointer will be. */
gp_status_t boot_load(const struct boot_files *files, const struct guest_ram *ram,
		      uint64_t acpi_rsdp, struct boot_state *state, struct error *error);

#endif
