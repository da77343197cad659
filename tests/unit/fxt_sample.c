/* The sample record: golden bytes, every combination of fields, damaged payloads. */
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>

static uint64_t words[FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX) + 1];

static struct fxt_blob blob_of(const uint64_t *record, size_t size)
{
	return (struct fxt_blob){
		.type = FXT_BLOB_SAMPLE, .payload = record + 1, .size = (size - 1) * 8};
}

Test(fxt_sample, golden)
{
	static const uint64_t stack[] = {0xffffffff81000010, 0xffffffff81000020};
	const struct fxt_sample sample = {
		.flags = FXT_SAMPLE_PROCESS | FXT_SAMPLE_THREAD | FXT_SAMPLE_TIMESTAMP |
			 FXT_SAMPLE_STACK | FXT_SAMPLE_VCPU | FXT_SAMPLE_MODE |
			 FXT_SAMPLE_STACK_END | FXT_SAMPLE_ADDRESS_SPACE | FXT_SAMPLE_ADDRESSING,
		.process = 1,
		.thread = 2,
		.timestamp = 0x123456789,
		.stack = stack,
		.depth = 2,
		.vcpu = 3,
		.mode = FXT_MODE_GUEST_KERNEL,
		.stack_end = FXT_STACK_END_ROOT,
		.address_space = 0x1000,
		.addressing = FXT_ADDRESSING_LONG_4,
	};
	/* blob type 4 [48..55], 12 words = 0x60 bytes [32..46], name 5 [16..31], 13 words */
	static const uint64_t expected[] = {
		0x00040060000500d5, 0x7fc, 1, 2, 0x123456789, 2, 0xffffffff81000010,
		0xffffffff81000020, 3,     2, 1, 0x1000,      5};

	cr_assert_eq(fxt_sample_encode(&sample, words, ARRAY_SIZE(expected)), 13);
	cr_assert_eq(memcmp(words, expected, sizeof(expected)), 0);
	cr_assert_eq(fxt_sample_encode(&sample, words, ARRAY_SIZE(expected) - 1), 0);
}

Test(fxt_sample, continuation_words_come_first)
{
	const struct fxt_sample partial = {.flags = FXT_SAMPLE_CONTINUATION | FXT_SAMPLE_COMPLETION,
					   .continuation = 8,
					   .completion = 7};
	static const uint64_t expected[] = {0x0004001800050045, 3, 8, 7};

	cr_assert_eq(fxt_sample_encode(&partial, words, 4), 4);
	cr_assert_eq(memcmp(words, expected, sizeof(expected)), 0);
}

/* The numbers are in files: they may be added to, never changed. */
Test(fxt_sample, numbers_do_not_change)
{
	cr_assert_eq(FXT_SAMPLE_ADDRESSING, 1 << 10);
	cr_assert_eq(FXT_MODE_GUEST_USER, 1);
	cr_assert_eq(FXT_MODE_NOT_STARTED, 5);
	cr_assert_eq(FXT_STACK_END_ROOT, 1);
	cr_assert_eq(FXT_STACK_END_NOT_WALKED, 7);
	cr_assert_eq(FXT_ADDRESSING_REAL, 1);
	cr_assert_eq(FXT_ADDRESSING_COMPATIBILITY_5, 8);
}

Test(fxt_sample, every_combination_of_fields_comes_back)
{
	static const uint64_t stack[] = {5, 6, 7};

	for (uint64_t flags = 0; flags <= FXT_SAMPLE_KNOWN_FLAGS; flags++) {
		struct fxt_sample sample = {
			.flags = flags,
			.continuation = flags & 1 << 0 ? 100 : 0,
			.completion = flags & 1 << 1 ? 101 : 0,
			.process = flags & 1 << 2 ? 102 : 0,
			.thread = flags & 1 << 3 ? 103 : 0,
			.timestamp = flags & 1 << 4 ? 104 : 0,
			.depth = flags & 1 << 5 ? 3 : 0,
			.vcpu = flags & 1 << 6 ? 106 : 0,
			.mode = flags & 1 << 7 ? 107 : 0,
			.stack_end = flags & 1 << 8 ? 108 : 0,
			.address_space = flags & 1 << 9 ? 109 : 0,
			.addressing = flags & 1 << 10 ? 110 : 0,
			.kernel_frames = (flags & 1 << 11) && (flags & 1 << 5) ? 2 : 0,
		};
		struct fxt_sample back;
		struct fxt_blob blob;
		size_t size;

		sample.stack = sample.depth ? stack : NULL;
		size = fxt_sample_encode(&sample, words, ARRAY_SIZE(words));
		cr_assert_neq(size, 0);
		blob = blob_of(words, size);
		cr_assert_null(fxt_sample_decode(&blob, &back));
		cr_assert_eq(memcmp(back.depth ? back.stack : stack, stack, sizeof(stack)), 0);
		back.stack = sample.stack;
		cr_assert_eq(memcmp(&back, &sample, sizeof(back)), 0, "flags %#lx", flags);
		/* One word less, or one more, is noticed. */
		if (size > 1) {
			blob.size -= 8;
			cr_assert_not_null(fxt_sample_decode(&blob, &back));
			blob.size += 16;
			cr_assert_not_null(fxt_sample_decode(&blob, &back));
		}
	}
}

Test(fxt_sample, deepest_stack_fits_and_a_deeper_one_is_refused)
{
	static uint64_t stack[FXT_SAMPLE_DEPTH_MAX + 1];
	struct fxt_sample sample = {
		.flags = FXT_SAMPLE_KNOWN_FLAGS, .stack = stack, .depth = FXT_SAMPLE_DEPTH_MAX};
	struct fxt_sample back = {0};
	struct fxt_blob blob;
	size_t size;

	for (size_t i = 0; i < FXT_SAMPLE_DEPTH_MAX; i++)
		stack[i] = i * 3;
	size = fxt_sample_encode(&sample, words, ARRAY_SIZE(words));
	cr_assert_eq(size, FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX));
	blob = blob_of(words, size);
	cr_assert_null(fxt_sample_decode(&blob, &back));
	cr_assert_eq(back.depth, FXT_SAMPLE_DEPTH_MAX);
	cr_assert_eq(memcmp(back.stack, stack, FXT_SAMPLE_DEPTH_MAX * 8), 0);
	sample.depth++;
	cr_assert_eq(fxt_sample_encode(&sample, words, ARRAY_SIZE(words)), 0);
	sample = (struct fxt_sample){.flags = 1 << 12};
	cr_assert_eq(fxt_sample_encode(&sample, words, ARRAY_SIZE(words)), 0);
	/* More frames of the kernel than there are frames. */
	sample = (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_KERNEL_FRAMES,
				     .stack = stack,
				     .depth = 2,
				     .kernel_frames = 3};
	cr_assert_eq(fxt_sample_encode(&sample, words, ARRAY_SIZE(words)), 0);
}

Test(fxt_sample, unknown_fields_are_reported_and_skipped)
{
	/* vCPU 3, then two fields of bits 12 and 40 */
	static const uint64_t payload[] = {1ull << 6 | 1ull << 12 | 1ull << 40, 3, 77, 78};
	struct fxt_blob blob = {.payload = payload, .size = sizeof(payload)};
	struct fxt_sample sample;

	cr_assert_null(fxt_sample_decode(&blob, &sample));
	cr_assert_eq(sample.vcpu, 3);
	cr_assert_eq(sample.flags, FXT_SAMPLE_VCPU);
	cr_assert_eq(sample.unknown_flags, 1ull << 12 | 1ull << 40);
}

Test(fxt_sample, damaged_payloads_are_refused)
{
	static const uint64_t deep[] = {FXT_SAMPLE_STACK, FXT_SAMPLE_DEPTH_MAX + 1, 0};
	static const uint64_t beyond[] = {FXT_SAMPLE_STACK, 2, 5};
	static const uint64_t huge[] = {FXT_SAMPLE_STACK | FXT_SAMPLE_VCPU, ~0ull, 5};
	static const uint64_t kernel[] = {FXT_SAMPLE_STACK | FXT_SAMPLE_KERNEL_FRAMES, 1, 5, 2};
	static const uint64_t taken[] = {FXT_SAMPLE_STACK | FXT_SAMPLE_VCPU, 1, 5};
	const struct fxt_blob blobs[] = {
		{.payload = deep, .size = 0},   {.payload = deep, .size = 12},
		{.payload = deep, .size = 24},  {.payload = beyond, .size = 24},
		{.payload = huge, .size = 24},  {.payload = kernel, .size = 32},
		{.payload = taken, .size = 24}, /* the stack's only word would be the vCPU's */
	};

	for (size_t i = 0; i < ARRAY_SIZE(blobs); i++) {
		struct fxt_sample sample = {.vcpu = 99};

		cr_assert_not_null(fxt_sample_decode(&blobs[i], &sample), "blob %zu", i);
		cr_assert_eq(sample.vcpu, 99, "untouched");
	}
}
