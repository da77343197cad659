/* FXT against memcpy: how many records a second the writer and the reader handle, as a ratio to
 * copying the same bytes in the same run. Goal: at least 0.3.
 *
 * A record is a full sample. Measured, interleaved round by round, medians of the rounds:
 *   memcpy   the encoded bytes, one copy per record, into another buffer
 *   encode   fxt_sample_encode() of every record into a buffer of the same size; the sample lies
 *            there, only its time and vCPU change: filling it in is the business of its owner
 *   ring     encode, fxt_ring_write() and fxt_ring_read() in batches, by one thread
 *   read     fxt_reader_next(), fxt_sample_decode() and adding up every program counter
 * All walk through the same amount of memory, larger than the second-level cache.
 */
#include "fxt/ring.h"
#include "tests/unit/fxt_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BYTES (8u << 20)
#define RING_BYTES (256u << 10)
#define ROUNDS 31
#define WAYS 4

static volatile uint64_t sink;

/* Of this thread: what others on the machine do must not count. */
static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static struct fxt_sample make_sample(const uint64_t *stack, size_t depth)
{
	return (struct fxt_sample){
		.flags = FXT_SAMPLE_KNOWN_FLAGS &
			 ~(uint64_t)(FXT_SAMPLE_CONTINUATION | FXT_SAMPLE_COMPLETION),
		.process = 1,
		.thread = 2,
		.stack = stack,
		.depth = depth,
		.mode = FXT_MODE_GUEST_KERNEL,
		.stack_end = FXT_STACK_END_ROOT,
		.address_space = 0x1000,
		.addressing = FXT_ADDRESSING_LONG_4,
		.kernel_frames = depth / 2,
	};
}

/* The sample is its owner's: what changes from one to the next is not measured as encoding. */
static void next_sample(struct fxt_sample *sample)
{
	sample->timestamp++;
	sample->vcpu = sample->timestamp & 3;
}

struct bench {
	uint64_t *file; /* preamble and records */
	uint64_t *target;
	size_t preamble; /* words */
	size_t record;   /* words */
	size_t count;
	size_t depth;
	uint64_t stack[FXT_SAMPLE_DEPTH_MAX];
	struct fxt_ring ring;
};

static void copy_all(struct bench *bench)
{
	const uint64_t *from = bench->file + bench->preamble;

	for (size_t i = 0; i < bench->count; i++)
		memcpy(bench->target + i * bench->record, from + i * bench->record,
		       bench->record * 8);
	sink += bench->target[bench->count / 2];
}

static void encode_all(struct bench *bench)
{
	struct fxt_sample sample = make_sample(bench->stack, bench->depth);

	for (size_t i = 0; i < bench->count; i++) {
		next_sample(&sample);
		if (fxt_sample_encode(&sample, bench->target + i * bench->record, bench->record) !=
		    bench->record)
			abort();
	}
}

static void ring_all(struct bench *bench)
{
	uint64_t scratch[FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX)];
	size_t batch = RING_BYTES / 2 / (bench->record * 8), used = 0;
	struct fxt_sample sample = make_sample(bench->stack, bench->depth);

	for (size_t i = 0; i < bench->count; i++) {
		size_t words;

		next_sample(&sample);
		words = fxt_sample_encode(&sample, scratch, ARRAY_SIZE(scratch));
		if (!fxt_ring_write(&bench->ring, scratch, words, i))
			abort();
		if (i % batch == batch - 1 || i == bench->count - 1)
			used += fxt_ring_read(&bench->ring, (char *)bench->target + used,
					      BYTES - used);
	}
	if (used != bench->count * bench->record * 8)
		abort();
}

static void read_all(struct bench *bench)
{
	struct fxt_reader reader;
	struct fxt_record record;
	struct fxt_sample sample;
	uint64_t sum = 0;
	size_t samples = 0;

	if (fxt_reader_init(&reader, bench->file,
			    (bench->preamble + bench->count * bench->record) * 8, NULL) != GP_OK)
		abort();
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind != FXT_KIND_BLOB || fxt_sample_decode(&record.blob, &sample))
			continue;
		for (size_t i = 0; i < sample.depth; i++)
			sum += sample.stack[i];
		samples++;
	}
	if (samples != bench->count)
		abort();
	sink += sum;
	fxt_reader_deinit(&reader);
}

static void run(struct bench *bench, size_t depth)
{
	static const struct {
		const char *name;
		void (*run)(struct bench *bench);
	} ways[WAYS] = {{"memcpy", copy_all},
			{"encode", encode_all},
			{"ring", ring_all},
			{"read", read_all}};
	static double times[WAYS][ROUNDS];
	struct fxt_sample sample;

	bench->depth = depth;
	bench->record = FXT_SAMPLE_WORDS(depth) - 2; /* all fields but the continuations */
	bench->preamble = fxt_write_preamble(bench->file, FXT_PREAMBLE_WORDS);
	bench->count = BYTES / (bench->record * 8);
	sample = make_sample(bench->stack, depth);
	for (size_t i = 0; i < bench->count; i++) {
		next_sample(&sample);
		if (fxt_sample_encode(&sample, bench->file + bench->preamble + i * bench->record,
				      bench->record) != bench->record)
			abort();
	}
	for (size_t round = 0; round < ROUNDS; round++)
		for (size_t way = 0; way < WAYS; way++) {
			double start = seconds();

			ways[way].run(bench);
			times[way][round] = seconds() - start;
		}
	for (size_t way = 0; way < WAYS; way++)
		qsort(times[way], ROUNDS, sizeof(double), compare);
	for (size_t way = 0; way < WAYS; way++)
		printf("fxt: %3zu frames (%4zu B)  %-6s  %6.1f ns/record  %6.1f M records/s  "
		       "ratio to memcpy %.2f\n",
		       depth, bench->record * 8, ways[way].name,
		       times[way][ROUNDS / 2] / (double)bench->count * 1e9,
		       (double)bench->count / times[way][ROUNDS / 2] * 1e-6,
		       times[0][ROUNDS / 2] / times[way][ROUNDS / 2]);
}

int main(void)
{
	static struct bench bench;

	bench.file = malloc(BYTES + FXT_PREAMBLE_WORDS * 8);
	bench.target = malloc(BYTES);
	if (!bench.file || !bench.target || fxt_ring_init(&bench.ring, RING_BYTES, NULL) != GP_OK)
		return 1;
	for (size_t i = 0; i < FXT_SAMPLE_DEPTH_MAX; i++)
		bench.stack[i] = 0xffffffff81000000 + i * 16;
	run(&bench, 4);
	run(&bench, 16);
	run(&bench, 64);
	fxt_ring_deinit(&bench.ring);
	free(bench.file);
	free(bench.target);
	return 0;
}
