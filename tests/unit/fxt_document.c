/* The example in docs/trace-format.md is what the encoders write, byte for byte. */
#include "fxt/ring.h"
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define DOCUMENT "docs/trace-format.md"

/* Lines "0f8  f0 07 00 00 00 00 00 00   what it says". Returns how many words there were. */
static size_t read_example(FILE *document, uint64_t *words, size_t capacity)
{
	char line[512];
	size_t count = 0;

	while (fgets(line, sizeof(line), document)) {
		unsigned offset, bytes[8];
		int length = 0;

		if (sscanf(line, "%3x  %2x %2x %2x %2x %2x %2x %2x %2x%n", &offset, &bytes[0],
			   &bytes[1], &bytes[2], &bytes[3], &bytes[4], &bytes[5], &bytes[6],
			   &bytes[7], &length) != 9 ||
		    length != 28)
			continue;
		cr_assert_lt(count, capacity);
		cr_assert_eq(offset, count * 8, "the offset %x in the document", offset);
		words[count] = 0;
		for (size_t i = 0; i < 8; i++)
			words[count] |= (uint64_t)bytes[i] << (8 * i);
		count++;
	}
	return count;
}

static size_t write_example(uint64_t *words, size_t capacity)
{
	static const uint64_t stack[] = {0xffffffff81a3c0f4, 0xffffffff81a3c2b0,
					 0xffffffff81001127};
	static uint64_t filler[FXT_RING_BYTES_MIN / 8];
	struct fxt_sample sample = {
		.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK | FXT_SAMPLE_VCPU |
			 FXT_SAMPLE_MODE | FXT_SAMPLE_STACK_END | FXT_SAMPLE_ADDRESS_SPACE |
			 FXT_SAMPLE_ADDRESSING,
		.timestamp = 1500000000,
		.stack = stack,
		.depth = 3,
		.vcpu = 1,
		.mode = FXT_MODE_GUEST_KERNEL,
		.stack_end = FXT_STACK_END_ROOT,
		.address_space = 0x2a0a000,
		.addressing = FXT_ADDRESSING_LONG_4,
	};
	size_t used = fxt_write_preamble(words, capacity), size;
	struct fxt_ring ring;

	size = fxt_sample_encode(&sample, words + used, capacity - used);
	/* A full ring drops two such samples; what it then says about them. */
	cr_assert_eq(fxt_ring_init(&ring, FXT_RING_BYTES_MIN, NULL), GP_OK);
	ring.drop_process = FXT_VCPU_PROCESS;
	ring.drop_thread = fxt_vcpu_thread(1);
	filler[0] = fxt_header_with_size(FXT_TYPE_BLOB, ARRAY_SIZE(filler));
	cr_assert(fxt_ring_write(&ring, filler, ARRAY_SIZE(filler), 0));
	cr_assert_not(fxt_ring_write(&ring, words + used, size, 1501000000));
	cr_assert_not(fxt_ring_write(&ring, words + used, size, 1502000000));
	cr_assert_eq(fxt_ring_read(&ring, filler, sizeof(filler)), sizeof(filler));
	cr_assert(fxt_ring_flush_drops(&ring));
	used += size;
	used += fxt_ring_read(&ring, words + used, (capacity - used) * 8) / 8;
	fxt_ring_deinit(&ring);
	return used;
}

Test(fxt_document, the_example_is_what_the_encoder_writes)
{
	static uint64_t documented[128], written[128];
	FILE *document = fopen(DOCUMENT, "r");
	size_t count, expected;

	if (!document)
		cr_skip_test(DOCUMENT " is not here: run it from the top of the source tree");
	count = read_example(document, documented, ARRAY_SIZE(documented));
	fclose(document);
	expected = write_example(written, ARRAY_SIZE(written));
	cr_assert_eq(count, expected, "%zu words in the document, %zu written", count, expected);
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(documented[i], written[i],
			     "at %#zx: %#lx in the document, %#lx written", i * 8, documented[i],
			     written[i]);
}

/* And it can be read: a sample, and what was lost behind it. */
Test(fxt_document, the_example_reads_back)
{
	static uint64_t written[128];
	struct fxt_drops drops = {0};
	struct fxt_sample sample = {0};
	struct fxt_reader reader;
	struct fxt_record record;

	cr_assert_eq(fxt_reader_init(&reader, written,
				     write_example(written, ARRAY_SIZE(written)) * 8, NULL),
		     GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind == FXT_KIND_BLOB)
			cr_assert_null(fxt_sample_decode(&record.blob, &sample));
		if (record.kind == FXT_KIND_EVENT)
			cr_assert(fxt_event_is_drops(&record.event, &drops));
	}
	cr_assert_eq(sample.depth, 3);
	cr_assert_eq(sample.vcpu, 1);
	cr_assert_eq(drops.records, 2);
	cr_assert_eq(drops.bytes, 192);
	cr_assert_eq(reader.problem_count, 0);
	fxt_reader_deinit(&reader);
}
