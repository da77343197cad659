/* Symbol look-up: what names an address, and what must not. */
#include "guest-introspection/elf/symbol_table.h"

#include <criterion/criterion.h>
#include <string.h>

static struct symbol_table table;

static void add(uint64_t start, uint64_t size, char kind, const char *name)
{
	cr_assert_eq(symbol_table_add(&table, start, size, kind, name, strlen(name)), GP_OK);
}

static const char *find(uint64_t address)
{
	struct symbol symbol;

	return symbol_table_find(&table, address, &symbol) ? symbol.name : "-";
}

static void teardown(void)
{
	symbol_table_deinit(&table);
}

TestSuite(symbol_table, .fini = teardown);

Test(symbol_table, an_empty_table_finds_nothing)
{
	symbol_table_finish(&table);
	cr_assert_str_eq(find(0), "-");
	cr_assert_str_eq(find(UINT64_MAX), "-");
}

Test(symbol_table, the_nearest_below_within_its_size)
{
	add(0x3000, 0x10, 'T', "c");
	add(0x1000, 0, 'T', "a");
	add(0x2000, 0, 't', "b");
	symbol_table_finish(&table);
	cr_assert_str_eq(find(0xfff), "-");
	cr_assert_str_eq(find(0x1000), "a");
	cr_assert_str_eq(find(0x1fff), "a");
	cr_assert_str_eq(find(0x2000), "b");
	cr_assert_str_eq(find(0x300f), "c");
	cr_assert_str_eq(find(0x3010), "-");
}

Test(symbol_table, the_last_symbol_without_a_size_ends_somewhere)
{
	struct symbol symbol;

	add(UINT64_MAX - 10, 0, 'T', "last");
	symbol_table_finish(&table);
	cr_assert(symbol_table_find(&table, UINT64_MAX, &symbol));
	cr_assert_gt(symbol.size, 0);
	symbol_table_deinit(&table);
	add(0x1000, 0, 'T', "last");
	symbol_table_finish(&table);
	cr_assert_str_eq(find(0x1010), "last");
	cr_assert_str_eq(find(0x900000), "-");
}

Test(symbol_table, data_never_names_code_but_ends_it)
{
	add(0x1000, 0, 'T', "code");
	add(0x2000, 0, 'd', "variable");
	add(0x2000, 0, 'B', "other");
	add(0x5000, 0, 'A', "absolute");
	symbol_table_finish(&table);
	cr_assert_str_eq(find(0x1fff), "code");
	cr_assert_str_eq(find(0x2000), "-");
	cr_assert_str_eq(find(0x5000), "-");
}

Test(symbol_table, duplicates_are_kept_and_one_is_chosen_whatever_the_order)
{
	static const struct {
		char kind;
		const char *name;
	} names[] = {{'t', "local"},  {'W', "weak"},    {'T', "__global"},
		     {'T', "global"}, {'T', "global2"}, {'r', "data"}};

	for (unsigned first = 0; first < 6; first++) {
		symbol_table_deinit(&table);
		for (unsigned i = 0; i < 6; i++)
			add(0x1000, 0, names[(first + i) % 6].kind, names[(first + i) % 6].name);
		symbol_table_finish(&table);
		cr_assert_eq(table.count, 6);
		cr_assert_str_eq(find(0x1000), "global");
	}
}

Test(symbol_table, labels_inside_a_sized_function_do_not_cut_it)
{
	add(0x1000, 0x100, 'T', "function");
	add(0x1010, 0, 't', "label");
	add(0x1100, 0, 'T', "behind");
	symbol_table_finish(&table);
	cr_assert_str_eq(find(0x1020), "function");
	cr_assert_str_eq(find(0x1100), "behind");
	cr_assert_eq(table.count, 2);
}

Test(symbol_table, a_function_within_a_function)
{
	add(0x1000, 0x100, 'T', "outer");
	add(0x1010, 0x10, 't', "inner");
	symbol_table_finish(&table);
	cr_assert_str_eq(find(0x1018), "inner");
	cr_assert_str_eq(find(0x1020), "outer");
	cr_assert_str_eq(find(0x1100), "-");
}

Test(symbol_table, find_by_name_sees_data_too)
{
	struct symbol symbol;

	add(0x2000, 0, 'd', "variable");
	symbol_table_finish(&table);
	cr_assert(symbol_table_find_name(&table, "variable", &symbol));
	cr_assert_eq(symbol.start, 0x2000);
	cr_assert_not(symbol_table_find_name(&table, "variabl", &symbol));
}

Test(symbol_table, limits_hold)
{
	static char long_name[SYMBOL_NAME_LIMIT + 2];

	memset(long_name, 'x', sizeof(long_name) - 1);
	cr_assert_eq(symbol_table_add(&table, 0, 0, 'T', long_name, SYMBOL_NAME_LIMIT + 1),
		     GP_ERR_OUT_OF_RANGE);
	cr_assert_eq(symbol_table_reserve(&table, SYMBOL_TABLE_LIMIT + 1, 0), GP_ERR_OUT_OF_RANGE);
	for (unsigned i = 0; i < SYMBOL_TABLE_LIMIT; i++)
		cr_assert_eq(symbol_table_add(&table, i, 0, 'T', "n", 1), GP_OK);
	cr_assert_eq(symbol_table_add(&table, 0, 0, 'T', "n", 1), GP_ERR_OUT_OF_RANGE);
	cr_assert_eq(table.count, SYMBOL_TABLE_LIMIT);
}
