#include "guest-introspection/elf/elf_image.h"

#include <elf.h>
#include <stdlib.h>

/* A program has a dozen headers; this many fit its first page. */
#define PROGRAM_HEADER_LIMIT 70u
#define PROGRAM_HEADER_SIZE_MAX sizeof(Elf64_Phdr)
#define NOTE_SEGMENT_LIMIT 8u
#define NOTE_SIZE_LIMIT 4096u

_Static_assert(sizeof(Elf64_Ehdr) == 64 && sizeof(Elf64_Phdr) == 56, "System V ABI");
_Static_assert(sizeof(Elf32_Ehdr) == 52 && sizeof(Elf32_Phdr) == 32, "System V ABI");

struct program_header {
	uint32_t type;
	uint32_t flags;
	uint64_t offset;
	uint64_t address;
	uint64_t file_size;
	uint64_t memory_size;
	uint64_t alignment;
};

static struct program_header take_program_header(struct cursor *cursor, bool is_64)
{
	struct program_header header;

	header.type = cursor_u32(cursor);
	header.flags = is_64 ? cursor_u32(cursor) : 0;
	header.offset = elf_take_word(cursor, is_64);
	header.address = elf_take_word(cursor, is_64);
	elf_take_word(cursor, is_64); /* physical address */
	header.file_size = elf_take_word(cursor, is_64);
	header.memory_size = elf_take_word(cursor, is_64);
	if (!is_64)
		header.flags = cursor_u32(cursor);
	header.alignment = elf_take_word(cursor, is_64);
	return header;
}

static bool fits(uint64_t offset, uint64_t size)
{
	return size <= INT64_MAX && offset <= INT64_MAX - size;
}

unsigned elf_find_build_id(const void *notes, size_t size, unsigned alignment, unsigned limit,
			   uint8_t *build_id)
{
	struct cursor cursor = cursor_over(notes, size);

	while (cursor_left(&cursor) >= 12) {
		uint32_t name_size = cursor_u32(&cursor);
		uint32_t content_size = cursor_u32(&cursor);
		uint32_t type = cursor_u32(&cursor);
		const char *name = cursor_bytes(&cursor, name_size);
		const uint8_t *content;

		cursor_skip(&cursor, -cursor.offset & (alignment - 1));
		content = cursor_bytes(&cursor, content_size);
		if (cursor.failed)
			return 0;
		if (type == NT_GNU_BUILD_ID && name_size == sizeof(ELF_NOTE_GNU) &&
		    memcmp(name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0 && content_size > 0 &&
		    content_size <= limit) {
			memcpy(build_id, content, content_size);
			return content_size;
		}
		cursor_skip(&cursor, -cursor.offset & (alignment - 1));
	}
	return 0;
}

/* Notes are padded to 4 bytes, to 8 in segments with that alignment (Linux's gABI extension). */
static void read_notes(const struct file_source *source, const struct program_header *header,
		       struct elf_image *image)
{
	uint8_t bytes[NOTE_SIZE_LIMIT];
	size_t wanted =
		header->file_size < sizeof(bytes) ? (size_t)header->file_size : sizeof(bytes);
	size_t size = file_source_read(source, header->offset, bytes, wanted);

	image->build_id_size = elf_find_build_id(bytes, size, header->alignment == 8 ? 8 : 4,
						 ELF_BUILD_ID_LIMIT, image->build_id);
}

static void add_segment(struct elf_image *image, const struct program_header *header)
{
	if (image->segment_count == ELF_SEGMENT_LIMIT || header->memory_size == 0 ||
	    header->file_size > header->memory_size || !fits(header->offset, header->file_size) ||
	    header->memory_size > UINT64_MAX - header->address)
		return;
	image->segments[image->segment_count++] =
		(struct elf_segment){.offset = header->offset,
				     .address = header->address,
				     .file_size = header->file_size,
				     .memory_size = header->memory_size,
				     .writable = header->flags & PF_W,
				     .executable = header->flags & PF_X};
}

static gp_status_t read_program_headers(const struct file_source *source, uint64_t offset,
					unsigned count, unsigned entry_size,
					struct elf_image *image, struct error *error)
{
	uint8_t bytes[PROGRAM_HEADER_LIMIT * PROGRAM_HEADER_SIZE_MAX];
	unsigned size = image->is_64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	unsigned notes = 0;
	struct cursor cursor;

	if (entry_size != size || count == 0)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "an ELF without program headers");
	if (count > PROGRAM_HEADER_LIMIT)
		count = PROGRAM_HEADER_LIMIT;
	if (file_source_read(source, offset, bytes, (size_t)count * size) != (size_t)count * size)
		return error_set(error, GP_ERR_NOT_FOUND, "the program headers cannot be read");
	cursor = cursor_over(bytes, (size_t)count * size);
	for (unsigned i = 0; i < count; i++) {
		struct program_header header = take_program_header(&cursor, image->is_64);

		switch (header.type) {
		case PT_LOAD:
			add_segment(image, &header);
			break;
		case PT_DYNAMIC:
			if (fits(header.offset, header.file_size))
				image->dynamic = (struct elf_part){header.offset, header.file_size};
			break;
		case PT_GNU_EH_FRAME:
			if (fits(header.offset, header.file_size)) {
				image->exception_frames =
					(struct elf_part){header.offset, header.file_size};
				image->exception_frames_address = header.address;
			}
			break;
		case PT_NOTE:
			if (image->build_id_size == 0 && notes++ < NOTE_SEGMENT_LIMIT)
				read_notes(source, &header, image);
			break;
		default:
			break;
		}
	}
	if (image->segment_count == 0)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "an ELF that loads nothing");
	return GP_OK;
}

gp_status_t elf_image_read(const struct file_source *source, struct elf_image *out,
			   struct error *error)
{
	struct elf_image image = {0};
	uint8_t bytes[sizeof(Elf64_Ehdr)];
	size_t size = file_source_read(source, 0, bytes, sizeof(bytes));
	struct cursor cursor = cursor_over(bytes, size);
	uint64_t program_headers;
	unsigned entry_size;
	unsigned count;
	uint16_t type;
	uint16_t machine;
	gp_status_t status;

	if (size < sizeof(Elf32_Ehdr))
		return error_set(error, GP_ERR_NOT_FOUND, "the first page cannot be read");
	if (memcmp(bytes, ELFMAG, SELFMAG) != 0 || bytes[EI_DATA] != ELFDATA2LSB ||
	    (bytes[EI_CLASS] != ELFCLASS64 && bytes[EI_CLASS] != ELFCLASS32))
		return error_set(error, GP_ERR_NOT_SUPPORTED, "not an ELF file of x86");
	image.is_64 = bytes[EI_CLASS] == ELFCLASS64;
	cursor_skip(&cursor, EI_NIDENT);
	type = cursor_u16(&cursor);
	machine = cursor_u16(&cursor);
	cursor_u32(&cursor);                 /* version */
	elf_take_word(&cursor, image.is_64); /* entry */
	program_headers = elf_take_word(&cursor, image.is_64);
	image.section_headers.offset = elf_take_word(&cursor, image.is_64);
	cursor_u32(&cursor); /* flags */
	cursor_u16(&cursor); /* size of this header */
	entry_size = cursor_u16(&cursor);
	count = cursor_u16(&cursor);
	image.section_header_size = cursor_u16(&cursor);
	image.section_headers.size = (uint64_t)cursor_u16(&cursor) * image.section_header_size;
	if (cursor.failed)
		return error_set(error, GP_ERR_NOT_FOUND, "the first page cannot be read");
	if ((machine != EM_X86_64 && machine != EM_386) || (type != ET_EXEC && type != ET_DYN))
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "an ELF file of machine %u, type %u: not a program of x86",
				 machine, type);
	image.relocatable = type == ET_DYN;
	if (image.section_headers.offset == 0 ||
	    !fits(image.section_headers.offset, image.section_headers.size))
		image.section_headers = (struct elf_part){0};
	status = read_program_headers(source, program_headers, count, entry_size, &image, error);
	if (status == GP_OK)
		*out = image;
	return status;
}

bool elf_image_bias(const struct elf_image *image, uint64_t start, uint64_t offset, bool executable,
		    uint64_t *bias)
{
	const struct elf_segment *found = NULL;

	for (unsigned i = 0; i < image->segment_count; i++) {
		const struct elf_segment *segment = &image->segments[i];
		uint64_t first = segment->offset & ~(uint64_t)(ELF_PAGE - 1);

		if (segment->file_size == 0 || offset < first ||
		    offset >= segment->offset + segment->file_size)
			continue;
		/* Of two that share a page, the one with the same right, else the earlier. */
		if (!found ||
		    (found->executable != executable && segment->executable == executable))
			found = segment;
	}
	if (!found)
		return false;
	*bias = start - (found->address + (offset - found->offset));
	return true;
}

bool elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t *offset)
{
	for (unsigned i = 0; i < image->segment_count; i++) {
		const struct elf_segment *segment = &image->segments[i];

		if (address >= segment->address &&
		    address - segment->address < segment->file_size) {
			*offset = segment->offset + (address - segment->address);
			return true;
		}
	}
	return false;
}

void elf_bytes_deinit(struct elf_bytes *self)
{
	free(self->bytes);
	free(self->missing);
}

gp_status_t elf_bytes_read(const struct file_source *source, struct elf_part part,
			   struct elf_bytes *out)
{
	size_t start = (size_t)(part.offset % ELF_PAGE);
	size_t size = start + (size_t)part.size;
	struct elf_bytes read = {.bytes = calloc(1, size + 1),
				 .size = size,
				 .start = start,
				 .missing = calloc(1, size / ELF_PAGE + 1)};

	if (!read.bytes || !read.missing) {
		elf_bytes_deinit(&read);
		return GP_ERR_NO_MEMORY;
	}
	for (size_t done = 0; done < size;) {
		done += file_source_read(source, part.offset - start + done, read.bytes + done,
					 size - done);
		if (done == size)
			break;
		/* Not available: go on with the next page. */
		read.missing[done / ELF_PAGE] = 1;
		read.holes = true;
		done = (done / ELF_PAGE + 1) * ELF_PAGE;
	}
	*out = read;
	return GP_OK;
}

bool elf_bytes_available(const uint8_t *missing, size_t offset, size_t size)
{
	if (size == 0)
		return true;
	for (size_t page = offset / ELF_PAGE; page <= (offset + size - 1) / ELF_PAGE; page++)
		if (missing[page])
			return false;
	return true;
}
