/* The record ring: order, wrap-around, exact drop accounts, two threads. */
#include "fxt/ring.h"
#include "tests/unit/fxt_ring_stress.h"
#include "tests/unit/fxt_support.h"

#include <criterion/criterion.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES FXT_RING_BYTES_MIN
#define WORDS (BYTES / 8)

static struct fxt_ring ring;
static uint64_t record[FXT_RECORD_WORDS_MAX];
static uint64_t out[WORDS];

static void setup(void)
{
	cr_assert_eq(fxt_ring_init(&ring, BYTES, NULL), GP_OK);
	ring.drop_process = FXT_VCPU_PROCESS;
	ring.drop_thread = fxt_vcpu_thread(0);
}

static void teardown(void)
{
	fxt_ring_deinit(&ring);
}

TestSuite(fxt_ring, .init = setup, .fini = teardown);

/* A record of `words` words whose every word after the header is `value`. */
static const uint64_t *make(size_t words, uint64_t value)
{
	record[0] = fxt_header_with_size(FXT_TYPE_BLOB, words);
	for (size_t i = 1; i < words; i++)
		record[i] = value;
	return record;
}

static bool is_drop_record(const uint64_t *words)
{
	return words[0] == 0x0002000100240074;
}

Test(fxt_ring, arguments_are_checked)
{
	struct fxt_ring other;
	struct error error;

	memset(&other, 0x55, sizeof(other));
	cr_assert_eq(fxt_ring_init(&other, BYTES / 2, &error), GP_ERR_INVALID_ARGS);
	cr_assert_eq(fxt_ring_init(&other, BYTES + 8, &error), GP_ERR_INVALID_ARGS);
	cr_assert_eq(fxt_ring_init(&other, 0, &error), GP_ERR_INVALID_ARGS);
	cr_assert_eq(fxt_ring_init(&other, (size_t)1 << 62, &error), GP_ERR_NO_MEMORY);
	cr_assert_eq(other.size, 0x5555555555555555, "untouched");
}

Test(fxt_ring, memory_that_cannot_be_locked_is_told)
{
	struct rlimit limit = {0, 0};
	struct fxt_ring other;

	cr_assert(ring.locked == (ring.lock_errno == 0));
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	/* Root may always lock memory (CAP_IPC_LOCK); the test is a process of its own. */
	if (geteuid() == 0 && setuid(65534) != 0)
		cr_skip_test("root cannot become nobody here, and may lock any memory");
	/* The sanitizers' runtimes make mlock() do nothing, successfully. */
	if (mlock(&limit, sizeof(limit)) == 0)
		cr_skip_test("memory can be locked here in spite of RLIMIT_MEMLOCK 0");
	cr_assert_eq(fxt_ring_init(&other, BYTES, NULL), GP_OK);
	cr_assert_not(other.locked);
	cr_assert_neq(other.lock_errno, 0);
	fxt_ring_deinit(&other);
}

Test(fxt_ring, empty_gives_nothing)
{
	cr_assert_eq(fxt_ring_size_available(&ring), 0);
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), 0);
	cr_assert(fxt_ring_flush_drops(&ring));
	cr_assert_eq(fxt_ring_size_available(&ring), 0);
}

Test(fxt_ring, whole_records_only)
{
	cr_assert(fxt_ring_write(&ring, make(3, 1), 3, 0));
	cr_assert(fxt_ring_write(&ring, make(5, 2), 5, 0));
	cr_assert_eq(fxt_ring_size_available(&ring), 64);
	cr_assert_eq(fxt_ring_read(&ring, out, 23), 0);
	cr_assert_eq(fxt_ring_read(&ring, out, 63), 24);
	cr_assert_eq(out[2], 1);
	cr_assert_eq(fxt_ring_size_available(&ring), 40);
	cr_assert_eq(fxt_ring_read(&ring, out, 40), 40);
	cr_assert_eq(memcmp(out, make(5, 2), 40), 0);
	cr_assert_eq(fxt_ring_size_available(&ring), 0);
}

/* Sizes that do not divide the ring's: every offset becomes a record's begin at some time. */
Test(fxt_ring, wrapping_is_not_visible)
{
	for (uint64_t i = 0; i < 3 * WORDS; i++) {
		size_t words = 7 + i % 5;

		cr_assert(fxt_ring_write(&ring, make(words, i), words, i));
		cr_assert(fxt_ring_write(&ring, make(words + 1, ~i), words + 1, i));
		cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), (2 * words + 1) * 8);
		cr_assert_eq(memcmp(out, make(words, i), words * 8), 0);
		cr_assert_eq(memcmp(out + words, make(words + 1, ~i), (words + 1) * 8), 0);
	}
	cr_assert_eq(fxt_ring_totals(&ring).records_written, 6 * WORDS);
}

Test(fxt_ring, can_be_filled_to_the_last_word)
{
	for (size_t i = 0; i < WORDS / 8; i++)
		cr_assert(fxt_ring_write(&ring, make(8, i), 8, i));
	cr_assert_eq(fxt_ring_size_available(&ring), BYTES);
	cr_assert_not(fxt_ring_write(&ring, make(1, 0), 1, 0));
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), BYTES);
}

Test(fxt_ring, drops_are_counted_and_told_before_the_next_record)
{
	struct fxt_ring_totals totals;

	/* 512 words: 511 used, one free. */
	cr_assert(fxt_ring_write(&ring, make(100, 0), 100, 1));
	cr_assert(fxt_ring_write(&ring, make(411, 0), 411, 1));
	cr_assert_not(fxt_ring_write(&ring, make(2, 0), 2, 10));
	/* Would fit alone, but the account has to go in front of it. */
	cr_assert_not(fxt_ring_write(&ring, make(1, 0), 1, 11));
	cr_assert_not(fxt_ring_write(&ring, make(3, 0), 3, 12));
	totals = fxt_ring_totals(&ring);
	cr_assert_eq(totals.records_written, 2);
	cr_assert_eq(totals.records_dropped, 3);
	cr_assert_eq(totals.bytes_dropped, 48);

	cr_assert_eq(fxt_ring_read(&ring, out, 800), 800);
	cr_assert(fxt_ring_write(&ring, make(2, 77), 2, 20));
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), (411 + 7 + 2) * 8);
	/* u32 arguments, names 3 and 4 */
	static const uint64_t expected[] = {
		0x0002000100240074, 10, 0x40000000, 0x40000001, 0x0000000300030012,
		0x0000003000040012, 12};
	cr_assert_eq(memcmp(out + 411, expected, sizeof(expected)), 0);
	cr_assert_eq(memcmp(out + 418, make(2, 77), 16), 0);
	/* Told once. */
	cr_assert(fxt_ring_write(&ring, make(2, 78), 2, 21));
	cr_assert_eq(fxt_ring_size_available(&ring), 16);
}

Test(fxt_ring, drops_nothing_came_after_are_flushed)
{
	cr_assert(fxt_ring_write(&ring, make(512, 0), 512, 1));
	cr_assert_not(fxt_ring_write(&ring, make(2, 0), 2, 10));
	cr_assert_not(fxt_ring_flush_drops(&ring), "no room yet");
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), BYTES);
	cr_assert(fxt_ring_flush_drops(&ring));
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), 56);
	cr_assert(is_drop_record(out));
	cr_assert_eq(out[1], 10);
	cr_assert_eq(out[6], 10);
}

Test(fxt_ring, what_is_no_record_is_dropped_and_counted)
{
	make(4, 0);
	cr_assert_not(fxt_ring_write(&ring, record, 0, 1));
	cr_assert_not(fxt_ring_write(&ring, record, 3, 1));
	cr_assert_not(fxt_ring_write(&ring, record, 5, 1));
	cr_assert_not(fxt_ring_write(&ring, record, (size_t)1 << 61, 1));
	record[0] = FXT_TYPE_LARGE | 4 << 4;
	cr_assert_not(fxt_ring_write(&ring, record, 4, 1));
	cr_assert_eq(fxt_ring_totals(&ring).records_dropped, 5);
	cr_assert_eq(fxt_ring_totals(&ring).bytes_dropped, 0);
	cr_assert(fxt_ring_flush_drops(&ring));
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), 56);
	cr_assert_eq(out[4] >> 32, 5);
}

/* A record larger than the ring never fits; it must not block those that do. */
Test(fxt_ring, a_record_larger_than_the_ring)
{
	cr_assert_not(fxt_ring_write(&ring, make(600, 0), 600, 1));
	cr_assert(fxt_ring_write(&ring, make(2, 5), 2, 2));
	cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), 72);
	cr_assert_eq(out[5] >> 32, 4800);
}

/* More than 32 bits of loss need several drop records; they add up. */
Test(fxt_ring, an_account_of_more_than_32_bits_is_split)
{
	uint64_t records = 3ull << 32, bytes = 11ull << 32, sum_records = 0, sum_bytes = 0;
	size_t size;

	ring.pending.records = records;
	ring.pending.bytes = bytes;
	cr_assert(fxt_ring_write(&ring, make(2, 0), 2, 20));
	cr_assert(fxt_ring_flush_drops(&ring));
	size = fxt_ring_read(&ring, out, sizeof(out)) / 8;
	for (size_t i = 0; i < size; i += fxt_header_words(out[i]))
		if (is_drop_record(out + i)) {
			sum_records += out[i + 4] >> 32;
			sum_bytes += out[i + 5] >> 32;
		}
	cr_assert_eq(sum_records, records);
	cr_assert_eq(sum_bytes, bytes);
	/* Bytes beyond, with a single record: the account stays open until the last byte is told.
	 */
	ring.pending.records = 1;
	ring.pending.bytes = 3ull << 32;
	cr_assert(fxt_ring_flush_drops(&ring));
	size = fxt_ring_read(&ring, out, sizeof(out)) / 8;
	sum_records = sum_bytes = 0;
	for (size_t i = 0; i < size; i += 7) {
		sum_records += out[i + 4] >> 32;
		sum_bytes += out[i + 5] >> 32;
	}
	cr_assert_eq(sum_records, 1);
	cr_assert_eq(sum_bytes, 3ull << 32);
}

/* Something scribbles over the buffer: the consumer must not read outside, nor hang. */
Test(fxt_ring, an_overwritten_buffer_is_thrown_away_and_counted)
{
	static const uint64_t headers[] = {0, 0xffffffffffffffff, 0xfff5, 0x20000000f};

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		uint64_t before = fxt_ring_totals(&ring).bytes_discarded;

		cr_assert(fxt_ring_write(&ring, make(3, 1), 3, 0));
		cr_assert(fxt_ring_write(&ring, make(4, 2), 4, 0));
		ring.buffer[(i * 7 + 3) % WORDS] = headers[i];
		cr_assert_eq(fxt_ring_read(&ring, out, sizeof(out)), 24);
		cr_assert_eq(fxt_ring_size_available(&ring), 0);
		cr_assert_eq(fxt_ring_totals(&ring).bytes_discarded - before, 32);
	}
}

Test(fxt_ring, two_threads_lose_nothing_uncounted, .timeout = 120)
{
	struct fxt_ring_stress stress = {0};
	const char *wrong = fxt_ring_stress(&ring, 200000, &stress);

	cr_assert_null(wrong, "%s at record %lu", wrong, stress.last);
	cr_assert_neq(stress.seen, 0);
	cr_assert_neq(stress.dropped_records, 0, "never full: the test proves less than it says");
}
