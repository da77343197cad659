#include "guest-introspection/elf/elf_symbols.h"

#include "base/cleanup.h"
#include "base/cursor.h"
#include "guest-introspection/elf/elf_dynamic.h"
#include "guest-introspection/elf/elf_plt.h"
#include "guest-introspection/elf/elf_sections.h"

#include <elf.h>

#define STRINGS_LIMIT (64u << 20)
#define PAGE_SIZE 4096u
#define CHUNK_ENTRIES 170u /* of 24 bytes: about a page at a time */

_Static_assert(sizeof(Elf64_Sym) == 24 && sizeof(Elf32_Sym) == 16, "System V ABI");
struct reader {
	const struct file_source *source;
	const struct elf_image *image;
	struct symbol_table table;
	struct elf_symbols_result result;
};

/* A string table, as far as it is available: pages that are not stay unmarked. */
struct strings {
	char *bytes;
	uint8_t *present; /* a byte for each page of the file */
	size_t size;
	size_t skew; /* where in its first page the table begins */
};

static void strings_deinit(struct strings *strings)
{
	free(strings->bytes);
	free(strings->present);
}

static gp_status_t strings_read(struct strings *out, const struct reader *self,
				struct elf_part part, struct error *error)
{
	size_t size = part.size < STRINGS_LIMIT ? (size_t)part.size : STRINGS_LIMIT;
	size_t skew = (size_t)(part.offset % PAGE_SIZE);
	struct strings strings = {.bytes = calloc(1, size + 1),
				  .present = calloc(1, (skew + size) / PAGE_SIZE + 1),
				  .size = size,
				  .skew = skew};

	if (!strings.bytes || !strings.present) {
		strings_deinit(&strings);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the names of symbols");
	}
	for (size_t at = 0, step; at < size; at += step) {
		step = PAGE_SIZE - (skew + at) % PAGE_SIZE;
		if (step > size - at)
			step = size - at;
		strings.present[(skew + at) / PAGE_SIZE] =
			file_source_read(self->source, part.offset + at, strings.bytes + at,
					 step) == step;
	}
	*out = strings;
	return GP_OK;
}

/* The string at `offset`; NULL when it is not wholly available. */
static const char *strings_get(const struct strings *strings, uint64_t offset, size_t *length)
{
	const char *begin;
	size_t room;

	if (offset >= strings->size)
		return NULL;
	begin = strings->bytes + offset;
	room = strings->size - (size_t)offset;
	*length = strnlen(begin, room < SYMBOL_NAME_LIMIT ? room : SYMBOL_NAME_LIMIT);
	if (*length == room)
		return NULL; /* cut */
	for (size_t page = (strings->skew + offset) / PAGE_SIZE;
	     page <= (strings->skew + offset + *length) / PAGE_SIZE; page++)
		if (!strings->present[page])
			return NULL;
	return begin;
}

struct elf_symbol {
	uint32_t name;
	uint8_t info;
	uint16_t section;
	uint64_t address;
	uint64_t size;
};

static struct elf_symbol take_symbol(struct cursor *cursor, bool is_64)
{
	struct elf_symbol symbol;

	symbol.name = cursor_u32(cursor);
	if (!is_64) {
		symbol.address = cursor_u32(cursor);
		symbol.size = cursor_u32(cursor);
	}
	symbol.info = cursor_u8(cursor);
	cursor_u8(cursor); /* visibility */
	symbol.section = cursor_u16(cursor);
	if (is_64) {
		symbol.address = cursor_u64(cursor);
		symbol.size = cursor_u64(cursor);
	}
	return symbol;
}

bool elf_symbol_is_named(unsigned info, unsigned section)
{
	unsigned type = ELF64_ST_TYPE(info);

	return (type == STT_FUNC || type == STT_NOTYPE || type == STT_OBJECT ||
		type == STT_GNU_IFUNC) &&
	       section != SHN_UNDEF && section < SHN_LORESERVE;
}

char elf_symbol_kind(unsigned info, bool executable, bool writable, bool zeroed)
{
	bool local = ELF64_ST_BIND(info) == STB_LOCAL;
	bool weak = ELF64_ST_BIND(info) == STB_WEAK;

	if (executable && ELF64_ST_TYPE(info) != STT_OBJECT)
		return weak ? 'W' : local ? 't' : 'T';
	if (weak)
		return 'V';
	if (zeroed)
		return local ? 'b' : 'B';
	if (writable)
		return local ? 'd' : 'D';
	return local ? 'r' : 'R';
}

/* By segments, because the headers of sections are often not available. */
static char symbol_kind(const struct elf_image *image, const struct elf_symbol *symbol)
{
	if (!elf_symbol_is_named(symbol->info, symbol->section))
		return 0;
	for (unsigned i = 0; i < image->segment_count; i++) {
		const struct elf_segment *segment = &image->segments[i];

		if (symbol->address < segment->address ||
		    symbol->address - segment->address >= segment->memory_size)
			continue;
		return elf_symbol_kind(symbol->info, segment->executable, segment->writable,
				       segment->writable && symbol->address - segment->address >=
								    segment->file_size);
	}
	return 0;
}

static gp_status_t add_symbol(struct reader *self, const struct strings *strings,
			      const struct elf_symbol *symbol, struct error *error)
{
	char kind = symbol_kind(self->image, symbol);
	const char *name;
	size_t length;

	if (!kind)
		return GP_OK;
	name = strings_get(strings, symbol->name, &length);
	if (!name) {
		self->result.missing++;
		return GP_OK;
	}
	if (length == 0)
		return GP_OK;
	return symbol_table_error(
		symbol_table_add(&self->table, symbol->address, symbol->size, kind, name, length),
		error);
}

/* Reads the symbols of `entries` with their names in `names`. */
static gp_status_t read_table(struct reader *self, struct elf_part entries, struct elf_part names,
			      struct error *error)
{
	bool is_64 = self->image->is_64;
	size_t entry_size = is_64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
	uint64_t count = entries.size / entry_size;
	struct strings strings = {0};
	gp_status_t status;

	if (count > SYMBOL_TABLE_LIMIT)
		return error_set(error, GP_ERR_OUT_OF_RANGE, "more than %u symbols",
				 SYMBOL_TABLE_LIMIT);
	status = strings_read(&strings, self, names, error);
	if (status != GP_OK)
		return status;
	for (uint64_t i = 0; status == GP_OK && i < count;) {
		uint8_t bytes[CHUNK_ENTRIES * sizeof(Elf64_Sym)];
		uint64_t left = count - i < CHUNK_ENTRIES ? count - i : CHUNK_ENTRIES;
		size_t size = file_source_read(self->source, entries.offset + i * entry_size, bytes,
					       (size_t)left * entry_size);
		size_t got = size / entry_size;
		struct cursor cursor = cursor_over(bytes, got * entry_size);

		for (size_t k = 0; status == GP_OK && k < got; k++) {
			struct elf_symbol symbol = take_symbol(&cursor, is_64);

			status = add_symbol(self, &strings, &symbol, error);
		}
		i += got;
		if (got < left) {
			/* Go on behind the page that is not there. */
			uint64_t at = entries.offset + i * entry_size + size % entry_size;
			uint64_t next = (at / PAGE_SIZE + 1) * PAGE_SIZE - entries.offset;
			uint64_t skipped = (next + entry_size - 1) / entry_size - i;

			if (skipped > count - i)
				skipped = count - i;
			self->result.missing += skipped;
			i += skipped;
		}
	}
	strings_deinit(&strings);
	return status;
}

/* The first section of `type`, with its strings. False: none available. */
static bool find_section(const struct reader *self, uint32_t type, struct elf_section *entries,
			 struct elf_section *names)
{
	unsigned count = elf_section_count(self->image);

	for (unsigned i = 0; i < count; i++)
		if (elf_section_read(self->source, self->image, i, entries) &&
		    entries->type == type)
			return elf_section_read(self->source, self->image, entries->link, names) &&
			       names->type == SHT_STRTAB;
	return false;
}

static gp_status_t read_by_dynamic(struct reader *self, const struct elf_dynamic *dynamic,
				   struct error *error)
{
	uint64_t entry_size = self->image->is_64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
	struct elf_part entries;
	struct elf_part names;
	uint64_t count;

	if (!dynamic->symbols || !dynamic->strings || !dynamic->strings_size ||
	    (dynamic->entry_size && dynamic->entry_size != entry_size) ||
	    !elf_image_offset(self->image, dynamic->symbols, &entries.offset) ||
	    !elf_image_offset(self->image, dynamic->strings, &names.offset))
		return GP_OK;
	count = elf_dynamic_symbol_count(self->source, self->image, dynamic);
	if (count > SYMBOL_TABLE_LIMIT)
		return GP_OK;
	entries.size = count * entry_size;
	names.size = dynamic->strings_size;
	self->result.dynamic = true;
	return read_table(self, entries, names, error);
}

static gp_status_t read_tables(struct reader *self, const struct elf_dynamic *dynamic,
			       struct error *error)
{
	struct elf_section entries;
	struct elf_section names;
	gp_status_t status = GP_OK;

	if (find_section(self, SHT_SYMTAB, &entries, &names)) {
		self->result.full = true;
		status = read_table(self, entries.part, names.part, error);
	}
	if (status != GP_OK || (self->result.full && !self->result.missing && self->table.count))
		return status;
	if (find_section(self, SHT_DYNSYM, &entries, &names)) {
		self->result.dynamic = true;
		return read_table(self, entries.part, names.part, error);
	}
	return read_by_dynamic(self, dynamic, error);
}

gp_status_t elf_symbols_read(const struct file_source *source, const struct elf_image *image,
			     uint64_t loaded_bias, struct symbol_table *out,
			     struct elf_symbols_result *result, struct error *error)
{
	struct reader reader = {.source = source, .image = image};
	struct elf_dynamic dynamic = {0};
	gp_status_t status;

	symbol_table_init(&reader.table);
	elf_dynamic_read(source, image, loaded_bias, &dynamic);
	status = read_tables(&reader, &dynamic, error);
	if (status == GP_OK)
		status = elf_plt_read(source, image, &dynamic, &reader.table, error);
	if (status == GP_OK && reader.table.count == 0)
		status = error_set(error, GP_ERR_NOT_FOUND, "no symbols can be read");
	if (status != GP_OK) {
		symbol_table_deinit(&reader.table);
		return status;
	}
	symbol_table_finish(&reader.table);
	*out = reader.table;
	*result = reader.result;
	return GP_OK;
}
