/* Code of the functions that a kernel was stopped in: when it is copied, what is no code any more,
 * what changed, and what is left out. Over a kernel that is a few pages and a table of symbols. */
#include "naming/leaf_code.h"

#include "fxt/code.h"
#include "fxt/reader.h"
#include "naming/code_copy.h"
#include "tests/unit/fake_target.h"
#include "tests/unit/image_support.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define TEXT UINT64_C(0xffffffff81000000)
#define PHYSICAL UINT64_C(0x100000)
#define MEMORY_BYTES (UINT64_C(2) << 20)
#define TEXT_PAGES 32

static uint8_t memory_bytes[MEMORY_BYTES];
static struct buffer_memory memory;
static struct linux_guest guest;
static struct namer namer;
static struct leaf_code *leaves;
static uint64_t words[1 << 17];
static size_t word_count;

static void map(uint64_t page, uint64_t flags)
{
	buffer_map(&memory, 0x1000, 4, TEXT + page * 4096,
		   (PHYSICAL + page * 4096) | PAGE_PRESENT | flags, 1);
}

static void add_symbol(struct symbol_table *table, uint64_t start, uint64_t size, const char *name)
{
	cr_assert_eq(symbol_table_add(table, start, size, 'T', name, strlen(name)), GP_OK);
}

static void keep(void *context, const uint64_t *record, size_t count)
{
	(void)context;
	cr_assert_leq(count, sizeof(words) / 8 - word_count);
	memcpy(words + word_count, record, count * 8);
	word_count += count;
}

static void set_up(void)
{
	memory = buffer_memory_over(memory_bytes, sizeof(memory_bytes));
	memory.next_table = 0x2000;
	for (uint64_t i = 0; i < TEXT_PAGES * 4096; i++)
		memory_bytes[PHYSICAL + i] = (uint8_t)(i * 31 + i / 4096);
	for (uint64_t page = 0; page < TEXT_PAGES; page++)
		map(page, 0);
	guest = (struct linux_guest){.programs.memory = &memory.memory};
	pthread_mutex_init(&guest.lock, NULL);
	guest.kernel.text_base = TEXT;
	guest.kernel.text_end = TEXT + TEXT_PAGES * 4096;
	guest.kernel.image_end = guest.kernel.text_end;
	guest.kernel.space = address_space_at(0x1000, ADDRESSING_4_LEVEL);
	add_symbol(&guest.symbols, TEXT, 100, "short");
	add_symbol(&guest.symbols, TEXT + 4000, 200, "over_two_pages");
	add_symbol(&guest.symbols, TEXT + 8192, 20 * 4096, "long");
	symbol_table_finish(&guest.symbols);
	namer_init(&namer, &(struct namer_config){.guest = &guest});
	leaves = leaf_code_create(&namer, &memory.memory, keep, NULL);
	cr_assert_not_null(leaves);
	word_count = 0;
}

static void tear_down(void)
{
	leaf_code_destroy(leaves);
	namer_deinit(&namer);
	symbol_table_deinit(&guest.symbols);
}

TestSuite(leaf_code, .init = set_up, .fini = tear_down);

static void see_in(uint64_t address, uint64_t mode, uint64_t addressing)
{
	leaf_code_see(leaves, &(struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_MODE |
							    FXT_SAMPLE_ADDRESSING,
						   .mode = mode,
						   .stack = &address,
						   .depth = 1,
						   .address_space = 0x1000,
						   .addressing = addressing});
}

static void see(uint64_t address)
{
	see_in(address, FXT_MODE_GUEST_KERNEL, FXT_ADDRESSING_LONG_4);
}

/* The blob number `index` of those written; false: there are not so many. */
static bool blob(size_t index, struct fxt_code *code)
{
	for (size_t at = 0; at < word_count; at += fxt_header_words(words[at])) {
		const struct fxt_blob payload = {.payload = &words[at + 3],
						 .size = fxt_bits(words[at], 32, 46)};

		if (index--)
			continue;
		cr_assert(fxt_code_decode(&payload, code));
		return true;
	}
	return false;
}

static struct code_totals finish(void)
{
	struct code_totals totals;

	leaf_code_finish(leaves, &totals);
	return totals;
}

Test(leaf_code, a_function_is_copied_once_whole_and_unchanged)
{
	struct code_totals totals;
	struct fxt_code code;

	see(TEXT + 50);
	see(TEXT + 60);
	see(TEXT + 50);
	leaf_code_copy(leaves, false);
	see(TEXT + 99);
	leaf_code_copy(leaves, false);
	totals = finish();
	cr_assert(blob(0, &code));
	cr_assert_eq(code.address, TEXT);
	cr_assert_eq(code.size, 100);
	cr_assert_arr_eq(code.bytes, memory_bytes + PHYSICAL, 100);
	cr_assert_eq(code.of.process, 0);
	cr_assert_gt(code.read_at, 0);
	cr_assert(!blob(1, &code));
	cr_assert_eq(totals.functions, 1);
	cr_assert_eq(totals.changed, 0);
	cr_assert_eq(totals.left_out, 0);
	cr_assert_geq(totals.bytes, 100);
}

Test(leaf_code, what_has_no_name_yet_is_copied_when_it_has)
{
	struct symbol_table known = guest.symbols;
	struct fxt_code code;

	guest.symbols = (struct symbol_table){0};
	see(TEXT + 50);
	leaf_code_copy(leaves, false);
	leaf_code_copy(leaves, true);
	cr_assert_eq(word_count, 0);
	guest.symbols = known;
	/* Only a second look takes what was in vain before. */
	leaf_code_copy(leaves, false);
	cr_assert_eq(word_count, 0);
	leaf_code_copy(leaves, true);
	cr_assert(blob(0, &code));
}

Test(leaf_code, what_may_not_be_executed_any_more_is_no_code)
{
	struct code_totals totals;
	struct fxt_code code;

	map(0, PAGE_NO_EXECUTE);
	see(TEXT + 50);
	see(TEXT + 4010);
	leaf_code_copy(leaves, false);
	totals = finish();
	/* Of the function that goes on in a page of code that part is there. */
	cr_assert(blob(0, &code));
	cr_assert_eq(code.address, TEXT + 4096);
	cr_assert_eq(code.size, 104);
	cr_assert(!blob(1, &code));
	cr_assert_eq(totals.functions, 1);
	cr_assert_eq(totals.left_out, 1);
}

Test(leaf_code, code_that_was_freed_stays_as_it_was)
{
	struct code_totals totals;
	struct fxt_code code;

	see(TEXT + 50);
	leaf_code_copy(leaves, false);
	map(0, PAGE_NO_EXECUTE);
	memset(memory_bytes + PHYSICAL, 0xcc, 4096);
	totals = finish();
	cr_assert(blob(0, &code));
	cr_assert_neq(code.bytes[1], 0xcc);
	cr_assert(!blob(1, &code));
	cr_assert_eq(totals.functions, 1);
	cr_assert_eq(totals.changed, 0);
}

Test(leaf_code, what_a_kernel_patches_is_there_before_and_after)
{
	struct code_totals totals;
	struct fxt_code before, after;

	see(TEXT + 50);
	see(TEXT + 4010);
	leaf_code_copy(leaves, false);
	memory_bytes[PHYSICAL + 70] ^= 0xff;
	totals = finish();
	cr_assert(blob(0, &before));
	cr_assert(blob(2, &after));
	cr_assert_eq(after.address, before.address);
	cr_assert_eq(after.bytes[70], memory_bytes[PHYSICAL + 70]);
	cr_assert_neq(before.bytes[70], after.bytes[70]);
	cr_assert_gt(after.read_at, before.read_at);
	cr_assert(!blob(3, &after));
	cr_assert_eq(totals.functions, 2);
	cr_assert_eq(totals.changed, 1);
}

Test(leaf_code, long_functions_are_cut_and_come_in_pieces)
{
	struct fxt_code code;
	uint64_t next = TEXT + 8192;

	see(TEXT + 8192 + 5);
	finish();
	for (size_t i = 0; blob(i, &code); i++) {
		cr_assert_eq(code.address, next);
		cr_assert_arr_eq(code.bytes, memory_bytes + PHYSICAL + (next - TEXT), code.size);
		next += code.size;
	}
	cr_assert_eq(next, TEXT + 8192 + CODE_FUNCTION_BYTES_MAX);
}

Test(leaf_code, a_halted_vcpu_stands_in_no_code)
{
	see_in(TEXT + 50, FXT_MODE_HALTED, FXT_ADDRESSING_LONG_4);
	see_in(TEXT + 50, FXT_MODE_NOT_STARTED, FXT_ADDRESSING_LONG_4);
	finish();
	cr_assert_eq(word_count, 0);
}

Test(leaf_code, another_guests_code_is_read_where_its_samples_were)
{
	struct symbol_table table = {0};
	struct fxt_code code;

	guest.missing.kernel.status = GP_ERR_NOT_FOUND;
	add_symbol(&table, PHYSICAL + 8, 16, "flat");
	symbol_table_finish(&table);
	namer.config.tables = &table;
	namer.config.table_count = 1;
	see_in(PHYSICAL + 10, FXT_MODE_GUEST_USER, FXT_ADDRESSING_PROTECTED_UNPAGED);
	finish();
	cr_assert(blob(0, &code));
	cr_assert_eq(code.address, PHYSICAL + 8);
	cr_assert_arr_eq(code.bytes, memory_bytes + PHYSICAL + 8, 16);
	symbol_table_deinit(&table);
}

/* A Linux program's page tables may be another's by now. */
Test(leaf_code, a_linux_program_is_not_read_by_the_tables_of_a_sample)
{
	struct symbol_table table = {0};

	add_symbol(&table, PHYSICAL + 8, 16, "flat");
	symbol_table_finish(&table);
	namer.config.tables = &table;
	namer.config.table_count = 1;
	see_in(PHYSICAL + 10, FXT_MODE_GUEST_USER, FXT_ADDRESSING_PROTECTED_UNPAGED);
	finish();
	cr_assert_eq(word_count, 0);
	symbol_table_deinit(&table);
}

/* What unpacks a kernel has no functions, and is something else at the end. */
Test(leaf_code, of_startup_code_the_bytes_from_a_sample_on_are_copied_at_once)
{
	struct code_totals totals;
	struct fxt_code code;

	namer.config.startup_start = PHYSICAL;
	namer.config.startup_end = PHYSICAL + TEXT_PAGES * 4096;
	see_in(PHYSICAL + 10, FXT_MODE_GUEST_KERNEL, FXT_ADDRESSING_PROTECTED_UNPAGED);
	leaf_code_copy(leaves, false);
	memory_bytes[PHYSICAL + 10] ^= 0xff;
	totals = finish();
	cr_assert(blob(0, &code));
	cr_assert_eq(code.address, PHYSICAL + 10);
	cr_assert_eq(code.size, CODE_WINDOW_BYTES);
	cr_assert_eq(code.of.process, 0);
	cr_assert_eq(code.bytes[0], (uint8_t)~memory_bytes[PHYSICAL + 10]);
	cr_assert_not(blob(1, &code));
	cr_assert_eq(totals.functions + totals.changed + totals.left_out, 0);
}

Test(leaf_code, pieces_of_startup_code_are_bounded)
{
	struct fxt_code code;

	namer.config.startup_start = PHYSICAL;
	namer.config.startup_end = PHYSICAL + TEXT_PAGES * 4096;
	for (uint64_t i = 0; i < LEAF_CODE_WINDOWS_MAX + 10; i++)
		see_in(PHYSICAL + i, FXT_MODE_GUEST_KERNEL, FXT_ADDRESSING_PROTECTED_UNPAGED);
	finish();
	cr_assert(blob(LEAF_CODE_WINDOWS_MAX - 1, &code));
	cr_assert_not(blob(LEAF_CODE_WINDOWS_MAX, &code));
}

static char called[64];

static void note_symbols(void *context, const struct fxt_symbol *symbols, size_t count)
{
	(void)context;
	for (size_t i = 0; i < count; i++)
		snprintf(called + strlen(called), sizeof(called) - strlen(called), "%.*s ",
			 (int)symbols[i].name_bytes, symbols[i].name);
}

Test(leaf_code, what_it_calls_is_named)
{
	/* In short(): a call of over_two_pages(), one into its middle, a jump of its own. */
	uint64_t seen, unnamed;
	const int32_t call = 4000 - 15, middle = 4100 - 25, own = -10;

	memset(memory_bytes + PHYSICAL, 0x90, 100);
	memory_bytes[PHYSICAL + 10] = 0xe8;
	memcpy(memory_bytes + PHYSICAL + 11, &call, 4);
	memory_bytes[PHYSICAL + 20] = 0xe8;
	memcpy(memory_bytes + PHYSICAL + 21, &middle, 4);
	memory_bytes[PHYSICAL + 30] = 0xe9;
	memcpy(memory_bytes + PHYSICAL + 31, &own, 4);
	see(TEXT + 50);
	leaf_code_copy(leaves, false);
	called[0] = 0;
	namer_name(&namer, note_symbols, NULL);
	cr_assert_str_eq(called, "over_two_pages ");
	/* It was not sampled. */
	namer_count(&namer, &seen, &unnamed);
	cr_assert_eq(seen, 0);
}

/* Stock kernels, long after their start. */
static void check_image(const char *name)
{
	struct prepared_image image;
	struct fake_target fake;
	struct code_totals totals;
	struct symbol running, freed;
	struct fxt_code code;
	struct namer names;
	bool known[IMAGE_CPUS];
	uint8_t bytes[64];

	if (!prepared_image_init(&image, name))
		return;
	fake_target_init(&fake, 1);
	fake.image = image.memory;
	fake.cpus = image.image.cpus;
	memset(known, true, sizeof(known));
	for (int i = 0; i < 3; i++)
		linux_guest_learn(sampler_target_guest(&fake.target), image.image.cpus, known,
				  image.image.cpu_count, NULL);
	cr_assert(symbol_table_find_name(&image.symbols, "schedule", &running));
	cr_assert(symbol_table_find_name(&image.symbols, "start_kernel", &freed));
	namer_init(&names, &(struct namer_config){.guest = sampler_target_guest(&fake.target)});
	leaf_code_destroy(leaves);
	leaves = leaf_code_create(&names, image.memory, keep, NULL);
	word_count = 0;
	see(running.start + 4);
	see(freed.start + 4);
	totals = finish();
	cr_assert_eq(totals.functions, 1, "%s: %d", name, (int)totals.functions);
	cr_assert_eq(totals.left_out, 1, "%s", name);
	cr_assert(blob(0, &code));
	cr_assert_eq(code.address, running.start);
	cr_assert_eq(code.size, running.size);
	cr_assert(prepared_image_read(&image, running.start, bytes, sizeof(bytes)));
	cr_assert_arr_eq(code.bytes, bytes, code.size < 64 ? code.size : 64);
	namer_deinit(&names);
	fake_target_deinit(&fake);
	prepared_image_deinit(&image);
}

Test(leaf_code, of_stock_kernels_code_is_copied_and_what_they_freed_is_not, .timeout = 120)
{
	char images[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(images);

	for (unsigned i = 0; i < count; i++)
		check_image(images[i]);
}
