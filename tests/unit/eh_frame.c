/* .eh_frame made by hand: what each instruction means, and what damaged records do not do. */
#include "guest-introspection/elf/eh_frame.h"

#include "base/container.h"
#include "guest-introspection/elf/eh_frame_rows.h"
#include "guest-introspection/unwind/eh_frame_source.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define BASE UINT64_C(0x400000)   /* of the image */
#define FRAMES UINT64_C(0x402000) /* of the records */
#define CODE UINT64_C(0x401000)
#define CODE_SIZE 0x100u

/* Records under construction. */
static uint8_t bytes[0x3000];
static size_t size;
static struct eh_frame_builder *builder;

static void put(const void *from, size_t count)
{
	if (count)
		memcpy(bytes + size, from, count);
	size += count;
}

static void put32(uint32_t value)
{
	put(&value, 4);
}

static void end_record(size_t start)
{
	uint32_t length;

	while ((size - start) % 8)
		bytes[size++] = 0;
	length = (uint32_t)(size - start - 4);
	memcpy(bytes + start, &length, 4);
}

/* A CIE with the usual rules (CFA rsp + 8, return address there) and `letters`, whose data follow.
 */
static void put_cie(const char *letters, const void *data, size_t data_size)
{
	static const uint8_t usual[] = {0x0c, 7, 8, 0x90, 1};
	size_t start = size;

	put32(0);
	put32(0);
	put("\1", 1);
	put(letters, strlen(letters) + 1);
	put("\1\x78\x10", 3); /* factors 1 and -8, return address in 16 */
	if (letters[0] == 'z') {
		bytes[size++] = (uint8_t)data_size;
		put(data, data_size);
	}
	put(usual, sizeof(usual));
	end_record(start);
}

static void put_fde(size_t cie, const uint8_t *instructions, size_t count)
{
	size_t start = size;

	put32(0);
	put32((uint32_t)(size - cie));
	put32((uint32_t)(CODE - (FRAMES + size))); /* pc-relative */
	put32(CODE_SIZE);
	put("", 1);
	put(instructions, count);
	end_record(start);
}

static void start_over(void)
{
	memset(bytes, 0, sizeof(bytes));
	size = 0;
	if (!builder)
		builder = calloc(1, sizeof(*builder));
	else
		eh_frame_builder_deinit(builder);
	cr_assert_eq(eh_frame_builder_init(builder, BASE), GP_OK);
}

static void finish(void)
{
	eh_frame_builder_deinit(builder);
	free(builder);
	builder = NULL;
}

/* The rule at `offset` of the code, by a plain walk over the rows of one function. */
static struct eh_frame_rule rule_at(unsigned offset)
{
	struct eh_frame_rule rule = {0};

	for (size_t i = 0; i < builder->rows.count; i++)
		if (builder->rows.items[i] >> 32 <= CODE - BASE + offset)
			rule = builder->rules.items[(uint16_t)builder->rows.items[i]];
	return rule;
}

static bool add(size_t fde)
{
	struct eh_frame_bytes view = {.bytes = bytes, .size = size, .address = FRAMES};

	return eh_frame_builder_add(builder, &view, fde);
}

static const uint8_t encoding = 0x1b; /* pc-relative, 4 bytes, signed */

/* One function with these instructions, for rule_at(). */
static void build(const uint8_t *instructions, size_t count)
{
	size_t fde;

	start_over();
	put_cie("zR", &encoding, 1);
	fde = size;
	put_fde(0, instructions, count);
	cr_assert(add(fde));
}

#define BUILD(...)                                             \
	do {                                                   \
		const uint8_t instructions_[] = {__VA_ARGS__}; \
		build(instructions_, sizeof(instructions_));   \
	} while (0)

#define SAVED(number) (1u << (number))
#define PRESERVED                                                                    \
	(SAVED(GUEST_RBX) | SAVED(GUEST_RBP) | SAVED(GUEST_R12) | SAVED(GUEST_R13) | \
	 SAVED(GUEST_R14) | SAVED(GUEST_R15))

static void check_call(unsigned offset, enum guest_register base, int cfa)
{
	struct eh_frame_rule rule = rule_at(offset);

	cr_expect_eq(rule.kind, EH_FRAME_CALL, "at %#x", offset);
	cr_expect_eq(rule.base, base, "at %#x", offset);
	cr_expect_eq(rule.offset, cfa, "at %#x: %d", offset, rule.offset);
	cr_expect_eq(rule.return_address, -8, "at %#x", offset);
	cr_expect_not(rule.dereference);
}

Test(eh_frame, a_function_with_a_frame_pointer)
{
	struct eh_frame_rule rule;

	/* push rbp; mov rbp, rsp; ... leave; ret */
	BUILD(0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x60, 0x0c, 7, 8);
	check_call(0, GUEST_RSP, 8);
	cr_expect_eq(rule_at(0).preserved, PRESERVED);
	check_call(1, GUEST_RSP, 16);
	check_call(3, GUEST_RSP, 16);
	check_call(4, GUEST_RBP, 16);
	rule = rule_at(4);
	cr_expect_eq(rule.saved, SAVED(GUEST_RBP));
	cr_expect_eq(rule.at[GUEST_RBP], -16);
	cr_expect_eq(rule.preserved, PRESERVED & ~SAVED(GUEST_RBP));
	check_call(0x24, GUEST_RSP, 8);
	check_call(CODE_SIZE - 1, GUEST_RSP, 8);
	cr_expect_eq(rule_at(CODE_SIZE).kind, EH_FRAME_NO_RULE);
	finish();
}

Test(eh_frame, every_way_to_advance)
{
	BUILD(0x02, 0x10, 0x0e, 16, 0x03, 0x10, 0, 0x0e, 24, 0x04, 0x10, 0, 0, 0, 0x0e, 32);
	check_call(0x0f, GUEST_RSP, 8);
	check_call(0x10, GUEST_RSP, 16);
	check_call(0x20, GUEST_RSP, 24);
	check_call(0x30, GUEST_RSP, 32);
	/* Behind the function's end: no rule is for there. */
	BUILD(0x04, 0xff, 0xff, 0xff, 0xff, 0x0e, 16);
	check_call(CODE_SIZE - 1, GUEST_RSP, 8);
	cr_expect_eq(rule_at(CODE_SIZE).kind, EH_FRAME_NO_RULE);
	cr_expect_eq(builder->rows.count, 2);
	/* set_loc, whose address is in the FDEs' encoding. */
	start_over();
	put_cie("zR", &encoding, 1);
	{
		size_t fde = size;
		uint8_t instructions[] = {0x01, 0, 0, 0, 0, 0x0e, 48};
		uint32_t to = (uint32_t)(CODE + 0x40 - (FRAMES + fde + 17 + 1));

		memcpy(instructions + 1, &to, 4);
		put_fde(0, instructions, sizeof(instructions));
		cr_assert(add(fde));
	}
	check_call(0x3f, GUEST_RSP, 8);
	check_call(0x40, GUEST_RSP, 48);
	finish();
}

Test(eh_frame, every_way_to_say_where_a_register_is)
{
	struct eh_frame_rule rule;

	/* offset, offset_extended, _sf, GNU's negative one, same_value, undefined, register. */
	BUILD(0x83, 2, 0x05, 6, 3, 0x11, 12, 0x7c, 0x2f, 13, 5, 0x08, 0, 0x07, 14, 0x09, 15, 1);
	rule = rule_at(0);
	cr_expect_eq(rule.saved,
		     SAVED(GUEST_RBX) | SAVED(GUEST_RBP) | SAVED(GUEST_R12) | SAVED(GUEST_R13));
	cr_expect_eq(rule.at[GUEST_RBX], -16);
	cr_expect_eq(rule.at[GUEST_RBP], -24);
	cr_expect_eq(rule.at[GUEST_R12], 32);
	cr_expect_eq(rule.at[GUEST_R13], 40);
	cr_expect_eq(rule.preserved, SAVED(GUEST_RAX));
	/* restore, restore_extended: as the CIE has it. */
	BUILD(0x83, 2, 0x86, 3, 0x41, 0xc3, 0x06, 6);
	cr_expect_eq(rule_at(0).saved, SAVED(GUEST_RBX) | SAVED(GUEST_RBP));
	cr_expect_eq(rule_at(1).saved, 0);
	cr_expect_eq(rule_at(1).preserved, PRESERVED);
	/* Values instead of places, and vector registers: known to nobody. */
	BUILD(0x14, 3, 2, 0x15, 6, 2, 0x16, 12, 2, 0x77, 8, 0x91, 4, 0x05, 0x80, 1, 2);
	cr_expect_eq(rule_at(0).saved, 0);
	cr_expect_eq(rule_at(0).preserved, SAVED(GUEST_R13) | SAVED(GUEST_R14) | SAVED(GUEST_R15));
	/* Further away than a rule can say. */
	BUILD(0x83, 0xff, 0xff, 0x7f);
	cr_expect_eq(rule_at(0).saved | (rule_at(0).preserved & SAVED(GUEST_RBX)), 0);
	finish();
}

Test(eh_frame, every_way_to_say_where_the_frame_is)
{
	struct eh_frame_rule rule;

	BUILD(0x0c, 6, 24, 0x41, 0x0d, 3, 0x41, 0x0e, 40, 0x41, 0x13, 0x7e, 0x41, 0x12, 10, 0x7d,
	      0x41, 0x2e, 8);
	check_call(0, GUEST_RBP, 24);
	check_call(1, GUEST_RBX, 24);
	check_call(2, GUEST_RBX, 40);
	check_call(3, GUEST_RBX, 16);
	check_call(4, GUEST_R10, 24);
	check_call(5, GUEST_R10, 24);
	/* The word at a register + offset, + offset. */
	BUILD(0x0f, 5, 0x76, 0x78, 0x06, 0x23, 16, 0x10, 3, 2, 0x76, 0x70);
	rule = rule_at(0);
	cr_expect_eq(rule.kind, EH_FRAME_CALL);
	cr_expect_eq(rule.base, GUEST_RBP);
	cr_expect(rule.dereference);
	cr_expect_eq(rule.offset, -8);
	cr_expect_eq(rule.offset_after, 16);
	cr_expect_eq(rule.from_base, SAVED(GUEST_RBX));
	cr_expect_eq(rule.saved, SAVED(GUEST_RBX));
	cr_expect_eq(rule.at[GUEST_RBX], -16);
	/* bregx. */
	BUILD(0x0f, 3, 0x92, 7, 24);
	check_call(0, GUEST_RSP, 24);
	/* A linkage table. */
	BUILD(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22);
	rule = rule_at(0);
	cr_expect_eq(rule.kind, EH_FRAME_LINKAGE);
	cr_expect_eq(rule.threshold, 11);
	cr_expect_eq(rule.offset, 8);
	/* What is more than that is not guessed. */
	BUILD(0x0f, 6, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x41, 0x0c, 7, 8);
	cr_expect_eq(rule_at(0).kind, EH_FRAME_NO_RULE);
	check_call(1, GUEST_RSP, 8);
	finish();
}

Test(eh_frame, states_are_remembered_and_restored)
{
	BUILD(0x0a, 0x41, 0x0e, 16, 0x83, 2, 0x0a, 0x41, 0x0e, 24, 0x41, 0x0b, 0x41, 0x0b);
	check_call(0, GUEST_RSP, 8);
	check_call(1, GUEST_RSP, 16);
	check_call(2, GUEST_RSP, 24);
	check_call(3, GUEST_RSP, 16);
	cr_expect_eq(rule_at(3).saved, SAVED(GUEST_RBX));
	check_call(4, GUEST_RSP, 8);
	cr_expect_eq(rule_at(4).saved, 0);
	/* More is restored than was remembered. */
	BUILD(0x41, 0x0b, 0x41, 0x0e, 16);
	check_call(0, GUEST_RSP, 8);
	cr_expect_eq(rule_at(1).kind, EH_FRAME_NO_RULE);
	cr_expect_eq(rule_at(CODE_SIZE - 1).kind, EH_FRAME_NO_RULE);
	/* More is remembered than there is room for. */
	{
		uint8_t many[EH_FRAME_STATES + 2];

		memset(many, 0x0a, sizeof(many));
		many[0] = 0x41;
		build(many, sizeof(many));
	}
	check_call(0, GUEST_RSP, 8);
	cr_expect_eq(rule_at(1).kind, EH_FRAME_NO_RULE);
	finish();
}

Test(eh_frame, an_unknown_instruction_ends_what_is_known)
{
	BUILD(0x41, 0x0e, 16, 0x41, 0x3f, 0x41, 0x0e, 24);
	check_call(0, GUEST_RSP, 8);
	check_call(1, GUEST_RSP, 16);
	cr_expect_eq(rule_at(2).kind, EH_FRAME_NO_RULE);
	cr_expect_eq(rule_at(3).kind, EH_FRAME_NO_RULE);
	finish();
}

Test(eh_frame, where_a_stack_begins)
{
	BUILD(0x07, 16);
	cr_expect_eq(rule_at(0).kind, EH_FRAME_ROOT);
	/* The return address in a register, a stack that is changed: not followed. */
	BUILD(0x09, 16, 5);
	cr_expect_eq(rule_at(0).kind, EH_FRAME_NO_RULE);
	BUILD(0x09, 7, 8);
	cr_expect_eq(rule_at(0).kind, EH_FRAME_NO_RULE);
	finish();
}

Test(eh_frame, a_signal_frame_has_all_registers)
{
	/* As glibc's __restore_rt: CFA the word at rsp + 160, the rest at rsp + n. */
	static const uint8_t instructions[] = {0x0f, 4,    0x77, 0xa0, 1,    0x06, 0x10, 6,
					       3,    0x77, 0xf8, 0,    0x10, 16,   3,    0x77,
					       0xa8, 1,    0x10, 7,    3,    0x77, 0xa0, 1};
	struct eh_frame_rule rule;
	size_t fde;

	start_over();
	put_cie("zRS", &encoding, 1);
	fde = size;
	put_fde(0, instructions, sizeof(instructions));
	cr_assert(add(fde));
	rule = rule_at(0);
	cr_expect_eq(rule.kind, EH_FRAME_SIGNAL);
	cr_expect_eq(rule.base, GUEST_RSP);
	cr_expect_eq(rule.return_address, 168);
	cr_expect_eq(rule.saved, SAVED(GUEST_RSP) | SAVED(GUEST_RBP));
	cr_expect_eq(rule.at[GUEST_RSP], 160);
	cr_expect_eq(rule.at[GUEST_RBP], 120);
	finish();
}

Test(eh_frame, augmentations)
{
	static const uint8_t personality[] = {0x9b, 1, 2, 3, 4, 0x1b, 0x1b};
	static const uint8_t unknown[] = {0x1b, 0};
	size_t fde;

	start_over();
	put_cie("zPLR", personality, sizeof(personality));
	fde = size;
	put_fde(0, NULL, 0);
	cr_assert(add(fde));
	check_call(0, GUEST_RSP, 8);
	start_over();
	put_cie("zRX", unknown, sizeof(unknown));
	fde = size;
	put_fde(0, NULL, 0);
	cr_expect_not(add(fde));
	cr_expect_eq(builder->rows.count, 0);
	/* Data that say they are longer than the record. */
	start_over();
	put_cie("zR", &encoding, 1);
	bytes[15] = 0x7f;
	fde = size;
	put_fde(0, NULL, 0);
	cr_expect_not(add(fde));
	finish();
}

Test(eh_frame, damaged_records_end_the_walk)
{
	struct eh_frame_bytes view = {.bytes = bytes, .address = FRAMES};
	uint8_t missing[3] = {0};
	size_t next = 0;
	size_t fde;

	start_over();
	put_cie("zR", &encoding, 1);
	fde = size;
	put_fde(0, NULL, 0);
	view.size = size;
	cr_expect_eq(eh_frame_record_at(&view, 0, &next), EH_FRAME_CIE);
	cr_expect_eq(next, fde);
	cr_expect_eq(eh_frame_record_at(&view, fde, &next), EH_FRAME_FDE);
	cr_expect_eq(next, size);
	cr_expect_eq(eh_frame_record_at(&view, size, &next), EH_FRAME_LAST);
	view.size = size - 1;
	cr_expect_eq(eh_frame_record_at(&view, fde, &next), EH_FRAME_DAMAGED);
	view.size = size;
	view.missing = missing;
	missing[0] = 1;
	cr_expect_eq(eh_frame_record_at(&view, fde, &next), EH_FRAME_MISSING);
	cr_expect_not(eh_frame_builder_add(builder, &view, fde));
	/* An FDE whose CIE would be before the beginning, or is none. */
	memset(bytes + fde + 4, 0xff, 4);
	cr_expect_not(add(fde));
	bytes[fde + 4] = 4;
	memset(bytes + fde + 5, 0, 3);
	cr_expect_not(add(fde));
	finish();
}

/* A whole file. */

static uint8_t file[0x4000];

static void put_at(size_t at, const void *from, size_t count)
{
	memcpy(file + at, from, count);
}

/* The records at file offset 0x2000, a header for them at 0x1f00, code at 0x1000. */
static struct elf_image make_file(void)
{
	static const uint8_t header[] = {1, 0x1b, 0x03, 0x3b};
	static const uint8_t frame[] = {0x41, 0x0e, 16};
	struct elf_image image = {.is_64 = true,
				  .segment_count = 1,
				  .segments = {{.address = BASE,
						.file_size = sizeof(file),
						.memory_size = sizeof(file),
						.executable = true}},
				  .exception_frames = {0x1f00, 20},
				  .exception_frames_address = BASE + 0x1f00};
	uint32_t words[4];
	size_t fde;

	start_over();
	put_cie("zR", &encoding, 1);
	fde = size;
	put_fde(0, frame, sizeof(frame));
	put32(0);
	memset(file, 0, sizeof(file));
	put_at(0x2000, bytes, size);
	put_at(0x1f00, header, sizeof(header));
	words[0] = 0x2000 - 0x1f04;
	words[1] = 1;
	words[2] = (uint32_t)(CODE - (BASE + 0x1f00));
	words[3] = (uint32_t)(0x2000 + fde - 0x1f00);
	put_at(0x1f04, words, sizeof(words));
	finish();
	return image;
}

static void check_table(const struct eh_frame *table)
{
	const struct eh_frame_rule *rule = eh_frame_find(table, CODE);

	cr_assert_not_null(rule);
	cr_expect_eq(rule->offset, 8);
	rule = eh_frame_find(table, CODE + CODE_SIZE - 1);
	cr_assert_not_null(rule);
	cr_expect_eq(rule->offset, 16);
	cr_expect_null(eh_frame_find(table, CODE - 1));
	cr_expect_null(eh_frame_find(table, CODE + CODE_SIZE));
	cr_expect_null(eh_frame_find(table, 0));
	cr_expect_null(eh_frame_find(table, UINT64_MAX));
	cr_expect_eq(table->function_count, 1);
}

Test(eh_frame, a_file_with_a_header_and_one_without)
{
	struct elf_image image = make_file();
	struct file_buffer buffer = file_buffer_over(file, sizeof(file));
	struct eh_frame table;
	struct error error = {0};

	cr_assert_eq(eh_frame_read(&buffer.source, &image, &table, &error), GP_OK, "%s",
		     error.text);
	check_table(&table);
	cr_expect(table.complete);
	eh_frame_deinit(&table);
	image.exception_frames = (struct elf_part){0};
	cr_assert_eq(eh_frame_read(&buffer.source, &image, &table, &error), GP_OK, "%s",
		     error.text);
	check_table(&table);
	eh_frame_deinit(&table);
	image.is_64 = false;
	cr_expect_eq(eh_frame_read(&buffer.source, &image, &table, &error), GP_ERR_NOT_SUPPORTED);
	memset(file, 0, sizeof(file));
	image.is_64 = true;
	cr_expect_eq(eh_frame_read(&buffer.source, &image, &table, &error), GP_ERR_NOT_FOUND);
}

/* A file of which one page is not at hand. */
struct holed {
	struct file_source source;
	uint64_t page;
};

static size_t read_holed(const struct file_source *source, uint64_t offset, void *out, size_t count)
{
	const struct holed *self =
		container_of((struct file_source *)(uintptr_t)source, struct holed, source);
	size_t room = 4096 - (size_t)(offset % 4096);

	if (offset >= sizeof(file) || offset / 4096 == self->page)
		return 0;
	if (count > room)
		count = room;
	memcpy(out, file + offset, count);
	return count;
}

Test(eh_frame, pages_that_are_not_at_hand_are_done_without)
{
	struct elf_image image = make_file();
	struct holed holed = {.source = {.read = read_holed}};
	struct eh_frame table;
	struct error error = {0};

	/* The header's: linkers put the records right behind it. */
	image.exception_frames.size = 0x100;
	holed.page = 1;
	cr_assert_eq(eh_frame_read(&holed.source, &image, &table, &error), GP_OK, "%s", error.text);
	check_table(&table);
	eh_frame_deinit(&table);
	/* That of the records: there are none, but no others either. */
	holed.page = 2;
	cr_expect_eq(eh_frame_read(&holed.source, &image, &table, &error), GP_ERR_NOT_FOUND);
	/* The walk ends at a hole; the index leads on behind it. */
	memmove(file + 0x3000, file + 0x2000, size);
	{
		uint32_t fde;
		uint32_t at = 0x3000 - 0x1f00;
		uint32_t start;

		memcpy(&fde, file + 0x1f10, 4);
		at += fde - (0x2000 - 0x1f00);
		put_at(0x1f10, &at, 4);
		start = (uint32_t)(CODE - (BASE + 0x1f00 + at + 8));
		put_at(0x1f00 + at + 8, &start, 4);
	}
	cr_assert_eq(eh_frame_read(&holed.source, &image, &table, &error), GP_OK, "%s", error.text);
	check_table(&table);
	eh_frame_deinit(&table);
}
