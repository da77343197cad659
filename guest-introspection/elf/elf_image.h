/* What is needed of an ELF program or library, of which only parts may be available.
 *
 * libelf wants a whole file. In a guest's page cache there are some pages of it, most often the
 * headers and what is loaded; in a process's memory (the vDSO) there are no sections. So this reads
 * what it needs piece by piece from a struct file_source; every piece is copied once and the
 * copy is checked, every count is bounded. 64-bit and 32-bit x86. Only elf_bytes_read() allocates;
 * any thread.
 */
#ifndef GUEST_INTROSPECTION_ELF_ELF_IMAGE_H
#define GUEST_INTROSPECTION_ELF_ELF_IMAGE_H

#include "base/cursor.h"
#include "base/error.h"
#include "guest-introspection/elf/file_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_SEGMENT_LIMIT 32u
#define ELF_BUILD_ID_LIMIT 64u

/* A loaded segment (PT_LOAD). Its ends do not overflow. */
struct elf_segment {
	uint64_t offset; /* in the file */
	uint64_t address;
	uint64_t file_size;
	uint64_t memory_size;
	bool writable;
	bool executable;
};

/* A part of the file; size 0: there is none. */
struct elf_part {
	uint64_t offset;
	uint64_t size;
};

struct elf_image {
	bool is_64;
	bool relocatable; /* ET_DYN: a library, or a program that is loaded anywhere */
	unsigned segment_count;
	struct elf_segment segments[ELF_SEGMENT_LIMIT];
	struct elf_part dynamic;          /* PT_DYNAMIC */
	struct elf_part exception_frames; /* PT_GNU_EH_FRAME: the header of .eh_frame */
	uint64_t exception_frames_address;
	struct elf_part section_headers; /* as the ELF header says, not checked further */
	uint32_t section_header_size;
	unsigned build_id_size; /* 0: none, or its page is not available */
	uint8_t build_id[ELF_BUILD_ID_LIMIT];
};

/* Address-sized fields are 4 or 8 bytes. */
static inline uint64_t elf_take_word(struct cursor *cursor, bool is_64)
{
	return is_64 ? cursor_u64(cursor) : cursor_u32(cursor);
}

/* Reads headers and notes. `out` is untouched on failure: GP_ERR_NOT_FOUND (the first page or the
 * the program headers cannot be read), GP_ERR_NOT_SUPPORTED (not ELF, another machine, not a
 * program or library), GP_ERR_IO_DATA_INTEGRITY (damaged). */
gp_status_t elf_image_read(const struct file_source *source, struct elf_image *out,
			   struct error *error);

/* The build id in `size` bytes of notes that are padded to `alignment` (4 or 8), at most `limit`
 * bytes (ELF specification, "Note Section"). Returns how many; 0: none, `build_id` untouched. */
unsigned elf_find_build_id(const void *notes, size_t size, unsigned alignment, unsigned limit,
			   uint8_t *build_id);

#define ELF_PAGE 4096u

/* A part of the file in memory, from the beginning of its first page on, as far as it is
 * available. */
struct elf_bytes {
	uint8_t *bytes; /* what is not available is 0 */
	size_t size;
	size_t start;     /* where the part begins in them */
	uint8_t *missing; /* one for each page: not available */
	bool holes;       /* there is such a page */
};

/* GP_ERR_NO_MEMORY leaves `out` untouched. Allocates: the caller deinits. */
gp_status_t elf_bytes_read(const struct file_source *source, struct elf_part part,
			   struct elf_bytes *out);
void elf_bytes_deinit(struct elf_bytes *self);

/* Whether none of the pages of [offset, offset + size) is `missing`. */
bool elf_bytes_available(const uint8_t *missing, size_t offset, size_t size);

/* How much higher than the file says the image lies, in a process that maps its offset `offset` at
 * `start`: linear address = file's address + bias, modulo 2^64. Pages at the border of two segments
 * are mapped for both, so that `executable` decides; a mapping of code is the one to ask with.
 * False, `bias` untouched: no segment has that offset. */
bool elf_image_bias(const struct elf_image *image, uint64_t start, uint64_t offset, bool executable,
		    uint64_t *bias);

/* The file offset of an address of the file. False, `offset` untouched: not in the file. */
bool elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t *offset);

#endif
