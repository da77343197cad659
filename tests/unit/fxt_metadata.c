/* Session metadata: golden bytes and values by name. */
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>

static uint64_t words[256];

Test(fxt_metadata, golden)
{
	const struct fxt_argument depth = fxt_argument_u64(FXT_SESSION_DEPTH, 64);
	/* instant, 1 argument, category 7, name inline of 7 bytes; argument type 4, 3 words */
	static const uint64_t expected[] = {0x8007000700100084,
					    5,
					    0x40000000,
					    0x40000000,
					    0x6e6f6973736573 /* "session" */,
					    0x80050034,
					    0x6874706564 /* "depth" */,
					    64};

	cr_assert_eq(fxt_metadata_encode(FXT_SESSION, 5, FXT_VCPU_PROCESS, &depth, 1, words, 8), 8);
	cr_assert_eq(memcmp(words, expected, sizeof(expected)), 0);
	cr_assert_eq(fxt_metadata_encode(FXT_SESSION, 5, FXT_VCPU_PROCESS, &depth, 1, words, 7), 0);
}

Test(fxt_metadata, values_come_back_by_name)
{
	const struct fxt_argument arguments[] = {
		fxt_argument_text(FXT_SESSION_COMMAND_LINE, "console=ttyS0 quiet"),
		fxt_argument_u64(FXT_SESSION_MEMORY, 1ull << 40),
		{.name = fxt_text("small"), .type = FXT_ARGUMENT_U32, .u32 = 7},
		{.name = fxt_text("signed"), .type = FXT_ARGUMENT_I64, .i64 = 8},
		{.name = fxt_text("negative"), .type = FXT_ARGUMENT_I32, .i32 = -1},
	};
	size_t used = fxt_write_preamble(words, FXT_PREAMBLE_WORDS);
	struct fxt_string text = {0};
	struct fxt_reader reader;
	struct fxt_record record;
	struct fxt_drops drops;
	uint64_t value = 99;
	bool seen = false;

	used += fxt_metadata_encode(FXT_SESSION, 5, fxt_vcpu_thread(2), arguments,
				    ARRAY_SIZE(arguments), words + used, ARRAY_SIZE(words) - used);
	cr_assert_eq(fxt_reader_init(&reader, words, used * 8, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind != FXT_KIND_EVENT)
			continue;
		seen = true;
		cr_assert(fxt_metadata_is(&record.event, FXT_SESSION));
		cr_assert_not(fxt_metadata_is(&record.event, FXT_SESSION_END));
		cr_assert_not(fxt_event_is_drops(&record.event, &drops));
		cr_assert_eq(record.event.thread.thread, FXT_VCPU_PROCESS + 3);
		cr_assert(fxt_argument_get_text(&record.event, FXT_SESSION_COMMAND_LINE, &text));
		cr_assert(fxt_string_is(&text, "console=ttyS0 quiet"));
		cr_assert(fxt_argument_get_u64(&record.event, "small", &value));
		cr_assert_eq(value, 7);
		cr_assert(fxt_argument_get_u64(&record.event, "signed", &value));
		cr_assert_eq(value, 8);
		cr_assert(fxt_argument_get_u64(&record.event, FXT_SESSION_MEMORY, &value));
		cr_assert_eq(value, 1ull << 40);
		cr_assert_not(fxt_argument_get_u64(&record.event, "negative", &value));
		cr_assert_not(fxt_argument_get_u64(&record.event, "absent", &value));
		cr_assert_not(
			fxt_argument_get_u64(&record.event, FXT_SESSION_COMMAND_LINE, &value));
		cr_assert_not(fxt_argument_get_text(&record.event, FXT_SESSION_MEMORY, &text));
		cr_assert_eq(value, 1ull << 40, "untouched");
	}
	cr_assert(seen);
	fxt_reader_deinit(&reader);
}

Test(fxt_metadata, a_category_of_that_name_is_not_enough)
{
	struct fxt_event event = {.type = FXT_EVENT_COUNTER,
				  .category = fxt_text("guestprof"),
				  .name = fxt_text(FXT_SESSION)};

	cr_assert_not(fxt_metadata_is(&event, FXT_SESSION));
	event.type = FXT_EVENT_INSTANT;
	cr_assert(fxt_metadata_is(&event, FXT_SESSION));
	event.category = fxt_text("other");
	cr_assert_not(fxt_metadata_is(&event, FXT_SESSION));
}
