/* Samples at instructions: which functions, which instructions, in which code. */
#include "analysis/annotation.h"

#include "fxt/code.h"
#include "tests/unit/trace_file.h"

static struct file file;
static struct annotation annotation;
static struct annotation_listing listing;

/* push %rbp; mov %rsp,%rbp; call +0x100; jmp back to the mov; ret. By the Intel SDM, vol. 2. */
static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xe8, 0x00,
			       0x01, 0x00, 0x00, 0xeb, 0xf6, 0xc3};
enum { CODE_SIZE = sizeof(code), CALLED = 9 + 0x100 };

static void add_code(uint64_t address, uint64_t read_at, const uint8_t *bytes, size_t size)
{
	const struct fxt_code blob = {
		.read_at = read_at, .address = address, .bytes = bytes, .size = (uint32_t)size};

	add_words(&file, fxt_code_encode(&blob, next_word(&file), room(&file)));
}

static void add_leaf(uint64_t address)
{
	add_stack(&file, 0, 100, &address, 1);
}

static void begin_kernel(void)
{
	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, CODE_SIZE, "work");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + CALLED, 16, "helper");
	add_symbol(&file, FXT_SYMBOL_MODULE, KERNEL + 0x1000, 16, "iget [ext4]");
}

static void read_all(const char *pattern)
{
	struct error error = {0};

	cr_assert_eq(annotation_read(&trace, NULL, pattern, &annotation, &error), GP_OK, "%s",
		     error.text);
}

static void list(size_t function, enum disassembler_syntax syntax)
{
	struct error error = {0};
	gp_status_t status = annotation_list(&trace, &annotation.functions[function], syntax, NULL,
					     &listing, &error);

	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	cr_assert_eq(status, GP_OK, "%s", error.text);
}

static void finish(void)
{
	annotation_listing_deinit(&listing);
	annotation_deinit(&annotation);
	end(&file);
}

static void check_line(size_t index, uint64_t offset, const char *mnemonic, const char *operands,
		       uint64_t ticks)
{
	const struct annotation_line *line = &listing.items[index];

	cr_assert_lt(index, listing.count);
	cr_assert_eq(line->instruction.address, KERNEL + offset);
	cr_assert_str_eq(line->instruction.mnemonic, mnemonic);
	cr_assert_str_eq(line->instruction.operands, operands);
	cr_assert_eq(line->ticks, ticks);
}

Test(annotation, samples_are_at_their_instructions)
{
	begin_kernel();
	add_code(KERNEL, 10, code, CODE_SIZE);
	add_leaf(KERNEL + 1);
	add_leaf(KERNEL + 9);
	add_leaf(KERNEL + 9);
	open_trace(&file);
	read_all(NULL);
	cr_assert_eq(annotation.count, 1);
	cr_assert_eq(annotation.functions[0].ticks, 3);
	cr_assert_eq(annotation.functions[0].bits, 64);
	list(0, DISASSEMBLER_ATT);
	cr_assert_eq(listing.count, 5);
	check_line(0, 0, "pushq", "%rbp", 0);
	check_line(1, 1, "movq", "%rsp, %rbp", 1);
	check_line(3, 9, "jmp", "0xffffffff81000001", 2);
	check_line(4, 11, "retq", "", 0);
	/* Where calls and jumps go. */
	cr_assert(listing.items[2].instruction.is_call);
	cr_assert_eq(listing.items[2].instruction.target, KERNEL + CALLED);
	cr_assert_eq(listing.items[2].target->name_bytes, 6);
	cr_assert_eq(memcmp(listing.items[2].target->name, "helper", 6), 0);
	cr_assert_eq(listing.items[2].target_offset, 0);
	cr_assert(listing.items[3].instruction.is_jump && !listing.items[3].instruction.is_call);
	cr_assert_eq(listing.items[3].target, annotation.functions[0].symbol);
	cr_assert_eq(listing.items[3].target_offset, 1);
	cr_assert_null(listing.items[1].target);
	cr_assert_eq(listing.missing, 0);
	cr_assert_arr_eq(listing.items[1].bytes, code + 1, 3);
	finish();
}

Test(annotation, intels_syntax)
{
	begin_kernel();
	add_code(KERNEL, 10, code, CODE_SIZE);
	add_leaf(KERNEL);
	open_trace(&file);
	read_all(NULL);
	list(0, DISASSEMBLER_INTEL);
	check_line(1, 1, "mov", "rbp, rsp", 0);
	finish();
}

Test(annotation, the_hottest_function_is_first_and_leaves_only_count)
{
	const uint64_t stack[] = {KERNEL + CALLED, KERNEL + 9};

	begin_kernel();
	add_stack(&file, 0, 1, stack, 2);
	add_stack(&file, 0, 2, stack, 2);
	add_leaf(KERNEL + 1);
	add_leaf(KERNEL + 0x5000); /* nothing is known there */
	open_trace(&file);
	read_all(NULL);
	cr_assert_eq(annotation.count, 2);
	cr_assert_eq(annotation.functions[0].ticks, 2);
	cr_assert_eq(annotation.functions[0].symbol->start, KERNEL + CALLED);
	cr_assert_eq(annotation.functions[1].ticks, 1);
	cr_assert_eq(annotation.nameless, 1);
	cr_assert_eq(annotation.totals.running, 4);
	finish();
}

Test(annotation, a_pattern_chooses_functions)
{
	static const struct {
		const char *pattern;
		size_t count;
	} cases[] = {{"work", 1}, {"wor", 0},         {"wo*", 1},  {"*", 3},
		     {"iget", 1}, {"iget [ext4]", 1}, {"[hw]*", 2}};

	begin_kernel();
	add_leaf(KERNEL);
	add_leaf(KERNEL + CALLED);
	add_leaf(KERNEL + 0x1000);
	open_trace(&file);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		read_all(cases[i].pattern);
		cr_assert_eq(annotation.count, cases[i].count, "%s", cases[i].pattern);
		annotation_deinit(&annotation);
	}
	finish();
}

Test(annotation, missing_code_is_a_gap_with_its_samples)
{
	begin_kernel();
	add_code(KERNEL, 10, code, 4);
	add_code(KERNEL + 11, 10, code + 11, 1);
	add_leaf(KERNEL + 4);
	add_leaf(KERNEL + 9);
	add_leaf(KERNEL + 11);
	open_trace(&file);
	read_all(NULL);
	list(0, DISASSEMBLER_ATT);
	cr_assert_eq(listing.count, 4);
	cr_assert(listing.items[2].is_gap);
	cr_assert_eq(listing.items[2].instruction.size, 7);
	cr_assert_eq(listing.items[2].ticks, 2);
	cr_assert_eq(listing.missing, 7);
	check_line(3, 11, "retq", "", 1);
	finish();
}

Test(annotation, a_function_without_code_has_no_lines)
{
	begin_kernel();
	add_leaf(KERNEL);
	open_trace(&file);
	read_all(NULL);
	cr_assert_eq(annotation_list(&trace, &annotation.functions[0], DISASSEMBLER_ATT, NULL,
				     &listing, NULL),
		     GP_OK);
	cr_assert_eq(listing.count, 0);
	cr_assert_eq(annotation.functions[0].hit_count, 1);
	finish();
}

Test(annotation, code_that_was_patched_says_so)
{
	/* The call is a five-byte nop now. */
	static const uint8_t patched[] = {0x55, 0x48, 0x89, 0xe5, 0x0f, 0x1f,
					  0x44, 0x00, 0x00, 0xeb, 0xf6, 0xc3};

	begin_kernel();
	add_code(KERNEL, 10, code, CODE_SIZE);
	add_code(KERNEL, 20, patched, CODE_SIZE);
	add_leaf(KERNEL + 4);
	add_leaf(KERNEL + 6); /* inside it */
	open_trace(&file);
	read_all(NULL);
	list(0, DISASSEMBLER_ATT);
	cr_assert(listing.changed);
	cr_assert_eq(listing.read_at_ns, 20);
	cr_assert_str_eq(listing.items[2].instruction.mnemonic, "nopl");
	cr_assert_eq(listing.items[2].ticks, 2);
	cr_assert(listing.items[2].is_moved);
	finish();
}

Test(annotation, bytes_that_are_no_instruction_are_shown_as_bytes)
{
	static const uint8_t bad[] = {0x06, 0x90}; /* push %es does not exist in 64-bit mode */

	begin_kernel();
	add_code(KERNEL, 10, bad, sizeof(bad));
	add_leaf(KERNEL);
	open_trace(&file);
	read_all(NULL);
	list(0, DISASSEMBLER_ATT);
	check_line(0, 0, ".byte", "0x06", 1);
	cr_assert(listing.items[0].instruction.is_bad);
	check_line(1, 1, "nop", "", 0);
	finish();
}

Test(annotation, code_of_32_bits_is_read_as_such)
{
	static const uint8_t inc[] = {0x40, 0x90}; /* inc %eax; in 64-bit mode a prefix */
	const uint64_t leaf = 0x1000;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_FILE, leaf, 2, "old");
	add_code(leaf, 10, inc, sizeof(inc));
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_ADDRESSING,
					      .timestamp = 1,
					      .mode = FXT_MODE_GUEST_KERNEL,
					      .stack = &leaf,
					      .depth = 1,
					      .addressing = FXT_ADDRESSING_PAE});
	open_trace(&file);
	read_all(NULL);
	cr_assert_eq(annotation.functions[0].bits, 32);
	list(0, DISASSEMBLER_ATT);
	cr_assert_eq(listing.count, 2);
	cr_assert_str_eq(listing.items[0].instruction.mnemonic, "incl");
	finish();
}

/* Code without functions. */

static void add_region(uint64_t start, uint64_t size, const char *name)
{
	begin(&file);
	add_symbol(&file, FXT_SYMBOL_BOOT, start, size, name);
}

static void add_low_leaf(uint64_t leaf)
{
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_ADDRESSING,
					      .timestamp = 1,
					      .mode = FXT_MODE_GUEST_KERNEL,
					      .stack = &leaf,
					      .depth = 1,
					      .addressing = FXT_ADDRESSING_LONG_4});
}

Test(annotation, a_region_is_listed_in_pieces_from_its_samples_on)
{
	const uint64_t region = 0x1000000, far = 0x1200000;

	add_region(region, 0x400000, "[kernel startup]");
	add_code(region + 1, 10, code + 1, CODE_SIZE - 1);
	/* It ends within the call. */
	add_code(far, 10, code, 6);
	add_low_leaf(region + 1);
	add_low_leaf(region + 9);
	add_low_leaf(region + 9);
	add_low_leaf(far);
	open_trace(&file);
	read_all("[kernel startup]");
	cr_assert_eq(annotation.count, 1);
	cr_assert(annotation.functions[0].is_region);
	cr_assert_eq(annotation.functions[0].ticks, 4);
	cr_assert_eq(annotation.nameless, 0);
	list(0, DISASSEMBLER_ATT);
	cr_assert_eq(listing.count, 8);
	cr_assert_eq(listing.items[0].instruction.address, region + 1);
	cr_assert_str_eq(listing.items[0].instruction.mnemonic, "movq");
	cr_assert(listing.items[0].begins_piece);
	cr_assert_eq(listing.items[0].ticks, 1);
	cr_assert_eq(listing.items[2].ticks, 2);
	cr_assert_str_eq(listing.items[3].instruction.mnemonic, "retq");
	cr_assert(listing.items[4].is_gap && !listing.items[4].begins_piece);
	cr_assert_eq(listing.items[5].instruction.address, far);
	cr_assert(listing.items[5].begins_piece);
	cr_assert_str_eq(listing.items[6].instruction.mnemonic, "movq");
	/* The piece of a call is not shown as something else. */
	cr_assert(listing.items[7].is_gap);
	cr_assert_eq(listing.items[7].instruction.address, far + 6);
	finish();
}

Test(annotation, each_sample_of_a_region_is_at_an_instruction)
{
	/* Data that looks like a long instruction, then code. */
	static const uint8_t mixed[] = {0x90, 0x48, 0xb8, 0x00, 0x90, 0xc3};
	const uint64_t region = 0x1000000;

	add_region(region, 0x1000, "[kernel startup]");
	add_code(region, 10, mixed, sizeof(mixed));
	add_low_leaf(region);
	add_low_leaf(region + 4);
	open_trace(&file);
	read_all(NULL);
	list(0, DISASSEMBLER_ATT);
	for (size_t i = 0; i < listing.count; i++) {
		cr_assert_not(listing.items[i].is_moved);
		cr_assert(!listing.items[i].ticks || listing.items[i].instruction.size == 1);
		if (listing.items[i].instruction.address == region + 4)
			cr_assert_eq(listing.items[i].ticks, 1);
	}
	finish();
}

Test(annotation, a_region_without_code_has_addresses_only)
{
	add_region(0x1000000, 0x400000, "[kernel startup]");
	add_low_leaf(0x1000010);
	add_low_leaf(0x1200010);
	open_trace(&file);
	read_all(NULL);
	list(0, DISASSEMBLER_ATT);
	cr_assert_eq(listing.count, 0);
	cr_assert_null(listing.items);
	cr_assert_eq(annotation.functions[0].hit_count, 2);
	cr_assert_eq(annotation.functions[0].start + annotation.functions[0].hits[1].offset,
		     0x1200010);
	finish();
}

/* A stripped program, mapped elsewhere in each process: one region, and what is in the trace of one
 * process's code is another's, too. */
Test(annotation, a_stripped_program_is_one_region_in_all_processes)
{
	static const uint64_t starts[] = {0x400000, 0x500000};

	begin(&file);
	for (uint64_t i = 0; i < 2; i++) {
		const struct fxt_process_symbols of = {i + 1, (i + 1) << 12, 1};
		const struct fxt_symbol symbol = {.start = starts[i],
						  .size = 0x2000,
						  .kind = FXT_SYMBOL_MAPPING,
						  .name = "[tool]",
						  .name_bytes = 6};
		const struct fxt_module module = {.id = 3,
						  .timestamp = 1,
						  .thread = {.process = i + 1},
						  .name = fxt_text("/bin/tool"),
						  .build_id = fxt_text("1111")};
		const struct fxt_mmap mapping = {.module = 3,
						 .flags = 5,
						 .timestamp = 1,
						 .thread = {.process = i + 1},
						 .start = starts[i],
						 .range = 0x2000,
						 .vaddr = 0x1000};
		const uint64_t leaf = starts[i] + 0x20 + 4 * i;
		/* Each process has the bytes from its own sample on, the first four of them. */
		const struct fxt_code blob = {
			.of = of, .read_at = 5, .address = leaf, .bytes = code + 4 * i, .size = 4};
		size_t taken;

		add_words(&file, fxt_process_symbols_encode(&of, &symbol, 1, next_word(&file),
							    room(&file), &taken));
		add_words(&file, fxt_encode_module(&module, next_word(&file), room(&file)));
		add_words(&file, fxt_encode_mmap(&mapping, next_word(&file), room(&file)));
		add_words(&file, fxt_code_encode(&blob, next_word(&file), room(&file)));
		add_sample(&file,
			   (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
							FXT_SAMPLE_ADDRESS_SPACE,
					       .timestamp = 100,
					       .mode = FXT_MODE_GUEST_USER,
					       .process = i + 1,
					       .address_space = (i + 1) << 12,
					       .stack = &leaf,
					       .depth = 1});
	}
	open_trace(&file);
	read_all("[tool]");
	cr_assert_eq(annotation.count, 1);
	cr_assert_eq(annotation.functions[0].ticks, 2);
	cr_assert_eq(annotation.functions[0].hit_count, 2);
	list(0, DISASSEMBLER_ATT);
	cr_assert_str_eq(listing.items[0].instruction.mnemonic, "pushq");
	cr_assert_str_eq(listing.items[1].instruction.mnemonic, "movq");
	cr_assert_eq(listing.items[1].instruction.address, starts[0] + 0x21);
	finish();
}
