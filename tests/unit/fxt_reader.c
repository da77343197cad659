/* The reader: everything that the writer writes, cut and damaged files, several providers. */
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>

static uint64_t file[FXT_SUPPORT_WORDS];
static struct fxt_reader reader;
static struct fxt_record record;

static void open_words(const uint64_t *words, size_t count)
{
	struct error error;

	cr_assert_eq(fxt_reader_init(&reader, words, count * 8, &error), GP_OK, "%s", error.text);
}

static size_t read_all(void)
{
	size_t count = 0;

	while (fxt_reader_next(&reader, &record))
		count++;
	return count;
}

Test(fxt_reader, what_was_written_comes_back_word_for_word)
{
	static uint64_t again[FXT_SUPPORT_WORDS];
	size_t size = fxt_support_everything(file), used = 0;

	open_words(file, size);
	while (fxt_reader_next(&reader, &record)) {
		size_t words = fxt_support_encode(&record, again + used, FXT_SUPPORT_WORDS - used);

		cr_assert_eq(words, record.words);
		cr_assert_eq(record.offset, used * 8);
		used += words;
	}
	cr_assert_eq(used, size);
	cr_assert_eq(memcmp(again, file, size * 8), 0);
	cr_assert_not(reader.cut);
	cr_assert_not(reader.broken);
	cr_assert_eq(reader.bad_records + reader.unknown_records + reader.unresolved, 0);
	cr_assert_eq(reader.problem_count, 0);
	fxt_reader_deinit(&reader);
}

Test(fxt_reader, tables_are_resolved)
{
	bool event_seen = false, blob_seen = false;

	open_words(file, fxt_support_everything(file));
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind == FXT_KIND_EVENT && record.event.timestamp == 100) {
			event_seen = true;
			cr_assert_eq(record.provider, FXT_PROVIDER_ID);
			cr_assert_eq(record.event.thread.process, 10);
			cr_assert_eq(record.event.thread.thread, 11);
			cr_assert(fxt_string_is(&record.event.category, "kernel:meta"));
			cr_assert(fxt_string_is(&record.event.name, "drop_stats"));
			cr_assert_eq(record.event.argument_count, 13);
			cr_assert(fxt_string_is(&record.event.arguments[0].name, "argument"));
			cr_assert_eq(record.event.arguments[1].i32, -2);
			cr_assert_eq(record.event.arguments[5].f64, 1.0);
			cr_assert(fxt_string_is(&record.event.arguments[6].string,
						"guestprof.sample"));
			cr_assert(fxt_string_is(&record.event.arguments[7].string, "hi"));
			cr_assert(record.event.arguments[10].boolean);
			cr_assert_eq(record.event.arguments[11].blob.size, 3);
			cr_assert(fxt_string_is(&record.event.arguments[12].name, "k"));
		} else if (record.kind == FXT_KIND_BLOB && fxt_blob_is_sample(&record.blob)) {
			blob_seen = true;
			cr_assert(fxt_string_is(&record.blob.name, "guestprof.sample"));
		}
	}
	cr_assert(event_seen && blob_seen);
	fxt_reader_deinit(&reader);
}

/* At every byte: what is whole is given, the rest is reported as cut, at the right place. */
Test(fxt_reader, a_cut_file_is_read_up_to_its_last_whole_record)
{
	size_t size = fxt_support_everything(file) * 8;
	static size_t ends[FXT_SUPPORT_WORDS]; /* where record n ends */
	size_t count = 0;

	open_words(file, size / 8);
	while (fxt_reader_next(&reader, &record))
		ends[count++] = record.offset + record.words * 8;
	fxt_reader_deinit(&reader);
	for (size_t length = 0; length <= size; length++) {
		/* Its own allocation, so that the sanitizer sees a read beyond. */
		void *copy = malloc(length ? length : 1);
		size_t whole = 0, end;

		while (whole < count && ends[whole] <= length)
			whole++;
		end = whole ? ends[whole - 1] : 0;
		memcpy(copy, file, length);
		cr_assert_eq(fxt_reader_init(&reader, copy, length, NULL), GP_OK);
		cr_assert_eq(read_all(), whole, "cut at %zu", length);
		cr_assert_eq(reader.cut, end != length || length == 0, "cut at %zu", length);
		cr_assert_eq(reader.offset, end);
		cr_assert_not(reader.broken);
		cr_assert_not(fxt_reader_next(&reader, &record));
		fxt_reader_deinit(&reader);
		free(copy);
	}
}

Test(fxt_reader, a_growing_file_is_read_on)
{
	size_t size = fxt_support_everything(file) * 8, count = 0, all;
	static uint64_t other[FXT_SUPPORT_WORDS];

	open_words(file, size / 8);
	all = read_all();
	fxt_reader_deinit(&reader);
	memcpy(other, file, size);
	cr_assert_eq(fxt_reader_init(&reader, file, 0, NULL), GP_OK);
	for (size_t length = 0; length <= size; length += 4) {
		/* At another address each time: nothing may point to the old one. */
		uint64_t *at = length % 8 ? other : file;

		cr_assert_eq(fxt_reader_grow(&reader, at, length, NULL), GP_OK);
		while (fxt_reader_next(&reader, &record)) {
			count++;
			if (record.kind == FXT_KIND_BLOB && fxt_blob_is_sample(&record.blob)) {
				cr_assert(fxt_string_is(&record.blob.name, "guestprof.sample"));
				cr_assert_geq(record.blob.name.text, (char *)at);
				cr_assert_lt(record.blob.name.text, (char *)at + length);
			}
		}
	}
	cr_assert_eq(count, all);
	cr_assert_eq(fxt_reader_grow(&reader, file, size - 8, NULL), GP_ERR_INVALID_ARGS);
	fxt_reader_deinit(&reader);
}

Test(fxt_reader, what_is_not_a_trace_is_refused)
{
	struct error error;

	file[0] = FXT_MAGIC + 1;
	memset(&reader, 0x55, sizeof(reader));
	cr_assert_eq(fxt_reader_init(&reader, file, 8, &error), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(fxt_reader_init(&reader, file, 2, NULL), GP_ERR_IO_DATA_INTEGRITY);
	file[0] = FXT_MAGIC;
	cr_assert_eq(fxt_reader_init(&reader, (char *)file + 4, 4, NULL), GP_ERR_INVALID_ARGS);
	cr_assert_eq(reader.size, 0x5555555555555555, "untouched");
}

Test(fxt_reader, a_record_of_length_zero_ends_it)
{
	const uint64_t words[] = {FXT_MAGIC, 0x21, 1000, 0, 0x21, 1000};

	open_words(words, ARRAY_SIZE(words));
	cr_assert_eq(read_all(), 2);
	cr_assert(reader.broken);
	cr_assert_not(reader.cut);
	cr_assert_eq(reader.offset, 24);
	cr_assert_eq(reader.problem_count, 1);
	cr_assert_eq(reader.problems[0].offset, 24);
	cr_assert_not_null(reader.problems[0].why);
	fxt_reader_deinit(&reader);
}

Test(fxt_reader, bad_content_is_reported_and_skipped)
{
	static const struct {
		uint64_t words[4];
		size_t count;
	} bad[] = {
		{{0x21, 0}, 2},                     /* 0 ticks per second */
		{{0x11}, 1},                        /* no ticks at all */
		{{0x0000000100000022, 'a'}, 2},     /* string index 0 */
		{{0x0000000900010022, 'a'}, 2},     /* 9 bytes of string in one word */
		{{0x33, 1, 2}, 3},                  /* thread index 0 */
		{{0x10023, 1}, 2},                  /* a thread record too short */
		{{0x0000000000000024, 1}, 2},       /* an event without its thread */
		{{0x0000000000000034, 1, 2}, 3},    /* half a thread */
		{{0x0000000000110044, 1, 2, 3}, 4}, /* an argument promised, none there */
		{{0x0001000900000025, 1}, 2},       /* a payload beyond the record */
		{{0x17}, 1},                        /* a kernel object without koid */
		{{0x1000000000000038, 1, 2}, 3},    /* a context switch without incoming */
		{{0x0090000000110020, 0}, 2},       /* provider name of 9 bytes in a word */
		{{0x0000000000090049, 1, 2, 3}, 4}, /* log text beyond */
		{{0x000000002002004a, 1, 2, 3}, 4}, /* 2 frames promised */
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		uint64_t words[8] = {FXT_MAGIC};

		memcpy(words + 1, bad[i].words, bad[i].count * 8);
		words[1 + bad[i].count] = 0x21;
		words[2 + bad[i].count] = 1000;
		open_words(words, 3 + bad[i].count);
		cr_assert_eq(read_all(), 2, "case %zu", i);
		cr_assert_eq(record.kind, FXT_KIND_INITIALIZATION);
		cr_assert_eq(reader.bad_records, 1, "case %zu", i);
		cr_assert_eq(reader.problem_count, 1);
		cr_assert_eq(reader.problems[0].offset, 8);
		cr_assert_not(reader.broken || reader.cut);
		fxt_reader_deinit(&reader);
	}
}

/* An argument reads within its own size, whatever it says. */
Test(fxt_reader, arguments_stay_within_themselves)
{
	static const uint64_t arguments[][3] = {
		{0x00, 0, 0},                  /* size 0 */
		{0x44, 0, 0},                  /* 4 words where 3 are left */
		{0x34, 0, 0},                  /* good: a word more than it needs */
		{0x14, 0x10, 0x10},            /* u64 in one word */
		{0x80090030, 0, 0},            /* good: name of 9 bytes in 2 words */
		{0x80110030, 0, 0},            /* name of 17 bytes in 2 words */
		{0x0000800900000026, 0, 0x10}, /* string of 9 bytes in 1 word */
		{0xffffffff0000002a, 0, 0x10}, /* blob of 4 GiB */
	};
	static const bool good[] = {false, false, true, false, true, false, false, false};

	for (size_t i = 0; i < ARRAY_SIZE(arguments); i++) {
		/* Thread 1 is not registered: that is a problem of its own and does no harm. One
		 * argument in three words, or three of one and two. */
		uint64_t words[] = {FXT_MAGIC, 0x0000000001100054, 1, 0, 0, 0};

		memcpy(words + 3, arguments[i], 24);
		open_words(words, ARRAY_SIZE(words));
		cr_assert_eq(read_all(), good[i] ? 2 : 1, "case %zu", i);
		cr_assert_eq(reader.bad_records, good[i] ? 0 : 1, "case %zu", i);
		fxt_reader_deinit(&reader);
	}
}

Test(fxt_reader, unknown_types_are_counted_and_skipped)
{
	const uint64_t words[] = {
		FXT_MAGIC,
		0x26,
		0,    /* userspace object, read past */
		0x1b, /* type 11 */
		0x3f,
		1,
		2,                  /* large record of 3 words */
		0x0000000000050010, /* metadata type 5 */
		0x00000000010b0024,
		1,                  /* event type 11 */
		0x3000000000000018, /* scheduling subtype 3 */
		0x3001a,            /* profiler subtype 3 */
		0x0000000001200044,
		1,
		0x1b,
		0x0000000700000012, /* argument types 11 and 2 */
		0x23,
		1, /* bad: too short */
	};

	open_words(words, ARRAY_SIZE(words));
	cr_assert_eq(read_all(), 2);
	cr_assert_eq(record.kind, FXT_KIND_EVENT);
	cr_assert_eq(record.event.argument_count, 1);
	cr_assert_eq(record.event.arguments[0].u32, 7);
	cr_assert_eq(reader.unknown_records, 7);
	cr_assert_eq(reader.unknown_arguments, 1);
	cr_assert_eq(reader.bad_records, 1);
	cr_assert_eq(reader.offset, sizeof(words));
	fxt_reader_deinit(&reader);
}

Test(fxt_reader, an_index_nobody_registered_does_not_lose_the_record)
{
	/* thread 9, category 77, name 78 */
	const uint64_t words[] = {FXT_MAGIC, 0x004e004d09000024, 5};

	open_words(words, ARRAY_SIZE(words));
	cr_assert_eq(read_all(), 2);
	cr_assert_eq(record.event.name.index, 78);
	cr_assert_eq(record.event.name.length, 0);
	cr_assert_eq(record.event.thread.index, 9);
	cr_assert_eq(record.event.thread.thread, 0);
	cr_assert_eq(reader.unresolved, 3);
	cr_assert_eq(reader.problem_count, 3);
	cr_assert_eq(reader.problems[2].offset, 8);
	fxt_reader_deinit(&reader);
}

/* String 1 and ticks per second belong to the provider that wrote them. */
Test(fxt_reader, providers_have_their_own_tables)
{
	const uint64_t words[] = {
		FXT_MAGIC,
		0x0010000000110020,
		'a', /* provider 1 "a" */
		0x21,
		1000000000,
		0x0000000100010022,
		'x', /* string 1 = "x" */
		0x0010000000210020,
		'b', /* provider 2 "b" */
		0x21,
		1000,
		0x0000000100010022,
		'y', /* string 1 = "y" */
		0x0001000000000044,
		7,
		1,
		1,                  /* event named 1 */
		0x0000000000120010, /* section of provider 1 */
		0x0001000000000044,
		7,
		1,
		1,
	};
	size_t events = 0;

	open_words(words, ARRAY_SIZE(words));
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind != FXT_KIND_EVENT)
			continue;
		cr_assert_eq(record.provider, events == 0 ? 2 : 1);
		cr_assert(fxt_string_is(&record.event.name, events == 0 ? "y" : "x"));
		cr_assert_eq(fxt_reader_nanoseconds(&reader, 7), events == 0 ? 7000000 : 7);
		events++;
	}
	cr_assert_eq(events, 2);
	fxt_reader_deinit(&reader);
}

/* Memory does not grow with what the file asks for. */
Test(fxt_reader, too_many_providers_end_it)
{
	uint64_t words[40] = {FXT_MAGIC};

	for (uint64_t i = 1; i < ARRAY_SIZE(words); i++)
		words[i] = 0x20010 | i << 20;
	open_words(words, ARRAY_SIZE(words));
	/* The nameless one counts as well. */
	cr_assert_eq(read_all(), FXT_READER_PROVIDERS_MAX);
	cr_assert(reader.broken);
	cr_assert_eq(reader.offset, FXT_READER_PROVIDERS_MAX * 8);
	fxt_reader_deinit(&reader);
}

Test(fxt_reader, the_list_of_problems_keeps_the_one_that_ended_it)
{
	uint64_t words[FXT_READER_PROBLEMS_MAX + 10] = {FXT_MAGIC};

	for (size_t i = 1; i < ARRAY_SIZE(words) - 1; i++)
		words[i] = 0x11; /* bad: initialization without ticks */
	open_words(words, ARRAY_SIZE(words));
	read_all();
	cr_assert_eq(reader.bad_records, ARRAY_SIZE(words) - 2);
	cr_assert(reader.broken);
	cr_assert_eq(reader.problem_count, FXT_READER_PROBLEMS_MAX);
	cr_assert_eq(reader.problems[FXT_READER_PROBLEMS_MAX - 1].offset, sizeof(words) - 8);
	fxt_reader_deinit(&reader);
}

Test(fxt_reader, ticks_become_nanoseconds_without_overflow)
{
	cr_assert_eq(fxt_ticks_to_nanoseconds(5, 1000000000), 5);
	cr_assert_eq(fxt_ticks_to_nanoseconds(5, 0), 5);
	cr_assert_eq(fxt_ticks_to_nanoseconds(3, 2), 1500000000);
	cr_assert_eq(fxt_ticks_to_nanoseconds(UINT64_MAX, 1000000000), UINT64_MAX);
	cr_assert_eq(fxt_ticks_to_nanoseconds(UINT64_MAX, 2000000000), UINT64_MAX / 2);
	cr_assert_eq(fxt_ticks_to_nanoseconds(UINT64_MAX, UINT64_MAX), 1000000000);
	cr_assert_eq(fxt_ticks_to_nanoseconds(UINT64_MAX, 1), UINT64_MAX, "saturated");
}
