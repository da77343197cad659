/* ELF files of which only parts are at hand: this program's own, its C library's, made-up ones. */
#include "guest-introspection/elf/elf_symbols.h"

#include "base/cleanup.h"
#include "guest-introspection/elf/symbols_file.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <link.h>

static uint8_t *read_file(const char *path, size_t *size)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	uint8_t *bytes = NULL;
	long length;

	cr_assert(file && fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) > 0, "%s", path);
	rewind(file);
	bytes = malloc((size_t)length);
	cr_assert(bytes && fread(bytes, 1, (size_t)length, file) == (size_t)length);
	*size = (size_t)length;
	return bytes;
}

/* The path of a library that this program uses. */
static int note_library(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size;
	if (strstr(info->dlpi_name, "/libc.so"))
		snprintf(context, 4096, "%s", info->dlpi_name);
	return 0;
}

static const char *libc_path(void)
{
	static char path[4096];

	dl_iterate_phdr(note_library, path);
	if (!path[0])
		cr_skip_test("no libc.so in this program");
	return path;
}

/* A file with pages that are not at hand. */
struct holed_file {
	struct file_source source;
	struct file_buffer whole;
	bool (*has)(const struct holed_file *self, uint64_t page);
	uint64_t argument;
};

static size_t holed_read(const struct file_source *source, uint64_t offset, void *buffer,
			 size_t size)
{
	const struct holed_file *self =
		container_of((struct file_source *)(uintptr_t)source, struct holed_file, source);
	size_t done = 0;

	while (done < size && self->has(self, (offset + done) / 4096)) {
		size_t step = 4096 - (size_t)((offset + done) % 4096);
		size_t got =
			file_source_read(&self->whole.source, offset + done, (char *)buffer + done,
					 step < size - done ? step : size - done);

		if (got == 0)
			break;
		done += got;
	}
	return done;
}

static struct holed_file holed_over(const uint8_t *bytes, size_t size,
				    bool (*has)(const struct holed_file *, uint64_t),
				    uint64_t argument)
{
	return (struct holed_file){.source = {.read = holed_read},
				   .whole = file_buffer_over(bytes, size),
				   .has = has,
				   .argument = argument};
}

/* The first page and a third of the others are missing or not, by chance. */
static bool has_by_chance(const struct holed_file *self, uint64_t page)
{
	uint64_t hash = (page + self->argument) * UINT64_C(0x9e3779b97f4a7c15);

	return page == 0 || hash >> 62 != 0;
}

static bool has_below(const struct holed_file *self, uint64_t page)
{
	return page < self->argument;
}

static bool has_symbol(const struct symbol_table *table, const struct symbol *wanted)
{
	for (size_t i = 0; i < table->count; i++) {
		struct symbol symbol = symbol_table_get(table, i);

		if (symbol.start == wanted->start && strcmp(symbol.name, wanted->name) == 0)
			return true;
		if (symbol.start > wanted->start)
			return false;
	}
	return false;
}

static bool is_stub(const struct symbol *symbol)
{
	size_t length = strlen(symbol->name);

	return length > 4 && strcmp(symbol->name + length - 4, "@plt") == 0;
}

/* How many text symbols of `table`, but for stubs, are not in `other`. */
static size_t not_in(const struct symbol_table *table, const struct symbol_table *other)
{
	size_t count = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct symbol symbol = symbol_table_get(table, i);

		count += symbol_kind_is_text(symbol.kind) && !is_stub(&symbol) &&
			 !has_symbol(other, &symbol);
	}
	return count;
}

static void expect_equal_to_libelf(const char *path, bool full)
{
	struct error error = {0};
	size_t size;
	AUTO_FREE uint8_t *bytes = read_file(path, &size);
	struct file_buffer buffer = file_buffer_over(bytes, size);
	struct elf_image image;
	struct symbol_table table;
	struct symbol_table truth;
	struct elf_symbols_result result;

	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0}, &truth, &error),
		     GP_OK, "%s", error.text);
	cr_assert_eq(elf_image_read(&buffer.source, &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(elf_symbols_read(&buffer.source, &image, 0, &table, &result, &error), GP_OK,
		     "%s", error.text);
	cr_assert_eq(result.full, full);
	cr_assert_eq(result.dynamic, !full);
	cr_assert_eq(result.missing, 0);
	cr_assert_gt(truth.count, 50);
	cr_assert_eq(not_in(&truth, &table), 0);
	cr_assert_eq(not_in(&table, &truth), 0);
	symbol_table_deinit(&truth);
	symbol_table_deinit(&table);
}

Test(elf_symbols, a_whole_file_is_read_as_libelf_reads_it)
{
	expect_equal_to_libelf("/proc/self/exe", true);
}

Test(elf_symbols, a_stripped_library_has_its_dynamic_symbols)
{
	expect_equal_to_libelf(libc_path(), false);
}

static void expect_stubs_as_objdump_sees_them(const char *path)
{
	struct error error = {0};
	size_t size;
	AUTO_FREE uint8_t *bytes = read_file(path, &size);
	struct file_buffer buffer = file_buffer_over(bytes, size);
	struct elf_image image;
	struct symbol_table table;
	struct elf_symbols_result result;
	unsigned stubs = 0;
	unsigned seen = 0;
	char command[4400];
	char line[1024];
	FILE *dump;

	cr_assert_eq(elf_image_read(&buffer.source, &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(elf_symbols_read(&buffer.source, &image, 0, &table, &result, &error), GP_OK,
		     "%s", error.text);
	for (size_t i = 0; i < table.count; i++) {
		struct symbol symbol = symbol_table_get(&table, i);

		stubs += is_stub(&symbol);
	}
	/* "0000000000002030 <ftell@plt>:", and "...@plt-0x10" for what is no stub */
	snprintf(command, sizeof(command),
		 "objdump -d -j .plt -j .plt.sec -j .plt.got '%s' 2>/dev/null | "
		 "sed -n 's/^\\([0-9a-f]*\\) <\\(.*@plt\\)>:$/\\1 \\2/p'",
		 path);
	dump = popen(command, "re");
	cr_assert(dump);
	while (fgets(line, sizeof(line), dump)) {
		struct symbol wanted = {.name = line + 17};

		line[strcspn(line, "\n")] = '\0';
		wanted.start = strtoull(line, NULL, 16);
		cr_assert(has_symbol(&table, &wanted), "%s", line);
		seen++;
	}
	pclose(dump);
	if (seen == 0)
		cr_skip_test("no objdump to compare with");
	cr_assert_eq(stubs, seen, "%u, not %u", stubs, seen);
	symbol_table_deinit(&table);
}

Test(elf_plt, the_stubs_of_this_program_are_those_that_objdump_names)
{
	char path[4096] = "";

	cr_assert_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
	expect_stubs_as_objdump_sees_them(path);
}

Test(elf_plt, the_stubs_of_the_c_library_are_those_that_objdump_names)
{
	expect_stubs_as_objdump_sees_them(libc_path());
}

Test(elf_symbols, what_is_found_between_holes_is_right_and_the_rest_is_counted)
{
	struct error error = {0};
	size_t size;
	AUTO_FREE uint8_t *bytes = read_file(libc_path(), &size);
	struct symbol_table truth;
	size_t whole = 0;

	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0}, &truth, &error),
		     GP_OK, "%s", error.text);
	for (unsigned chance = 0; chance < 30; chance++) {
		struct holed_file holed = holed_over(bytes, size, has_by_chance, chance * 1000);
		struct elf_image image;
		struct symbol_table table;
		struct elf_symbols_result result;

		cr_assert_eq(elf_image_read(&holed.source, &image, &error), GP_OK, "%s",
			     error.text);
		if (elf_symbols_read(&holed.source, &image, 0, &table, &result, &error) != GP_OK)
			continue;
		cr_assert_eq(not_in(&table, &truth), 0);
		cr_assert_leq(not_in(&truth, &table), result.missing);
		whole += not_in(&truth, &table) == 0;
		symbol_table_deinit(&table);
	}
	cr_assert_lt(whole, 30);
	symbol_table_deinit(&truth);
}

Test(elf_symbols, without_section_headers_the_dynamic_symbols_are_found)
{
	struct error error = {0};
	size_t size;
	AUTO_FREE uint8_t *bytes = read_file(libc_path(), &size);
	/* Section headers are at the end. */
	struct holed_file holed = holed_over(bytes, size, has_below, size / 4096 - 1);
	struct elf_image image;
	struct symbol_table table;
	struct symbol_table truth;
	struct elf_symbols_result result;

	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0}, &truth, &error),
		     GP_OK, "%s", error.text);
	cr_assert_eq(elf_image_read(&holed.source, &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(elf_symbols_read(&holed.source, &image, 0, &table, &result, &error), GP_OK,
		     "%s", error.text);
	cr_assert(!result.full);
	cr_assert(result.dynamic);
	cr_assert_eq(not_in(&truth, &table), 0);
	cr_assert_eq(not_in(&table, &truth), 0);
	symbol_table_deinit(&table);
	symbol_table_deinit(&truth);
}

/* This very program, as it lies in memory: bias, build id, a function of its own. */
struct own_image {
	uint64_t bias;
	uint64_t text; /* of the executable segment: linear, whole pages */
	uint64_t text_offset;
	uint8_t build_id[ELF_BUILD_ID_LIMIT];
};

static int note_own_image(struct dl_phdr_info *info, size_t size, void *context)
{
	struct own_image *own = context;

	(void)size;
	own->bias = info->dlpi_addr;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD && segment->p_flags & PF_X) {
			own->text = (info->dlpi_addr + segment->p_vaddr) & ~UINT64_C(4095);
			own->text_offset = segment->p_offset & ~UINT64_C(4095);
		}
	}
	return 1; /* the first is the program */
}

Test(elf_image, the_bias_of_this_program_is_found_from_its_mapping)
{
	struct error error = {0};
	size_t size;
	AUTO_FREE uint8_t *bytes = read_file("/proc/self/exe", &size);
	struct file_buffer buffer = file_buffer_over(bytes, size);
	struct own_image own = {0};
	struct elf_image image;
	struct symbol_table table;
	struct elf_symbols_result result;
	struct symbol symbol;
	uint64_t bias = 1;

	dl_iterate_phdr(note_own_image, &own);
	cr_assert_eq(elf_image_read(&buffer.source, &image, &error), GP_OK, "%s", error.text);
	cr_assert(elf_image_bias(&image, own.text, own.text_offset, true, &bias));
	cr_assert_eq(bias, own.bias);
	cr_assert(!elf_image_bias(&image, own.text, size + 8192, true, &bias));
	cr_assert_eq(bias, own.bias);
	cr_assert_eq(elf_symbols_read(&buffer.source, &image, 0, &table, &result, &error), GP_OK,
		     "%s", error.text);
	cr_assert(symbol_table_find(&table, (uint64_t)(uintptr_t)note_own_image - bias, &symbol));
	cr_assert_str_eq(symbol.name, "note_own_image");
	symbol_table_deinit(&table);
}

Test(elf_image, pages_of_two_segments_are_told_apart_by_their_right)
{
	struct elf_image image = {
		.segment_count = 2,
		.segments = {
			{.offset = 0, .address = 0, .file_size = 0x1800, .memory_size = 0x1800},
			{.offset = 0x1800,
			 .address = 0x2800,
			 .file_size = 0x1000,
			 .memory_size = 0x1000,
			 .executable = true}}};
	uint64_t bias;
	uint64_t offset;

	cr_assert(elf_image_bias(&image, 0x7000, 0x1000, true, &bias));
	cr_assert_eq(bias, 0x5000);
	cr_assert(elf_image_bias(&image, 0x6000, 0x1000, false, &bias));
	cr_assert_eq(bias, 0x5000);
	cr_assert(elf_image_offset(&image, 0x2900, &offset));
	cr_assert_eq(offset, 0x1900);
	cr_assert(!elf_image_offset(&image, 0x1900, &offset));
}

/* A made-up library: one segment with everything, symbols found by PT_DYNAMIC only. */
struct made_up {
	Elf64_Ehdr header;
	Elf64_Phdr segments[3];
	struct {
		uint32_t name_size, size, type;
		char name[4];
		uint8_t id[8];
	} note;
	Elf64_Dyn dynamic[6];
	uint32_t hash[2 + 1 + 3];
	Elf64_Sym symbols[3];
	char names[16];
};

static struct made_up make_up(void)
{
	struct made_up file = {
		.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				       EV_CURRENT},
			   .e_type = ET_DYN,
			   .e_machine = EM_X86_64,
			   .e_phoff = offsetof(struct made_up, segments),
			   .e_phentsize = sizeof(Elf64_Phdr),
			   .e_phnum = 3},
		.segments = {{.p_type = PT_LOAD,
			      .p_flags = PF_R | PF_X,
			      .p_filesz = sizeof(struct made_up),
			      .p_memsz = 0x1000},
			     {.p_type = PT_NOTE,
			      .p_offset = offsetof(struct made_up, note),
			      .p_filesz = 24,
			      .p_align = 4},
			     {.p_type = PT_DYNAMIC,
			      .p_offset = offsetof(struct made_up, dynamic),
			      .p_filesz = 6 * sizeof(Elf64_Dyn)}},
		.note = {4, 8, NT_GNU_BUILD_ID, "GNU", {1, 2, 3, 4, 5, 6, 7, 8}},
		.dynamic = {{DT_SYMTAB, {offsetof(struct made_up, symbols)}},
			    {DT_STRTAB, {offsetof(struct made_up, names)}},
			    {DT_STRSZ, {16}},
			    {DT_SYMENT, {sizeof(Elf64_Sym)}},
			    {DT_HASH, {offsetof(struct made_up, hash)}}},
		.hash = {1, 3, 1, 0, 2, 0},
		.symbols = {{0},
			    {1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1, 0x400, 16},
			    {7, ELF64_ST_INFO(STB_WEAK, STT_FUNC), 0, 1, 0x500, 16}},
		.names = "\0first\0second",
	};

	return file;
}

static unsigned count_symbols(const struct made_up *file, uint64_t loaded_bias)
{
	struct file_buffer buffer = file_buffer_over(file, sizeof(*file));
	struct elf_image image;
	struct symbol_table table;
	struct elf_symbols_result result;
	unsigned count;

	if (elf_image_read(&buffer.source, &image, NULL) != GP_OK ||
	    elf_symbols_read(&buffer.source, &image, loaded_bias, &table, &result, NULL) != GP_OK)
		return 0;
	count = (unsigned)table.count;
	symbol_table_deinit(&table);
	return count;
}

Test(elf_symbols, addresses_that_a_dynamic_linker_made_absolute_are_understood)
{
	struct made_up file = make_up();
	uint64_t bias = 0x7f0000000000;

	cr_assert_eq(count_symbols(&file, 0), 2);
	file.dynamic[0].d_un.d_ptr += bias;
	file.dynamic[1].d_un.d_ptr += bias;
	file.dynamic[4].d_un.d_ptr += bias;
	cr_assert_eq(count_symbols(&file, bias), 2);
	cr_assert_eq(count_symbols(&file, 0), 0);
}

Test(elf_symbols, counts_and_sizes_that_lie_are_survived)
{
	struct made_up file = make_up();

	file.hash[1] = UINT32_MAX;
	cr_assert_eq(count_symbols(&file, 0), 0);
	file = make_up();
	file.hash[1] = 1000; /* more than are in the file */
	cr_assert_geq(count_symbols(&file, 0), 2);
	file = make_up();
	file.dynamic[2].d_un.d_val = UINT64_MAX;
	cr_assert_leq(count_symbols(&file, 0), 2);
	file = make_up();
	file.dynamic[3].d_un.d_val = 23;
	cr_assert_eq(count_symbols(&file, 0), 0);
	file = make_up();
	file.symbols[1].st_name = 16;
	cr_assert_eq(count_symbols(&file, 0), 1);
	file = make_up();
	memset(file.names + 7, 'x', 9); /* not terminated */
	cr_assert_eq(count_symbols(&file, 0), 1);
	file = make_up();
	file.segments[0].p_filesz = UINT64_MAX;
	cr_assert_eq(count_symbols(&file, 0), 0);
}

Test(elf_image, notes_that_lie_are_no_build_id)
{
	struct made_up file = make_up();
	struct file_buffer buffer = file_buffer_over(&file, sizeof(file));
	struct elf_image image;

	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_OK);
	cr_assert_eq(image.build_id_size, 8);
	cr_assert_eq(memcmp(image.build_id, "\1\2\3\4\5\6\7\10", 8), 0);
	file.note.size = UINT32_MAX;
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_OK);
	cr_assert_eq(image.build_id_size, 0);
	file.note.size = 8;
	file.note.name_size = UINT32_MAX;
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_OK);
	cr_assert_eq(image.build_id_size, 0);
}

Test(elf_image, what_is_no_program_of_x86_is_refused)
{
	struct made_up file = make_up();
	struct file_buffer buffer = file_buffer_over(&file, sizeof(file));
	struct elf_image image = {.segment_count = 7};

	file.header.e_machine = EM_AARCH64;
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_ERR_NOT_SUPPORTED);
	file = make_up();
	file.header.e_type = ET_REL;
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_ERR_NOT_SUPPORTED);
	file = make_up();
	file.header.e_ident[1] = 'X';
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_ERR_NOT_SUPPORTED);
	file = make_up();
	file.header.e_phoff = sizeof(file);
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_ERR_NOT_FOUND);
	buffer.size = 40;
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_ERR_NOT_FOUND);
	cr_assert_eq(image.segment_count, 7);
}

Test(file_source, layers_fill_each_other_s_holes)
{
	uint8_t bytes[3 * 4096];
	uint8_t found[3 * 4096];
	struct holed_file front = holed_over(bytes, sizeof(bytes), has_below, 1);
	struct file_buffer back = file_buffer_over(bytes, 2 * 4096);
	struct file_layers layers = file_layers_of(&front.source, &back.source);

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 / 3);
	cr_assert_eq(file_source_read(&layers.source, 10, found, sizeof(found)), 2 * 4096 - 10);
	cr_assert_eq(memcmp(found, bytes + 10, 2 * 4096 - 10), 0);
	cr_assert_eq(file_source_read(&layers.source, 2 * 4096, found, 1), 0);
}
