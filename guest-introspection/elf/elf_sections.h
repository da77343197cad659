/* The sections of an ELF file, of which only parts may be available. Nothing here allocates; every
 * loop is bounded; any thread. */
#ifndef GUEST_INTROSPECTION_ELF_ELF_SECTIONS_H
#define GUEST_INTROSPECTION_ELF_ELF_SECTIONS_H

#include "guest-introspection/elf/elf_image.h"

#define ELF_SECTION_LIMIT 65536u

struct elf_section {
	uint32_t type;  /* SHT_… */
	uint64_t flags; /* SHF_… */
	uint32_t link;
	struct elf_part part; /* in the file; its end does not overflow */
};

/* How many sections the file says that it has, at most ELF_SECTION_LIMIT. */
unsigned elf_section_count(const struct elf_image *image);

/* False, `out` untouched: there is no such section, or its header is not available. */
bool elf_section_read(const struct file_source *source, const struct elf_image *image,
		      unsigned index, struct elf_section *out);

/* What the section headers say of the file. */
struct elf_contents {
	bool known;        /* there are headers, and all of them are available */
	bool symbols;      /* .symtab */
	bool without_code; /* a file of debugging information: what is loaded is left out of it */
};

struct elf_contents elf_contents_read(const struct file_source *source,
				      const struct elf_image *image);

#endif
