/* Symbol blobs: golden bytes, many symbols over several records, damaged entries. */
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>
#include <stdio.h>

static uint64_t words[FXT_RECORD_WORDS_MAX];

Test(fxt_symbol, golden)
{
	struct fxt_symbol symbols[] = {
		{.start = 0xffffffff81000000, .size = 0x100, .name = "_text", .name_bytes = 5},
		{.start = 0x7c00, .kind = FXT_SYMBOL_BOOT, .name = "12345678", .name_bytes = 8},
	};
	/* name 6, type 1, 8 words = 0x40 bytes */
	static const uint64_t expected[] = {0x0001004000060095,
					    0xffffffff81000000,
					    0x100,
					    0x0000000500000000,
					    0x747865745f,
					    0x7c00,
					    0,
					    0x0000000800000003,
					    0x3837363534333231};
	size_t taken = 99;

	cr_assert_eq(fxt_symbols_encode(symbols, 2, words, 9, &taken), 9);
	cr_assert_eq(taken, 2);
	cr_assert_eq(memcmp(words, expected, sizeof(expected)), 0);
	/* Room for one only. */
	cr_assert_eq(fxt_symbols_encode(symbols, 2, words, 8, &taken), 5);
	cr_assert_eq(taken, 1);
	cr_assert_eq(words[0], 0x0001002000060055);
	taken = 99;
	for (size_t capacity = 0; capacity < 5; capacity++)
		cr_assert_eq(fxt_symbols_encode(symbols, 2, words, capacity, &taken), 0);
	cr_assert_eq(fxt_symbols_encode(symbols, 0, words, 9, &taken), 0);
	cr_assert_eq(taken, 99);
}

Test(fxt_symbol, many_go_into_several_records_and_come_back_in_order)
{
	enum { COUNT = 5000 };
	static struct fxt_symbol symbols[COUNT];
	static char names[COUNT][24];
	static uint64_t file[COUNT * 8];
	struct fxt_reader reader;
	struct fxt_record record;
	size_t used = fxt_write_preamble(file, FXT_PREAMBLE_WORDS), records = 0, seen = 0;

	for (size_t i = 0; i < COUNT; i++) {
		symbols[i] = (struct fxt_symbol){.start = i * 16, .size = i % 7, .kind = i % 4};
		symbols[i].name = names[i];
		symbols[i].name_bytes = (uint32_t)snprintf(names[i], 24, "function_%zu", i);
	}
	for (size_t i = 0, taken; i < COUNT; i += taken, records++) {
		size_t size = fxt_symbols_encode(symbols + i, COUNT - i, file + used,
						 ARRAY_SIZE(file) - used, &taken);

		cr_assert_neq(size, 0);
		used += size;
	}
	cr_assert_gt(records, 1);
	cr_assert_eq(fxt_reader_init(&reader, file, used * 8, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_symbol symbol;
		struct cursor entries;

		if (record.kind != FXT_KIND_BLOB)
			continue;
		cr_assert(fxt_blob_is_symbols(&record.blob));
		entries = cursor_over(record.blob.payload, record.blob.size);
		while (fxt_symbols_next(&entries, &symbol)) {
			cr_assert_eq(symbol.start, symbols[seen].start);
			cr_assert_eq(symbol.size, symbols[seen].size);
			cr_assert_eq(symbol.kind, symbols[seen].kind);
			cr_assert_eq(symbol.name_bytes, symbols[seen].name_bytes);
			cr_assert_eq(memcmp(symbol.name, names[seen], symbol.name_bytes), 0);
			seen++;
		}
		cr_assert_not(entries.failed);
	}
	cr_assert_eq(seen, COUNT);
	fxt_reader_deinit(&reader);
}

Test(fxt_symbol, names_are_cut_and_never_empty)
{
	static char name[FXT_SYMBOL_NAME_BYTES_MAX + 100];
	struct fxt_symbol symbol = {.name = name, .name_bytes = sizeof(name)}, back;
	struct cursor entries;
	size_t taken, size;

	memset(name, 'n', sizeof(name));
	size = fxt_symbols_encode(&symbol, 1, words, ARRAY_SIZE(words), &taken);
	cr_assert_eq(size, 4 + FXT_SYMBOL_NAME_BYTES_MAX / 8);
	entries = cursor_over(words + 1, (size - 1) * 8);
	cr_assert(fxt_symbols_next(&entries, &back));
	cr_assert_eq(back.name_bytes, FXT_SYMBOL_NAME_BYTES_MAX);
	symbol.name_bytes = 0;
	symbol.name = NULL;
	size = fxt_symbols_encode(&symbol, 1, words, ARRAY_SIZE(words), &taken);
	entries = cursor_over(words + 1, (size - 1) * 8);
	cr_assert(fxt_symbols_next(&entries, &back));
	cr_assert_eq(back.name_bytes, 1);
	cr_assert_eq(back.name[0], '?');
}

Test(fxt_symbol, damaged_entries_end_it)
{
	static const uint64_t lengths[] = {0, 1ull << 32, 9, 4097, 0xffffffff};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		/* one good entry, then one whose name does not fit in what is left */
		uint64_t payload[] = {1, 2, 5ull << 32, 0x6161616161, 3, 4, lengths[i] << 32, 0};
		struct cursor entries = cursor_over(payload, sizeof(payload));
		struct fxt_symbol symbol;

		cr_assert(fxt_symbols_next(&entries, &symbol));
		cr_assert_eq(symbol.start, 1);
		cr_assert_not(fxt_symbols_next(&entries, &symbol), "length %lu", lengths[i]);
		cr_assert(entries.failed);
		cr_assert_eq(symbol.start, 1, "untouched");
	}
}

Test(fxt_symbol, other_blobs_are_not_symbols)
{
	struct fxt_blob blob = {.type = FXT_BLOB_DATA, .name = fxt_text("guestprof.symbols")};

	cr_assert(fxt_blob_is_symbols(&blob));
	blob.type = FXT_BLOB_SAMPLE;
	cr_assert_not(fxt_blob_is_symbols(&blob));
	blob.type = FXT_BLOB_DATA;
	blob.name = fxt_text("other");
	cr_assert_not(fxt_blob_is_symbols(&blob));
}

Test(fxt_symbol, golden_of_a_process)
{
	const struct fxt_process_symbols process = {
		.process = 77, .address_space = 0x1234001, .valid_from = 1500000000};
	struct fxt_symbol symbols[] = {
		{.start = 0x401000,
		 .size = 0x20,
		 .kind = FXT_SYMBOL_USER,
		 .name = "main",
		 .name_bytes = 4},
		{.start = 0x7fff12340000,
		 .size = 0x2000,
		 .kind = FXT_SYMBOL_MAPPING,
		 .name = "[vdso]",
		 .name_bytes = 6},
	};
	/* name 9, type 1, 12 words = 0x58 bytes */
	static const uint64_t expected[] = {
		0x00010058000900c5, 77,     0x1234001,          1500000000,
		0x401000,           0x20,   0x0000000400000004, 0x6e69616d,
		0x7fff12340000,     0x2000, 0x0000000600000005, 0x5d6f7364765b};
	struct fxt_process_symbols back = {0};
	struct fxt_blob blob = {.type = FXT_BLOB_DATA,
				.name = fxt_text("guestprof.process_symbols"),
				.payload = words + 1};
	struct cursor entries;
	struct fxt_symbol symbol;
	size_t taken = 99;

	cr_assert_eq(fxt_process_symbols_encode(&process, symbols, 2, words, 12, &taken), 12);
	cr_assert_eq(taken, 2);
	cr_assert_eq(memcmp(words, expected, sizeof(expected)), 0);
	/* And back. */
	blob.size = 11 * 8;
	cr_assert(fxt_blob_is_process_symbols(&blob) && !fxt_blob_is_symbols(&blob));
	cr_assert(fxt_process_symbols_decode(&blob, &back, &entries));
	cr_assert_eq(memcmp(&back, &process, sizeof(back)), 0);
	for (int i = 0; i < 2; i++) {
		cr_assert(fxt_symbols_next(&entries, &symbol));
		cr_assert_eq(symbol.start, symbols[i].start);
		cr_assert_eq(symbol.kind, symbols[i].kind);
		cr_assert_arr_eq(symbol.name, symbols[i].name, symbols[i].name_bytes);
	}
	cr_assert_not(fxt_symbols_next(&entries, &symbol));
	cr_assert_not(entries.failed);
	/* Room for one; for none; only that the program began. */
	cr_assert_eq(fxt_process_symbols_encode(&process, symbols, 2, words, 11, &taken), 8);
	cr_assert_eq(taken, 1);
	cr_assert_eq(words[0], 0x0001003800090085);
	for (size_t capacity = 0; capacity < 8; capacity++)
		cr_assert_eq(
			fxt_process_symbols_encode(&process, symbols, 2, words, capacity, &taken),
			0);
	cr_assert_eq(fxt_process_symbols_encode(&process, NULL, 0, words, 4, &taken), 4);
	cr_assert_eq(words[0], 0x0001001800090045);
	blob.size = 24;
	cr_assert(fxt_process_symbols_decode(&blob, &back, &entries));
	cr_assert_not(fxt_symbols_next(&entries, &symbol));
	cr_assert_not(entries.failed);
	/* Too short for the three words. */
	back.process = 5;
	for (blob.size = 0; blob.size < 24; blob.size += 8)
		cr_assert_not(fxt_process_symbols_decode(&blob, &back, &entries));
	cr_assert_eq(back.process, 5, "untouched");
}
