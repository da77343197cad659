/* The names that programs give to code they make: what counts, what is replaced, what is left out.
 */
#include "guest-introspection/elf/perf_map.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static struct symbol_table table;

static void read_text(const char *text)
{
	struct file_buffer file = file_buffer_over(text, strlen(text));

	cr_assert_eq(perf_map_read(&file.source, file.size, &table, NULL), GP_OK);
}

static bool is_named(uint64_t address, const char *name)
{
	struct symbol symbol;

	return symbol_table_find(&table, address, &symbol) && !strcmp(symbol.name, name);
}

static bool is_unnamed(uint64_t address)
{
	struct symbol symbol;

	return !symbol_table_find(&table, address, &symbol);
}

Test(perf_map, lines_name_their_code)
{
	read_text("7f0000001000 20 first\n"
		  "0x7f0000001020 0X10 LazyCompile:~second function /a b.js:3\r\n"
		  "7F0000001040 8 third\n");
	cr_assert_eq(table.count, 3);
	cr_assert(is_named(0x7f0000001000, "first"));
	cr_assert(is_named(0x7f000000101f, "first"));
	cr_assert(is_named(0x7f0000001020, "LazyCompile:~second function /a b.js:3"));
	cr_assert(is_unnamed(0x7f0000001030));
	cr_assert(is_named(0x7f0000001047, "third"));
	cr_assert(is_unnamed(0x7f0000001048));
	symbol_table_deinit(&table);
}

Test(perf_map, code_that_was_replaced_has_the_later_name)
{
	read_text("1000 100 old\n2000 10 same\n3000 100 big\n1080 10 new\n2000 10 other\n"
		  "2ff0 11 over\n5000 100 later\n5050 8 before\n5000 100 last\n");
	cr_assert(is_unnamed(0x1000));
	cr_assert(is_named(0x1080, "new"));
	cr_assert(is_unnamed(0x1090));
	cr_assert(is_named(0x2000, "other"));
	cr_assert(is_named(0x3000, "over"));
	cr_assert(is_unnamed(0x3001));
	cr_assert(is_named(0x5050, "last"));
	symbol_table_deinit(&table);
}

Test(perf_map, what_is_not_a_line_is_left_out)
{
	read_text("\n \n1000\n1000 20\n1000 20 \nx000 20 a\n1000 -1 b\n1000 0 c\n"
		  "10000000000000000 20 too long\nffffffffffffff00 fff over the end\n"
		  "1000 20\ttab\n4000 10 good\n5000 10 not whole");
	cr_assert_eq(table.count, 1);
	cr_assert(is_named(0x4000, "good"));
	symbol_table_deinit(&table);
	read_text("");
	cr_assert_eq(table.count, 0);
	symbol_table_deinit(&table);
}

/* Every other page is not there. */
static size_t read_half(const struct file_source *source, uint64_t offset, void *buffer,
			size_t size)
{
	char line[32];

	(void)source;
	if (offset / 4096 % 2)
		return 0;
	for (size_t i = 0; i < size; i++) {
		snprintf(line, sizeof(line), "%08llx 10 name\n",
			 (unsigned long long)((offset + i) / 17 * 16 + 0x10000));
		((char *)buffer)[i] = (offset + i) % 17 == 16 ? '\n' : line[(offset + i) % 17];
	}
	return size;
}

Test(perf_map, lines_that_are_not_wholly_at_hand_are_left_out)
{
	const struct file_source source = {.read = read_half};

	cr_assert_eq(perf_map_read(&source, 16 * 4096, &table, NULL), GP_OK);
	/* 4096 / 17 of each of 8 pages, less those at its ends. */
	cr_assert_geq(table.count, 8 * 239);
	cr_assert_leq(table.count, 8 * 241);
	for (size_t i = 0; i < table.count; i++) {
		uint64_t line = (symbol_table_get(&table, i).start - 0x10000) / 16;

		cr_assert_eq(line * 17 / 4096 % 2, 0);
		cr_assert_eq((line * 17 + 16) / 4096, line * 17 / 4096);
	}
	symbol_table_deinit(&table);
}

Test(perf_map, more_than_it_takes_is_left_out, .timeout = 60)
{
	size_t size = 80 << 20, used = 0;
	char *text = malloc(size);
	struct file_buffer file;

	for (uint64_t i = 0; used < size - 64; i++)
		used += (size_t)sprintf(text + used, "%llx 8 f%llu\n",
					(unsigned long long)(0x10000 + i * 8),
					(unsigned long long)i);
	file = file_buffer_over(text, used);
	cr_assert_eq(perf_map_read(&file.source, file.size, &table, NULL), GP_OK);
	cr_assert_eq(table.count, PERF_MAP_LINES);
	symbol_table_deinit(&table);
	/* One line without an end. */
	memset(text, '1', used);
	cr_assert_eq(perf_map_read(&file.source, file.size, &table, NULL), GP_OK);
	cr_assert_eq(table.count, 0);
	symbol_table_deinit(&table);
	free(text);
}
