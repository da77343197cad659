/* Golden bytes of every record kind, derived by hand from the bit ranges of "Fuchsia trace format"
 * (and of Fuchsia's src/performance/lib/fxt for type 10), and the writer's bounds. */
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>

#define CAPACITY 64

static uint64_t words[CAPACITY];

/* The encoder gave exactly these words, and the next one is untouched. */
#define expect(call, ...)                                                                       \
	do {                                                                                    \
		const uint64_t expected[] = {__VA_ARGS__};                                      \
		size_t size_;                                                                   \
                                                                                                \
		memset(words, 0xee, sizeof(words));                                             \
		size_ = (call);                                                                 \
		cr_assert_eq(size_, ARRAY_SIZE(expected), "%zu words, not %zu", size_,          \
			     ARRAY_SIZE(expected));                                             \
		for (size_t i_ = 0; i_ < size_; i_++)                                           \
			cr_assert_eq(words[i_], expected[i_], "word %zu is %#lx, not %#lx", i_, \
				     words[i_], expected[i_]);                                  \
		cr_assert_eq(words[size_], 0xeeeeeeeeeeeeeeee);                                 \
	} while (0)

Test(fxt_writer, magic)
{
	expect(fxt_encode_magic(words, CAPACITY), 0x0016547846040010);
}

Test(fxt_writer, provider_info)
{
	/* size 3 [4..15], metadata 1 [16..19], id 1 [20..51], 9 bytes of name [52..59] */
	struct fxt_provider_info info = {1, fxt_text("guestprof")};

	expect(fxt_encode_provider_info(&info, words, CAPACITY), 0x0090000000110030,
	       0x6f72707473657567 /* "guestpro" */, 0x66 /* "f" */);
}

Test(fxt_writer, provider_section_and_event)
{
	/* metadata 2, id [20..51] */
	expect(fxt_encode_provider_section(0x01020304, words, CAPACITY), 0x0000102030420010);
	/* metadata 3, id 1, event 15 [52..55] */
	expect(fxt_encode_provider_event(1, 15, words, CAPACITY), 0x00f0000000130010);
	cr_assert_eq(fxt_encode_provider_event(1, 16, words, CAPACITY), 0);
}

Test(fxt_writer, initialization)
{
	expect(fxt_encode_initialization(1000000000, words, CAPACITY), 0x21, 0x3b9aca00);
	cr_assert_eq(fxt_encode_initialization(0, words, CAPACITY), 0);
}

Test(fxt_writer, string)
{
	/* index 0x7fff [16..30], 8 bytes [32..46]; a full word has no padding */
	struct fxt_string_entry entry = {0x7fff, fxt_text("abcdefgh")};

	expect(fxt_encode_string(&entry, words, CAPACITY), 0x000000087fff0022, 0x6867666564636261);
	entry.index = 0;
	cr_assert_eq(fxt_encode_string(&entry, words, CAPACITY), 0);
	entry.index = 0x8000;
	cr_assert_eq(fxt_encode_string(&entry, words, CAPACITY), 0);
}

Test(fxt_writer, thread)
{
	struct fxt_thread_entry entry = {0xff, 10, 11};

	expect(fxt_encode_thread(&entry, words, CAPACITY), 0xff0033, 10, 11);
	entry.index = 0;
	cr_assert_eq(fxt_encode_thread(&entry, words, CAPACITY), 0);
}

Test(fxt_writer, event_of_every_type)
{
	/* thread 2 [24..31], category 1 [32..47], name 2 [48..63] */
	struct fxt_event event = {.timestamp = 0x1234,
				  .thread = {.index = 2},
				  .category = fxt_indexed(1),
				  .name = fxt_indexed(2),
				  .extra = 0x5678};

	event.type = FXT_EVENT_INSTANT;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102000024, 0x1234);
	event.type = FXT_EVENT_COUNTER;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102010034, 0x1234, 0x5678);
	event.type = FXT_EVENT_DURATION_BEGIN;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102020024, 0x1234);
	event.type = FXT_EVENT_DURATION_END;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102030024, 0x1234);
	event.type = FXT_EVENT_DURATION_COMPLETE;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102040034, 0x1234, 0x5678);
	event.type = FXT_EVENT_ASYNC_BEGIN;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102050034, 0x1234, 0x5678);
	event.type = FXT_EVENT_ASYNC_INSTANT;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102060034, 0x1234, 0x5678);
	event.type = FXT_EVENT_ASYNC_END;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102070034, 0x1234, 0x5678);
	event.type = FXT_EVENT_FLOW_BEGIN;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102080034, 0x1234, 0x5678);
	event.type = FXT_EVENT_FLOW_STEP;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000102090034, 0x1234, 0x5678);
	event.type = FXT_EVENT_FLOW_END;
	expect(fxt_encode_event(&event, words, CAPACITY), 0x00020001020a0034, 0x1234, 0x5678);
	event.type = 11;
	cr_assert_eq(fxt_encode_event(&event, words, CAPACITY), 0);
}

Test(fxt_writer, event_with_everything_inline)
{
	/* thread reference 0: two words; strings 0x8000 | length */
	struct fxt_event event = {.type = FXT_EVENT_DURATION_COMPLETE,
				  .timestamp = 1,
				  .thread = {.process = 7, .thread = 8},
				  .category = fxt_text("cat"),
				  .name = fxt_text("n"),
				  .extra = 2};

	expect(fxt_encode_event(&event, words, CAPACITY), 0x8001800300040074, 1, 7, 8, 0x746163,
	       0x6e, 2);
}

Test(fxt_writer, empty_strings_are_reference_zero)
{
	struct fxt_event event = {.thread = {.index = 1}};

	expect(fxt_encode_event(&event, words, CAPACITY), 0x0000000001000024, 0);
}

Test(fxt_writer, arguments_of_every_type)
{
	struct fxt_event event = {.timestamp = 3,
				  .thread = {.index = 1},
				  .category = fxt_indexed(1),
				  .name = fxt_indexed(2),
				  .arguments = fxt_support_arguments,
				  .argument_count = ARRAY_SIZE(fxt_support_arguments)};

	/* 23 words, 13 arguments [20..23]; each: type [0..3], words [4..15], name 9 [16..31] */
	expect(fxt_encode_event(&event, words, CAPACITY), 0x0002000101d00174, 3,
	       0x0000000000090010,                     /* null */
	       0xfffffffe00090011,                     /* i32 -2 */
	       0xdeadbeef00090012,                     /* u32 */
	       0x0000000000090023, 0xffffffffffffffff, /* i64 -1 */
	       0x0000000000090024, 0x0123456789abcdef, /* u64 */
	       0x0000000000090025, 0x3ff0000000000000, /* 1.0, IEEE 754 */
	       0x0000000500090016,                     /* string 5 */
	       0x0000800200090026, 0x6968,             /* "hi" */
	       0x0000000000090027, 0x7000,             /* pointer */
	       0x0000000000090028, 77,                 /* koid */
	       0x0000000100090019,                     /* true */
	       0x000000030009002a, 0x030201,           /* blob of 3 bytes [32..63] */
	       0x0000000080010020, 0x6b /* null named "k" */);
}

Test(fxt_writer, sixteen_arguments_are_refused)
{
	static const struct fxt_argument arguments[16];
	struct fxt_event event = {.arguments = arguments, .argument_count = 15};
	struct fxt_argument unknown = {.type = 11};

	cr_assert_eq(fxt_encode_event(&event, words, CAPACITY), 19);
	event.argument_count = 16;
	cr_assert_eq(fxt_encode_event(&event, words, CAPACITY), 0);
	event.arguments = &unknown;
	event.argument_count = 1;
	cr_assert_eq(fxt_encode_event(&event, words, CAPACITY), 0);
}

Test(fxt_writer, blob)
{
	/* name [16..31], 3 bytes [32..46], type [48..55] */
	struct fxt_blob blob = {.name = fxt_indexed(5),
				.type = FXT_BLOB_SAMPLE,
				.payload = fxt_support_blob,
				.size = 3};

	expect(fxt_encode_blob(&blob, words, CAPACITY), 0x0004000300050025, 0x030201);
	blob.name = fxt_text("b");
	blob.type = FXT_BLOB_DATA;
	expect(fxt_encode_blob(&blob, words, CAPACITY), 0x0001000380010035, 0x62, 0x030201);
}

Test(fxt_writer, kernel_objects)
{
	/* type [16..23], name [24..39], arguments [40..43] */
	expect(fxt_encode_process_name(42, fxt_text("init"), words, CAPACITY), 0x0000008004010037,
	       42, 0x74696e69);
	/* argument "process" (string 8): the koid of the thread's process */
	expect(fxt_encode_thread_name(42, 43, fxt_text("init"), words, CAPACITY),
	       0x0000018004020057, 43, 0x74696e69, 0x0000000000080028, 42);
}

Test(fxt_writer, context_switch)
{
	/* cpu [20..35], state [36..39], subtype 1 [60..63] */
	struct fxt_context_switch event = {.cpu = 3,
					   .outgoing_state = FXT_THREAD_BLOCKED,
					   .timestamp = 100,
					   .outgoing = 1,
					   .incoming = 2};

	expect(fxt_encode_context_switch(&event, words, CAPACITY), 0x1000003000300048, 100, 1, 2);
	event.cpu = 0xffff;
	event.arguments = &fxt_support_arguments[1];
	event.argument_count = 1;
	expect(fxt_encode_context_switch(&event, words, CAPACITY), 0x1000003ffff10058, 100, 1, 2,
	       0xfffffffe00090011);
	event.outgoing_state = 16;
	cr_assert_eq(fxt_encode_context_switch(&event, words, CAPACITY), 0);
}

Test(fxt_writer, wakeup)
{
	struct fxt_wakeup event = {.cpu = 3, .timestamp = 100, .thread = 2};

	expect(fxt_encode_wakeup(&event, words, CAPACITY), 0x2000000000300038, 100, 2);
	event.arguments = &fxt_support_arguments[1];
	event.argument_count = 1;
	expect(fxt_encode_wakeup(&event, words, CAPACITY), 0x2000000000310048, 100, 2,
	       0xfffffffe00090011);
}

Test(fxt_writer, log)
{
	/* length [16..30], thread [32..39] */
	struct fxt_log log = {.timestamp = 9, .thread = {.index = 1}, .text = fxt_text("hello")};

	expect(fxt_encode_log(&log, words, CAPACITY), 0x0000000100050039, 9, 0x6f6c6c6568);
	log.thread = (struct fxt_thread_ref){.process = 7, .thread = 8};
	expect(fxt_encode_log(&log, words, CAPACITY), 0x0000000000050059, 9, 7, 8, 0x6f6c6c6568);
}

Test(fxt_writer, profiler_module)
{
	/* id [28..43], name [44..51], build id [52..59] */
	struct fxt_module module = {.id = 2,
				    .timestamp = 9,
				    .thread = {.process = 7},
				    .name = fxt_text("a.so"),
				    .build_id = fxt_bytes("\xaa\xbb\xcc", 3)};

	expect(fxt_encode_module(&module, words, CAPACITY), 0x003040002000006a, 9, 7, 0, 0x6f732e61,
	       0xccbbaa);
}

Test(fxt_writer, profiler_mmap)
{
	/* subtype 1 [16..19], module [28..43], flags [44..46] */
	struct fxt_mmap mapping = {.module = 2,
				   .flags = 5,
				   .timestamp = 9,
				   .thread = {.process = 7},
				   .start = 0x400000,
				   .range = 0x1000,
				   .vaddr = 0x2000};

	expect(fxt_encode_mmap(&mapping, words, CAPACITY), 0x000050002001007a, 9, 7, 0, 0x400000,
	       0x1000, 0x2000);
	/* thread reference [20..27] */
	mapping.thread.index = 0xff;
	expect(fxt_encode_mmap(&mapping, words, CAPACITY), 0x000050002ff1005a, 9, 0x400000, 0x1000,
	       0x2000);
	mapping.flags = 8;
	cr_assert_eq(fxt_encode_mmap(&mapping, words, CAPACITY), 0);
}

Test(fxt_writer, profiler_backtrace)
{
	/* subtype 2, frames [28..35] */
	static uint64_t frames[256] = {0x10, 0x20};
	static uint64_t large[300];
	struct fxt_backtrace backtrace = {.timestamp = 9,
					  .thread = {.process = 7, .thread = 8},
					  .frames = frames,
					  .count = 2};

	expect(fxt_encode_backtrace(&backtrace, words, CAPACITY), 0x000000002002006a, 9, 7, 8, 0x10,
	       0x20);
	backtrace.count = 255;
	cr_assert_eq(fxt_encode_backtrace(&backtrace, large, 300), 259);
	backtrace.count = 256;
	cr_assert_eq(fxt_encode_backtrace(&backtrace, large, 300), 0);
}

Test(fxt_writer, the_largest_record_has_4095_words)
{
	static uint64_t large[5000];
	static const char payload[FXT_STRING_BYTES_MAX];
	struct fxt_blob blob = {.name = fxt_indexed(5), .payload = payload, .size = 4094 * 8};

	cr_assert_eq(fxt_encode_blob(&blob, large, 5000), 4095);
	cr_assert_eq(fxt_header_words(large[0]), 4095);
	blob.size++;
	cr_assert_eq(fxt_encode_blob(&blob, large, 5000), 0);
}

/* Whatever the capacity: all of it or nothing, and never a word beyond. */
Test(fxt_writer, too_little_room_gives_nothing)
{
	static uint64_t all[FXT_SUPPORT_WORDS], again[FXT_SUPPORT_WORDS];
	size_t size = fxt_support_everything(all);
	struct fxt_reader reader;
	struct fxt_record record;
	size_t kinds = 0;

	cr_assert_neq(size, 0);
	cr_assert_eq(fxt_reader_init(&reader, all, size * 8, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		kinds |= (size_t)1 << record.kind;
		for (size_t capacity = 0; capacity <= record.words; capacity++) {
			size_t wanted = capacity == record.words ? record.words : 0;

			memset(again, 0xee, sizeof(again));
			cr_assert_eq(fxt_support_encode(&record, again, capacity), wanted);
			cr_assert_eq(again[capacity], 0xeeeeeeeeeeeeeeee);
		}
		cr_assert_eq(memcmp(again, (char *)all + record.offset, record.words * 8), 0);
	}
	cr_assert_eq(kinds, (1u << (FXT_KIND_BACKTRACE + 1)) - 1, "one of every kind");
	fxt_reader_deinit(&reader);
}

Test(fxt_writer, preamble_fits_in_what_it_promises)
{
	size_t size = fxt_write_preamble(words, FXT_PREAMBLE_WORDS);

	cr_assert_neq(size, 0);
	for (size_t capacity = 0; capacity < size; capacity++) {
		memset(words, 0xee, sizeof(words));
		cr_assert_eq(fxt_write_preamble(words, capacity), 0);
		cr_assert_eq(words[capacity], 0xeeeeeeeeeeeeeeee);
	}
}
