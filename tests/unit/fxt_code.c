/* Code blobs: golden bytes, bounds, back again, and blobs that are none. */
#include "fxt/code.h"
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>

static uint64_t words[FXT_RECORD_WORDS_MAX];

Test(fxt_code, golden)
{
	static const uint8_t bytes[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xc3, 0x90, 0xcc};
	const struct fxt_code code = {.of = {0x11, 0x2000 | FXT_ADDRESS_SPACE_ISOLATED, 0x33},
				      .read_at = 0x44,
				      .address = 0xffffffff81000000,
				      .bytes = bytes,
				      .size = sizeof(bytes)};
	/* inline name of 14 bytes, type 1, 10 words, 49 = 0x31 bytes of payload */
	static const uint64_t expected[] = {0x00010031800e00a5,
					    0x6f72707473657567, /* "guestpro" */
					    0x000065646f632e66, /* "f.code" */
					    0x11,
					    0x2001,
					    0x33,
					    0x44,
					    0xffffffff81000000,
					    0x90c3c031fa1e0ff3,
					    0xcc};

	memset(words, 0xff, sizeof(words));
	cr_assert_eq(fxt_code_encode(&code, words, 10), 10);
	cr_assert_arr_eq(words, expected, sizeof(expected));
	cr_assert_eq(words[FXT_CODE_VALID_FROM], 0x33);
	for (size_t capacity = 0; capacity < 10; capacity++)
		cr_assert_eq(fxt_code_encode(&code, words, capacity), 0);
}

Test(fxt_code, what_was_written_is_read_back)
{
	static uint8_t bytes[FXT_CODE_BYTES_MAX];
	static uint64_t file[FXT_RECORD_WORDS_MAX + 1];
	const size_t sizes[] = {1, 7, 8, 9, 4096, FXT_CODE_BYTES_MAX};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct fxt_code code = {.of = {1, 2, 3},
					.read_at = 4,
					.address = 0x1000 + i,
					.bytes = bytes,
					.size = (uint32_t)sizes[i]};
		struct fxt_code back;
		struct fxt_reader reader;
		struct fxt_record record;
		size_t used;

		file[0] = FXT_MAGIC;
		used = fxt_code_encode(&code, file + 1, FXT_RECORD_WORDS_MAX);
		cr_assert_gt(used, 0);
		cr_assert_eq(fxt_reader_init(&reader, file, (used + 1) * 8, NULL), GP_OK);
		cr_assert(fxt_reader_next(&reader, &record));
		cr_assert(fxt_reader_next(&reader, &record));
		cr_assert_eq(record.kind, FXT_KIND_BLOB);
		cr_assert(fxt_blob_is_code(&record.blob));
		cr_assert(!fxt_blob_is_symbols(&record.blob));
		cr_assert(!fxt_blob_is_process_symbols(&record.blob));
		cr_assert(fxt_code_decode(&record.blob, &back));
		cr_assert_eq(back.of.process, 1);
		cr_assert_eq(back.of.address_space, 2);
		cr_assert_eq(back.of.valid_from, 3);
		cr_assert_eq(back.read_at, 4);
		cr_assert_eq(back.address, code.address);
		cr_assert_eq(back.size, code.size);
		cr_assert_arr_eq(back.bytes, bytes, back.size);
		fxt_reader_deinit(&reader);
	}
}

Test(fxt_code, too_little_or_too_much_is_not_encoded)
{
	static uint8_t bytes[FXT_CODE_BYTES_MAX + 1];
	struct fxt_code code = {.bytes = bytes, .size = 0};

	cr_assert_eq(fxt_code_encode(&code, words, FXT_RECORD_WORDS_MAX), 0);
	code.size = FXT_CODE_BYTES_MAX + 1;
	cr_assert_eq(fxt_code_encode(&code, words, FXT_RECORD_WORDS_MAX), 0);
}

Test(fxt_code, a_blob_without_bytes_or_with_wrapping_addresses_is_none)
{
	uint64_t payload[6] = {1, 2, 3, 4, UINT64_MAX - 3, 0};
	struct fxt_blob blob = {.name = fxt_text("guestprof.code"),
				.type = FXT_BLOB_DATA,
				.payload = payload,
				.size = 44};
	struct fxt_code code = {.size = 99};

	for (size_t size = 0; size <= 40; size++) {
		blob.size = size;
		cr_assert(!fxt_code_decode(&blob, &code));
	}
	blob.size = 44;
	cr_assert(!fxt_code_decode(&blob, &code));
	cr_assert_eq(code.size, 99);
	payload[4] = UINT64_MAX - 4;
	cr_assert(fxt_code_decode(&blob, &code));
	cr_assert_eq(code.size, 4);
	blob.type = FXT_BLOB_SAMPLE;
	cr_assert(!fxt_blob_is_code(&blob));
}
