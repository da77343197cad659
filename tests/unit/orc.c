/* ORC tables out of a guest's memory: formats, look-up, modules, damage. */
#include "guest-introspection/linux/orc.h"
#include "tests/orc_builder.h"

#include <criterion/criterion.h>

#define SIZE (UINT64_C(1) << 20)
#define ROOT UINT64_C(0x1000)
#define OFFSET UINT64_C(0xffffffff80000000)
#define ADDRESSES UINT64_C(0x40000)
#define ENTRIES UINT64_C(0x50000)
#define HEADER UINT64_C(0x60000)
#define TEXT (OFFSET + 0x80000)

static uint8_t bytes[SIZE];
static struct buffer_memory memory;
static struct address_space space;
static struct symbol_table symbols;
static struct orc_builder builder;
static struct orc orc;
static struct error error;

static void add_symbol(const char *name, uint64_t address)
{
	cr_assert_eq(symbol_table_add(&symbols, address, 0, 'R', name, strlen(name)), GP_OK);
}

static void setup(void)
{
	memory = buffer_memory_over(bytes, SIZE);
	memory.next_table = 0x2000;
	space = address_space_at(ROOT, ADDRESSING_4_LEVEL);
	for (uint64_t at = 0x40000; at < SIZE; at += 4096)
		buffer_map(&memory, ROOT, 4, OFFSET + at, at | PAGE_PRESENT, 1);
	builder = (struct orc_builder){.memory = &memory,
				       .format = ORC_FORMAT_3,
				       .offset = OFFSET,
				       .addresses = ADDRESSES,
				       .entries = ENTRIES};
	symbol_table_init(&symbols);
}

static void teardown(void)
{
	symbol_table_deinit(&symbols);
	orc_deinit(&orc);
}

TestSuite(orc, .init = setup, .fini = teardown);

static void add_bounds(void)
{
	add_symbol("__start_orc_unwind_ip", OFFSET + ADDRESSES);
	add_symbol("__stop_orc_unwind_ip", OFFSET + ADDRESSES + builder.count * 4);
	add_symbol("__start_orc_unwind", OFFSET + ENTRIES);
	add_symbol("__stop_orc_unwind", OFFSET + ENTRIES + builder.count * 6);
}

static gp_status_t read_tables(void)
{
	add_bounds();
	return orc_read(&memory.memory, &space, &symbols, &orc, &error);
}

/* A few functions: entry, after a push, end of the text. */
static void put_functions(unsigned functions)
{
	for (unsigned i = 0; i < functions; i++) {
		orc_put(&builder, TEXT + i * 0x100, ORC_CALL, ORC_REGISTER_SP, 8, 0, 0);
		orc_put(&builder, TEXT + i * 0x100 + 1, ORC_CALL, ORC_REGISTER_SP, 16,
			ORC_REGISTER_PREVIOUS_SP, -16);
		orc_put(&builder, TEXT + i * 0x100 + 0x80, ORC_UNDEFINED, 0, 0, 0, 0);
	}
	orc_put(&builder, TEXT + functions * 0x100, ORC_REGS, ORC_REGISTER_SP, 0, 0, 0);
	orc_put(&builder, TEXT + functions * 0x100 + 8, ORC_END, 0, 0, 0, 0);
	orc_put(&builder, TEXT + functions * 0x100 + 16, ORC_REGS_PARTIAL, ORC_REGISTER_SP, 8, 0,
		0);
	orc_put(&builder, TEXT + functions * 0x100 + 24, ORC_UNDEFINED, 0, 0, 0, 0);
}

static void assert_entry(uint64_t address, enum orc_type type, int sp_offset)
{
	const struct orc_entry *entry = orc_find(&orc, address);

	cr_assert(entry, "%#llx", (unsigned long long)address);
	cr_assert_eq(entry->type, type, "%#llx: %d", (unsigned long long)address, entry->type);
	cr_assert_eq(entry->sp_offset, sp_offset);
}

/* Entries as Debian's kernels have them, byte by byte. */
static const uint8_t golden_6_1[] = {
	0x00, 0x00, 0x00, 0x00, 0x00, 0x04, /* end */
	0x08, 0x00, 0x00, 0x00, 0x05, 0x00, /* sp+8 */
	0x10, 0x00, 0xf0, 0xff, 0x15, 0x00, /* sp+16, bp at -16 */
	0x10, 0x00, 0xf0, 0xff, 0x14, 0x00, /* bp+16, bp at -16 */
	0x18, 0x00, 0xf0, 0xff, 0x15, 0x00, /**/
	0x20, 0x00, 0xf0, 0xff, 0x15, 0x00, /**/
	0x08, 0x00, 0x00, 0x00, 0x05, 0x00, /**/
	0x00, 0x00, 0x00, 0x00, 0x05, 0x01, /* pt_regs at sp */
	0x08, 0x00, 0x00, 0x00, 0x05, 0x02, /* interrupt frame at sp+8 */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* undefined */
};

static const uint8_t golden_6_12[] = {
	0x00, 0x00, 0x00, 0x00, 0x00, 0x01, /**/
	0x08, 0x00, 0x00, 0x00, 0x05, 0x02, /**/
	0x10, 0x00, 0xf0, 0xff, 0x15, 0x02, /**/
	0x10, 0x00, 0xf0, 0xff, 0x14, 0x02, /**/
	0x18, 0x00, 0xf0, 0xff, 0x15, 0x02, /**/
	0x20, 0x00, 0xf0, 0xff, 0x15, 0x02, /**/
	0x08, 0x00, 0x00, 0x00, 0x05, 0x02, /**/
	0x00, 0x00, 0x00, 0x00, 0x05, 0x0b, /**/
	0x08, 0x00, 0x00, 0x00, 0x05, 0x0c, /**/
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /**/
};

static const uint8_t golden_7_3[] = {
	0x00, 0x00, 0x00, 0x00, 0x00, 0x01, /**/
	0x08, 0x00, 0x00, 0x00, 0x03, 0x02, /**/
	0x10, 0x00, 0xf0, 0xff, 0x83, 0x02, /**/
	0x10, 0x00, 0xf0, 0xff, 0x84, 0x02, /**/
	0x18, 0x00, 0xf0, 0xff, 0x83, 0x02, /**/
	0x20, 0x00, 0xf0, 0xff, 0x83, 0x02, /**/
	0xd8, 0xff, 0x00, 0x00, 0x4a, 0x02, /* the word at bp-40; bp as it was at bp */
	0x00, 0x00, 0x00, 0x00, 0x03, 0x0b, /**/
	0x08, 0x00, 0x00, 0x00, 0x03, 0x0c, /**/
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /**/
};

Test(orc, formats_are_told_by_what_is_in_them)
{
	static const enum orc_format formats[] = {ORC_FORMAT_1, ORC_FORMAT_2, ORC_FORMAT_3,
						  ORC_FORMAT_4};
	uint8_t noise[600];

	cr_assert_eq(orc_detect_format(golden_6_1, sizeof(golden_6_1) / 6), ORC_FORMAT_1);
	cr_assert_eq(orc_detect_format(golden_6_12, sizeof(golden_6_12) / 6), ORC_FORMAT_3);
	cr_assert_eq(orc_detect_format(golden_7_3, sizeof(golden_7_3) / 6), ORC_FORMAT_4);
	for (unsigned i = 0; i < 4; i++) {
		builder.count = 0;
		builder.format = formats[i];
		put_functions(10);
		cr_assert_eq(orc_detect_format(bytes + ENTRIES, builder.count), formats[i]);
	}
	/* numbered anew, in no way that is known: SP is what R10 was */
	for (unsigned i = 0; i < builder.count; i++)
		if ((bytes[ENTRIES + i * 6 + 4] & 15) == orc_number(ORC_FORMAT_4, ORC_REGISTER_SP))
			bytes[ENTRIES + i * 6 + 4] += 3;
	cr_assert_eq(orc_detect_format(bytes + ENTRIES, builder.count), ORC_FORMAT_UNKNOWN);
	for (unsigned i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * 167 + i / 7 * 13);
	cr_assert_eq(orc_detect_format(noise, sizeof(noise) / 6), ORC_FORMAT_UNKNOWN);
	memset(noise, 0, sizeof(noise));
	cr_assert_eq(orc_detect_format(noise, sizeof(noise) / 6), ORC_FORMAT_UNKNOWN);
	cr_assert_eq(orc_detect_format(noise, 0), ORC_FORMAT_UNKNOWN);
}

Test(orc, every_address_finds_the_entry_before_it)
{
	static const enum orc_format formats[] = {ORC_FORMAT_1, ORC_FORMAT_2, ORC_FORMAT_3,
						  ORC_FORMAT_4};

	for (unsigned i = 0; i < 4; i++) {
		builder.count = 0;
		builder.format = formats[i];
		put_functions(700);
		symbol_table_deinit(&symbols);
		orc_deinit(&orc);
		cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
		cr_assert_eq(orc.format, formats[i]);
		cr_assert_eq(orc.kernel.count, builder.count);
		for (unsigned k = 0; k < 700; k++) {
			uint64_t start = TEXT + k * 0x100;

			assert_entry(start, ORC_CALL, 8);
			assert_entry(start + 1, ORC_CALL, 16);
			assert_entry(start + 0x7f, ORC_CALL, 16);
			assert_entry(start + 0x80, ORC_UNDEFINED, 0);
			assert_entry(start + 0xff, ORC_UNDEFINED, 0);
		}
		cr_assert(orc_find(&orc, TEXT + 700 * 0x100)->exact);
		assert_entry(TEXT + 700 * 0x100 + 7, ORC_REGS, 0);
		assert_entry(TEXT + 700 * 0x100 + 8, ORC_END, 0);
		assert_entry(TEXT + 700 * 0x100 + 23, ORC_REGS_PARTIAL, 8);
		cr_assert_null(orc_find(&orc, TEXT + 700 * 0x100 + 24));
		cr_assert_null(orc_find(&orc, TEXT - 1));
		cr_assert_null(orc_find(&orc, 0));
		cr_assert_null(orc_find(&orc, UINT64_MAX));
	}
}

Test(orc, registers_and_offsets_arrive)
{
	const struct orc_entry *entry;

	put_functions(3);
	orc_put(&builder, TEXT + 0x400, ORC_CALL, ORC_REGISTER_BP_INDIRECT, -8, ORC_REGISTER_BP, 0);
	orc_put(&builder, TEXT + 0x410, ORC_CALL, ORC_REGISTER_SP, 32767, ORC_REGISTER_PREVIOUS_SP,
		-32768);
	orc_put(&builder, TEXT + 0x420, ORC_UNDEFINED, 0, 0, 0, 0);
	cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
	entry = orc_find(&orc, TEXT + 0x400);
	cr_assert_eq(entry->registers, ORC_REGISTER_BP_INDIRECT | ORC_REGISTER_BP << 4);
	cr_assert_eq(entry->sp_offset, -8);
	entry = orc_find(&orc, TEXT + 0x41f);
	cr_assert_eq(entry->sp_offset, 32767);
	cr_assert_eq(entry->bp_offset, -32768);
	cr_assert_not(entry->exact);
}

Test(orc, unsorted_tables_are_sorted_and_ends_give_way_to_beginnings)
{
	put_functions(1);
	orc_put(&builder, TEXT + 0x80, ORC_CALL, ORC_REGISTER_SP, 24, 0, 0);
	orc_put(&builder, TEXT + 0x20, ORC_CALL, ORC_REGISTER_SP, 40, 0, 0);
	orc_put(&builder, TEXT + 0x30, ORC_CALL, ORC_REGISTER_SP, 48, 0, 0);
	cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
	assert_entry(TEXT + 0x1f, ORC_CALL, 16);
	assert_entry(TEXT + 0x20, ORC_CALL, 40);
	assert_entry(TEXT + 0x30, ORC_CALL, 48);
	assert_entry(TEXT + 0x80, ORC_CALL, 24);
}

Test(orc, a_kernel_without_tables_says_so)
{
	cr_assert_eq(orc_read(&memory.memory, &space, &symbols, &orc, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "no ORC tables"), "%s", error.text);
}

Test(orc, impossible_bounds_are_refused)
{
	put_functions(4);
	add_symbol("__start_orc_unwind_ip", OFFSET + ADDRESSES);
	add_symbol("__stop_orc_unwind_ip", OFFSET + ADDRESSES + builder.count * 4);
	add_symbol("__start_orc_unwind", OFFSET + ENTRIES);
	add_symbol("__stop_orc_unwind", OFFSET + ENTRIES + builder.count * 6 - 6);
	cr_assert_eq(orc_read(&memory.memory, &space, &symbols, &orc, &error), GP_ERR_OUT_OF_RANGE);
	symbol_table_deinit(&symbols);
	builder.count = ORC_ENTRY_LIMIT + 1;
	cr_assert_eq(read_tables(), GP_ERR_OUT_OF_RANGE);
	symbol_table_deinit(&symbols);
	builder.count = 0;
	cr_assert_eq(read_tables(), GP_ERR_OUT_OF_RANGE);
	cr_assert_eq(orc.kernel.count, 0, "untouched");
}

Test(orc, tables_that_are_not_there_are_refused)
{
	put_functions(4);
	buffer_map(&memory, ROOT, 4, OFFSET + ENTRIES, 0, 1);
	cr_assert_eq(read_tables(), GP_ERR_NOT_FOUND);
}

Test(orc, every_register_of_the_new_numbers_arrives)
{
	builder.format = ORC_FORMAT_4;
	put_functions(ORC_REGISTER_COUNT);
	for (unsigned i = ORC_REGISTER_DX; i < ORC_REGISTER_COUNT; i++)
		orc_put(&builder, TEXT + 0x8000 + i * 16, ORC_CALL, i, 8, ORC_REGISTER_PREVIOUS_SP,
			-16);
	/* one that there is not */
	orc_put(&builder, TEXT + 0x9000, ORC_CALL, ORC_REGISTER_SP, 8, 0, 0);
	bytes[ENTRIES + builder.count * 6 - 2] = ORC_REGISTER_COUNT;
	orc_put(&builder, TEXT + 0x9010, ORC_UNDEFINED, 0, 0, 0, 0);
	cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
	for (unsigned i = ORC_REGISTER_DX; i < ORC_REGISTER_COUNT; i++)
		cr_assert_eq(orc_find(&orc, TEXT + 0x8000 + i * 16)->registers,
			     i | ORC_REGISTER_PREVIOUS_SP << 4);
	cr_assert_eq(orc_find(&orc, TEXT + 0x9000)->type, ORC_UNDEFINED);
}

Test(orc, a_known_hash_must_agree_with_the_entries)
{
	static const uint32_t hashes[] = {0xbf325dfe, 0xad367c13}; /* of formats 3 and 4 */

	builder.format = ORC_FORMAT_1;
	put_functions(8);
	add_symbol("__start_orc_header", OFFSET + HEADER);
	for (unsigned i = 0; i < 2; i++) {
		buffer_put(&memory, HEADER, hashes[i], 4);
		cr_assert_eq(read_tables(), GP_ERR_NOT_SUPPORTED);
		cr_assert(strstr(error.text, "unknown format"), "%s", error.text);
	}
	/* another hash says nothing */
	buffer_put(&memory, HEADER, 0x12345678, 4);
	cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
	cr_assert_eq(orc.format, ORC_FORMAT_1);
}

Test(orc, text_all_over_the_place_is_refused)
{
	put_functions(4);
	orc_put(&builder, TEXT - (UINT64_C(1) << 30), ORC_CALL, ORC_REGISTER_SP, 8, 0, 0);
	cr_assert_eq(read_tables(), GP_ERR_OUT_OF_RANGE);
}

#define MODULE_TEXT (OFFSET + 0xc0000)

/* A module of its own table, behind the kernel's. */
static struct orc_module put_module(uint64_t text, unsigned functions)
{
	struct orc_module module = {.addresses = OFFSET + builder.addresses,
				    .entries = OFFSET + builder.entries,
				    .text_start = text,
				    .text_size = functions * 0x100};

	for (unsigned i = 0; i < functions; i++)
		orc_put(&builder, text + i * 0x100, ORC_CALL, ORC_REGISTER_SP, 8 + (int)i * 8, 0,
			0);
	module.count = builder.count;
	return module;
}

Test(orc, modules_are_found_beside_the_kernel)
{
	struct orc_module module;

	put_functions(4);
	cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
	for (unsigned i = 0; i < 20; i++) {
		/* in no order */
		uint64_t text = MODULE_TEXT + (uint64_t)(i * 7 % 20) * 0x1000;

		builder.addresses = ADDRESSES + 0x1000 + i * 0x100;
		builder.entries = ENTRIES + 0x1000 + i * 0x100;
		builder.count = 0;
		module = put_module(text, 4);
		cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error), GP_OK,
			     "%s", error.text);
		cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error),
			     GP_ERR_ALREADY_EXISTS);
	}
	for (unsigned i = 0; i < 20; i++) {
		assert_entry(MODULE_TEXT + i * 0x1000, ORC_CALL, 8);
		assert_entry(MODULE_TEXT + i * 0x1000 + 0x3ff, ORC_CALL, 32);
		cr_assert_null(orc_find(&orc, MODULE_TEXT + i * 0x1000 + 0x400));
		cr_assert_null(orc_find(&orc, MODULE_TEXT + i * 0x1000 - 1));
	}
	assert_entry(TEXT, ORC_CALL, 8);
}

Test(orc, a_modules_entries_for_other_text_are_left_out)
{
	struct orc_module module;

	put_functions(4);
	cr_assert_eq(read_tables(), GP_OK, "%s", error.text);
	builder.addresses = ADDRESSES + 0x1000;
	builder.entries = ENTRIES + 0x1000;
	builder.count = 0;
	put_module(MODULE_TEXT + 0x8000, 2); /* its freed start-up text */
	module = put_module(MODULE_TEXT, 2);
	cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error), GP_OK);
	cr_assert_eq(orc.modules[0].count, 2);
	cr_assert_null(orc_find(&orc, MODULE_TEXT + 0x8000));
	/* While it starts, both are there. */
	module.text_start = MODULE_TEXT + 0x8000;
	cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error), GP_OK, "%s",
		     error.text);
	assert_entry(MODULE_TEXT + 0x8000, ORC_CALL, 8);
	assert_entry(MODULE_TEXT, ORC_CALL, 8);
	module.text_start = MODULE_TEXT + 0x20000;
	cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error),
		     GP_ERR_NOT_FOUND);
	module.text_start = UINT64_MAX - 8;
	cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error),
		     GP_ERR_OUT_OF_RANGE);
	module.text_start = TEXT;
	cr_assert_eq(orc_add_module(&orc, &memory.memory, &space, &module, &error),
		     GP_ERR_ALREADY_EXISTS);
	cr_assert_eq(orc.module_count, 2);
}
