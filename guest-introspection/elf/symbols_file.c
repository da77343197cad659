#include "guest-introspection/elf/symbols_file.h"

#include "base/hexadecimal.h"
#include "guest-introspection/elf/elf_symbols.h"

#include <gelf.h>
#include <libelf.h>
#include <string.h>

#define SECTION_LIMIT 65536
#define SEGMENT_LIMIT 65536

/* What to add to the file's addresses. */
static gp_status_t elf_bias(Elf *elf, struct symbols_base base, uint64_t *bias, struct error *error)
{
	size_t count;
	uint64_t lowest = 0;
	bool found = false;

	*bias = 0;
	if (!base.given)
		return GP_OK;
	if (elf_getphdrnum(elf, &count) != 0 || count > SEGMENT_LIMIT)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "damaged ELF: program headers");
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr segment;

		if (!gelf_getphdr(elf, (int)i, &segment))
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
					 "damaged ELF: program header %zu", i);
		if (segment.p_type != PT_LOAD)
			continue;
		/* Segments are in rising order (System V ABI); Linux puts its per-CPU template,
		 * linked at 0, behind its text. */
		if (found && segment.p_vaddr == 0)
			continue;
		if (!found || segment.p_vaddr < lowest)
			lowest = segment.p_vaddr;
		found = true;
	}
	if (!found)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "a base was given, but this ELF has no segment to load there");
	*bias = base.address - lowest;
	return GP_OK;
}

/* The letter of nm(1) for a symbol, 0 for one that names nothing in memory. */
static char symbol_kind(Elf *elf, const GElf_Sym *symbol)
{
	Elf_Scn *section;
	GElf_Shdr header;

	if (!elf_symbol_is_named(symbol->st_info, symbol->st_shndx))
		return 0;
	section = elf_getscn(elf, symbol->st_shndx);
	if (!section || !gelf_getshdr(section, &header) || !(header.sh_flags & SHF_ALLOC))
		return 0;
	if (header.sh_flags & SHF_TLS) /* an offset, not an address */
		return 0;
	return elf_symbol_kind(symbol->st_info, header.sh_flags & SHF_EXECINSTR,
			       header.sh_flags & SHF_WRITE, header.sh_type == SHT_NOBITS);
}

static gp_status_t read_elf_section(Elf *elf, Elf_Scn *section, uint64_t bias,
				    struct symbol_table *table, struct error *error)
{
	GElf_Shdr header;
	Elf_Data *data;
	size_t entry;
	size_t count;

	if (!gelf_getshdr(section, &header) || !(data = elf_getdata(section, NULL)))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "damaged ELF: symbol table: %s",
				 elf_errmsg(-1));
	entry = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);
	count = entry ? data->d_size / entry : 0;
	if (count > SYMBOL_TABLE_LIMIT)
		return symbol_table_error(GP_ERR_OUT_OF_RANGE, error);
	for (size_t i = 1; i < count; i++) {
		GElf_Sym symbol;
		const char *name;
		size_t length;
		char kind;
		gp_status_t status;

		if (!gelf_getsym(data, (int)i, &symbol))
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "damaged ELF: symbol %zu",
					 i);
		kind = symbol_kind(elf, &symbol);
		if (!kind)
			continue;
		name = elf_strptr(elf, header.sh_link, symbol.st_name);
		if (!name)
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
					 "damaged ELF: name of symbol %zu", i);
		length = strnlen(name, SYMBOL_NAME_LIMIT);
		if (length == 0)
			continue;
		status = symbol_table_add(table, symbol.st_value + bias, symbol.st_size, kind, name,
					  length);
		if (status != GP_OK)
			return symbol_table_error(status, error);
	}
	return GP_OK;
}

static gp_status_t read_elf(Elf *elf, struct symbols_base base, struct symbol_table *table,
			    struct error *error)
{
	static const unsigned tables[] = {SHT_SYMTAB, SHT_DYNSYM};
	GElf_Ehdr header;
	uint64_t bias;
	gp_status_t status;

	if (!gelf_getehdr(elf, &header))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "damaged ELF: %s",
				 elf_errmsg(-1));
	if (header.e_machine != EM_X86_64 && header.e_machine != EM_386)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "an ELF file of another machine (%u); x86 is what runs here",
				 header.e_machine);
	if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "an ELF file that is not linked (type %u): give the linked file",
				 header.e_type);
	status = elf_bias(elf, base, &bias, error);
	for (unsigned i = 0; status == GP_OK && i < 2 && table->count == 0; i++) {
		Elf_Scn *section = NULL;
		GElf_Shdr section_header;

		for (unsigned left = SECTION_LIMIT; left > 0; left--) {
			section = elf_nextscn(elf, section);
			if (!section || status != GP_OK)
				break;
			if (gelf_getshdr(section, &section_header) &&
			    section_header.sh_type == tables[i])
				status = read_elf_section(elf, section, bias, table, error);
		}
	}
	if (status == GP_OK && table->count == 0)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "an ELF file without symbols (stripped): give one that has them");
	return status;
}

/* "ADDRESS [SIZE] KIND NAME" */
static bool parse_line(const char *at, const char *end, struct symbol *symbol, size_t *length)
{
	const char *stop;

	symbol->size = 0;
	if (!hexadecimal_take_column(&at, end, &symbol->start))
		return false;
	/* A kind is one character, which may be a digit of a number too: "b name". */
	if (end - at >= 2 && at[1] != ' ' && !hexadecimal_take_column(&at, end, &symbol->size))
		return false;
	if (end - at < 3 || at[1] != ' ' || at[0] <= ' ' || at[0] >= 0x7f)
		return false;
	symbol->kind = at[0];
	symbol->name = at + 2;
	/* /proc/kallsyms puts a module's name behind a tab. */
	for (stop = symbol->name; stop < end && (unsigned char)*stop > ' '; stop++)
		;
	*length = (size_t)(stop - symbol->name);
	return *length > 0 && *length <= SYMBOL_NAME_LIMIT;
}

static gp_status_t read_text(const char *text, size_t size, struct symbols_base base,
			     struct symbol_table *table, struct error *error)
{
	uint64_t bias = 0;
	size_t line = 0;

	for (const char *at = text, *file_end = text + size; at < file_end;) {
		const char *newline = memchr(at, '\n', (size_t)(file_end - at));
		const char *end = newline ? newline : file_end;
		const char *next = newline ? newline + 1 : file_end;
		struct symbol symbol;
		size_t length;
		gp_status_t status;

		line++;
		if (end > at && end[-1] == '\r')
			end--;
		/* nm prints undefined symbols without an address. */
		if (end > at && *at != ' ') {
			if (!parse_line(at, end, &symbol, &length))
				return table->count == 0
					       ? error_set(error, GP_ERR_NOT_SUPPORTED,
							   "neither ELF nor symbols as text "
							   "(\"address kind name\")")
					       : error_set(error, GP_ERR_IO_DATA_INTEGRITY,
							   "line %zu is not \"address kind name\"",
							   line);
			status = symbol_table_add(table, symbol.start, symbol.size, symbol.kind,
						  symbol.name, length);
			if (status != GP_OK)
				return symbol_table_error(status, error);
		}
		at = next;
	}
	if (table->count == 0)
		return error_set(error, GP_ERR_NOT_FOUND, "no symbols in the file");
	if (base.given) {
		uint64_t lowest = UINT64_MAX;
		bool exact = false;

		for (size_t i = 0; i < table->count && !exact; i++) {
			struct symbol symbol = symbol_table_get(table, i);

			if (!symbol_kind_is_text(symbol.kind))
				continue;
			exact = strcmp(symbol.name, "_text") == 0;
			if (exact || symbol.start < lowest)
				lowest = symbol.start;
		}
		if (lowest == UINT64_MAX)
			return error_set(error, GP_ERR_INVALID_ARGS,
					 "a base was given, but the file has no text symbol");
		bias = base.address - lowest;
	}
	/* Absolute symbols and the per-CPU template do not move, but data never names an
	 * address, so that it does not matter. */
	for (size_t i = 0; i < table->count; i++)
		table->entries[i].start += bias;
	return GP_OK;
}

gp_status_t symbols_file_parse(const void *bytes, size_t size, struct symbols_base base,
			       struct symbol_table *out, struct error *error)
{
	struct symbol_table table;
	gp_status_t status;

	symbol_table_init(&table);
	if (size >= SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0) {
		Elf *elf;

		if (elf_version(EV_CURRENT) == EV_NONE)
			return error_set(error, GP_ERR_INTERNAL, "libelf is older than its header");
		/* libelf does not write to an image that it only reads. */
		elf = elf_memory((char *)(uintptr_t)bytes, size);
		if (!elf)
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "damaged ELF: %s",
					 elf_errmsg(-1));
		status = read_elf(elf, base, &table, error);
		elf_end(elf);
	} else {
		status = read_text(bytes, size, base, &table, error);
	}
	if (status != GP_OK) {
		symbol_table_deinit(&table);
		return status;
	}
	symbol_table_finish(&table);
	*out = table;
	return GP_OK;
}
