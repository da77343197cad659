#include "guest-introspection/elf/elf_symbols.h"

#include "base/cleanup.h"
#include "base/cursor.h"
#include "guest-introspection/elf/elf_dynamic.h"
#include "guest-introspection/elf/elf_plt.h"
#include "guest-introspection/elf/elf_sections.h"

#include <elf.h>

#define STRINGS_LIMIT (64u << 20)
#define CHUNK_ENTRIES 170u /* of 24 bytes: about a page at a time */

_Static_assert(sizeof(Elf64_Sym) == 24 && sizeof(Elf32_Sym) == 16, "System V ABI");
struct reader {
	const struct file_source *source;
	const struct elf_image *image;
	struct symbol_table table;
	struct elf_symbols_result result;
};

/* The string at `offset`; NULL when it is not wholly available. */
static const char *strings_get(const struct elf_bytes *strings, uint64_t offset, size_t *length)
{
	const char *begin;
	size_t room;

	if (offset >= strings->size - strings->start)
		return NULL;
	offset += strings->start;
	begin = (const char *)strings->bytes + offset;
	room = strings->size - (size_t)offset;
	*length = strnlen(begin, room < SYMBOL_NAME_LIMIT ? room : SYMBOL_NAME_LIMIT);
	if (*length == room)
		return NULL; /* cut */
	return elf_bytes_available(strings->missing, (size_t)offset, *length + 1) ? begin : NULL;
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

static gp_status_t add_symbol(struct reader *self, const struct elf_bytes *strings,
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
	struct elf_bytes strings;
	gp_status_t status;

	if (count > SYMBOL_TABLE_LIMIT)
		return error_set(error, GP_ERR_OUT_OF_RANGE, "more than %u symbols",
				 SYMBOL_TABLE_LIMIT);
	if (names.size > STRINGS_LIMIT)
		names.size = STRINGS_LIMIT;
	status = elf_bytes_read(self->source, names, &strings);
	if (status != GP_OK)
		return error_set(error, status, "no memory for the names of symbols");
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
			uint64_t next = (at / ELF_PAGE + 1) * ELF_PAGE - entries.offset;
			uint64_t skipped = (next + entry_size - 1) / entry_size - i;

			if (skipped > count - i)
				skipped = count - i;
			self->result.missing += skipped;
			i += skipped;
		}
	}
	elf_bytes_deinit(&strings);
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
