#include "guest-introspection/elf/elf_sections.h"

#include <elf.h>

_Static_assert(sizeof(Elf64_Shdr) == 64 && sizeof(Elf32_Shdr) == 40, "System V ABI");

static size_t header_size(const struct elf_image *image)
{
	return image->is_64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
}

unsigned elf_section_count(const struct elf_image *image)
{
	uint64_t count = image->section_headers.size / header_size(image);

	if (image->section_header_size != header_size(image))
		return 0;
	return count < ELF_SECTION_LIMIT ? (unsigned)count : ELF_SECTION_LIMIT;
}

bool elf_section_read(const struct file_source *source, const struct elf_image *image,
		      unsigned index, struct elf_section *out)
{
	size_t size = header_size(image);
	uint8_t bytes[sizeof(Elf64_Shdr)];
	struct cursor cursor = cursor_over(bytes, size);
	struct elf_section section;

	if (index >= elf_section_count(image) ||
	    file_source_read(source, image->section_headers.offset + index * size, bytes, size) !=
		    size)
		return false;
	cursor_u32(&cursor); /* name */
	section.type = cursor_u32(&cursor);
	section.flags = elf_take_word(&cursor, image->is_64);
	elf_take_word(&cursor, image->is_64); /* address */
	section.part.offset = elf_take_word(&cursor, image->is_64);
	section.part.size = elf_take_word(&cursor, image->is_64);
	section.link = cursor_u32(&cursor);
	if (section.part.size > INT64_MAX || section.part.offset > INT64_MAX - section.part.size)
		return false;
	*out = section;
	return true;
}

struct elf_contents elf_contents_read(const struct file_source *source,
				      const struct elf_image *image)
{
	unsigned count = elf_section_count(image);
	struct elf_contents contents = {.known = count > 0};

	for (unsigned i = 0; i < count; i++) {
		struct elf_section section;

		if (!elf_section_read(source, image, i, &section)) {
			contents.known = false;
			continue;
		}
		contents.symbols = contents.symbols || section.type == SHT_SYMTAB;
		/* objcopy --only-keep-debug leaves the headers of what it takes out. */
		if (section.flags & SHF_EXECINSTR && section.type == SHT_NOBITS)
			contents.without_code = true;
	}
	return contents;
}
