/* Symbols from files: ELF, nm text, where they are moved to, and what is refused. */
#include "guest-introspection/elf/symbols_file.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error error;

static gp_status_t parse_text(const char *text, struct symbols_base base,
			      struct symbol_table *table)
{
	return symbols_file_parse(text, strlen(text), base, table, &error);
}

static const struct symbols_base none = {.given = false};

static uint64_t start_of(const struct symbol_table *table, const char *name)
{
	struct symbol symbol;

	return symbol_table_find_name(table, name, &symbol) ? symbol.start : UINT64_MAX;
}

Test(symbols_file, text_of_nm_and_system_map)
{
	struct symbol_table table;
	struct symbol symbol;

	cr_assert_eq(parse_text("ffffffff81000000 T _text\r\n"
				"                 U elsewhere\n"
				"\n"
				"ffffffff81000100 0000000000000010 t sized\n"
				"ffffffffc0000000 t function\t[module]\n"
				"0000000000000010 d data",
				none, &table),
		     GP_OK, "%s", error.text);
	cr_assert_eq(table.count, 4);
	cr_assert_eq(start_of(&table, "_text"), UINT64_C(0xffffffff81000000));
	cr_assert_eq(start_of(&table, "function"), UINT64_C(0xffffffffc0000000));
	cr_assert(symbol_table_find_name(&table, "sized", &symbol));
	cr_assert_eq(symbol.size, 16);
	cr_assert_eq(symbol.kind, 't');
	symbol_table_deinit(&table);
}

Test(symbols_file, text_is_moved_to_its_base)
{
	struct symbols_base base = {.given = true, .address = UINT64_C(0xffffffff9a000000)};
	struct symbol_table table;

	cr_assert_eq(parse_text("0000000000000000 A absolute\n"
				"ffffffff80000000 t below\n"
				"ffffffff81000000 T _text\nffffffff81000100 T next\n",
				base, &table),
		     GP_OK);
	cr_assert_eq(start_of(&table, "next"), UINT64_C(0xffffffff9a000100));
	symbol_table_deinit(&table);
	cr_assert_eq(parse_text("00001000 T a\n00002000 T b\n", base, &table), GP_OK);
	cr_assert_eq(start_of(&table, "b"), UINT64_C(0xffffffff9a001000));
	symbol_table_deinit(&table);
	cr_assert_eq(parse_text("00001000 d a\n", base, &table), GP_ERR_INVALID_ARGS);
}

Test(symbols_file, bad_text_is_refused_with_the_place)
{
	struct symbol_table table = {.count = 42};

	cr_assert_eq(parse_text("", none, &table), GP_ERR_NOT_FOUND);
	cr_assert_eq(parse_text("hello\n", none, &table), GP_ERR_NOT_SUPPORTED);
	cr_assert_eq(parse_text("00001000 T a\n00001000 T\n", none, &table),
		     GP_ERR_IO_DATA_INTEGRITY);
	cr_assert(strstr(error.text, "line 2"), "%s", error.text);
	cr_assert_eq(parse_text("12345678123456781 T a\n", none, &table), GP_ERR_NOT_SUPPORTED);
	cr_assert_eq(table.count, 42);
}

/* An ELF file with two segments, a text and a data section, and a symbol table. */
struct elf_file {
	Elf64_Ehdr header;
	Elf64_Phdr segments[2];
	Elf64_Shdr sections[5];
	Elf64_Sym symbols[6];
	char names[64];
};

static struct elf_file make_elf(void)
{
	struct elf_file file = {
		.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				       EV_CURRENT},
			   .e_type = ET_EXEC,
			   .e_machine = EM_X86_64,
			   .e_version = EV_CURRENT,
			   .e_phoff = offsetof(struct elf_file, segments),
			   .e_shoff = offsetof(struct elf_file, sections),
			   .e_ehsize = sizeof(Elf64_Ehdr),
			   .e_phentsize = sizeof(Elf64_Phdr),
			   .e_phnum = 2,
			   .e_shentsize = sizeof(Elf64_Shdr),
			   .e_shnum = 5},
		.segments = {{.p_type = PT_LOAD, .p_vaddr = 0x400000, .p_align = 1},
			     /* a per-CPU template, as Linux has it */
			     {.p_type = PT_LOAD, .p_vaddr = 0, .p_align = 1}},
		.sections = {{0},
			     {.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR},
			     {.sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_WRITE},
			     {.sh_type = SHT_SYMTAB,
			      .sh_offset = offsetof(struct elf_file, symbols),
			      .sh_size = sizeof(file.symbols),
			      .sh_entsize = sizeof(Elf64_Sym),
			      .sh_link = 4},
			     {.sh_type = SHT_STRTAB,
			      .sh_offset = offsetof(struct elf_file, names),
			      .sh_size = sizeof(file.names)}},
		.symbols = {{0},
			    {.st_name = 1,
			     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			     .st_shndx = 1,
			     .st_value = 0x400100,
			     .st_size = 0x20},
			    {.st_name = 6,
			     .st_info = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE),
			     .st_shndx = 1,
			     .st_value = 0x400200},
			    {.st_name = 12,
			     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
			     .st_shndx = 2,
			     .st_value = 0x400300},
			    {.st_name = 17,
			     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			     .st_shndx = SHN_UNDEF},
			    {.st_name = 17,
			     .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FILE),
			     .st_shndx = SHN_ABS}},
	};

	memcpy(file.names, "\0main\0entry\0data\0other", 23);
	return file;
}

Test(symbols_file, elf_functions_labels_and_data)
{
	struct elf_file file = make_elf();
	struct symbols_base base = {.given = true, .address = UINT64_C(0xffffffff80000000)};
	struct symbol_table table;
	struct symbol symbol;

	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error), GP_OK, "%s",
		     error.text);
	cr_assert_eq(table.count, 3);
	cr_assert(symbol_table_find(&table, 0x40011f, &symbol));
	cr_assert_str_eq(symbol.name, "main");
	cr_assert_eq(symbol.kind, 'T');
	cr_assert_not(symbol_table_find(&table, 0x400120, &symbol));
	cr_assert(symbol_table_find(&table, 0x4002ff, &symbol));
	cr_assert_str_eq(symbol.name, "entry");
	cr_assert_not(symbol_table_find(&table, 0x400300, &symbol), "data ends it");
	symbol_table_deinit(&table);
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), base, &table, &error), GP_OK);
	cr_assert_eq(start_of(&table, "main"), UINT64_C(0xffffffff80000100));
	symbol_table_deinit(&table);
}

Test(symbols_file, dynamic_symbols_do_where_there_are_no_others)
{
	struct elf_file file = make_elf();
	struct symbol_table table;

	file.sections[3].sh_type = SHT_DYNSYM;
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error), GP_OK);
	cr_assert_eq(table.count, 3);
	symbol_table_deinit(&table);
	file.sections[3].sh_type = SHT_PROGBITS;
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error),
		     GP_ERR_NOT_FOUND);
}

Test(symbols_file, elf_of_other_kinds_is_refused)
{
	struct elf_file file = make_elf();
	struct symbol_table table;

	file.header.e_machine = EM_AARCH64;
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error),
		     GP_ERR_NOT_SUPPORTED);
	file = make_elf();
	file.header.e_type = ET_REL;
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error),
		     GP_ERR_NOT_SUPPORTED);
	file = make_elf();
	file.sections[3].sh_link = 17;
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error),
		     GP_ERR_IO_DATA_INTEGRITY);
	file = make_elf();
	file.symbols[1].st_name = 100000;
	cr_assert_eq(symbols_file_parse(&file, sizeof(file), none, &table, &error),
		     GP_ERR_IO_DATA_INTEGRITY);
}

Test(symbols_file, a_cut_elf_does_not_lead_outside)
{
	struct elf_file file = make_elf();

	for (size_t size = 0; size < sizeof(file); size++) {
		struct symbol_table table;
		void *exact = malloc(size ? size : 1);

		memcpy(exact, &file, size);
		if (symbols_file_parse(exact, size, none, &table, &error) == GP_OK)
			symbol_table_deinit(&table);
		free(exact);
	}
}
