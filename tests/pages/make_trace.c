/* Writes traces for the tests of the HTML pages.
 *
 *     make_trace hostile FILE      names that want to be markup and script; known figures
 *     make_trace base FILE         the same guest with other shares, to compare with
 *     make_trace wild FILE         times, periods, numbers and depths that no guest has
 *     make_trace large FILE COUNT  COUNT samples of 30 frames
 */
#include "fxt/metadata.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL UINT64_C(0xffffffff81000000)
#define PROGRAM UINT64_C(0x400000)
#define FUNCTION_BYTES 0x100
#define PERIOD 1000000
#define LARGE_FUNCTIONS 5000
#define LARGE_DEPTH 30

static FILE *file;
static uint64_t words[4096];

static void put(size_t count)
{
	if (!count || fwrite(words, 8, count, file) != count) {
		perror("make_trace");
		exit(1);
	}
}

static void put_metadata(const char *name, const struct fxt_argument *arguments, size_t count)
{
	put(fxt_metadata_encode(name, 1, FXT_VCPU_PROCESS, arguments, count, words, 4096));
}

static void put_symbol(uint32_t kind, uint64_t start, const char *name)
{
	struct fxt_symbol symbol = {.start = start,
				    .size = FUNCTION_BYTES,
				    .kind = kind,
				    .name = name,
				    .name_bytes = (uint32_t)strlen(name)};
	size_t taken;

	put(fxt_symbols_encode(&symbol, 1, words, 4096, &taken));
}

static void put_sample(uint64_t vcpu, uint64_t time, uint64_t mode, uint64_t process,
		       const uint64_t *stack, size_t depth, size_t kernel_frames,
		       uint64_t completes)
{
	struct fxt_sample sample = {.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
					     FXT_SAMPLE_MODE | FXT_SAMPLE_STACK_END |
					     (process ? FXT_SAMPLE_PROCESS | FXT_SAMPLE_THREAD : 0),
				    .process = process,
				    .thread = process,
				    .timestamp = time,
				    .vcpu = vcpu,
				    .mode = mode,
				    .stack_end = FXT_STACK_END_ROOT};

	if (completes) {
		sample.flags |= FXT_SAMPLE_COMPLETION;
		sample.completion = completes;
	}
	if (depth) {
		sample.flags |= FXT_SAMPLE_STACK | FXT_SAMPLE_KERNEL_FRAMES;
		sample.stack = stack;
		sample.depth = depth;
		sample.kernel_frames = kernel_frames;
	}
	put(fxt_sample_encode(&sample, words, 4096));
}

static void put_partial(uint64_t vcpu, uint64_t time, uint64_t id)
{
	struct fxt_sample sample = {.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
					     FXT_SAMPLE_MODE | FXT_SAMPLE_CONTINUATION,
				    .continuation = id,
				    .timestamp = time,
				    .vcpu = vcpu,
				    .mode = FXT_MODE_GUEST_KERNEL};

	put(fxt_sample_encode(&sample, words, 4096));
}

static void put_line(uint64_t time, const char *text)
{
	struct fxt_log line = {.timestamp = time,
			       .thread = {.process = FXT_VCPU_PROCESS, .thread = FXT_VCPU_PROCESS},
			       .text = fxt_text(text)};

	put(fxt_encode_log(&line, words, 4096));
}

static void begin(const char *banner, uint64_t vcpus, uint64_t period)
{
	put(fxt_write_preamble(words, 4096));
	put_metadata(FXT_SESSION,
		     (struct fxt_argument[]){fxt_argument_u64(FXT_SESSION_PERIOD, period),
					     fxt_argument_u64(FXT_SESSION_VCPUS, vcpus),
					     fxt_argument_u64(FXT_SESSION_DEPTH, 64)},
		     3);
	put_metadata(FXT_GUEST,
		     (struct fxt_argument[]){fxt_argument_text(FXT_GUEST_BANNER, banner)}, 1);
}

static void end(const char *reason)
{
	put_metadata(FXT_SESSION_END,
		     (struct fxt_argument[]){fxt_argument_text(FXT_SESSION_END_REASON, reason)}, 1);
}

/* What a guest might call its functions to get out of wherever they are put. */
static const char *const hostile_names[] = {
	"</script><img src=x onerror=alert(1)>",
	"<!--<script>alert(1)//",
	"\"><svg onload=alert(1)>",
	"\xe2\x80\xa8\xe2\x80\xa9',alert(1),'",
	"__proto__",
	"constructor",
	"${alert(1)}`;alert(1)//]]>",
	"a&amp;&lt;b",
	"spin",
	"schedule",
};
enum { HOSTILE = sizeof(hostile_names) / sizeof(hostile_names[0]) };

static uint64_t inside(uint64_t base, size_t function)
{
	return base + function * FUNCTION_BYTES + 0x10;
}

static void put_drops(uint64_t vcpu, uint64_t from, uint64_t to, uint64_t records)
{
	struct fxt_argument arguments[] = {fxt_argument_u64("num_records", records),
					   fxt_argument_u64("num_bytes", records * 64)};
	struct fxt_event event = {
		.type = FXT_EVENT_DURATION_COMPLETE,
		.timestamp = from,
		.extra = to,
		.thread = {.process = FXT_VCPU_PROCESS, .thread = fxt_vcpu_thread((uint32_t)vcpu)},
		.category = fxt_text("kernel:meta"),
		.name = fxt_text("drop_stats"),
		.arguments = arguments,
		.argument_count = 2};

	put(fxt_encode_event(&event, words, 4096));
}

/* Two vCPUs for a second. vCPU 0 is in the kernel for the first half and in program 7 for the
 * second; vCPU 1 is halted for 300 ticks, then in program 8, which calls itself, and at every
 * tenth tick in the VMM. */
static void write_hostile(uint64_t shift)
{
	begin("<script>alert(1)</script> & Linux version 6", 2, PERIOD);
	put(fxt_encode_process_name(7, fxt_text("<i>evil</i>"), words, 4096));
	put(fxt_encode_process_name(8, fxt_text("recursive"), words, 4096));
	for (uint64_t tick = 1; tick <= 1000; tick++) {
		size_t leaf = (tick + shift) % HOSTILE;
		uint64_t kernel[] = {inside(KERNEL, leaf), inside(KERNEL, HOSTILE - 1)};
		uint64_t program[] = {inside(PROGRAM, leaf), inside(PROGRAM, HOSTILE - 2)};

		uint64_t partial = tick % 100 == 0 && tick < 500 ? tick : 0;

		if (partial)
			put_partial(0, tick * PERIOD - PERIOD / 2, partial);
		if (tick <= 500 - shift * 20)
			put_sample(0, tick * PERIOD, FXT_MODE_GUEST_KERNEL, 0, kernel, 2, 2,
				   partial);
		else
			put_sample(0, tick * PERIOD, FXT_MODE_GUEST_USER, 7, program, 2, 0, 0);
	}
	for (uint64_t tick = 1; tick <= 1000; tick++) {
		uint64_t stack[] = {inside(PROGRAM, 8), inside(PROGRAM, 8), inside(PROGRAM, 7)};

		if (tick > 600 && tick <= 650)
			continue;
		if (tick <= 300)
			put_sample(1, tick * PERIOD, FXT_MODE_HALTED, 0, NULL, 0, 0, 0);
		else
			put_sample(1, tick * PERIOD,
				   tick % 10 ? FXT_MODE_GUEST_USER : FXT_MODE_IN_VMM, 8, stack, 3,
				   0, 0);
	}
	put_drops(1, 600 * PERIOD, 650 * PERIOD, 50);
	put_line(200 * PERIOD, "[    0.200000] the first phase");
	put_line(500 * PERIOD, "<b>console</b></script>");
	put_line(800 * PERIOD, "\033[1mthe last phase\033[0m");
	for (size_t i = 0; i < HOSTILE; i++) {
		put_symbol(FXT_SYMBOL_KERNEL, KERNEL + i * FUNCTION_BYTES, hostile_names[i]);
		put_symbol(FXT_SYMBOL_FILE, PROGRAM + i * FUNCTION_BYTES, hostile_names[i]);
	}
	end("</dd><script>alert(1)</script>");
}

/* The same numbers on every machine: Marsaglia's xorshift. */
static uint64_t random_number(void)
{
	static uint64_t state = UINT64_C(88172645463325252);

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* A call tree whose branches are taken with falling likelihood, as real ones are: hot paths, and a
 * long tail of rare ones. */
static void write_large(uint64_t count)
{
	static char name[64];

	begin("Linux version 6.1.0-large", 4, PERIOD);
	for (uint64_t process = 1; process <= 50; process++) {
		snprintf(name, sizeof(name), "worker%llu", (unsigned long long)process);
		put(fxt_encode_process_name(process, fxt_text(name), words, 4096));
	}
	for (uint64_t i = 0; i < count; i++) {
		uint64_t stack[LARGE_DEPTH], path = 1, process = 1 + (i / 4 / 500) % 50;

		for (size_t level = 0; level < LARGE_DEPTH; level++) {
			uint64_t choice = 0;

			/* Mostly the first callee; each further one a tenth as likely. */
			while (choice < 5 && random_number() % 16 == 0)
				choice++;
			path = (path * 31 + choice) * UINT64_C(0x9e3779b97f4a7c15) >> 3;
			stack[LARGE_DEPTH - 1 - level] =
				inside(level < 12 ? PROGRAM : KERNEL, path % LARGE_FUNCTIONS);
		}
		put_sample(i % 4, (i / 4 + 1) * PERIOD, FXT_MODE_GUEST_KERNEL, process, stack,
			   LARGE_DEPTH, LARGE_DEPTH - 12, 0);
		/* A guest that talks: 20 lines a second. */
		if (i % 200 == 0) {
			snprintf(name, sizeof(name), "[%llu] a line of the console",
				 (unsigned long long)i);
			put_line((i / 4 + 1) * PERIOD, name);
		}
	}
	for (size_t i = 0; i < LARGE_FUNCTIONS; i++) {
		snprintf(name, sizeof(name), "some_kernel_function_%zu", i);
		put_symbol(FXT_SYMBOL_KERNEL, KERNEL + i * FUNCTION_BYTES, name);
		snprintf(name, sizeof(name), "program::some_method_%zu", i);
		put_symbol(FXT_SYMBOL_FILE, PROGRAM + i * FUNCTION_BYTES, name);
	}
	end("powered off");
}

/* Every field at its limits; no end. */
static void write_wild(void)
{
	static const uint64_t numbers[] = {
		0, 1, 1000, UINT64_C(1) << 31, UINT64_C(1) << 53, UINT64_C(1) << 63, UINT64_MAX};
	enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
	static uint64_t stack[FXT_SAMPLE_DEPTH_MAX];

	begin("", UINT64_MAX, PERIOD);
	for (size_t i = 0; i < FXT_SAMPLE_DEPTH_MAX; i++)
		stack[i] = inside(KERNEL, i % 3);
	for (size_t i = 0; i < 3; i++)
		put_symbol(FXT_SYMBOL_KERNEL, KERNEL + i * FUNCTION_BYTES,
			   (char[]){(char)('a' + i), 0});
	for (size_t i = 0; i < NUMBERS * NUMBERS * 4; i++)
		put_sample(numbers[i % NUMBERS], numbers[i / NUMBERS % NUMBERS],
			   numbers[i * 3 % NUMBERS], numbers[i * 5 % NUMBERS], stack,
			   i % 4 ? FXT_SAMPLE_DEPTH_MAX : 0, i % 1000, numbers[i * 2 % NUMBERS]);
	for (size_t i = 0; i + 1 < NUMBERS; i++)
		put_drops(i, numbers[i + 1], numbers[i], numbers[i]);
}

int main(int argc, char **argv)
{
	if (argc < 3 || (!strcmp(argv[1], "large") && argc != 4)) {
		fputs("usage: make_trace hostile|base|wild FILE, or large FILE COUNT\n", stderr);
		return 2;
	}
	file = fopen(argv[2], "w");
	if (!file) {
		perror(argv[2]);
		return 1;
	}
	if (!strcmp(argv[1], "wild"))
		write_wild();
	else if (!strcmp(argv[1], "large"))
		write_large(strtoull(argv[3], NULL, 10));
	else
		write_hostile(!strcmp(argv[1], "base") ? 5 : 0);
	if (fclose(file)) {
		perror(argv[2]);
		return 1;
	}
	return 0;
}
