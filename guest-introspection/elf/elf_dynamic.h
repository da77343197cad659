/* What the dynamic section of an ELF file says, found by PT_DYNAMIC: no section headers are needed.
 * Nothing here allocates; every loop is bounded; any thread. */
#ifndef GUEST_INTROSPECTION_ELF_ELF_DYNAMIC_H
#define GUEST_INTROSPECTION_ELF_ELF_DYNAMIC_H

#include "guest-introspection/elf/elf_image.h"

/* Addresses of the file, as elf_image_offset() takes them, and sizes. 0: not said. */
struct elf_dynamic {
	uint64_t symbols;
	uint64_t entry_size; /* bytes of one symbol */
	uint64_t strings;
	uint64_t strings_size;
	uint64_t hash;
	uint64_t gnu_hash;
	uint64_t relocations; /* with addends (RELA) */
	uint64_t relocations_size;
	uint64_t plt_relocations;
	uint64_t plt_relocations_size;
	uint64_t plt_type; /* DT_RELA or DT_REL */
};

/* `loaded_bias`: see elf_symbols_read(). False, `out` untouched: there is none, or it is not wholly
 * available. */
bool elf_dynamic_read(const struct file_source *source, const struct elf_image *image,
		      uint64_t loaded_bias, struct elf_dynamic *out);

/* How many dynamic symbols there are, by the hash tables; 0: that is not available. Not more than
 * UINT32_MAX, and nothing checked against the file's size. */
uint64_t elf_dynamic_symbol_count(const struct file_source *source, const struct elf_image *image,
				  const struct elf_dynamic *dynamic);

#endif
