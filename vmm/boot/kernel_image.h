/* What kind of kernel a file holds and where it wants to be.
 *
 * Three kinds boot here: a bzImage (Documentation/arch/x86/boot.rst, protocol 2.12 and newer), by
 * its 64-bit entry point or, for a 32-bit kernel, by its 32-bit one; an ELF file with a Xen PVH
 * note (xen/include/public/arch-x86/hvm/start_info.h); a file with a Multiboot header
 * (multiboot.h). Everything is checked before a VM exists, so that a file that cannot boot gives
 * one line and not a guest that hangs.
 */
#ifndef VMM_BOOT_KERNEL_IMAGE_H
#define VMM_BOOT_KERNEL_IMAGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_SEGMENTS_MAX 16

enum kernel_kind {
	KERNEL_BZIMAGE,
	KERNEL_BZIMAGE_32,
	KERNEL_PVH,
	KERNEL_MULTIBOOT,
};

/* A piece of the file and its place in guest-physical memory. */
struct kernel_segment {
	uint64_t file_offset;
	uint64_t file_size;
	uint64_t gpa;
	uint64_t memory_size; /* >= file_size; the rest is zero */
};

struct kernel_image {
	enum kernel_kind kind;
	const uint8_t *bytes; /* the whole file; owned by this structure */
	size_t size;
	struct kernel_segment segments[KERNEL_SEGMENTS_MAX];
	unsigned segment_count;
	uint64_t entry;            /* guest-physical */
	uint64_t start;            /* lowest guest-physical address it needs */
	uint64_t end;              /* first address after what it needs */
	uint64_t initrd_max;       /* bzImage: highest address the initrd may touch */
	uint32_t command_line_max; /* bytes without the terminating zero */
	size_t setup_header_size;  /* bzImage: bytes from 0x1f1 on to copy to the zero page */
};

/* Reads and checks the file at `path`. Errors: no such file, not a kernel (what it is instead is
 * said where that can be told), truncated, too old a boot protocol, segments that make no sense. */
gp_status_t kernel_image_open(const char *path, struct kernel_image *image, struct error *error);

/* As above for bytes in memory, which stay the caller's; `name` is for error texts. */
gp_status_t kernel_image_parse(const char *name, const uint8_t *bytes, size_t size,
			       struct kernel_image *image, struct error *error);

/* Gives back what kernel_image_open() holds. */
void kernel_image_close(struct kernel_image *image);

#endif
