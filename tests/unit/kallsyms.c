/* kallsyms tables: real kernels' bytes, every known layout and encoding, and damage. */
#include "base/cleanup.h"
#include "guest-introspection/linux/kallsyms.h"
#include "tests/buffer_memory.h"

#include <criterion/criterion.h>

#define START UINT64_C(0xffffffff81e00000)
#define ROOM (1 << 20)

static uint8_t bytes[ROOM];
static size_t size;

static void put(const void *data, size_t length)
{
	cr_assert_leq(size + length, ROOM);
	memcpy(bytes + size, data, length);
	size += length;
}

/* To what the tables are aligned. */
static unsigned alignment = 8;

static void pad(void)
{
	while (size % alignment)
		bytes[size++] = 0;
}

static void put_number(uint64_t value, unsigned length)
{
	put(&value, length);
}

static size_t read_file(const char *name, void *buffer, size_t room)
{
	char path[128];
	FILE *file;
	size_t length;

	snprintf(path, sizeof(path), "tests/golden/%s", name);
	file = fopen(path, "re");
	cr_assert(file, "%s", path);
	length = fread(buffer, 1, room, file);
	fclose(file);
	cr_assert_lt(length, room);
	return length;
}

static gp_status_t parse(uint64_t text_base, struct symbol_table *out)
{
	size_t digits = kallsyms_find_digits(bytes, size, 0);

	return kallsyms_parse(bytes, size, START, digits, text_base, out, NULL);
}

/* How many of the guest's own lines are in `table` with the same address, kind and name. */
static unsigned count_equal(const struct symbol_table *table, const char *golden)
{
	static char text[ROOM];
	unsigned equal = 0;

	text[read_file(golden, text, sizeof(text))] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long long start;
		char kind;
		char name[256];

		cr_assert_eq(sscanf(line, "%llx %c %255s", &start, &kind, name), 3);
		for (size_t i = 0; i < table->count; i++) {
			struct symbol symbol = symbol_table_get(table, i);

			if (symbol.start == start && symbol.kind == kind &&
			    strcmp(symbol.name, name) == 0) {
				equal++;
				break;
			}
		}
	}
	return equal;
}

static const struct {
	const char *bytes;
	const char *text;
	uint64_t text_base;
} golden[] = {
	{"kallsyms-6.1.bin", "kallsyms-6.1.txt", UINT64_C(0xffffffff81000000)},
	{"kallsyms-6.12.bin", "kallsyms-6.12.txt", UINT64_C(0xffffffff82600000)},
	{"kallsyms-7.3.bin", "kallsyms-7.3.txt", UINT64_C(0xffffffff8f400000)},
};

#define GOLDENS (sizeof(golden) / sizeof(golden[0]))

Test(kallsyms, tables_of_real_kernels_equal_proc_kallsyms)
{
	for (unsigned i = 0; i < GOLDENS; i++) {
		struct symbol_table table;

		size = read_file(golden[i].bytes, bytes, ROOM);
		cr_assert_eq(parse(golden[i].text_base, &table), GP_OK, "%s", golden[i].bytes);
		cr_assert_eq(table.count, 1024);
		cr_assert_eq(count_equal(&table, golden[i].text), 1024, "%s", golden[i].bytes);
		symbol_table_deinit(&table);
	}
}

Test(kallsyms, a_kernel_elsewhere_is_not_believed)
{
	struct symbol_table table = {.count = 42};

	for (unsigned i = 0; i < GOLDENS; i++) {
		size = read_file(golden[i].bytes, bytes, ROOM);
		cr_assert_eq(parse(golden[i].text_base + 0x200000, &table), GP_ERR_NOT_FOUND);
		cr_assert_eq(table.count, 42);
	}
}

Test(kallsyms, cut_off_tables_are_refused)
{
	for (unsigned i = 0; i < GOLDENS; i++) {
		/* All but the first have other data behind the tables. */
		size_t whole = read_file(golden[i].bytes, bytes, ROOM) - 64 - (i ? 240 : 0);

		for (size = whole - 1; size > 512; size -= 511) {
			struct symbol_table table;

			cr_assert_eq(parse(golden[i].text_base, &table), GP_ERR_NOT_FOUND, "%zu",
				     size);
		}
	}
}

/* Tables as scripts/kallsyms writes them, each token one character. */
enum test_encoding { PERCPU, RELATIVE, TEXT, PLACE };

#define COUNT 700
#define TEXT_BASE UINT64_C(0xffffffff9a600000)

static uint64_t address_of(unsigned i)
{
	return i < 3 ? i * 16 : TEXT_BASE + (i - 3) * 32;
}

static void name_of(unsigned i, char *name)
{
	if (i == 3)
		strcpy(name, "T_text");
	else if (i == 300)
		sprintf(name, "t%0300u", i);
	else
		sprintf(name, "%cname_%u", i < 3 ? 'A' : 't', i);
}

static void put_offsets(enum test_encoding encoding)
{
	for (unsigned i = 0; i < COUNT; i++) {
		if (encoding == PERCPU)
			put_number(i < 3 ? address_of(i) : TEXT_BASE - 1 - address_of(i), 4);
		else
			put_number((i < 3 ? TEXT_BASE : address_of(i)) -
					   (encoding == PLACE ? START + size : TEXT_BASE),
				   4);
	}
	pad();
	if (encoding < TEXT)
		put_number(TEXT_BASE, 8);
}

static void put_names(void)
{
	uint32_t markers[3];
	size_t start;

	put_number(COUNT, 4);
	pad();
	start = size;
	for (unsigned i = 0; i < COUNT; i++) {
		char name[400];
		size_t length;

		if (i % 256 == 0)
			markers[i / 256] = (uint32_t)(size - start);
		name_of(i, name);
		length = strlen(name);
		if (length < 128)
			put_number(length, 1);
		else
			put_number((length & 0x7f) | 0x80 | (length >> 7) << 8, 2);
		put(name, length);
	}
	pad();
	put(markers, sizeof(markers));
	pad();
}

static void put_tokens(void)
{
	uint16_t index[256];
	size_t start = size;

	for (unsigned i = 0; i < 256; i++) {
		char token[3] = {(char)i};

		if (i <= ' ' || i >= 0x7f)
			strcpy(token, "zz");
		index[i] = (uint16_t)(size - start);
		put(token, strlen(token) + 1);
	}
	pad();
	put(index, sizeof(index));
}

static size_t lead = 64; /* bytes before the tables */

static void put_tables(bool offsets_first, bool sequences, enum test_encoding encoding)
{
	memset(bytes, 0, sizeof(bytes));
	size = lead;
	if (offsets_first)
		put_offsets(encoding);
	put_names();
	if (offsets_first && sequences)
		for (unsigned i = 0; i < COUNT; i++)
			put_number(i * 7919, 3);
	pad();
	put_tokens();
	if (!offsets_first) {
		put_offsets(encoding);
		for (unsigned i = 0; i < COUNT; i++)
			put_number(i * 7919, 3);
	}
	size += 64;
}

static void assert_tables(enum test_encoding encoding)
{
	struct symbol_table table;
	struct symbol symbol;
	char name[400];

	cr_assert_eq(parse(TEXT_BASE, &table), GP_OK);
	cr_assert_eq(table.count, COUNT);
	for (unsigned i = 3; i < COUNT; i++) {
		name_of(i, name);
		cr_assert(symbol_table_find_name(&table, name + 1, &symbol), "%s", name);
		cr_assert_eq(symbol.start, address_of(i));
		cr_assert_eq(symbol.kind, name[0]);
	}
	cr_assert(symbol_table_find_name(&table, "name_1", &symbol));
	cr_assert_eq(symbol.start, encoding == PERCPU ? 16 : TEXT_BASE);
	symbol_table_deinit(&table);
}

Test(kallsyms, every_layout_with_every_encoding)
{
	for (unsigned layout = 0; layout < 3; layout++)
		for (enum test_encoding encoding = PERCPU; encoding <= PLACE; encoding++) {
			put_tables(layout < 2, layout == 1, encoding);
			assert_tables(encoding);
		}
}

Test(kallsyms, tables_without_a_base_may_be_aligned_to_four_bytes)
{
	for (alignment = 4; alignment <= 8; alignment += 4)
		for (enum test_encoding encoding = TEXT; encoding <= PLACE; encoding++)
			for (lead = 64; lead < 72; lead += alignment) {
				put_tables(false, true, encoding);
				assert_tables(encoding);
			}
}

Test(kallsyms, symbols_out_of_order_are_no_tables)
{
	struct symbol_table table;

	put_tables(true, false, PERCPU);
	memset(bytes + 64 + 4 * 100, 0, 4); /* symbol 100 at address 0 */
	cr_assert_eq(parse(TEXT_BASE, &table), GP_ERR_NOT_FOUND);
}

Test(kallsyms, damage_never_leads_outside)
{
	for (unsigned i = 0; i < GOLDENS; i++) {
		size_t whole = read_file(golden[i].bytes, bytes, ROOM);
		AUTO_FREE uint8_t *exact = malloc(whole);

		srand(i);
		for (unsigned round = 0; round < 300; round++) {
			struct symbol_table table;

			memcpy(exact, bytes, whole);
			for (unsigned k = 0; k < 1 + round % 8; k++)
				exact[(size_t)rand() % whole] ^= (uint8_t)(1 << rand() % 8);
			if (kallsyms_parse(exact, whole, START,
					   kallsyms_find_digits(exact, whole, 0),
					   golden[i].text_base, &table, NULL) == GP_OK)
				symbol_table_deinit(&table);
		}
	}
}

/* A whole guest: the tables in read-only pages of a kernel image with holes. */
#define GUEST_SIZE (UINT64_C(4) << 20)
#define ROOT UINT64_C(0x1000)

Test(kallsyms, tables_are_found_in_guest_memory_with_holes)
{
	static uint8_t guest[GUEST_SIZE];
	struct buffer_memory memory = buffer_memory_over(guest, GUEST_SIZE);
	struct linux_kernel kernel = {.text_base = golden[0].text_base,
				      .image_end = golden[0].text_base + (4 << 20),
				      .space = address_space_at(ROOT, ADDRESSING_4_LEVEL)};
	struct symbol_table table;
	const uint64_t tables_at = kernel.text_base + 0x101000;

	memory.next_table = 0x2000;
	size = read_file(golden[0].bytes, bytes, ROOM);
	/* pages in reverse, so that neighbours in virtual are none in physical memory */
	for (uint64_t page = 0; page < size; page += 4096) {
		uint64_t physical = 0x200000 - page;

		memcpy(guest + physical, bytes + page, size - page < 4096 ? size - page : 4096);
		buffer_map(&memory, ROOT, 4, tables_at + page,
			   physical | PAGE_PRESENT | PAGE_NO_EXECUTE, 1);
	}
	cr_assert_eq(linux_kallsyms_read(&memory.memory, &kernel, &table, NULL), GP_OK);
	cr_assert_eq(count_equal(&table, golden[0].text), 1024);
	symbol_table_deinit(&table);
	/* a kernel that has not protected its data yet */
	for (uint64_t page = 0; page < size; page += 4096)
		buffer_map(&memory, ROOT, 4, tables_at + page,
			   (0x200000 - page) | PAGE_PRESENT | PAGE_WRITABLE, 1);
	cr_assert_eq(linux_kallsyms_read(&memory.memory, &kernel, &table, NULL), GP_OK);
	cr_assert_eq(table.count, 1024);
	symbol_table_deinit(&table);
	/* a hole in the middle of the names */
	buffer_map(&memory, ROOT, 4, tables_at + 0x2000, 0, 1);
	cr_assert_eq(linux_kallsyms_read(&memory.memory, &kernel, &table, NULL), GP_ERR_NOT_FOUND);
}
