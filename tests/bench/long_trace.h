/* Samples of a long recording, for benchmarks of what reads one: the same at every run. Stacks of
 * LONG_FRAMES kernel functions, 4 vCPUs at 4 kHz, 50 processes that take turns. */
#ifndef TESTS_BENCH_LONG_TRACE_H
#define TESTS_BENCH_LONG_TRACE_H

#include "fxt/metadata.h"
#include "fxt/record.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LONG_KERNEL UINT64_C(0xffffffff81000000)
#define LONG_SYMBOL_BYTES 0x200
#define LONG_PERIOD_NS 250000

enum { LONG_FRAMES = 30, LONG_SYMBOLS = 30000, LONG_VCPUS = 4, LONG_PROCESSES = 50 };

struct long_sample {
	uint64_t time_ns;
	uint32_t vcpu;
	uint32_t process;            /* its only thread has the same number */
	uint64_t stack[LONG_FRAMES]; /* leaf first */
};

struct long_samples {
	uint64_t state;
	uint64_t count;
	uint64_t repeat; /* after so many samples the same stacks come again; 0: never */
};

static inline uint64_t long_random(struct long_samples *samples)
{
	/* Marsaglia's xorshift. */
	if (!samples->state)
		samples->state = 88172645463325252u;
	samples->state ^= samples->state << 13;
	samples->state ^= samples->state >> 7;
	samples->state ^= samples->state << 17;
	return samples->state;
}

/* A call tree whose branches are taken with falling likelihood, as real ones are: a hot path, and a
 * long tail of rare ones. Each call is at a place of its own, the leaf anywhere in its function. */
static inline void long_next(struct long_samples *samples, struct long_sample *sample)
{
	uint64_t path = 1;

	if (samples->repeat && samples->count % samples->repeat == 0)
		samples->state = 0;
	sample->vcpu = samples->count % LONG_VCPUS;
	sample->time_ns = 1 + samples->count * (LONG_PERIOD_NS / LONG_VCPUS);
	sample->process = 1 + (uint32_t)((samples->repeat ? samples->count % samples->repeat
							  : samples->count) /
					 512 % LONG_PROCESSES);
	samples->count++;
	for (int i = LONG_FRAMES - 1; i >= 0; i--) {
		uint64_t callee = 0, offset;

		while (callee < 5 && long_random(samples) % 32 == 0)
			callee++;
		path = (path * 31 + callee) * UINT64_C(0x9e3779b97f4a7c15) >> 3;
		offset = i ? 5 + (path >> 20) % (LONG_SYMBOL_BYTES - 5)
			   : long_random(samples) % LONG_SYMBOL_BYTES;
		sample->stack[i] = LONG_KERNEL + path % LONG_SYMBOLS * LONG_SYMBOL_BYTES + offset;
	}
}

static inline void long_process_name(uint32_t process, char name[16])
{
	snprintf(name, 16, "worker%u", process);
}

static inline void long_symbol_name(uint32_t symbol, char name[32])
{
	snprintf(name, 32, "function_%05u", symbol);
}

static inline void long_put(FILE *to, const uint64_t *words, size_t count)
{
	if (!count)
		abort(); /* an encoder's mistake; a full disk is for who closes the file to see */
	fwrite(words, 8, count, to);
}

/* The samples as a trace, what the recorder writes for a guest whose tasks are known. */
static inline void long_write_trace(FILE *to, uint64_t count, uint64_t repeat)
{
	static uint64_t words[FXT_RECORD_WORDS_MAX];
	const struct fxt_argument arguments[] = {
		fxt_argument_u64(FXT_SESSION_VCPUS, LONG_VCPUS),
		fxt_argument_u64(FXT_SESSION_PERIOD, LONG_PERIOD_NS)};
	struct long_samples samples = {.repeat = repeat};

	long_put(to, words, fxt_write_preamble(words, FXT_RECORD_WORDS_MAX));
	long_put(to, words,
		 fxt_metadata_encode(FXT_SESSION, 1, FXT_VCPU_PROCESS, arguments, 2, words,
				     FXT_RECORD_WORDS_MAX));
	for (uint32_t process = 1; process <= LONG_PROCESSES; process++) {
		char name[16];

		long_process_name(process, name);
		long_put(to, words,
			 fxt_encode_process_name(process, fxt_text(name), words,
						 FXT_RECORD_WORDS_MAX));
	}
	for (uint64_t i = 0; i < count; i++) {
		struct long_sample next;
		struct fxt_sample sample = {
			.flags = FXT_SAMPLE_KNOWN_FLAGS &
				 ~(uint64_t)(FXT_SAMPLE_CONTINUATION | FXT_SAMPLE_COMPLETION),
			.stack = next.stack,
			.depth = LONG_FRAMES,
			.mode = FXT_MODE_GUEST_KERNEL,
			.stack_end = FXT_STACK_END_ROOT,
			.addressing = FXT_ADDRESSING_LONG_4,
			.kernel_frames = LONG_FRAMES,
		};

		long_next(&samples, &next);
		sample.timestamp = next.time_ns;
		sample.vcpu = next.vcpu;
		sample.process = sample.thread = next.process;
		sample.address_space = next.process << 12;
		long_put(to, words, fxt_sample_encode(&sample, words, FXT_RECORD_WORDS_MAX));
	}
	for (uint32_t i = 0; i < LONG_SYMBOLS; i++) {
		char name[32];
		struct fxt_symbol symbol = {.start = LONG_KERNEL + (uint64_t)i * LONG_SYMBOL_BYTES,
					    .size = LONG_SYMBOL_BYTES,
					    .name = name};
		size_t taken;

		long_symbol_name(i, name);
		symbol.name_bytes = (uint32_t)strlen(name);
		long_put(to, words,
			 fxt_symbols_encode(&symbol, 1, words, FXT_RECORD_WORDS_MAX, &taken));
	}
	long_put(to, words,
		 fxt_metadata_encode(FXT_SESSION_END, 1, FXT_VCPU_PROCESS, NULL, 0, words,
				     FXT_RECORD_WORDS_MAX));
}

#endif
