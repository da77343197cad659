/* Samples at instructions: which functions, which instructions, in which code. */
#include "profile/annotation.h"

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
	const struct annotation_line *line = &listing.lines[index];

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
	cr_assert(listing.lines[2].instruction.is_call);
	cr_assert_eq(listing.lines[2].instruction.target, KERNEL + CALLED);
	cr_assert_eq(listing.lines[2].target->name_bytes, 6);
	cr_assert_eq(memcmp(listing.lines[2].target->name, "helper", 6), 0);
	cr_assert_eq(listing.lines[2].target_offset, 0);
	cr_assert(listing.lines[3].instruction.is_jump && !listing.lines[3].instruction.is_call);
	cr_assert_eq(listing.lines[3].target, annotation.functions[0].symbol);
	cr_assert_eq(listing.lines[3].target_offset, 1);
	cr_assert_null(listing.lines[1].target);
	cr_assert_eq(listing.missing, 0);
	cr_assert_arr_eq(listing.lines[1].bytes, code + 1, 3);
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
	cr_assert(listing.lines[2].is_gap);
	cr_assert_eq(listing.lines[2].instruction.size, 7);
	cr_assert_eq(listing.lines[2].ticks, 2);
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
	cr_assert_str_eq(listing.lines[2].instruction.mnemonic, "nopl");
	cr_assert_eq(listing.lines[2].ticks, 2);
	cr_assert(listing.lines[2].is_moved);
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
	cr_assert(listing.lines[0].instruction.is_bad);
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
	cr_assert_str_eq(listing.lines[0].instruction.mnemonic, "incl");
	finish();
}
