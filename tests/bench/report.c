/* Reading a long recording: guestprof report on a synthetic trace of BENCH_SAMPLES (1,000,000)
 * stacks of 30 frames, next to counting the same file's bytes in the same run.
 *
 * Interleaved, medians. CPU time, so that others on the host count for little. The mapped file
 * counts as resident memory of whoever reads it; the anonymous part is what the report itself
 * needs. The file lies next to this program while it runs.
 */
#include "fxt/metadata.h"
#include "fxt/record.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KERNEL UINT64_C(0xffffffff81000000)
#define SYMBOL_BYTES 0x200

enum { FRAMES = 30, SYMBOLS = 30000, ROUNDS = 3, BATCH_WORDS = 1 << 17 };

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

struct output {
	int fd;
	uint64_t words[BATCH_WORDS];
	size_t used;
	bool failed;
};

static void flush(struct output *out)
{
	size_t bytes = out->used * 8, done = 0;

	while (done < bytes && !out->failed) {
		ssize_t written = write(out->fd, (const char *)out->words + done, bytes - done);

		if (written < 0 && errno != EINTR)
			out->failed = true;
		done += written > 0 ? (size_t)written : 0;
	}
	out->used = 0;
}

static uint64_t *place(struct output *out)
{
	if (BATCH_WORDS - out->used < FXT_RECORD_WORDS_MAX)
		flush(out);
	return out->words + out->used;
}

/* A few hot call paths and a long tail, as kernels have them; each call is at a place of its own,
 * the leaf anywhere in its function. */
static void make_stack(uint64_t stack[FRAMES])
{
	uint64_t path = next_random() % 100 < 70 ? next_random() % 50 : next_random() % 5000;

	for (uint64_t i = 0; i < FRAMES; i++) {
		uint64_t function = (path * 7919 + i * i * 101) % SYMBOLS;
		uint64_t offset = i ? 5 + (path * 13 + i * 37) % (SYMBOL_BYTES - 5)
				    : next_random() % SYMBOL_BYTES;

		stack[i] = KERNEL + function * SYMBOL_BYTES + offset;
	}
}

static bool write_trace(int fd, uint64_t samples)
{
	static struct output out;
	const struct fxt_argument arguments[] = {fxt_argument_u64(FXT_SESSION_VCPUS, 4),
						 fxt_argument_u64(FXT_SESSION_PERIOD, 250000)};

	out.fd = fd;
	out.used += fxt_write_preamble(place(&out), FXT_RECORD_WORDS_MAX);
	out.used += fxt_metadata_encode(FXT_SESSION, 1, FXT_VCPU_PROCESS, arguments, 2, place(&out),
					FXT_RECORD_WORDS_MAX);
	for (uint64_t i = 0; i < samples; i++) {
		uint64_t stack[FRAMES];
		struct fxt_sample sample = {
			.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK | FXT_SAMPLE_VCPU |
				 FXT_SAMPLE_MODE | FXT_SAMPLE_STACK_END | FXT_SAMPLE_ADDRESS_SPACE |
				 FXT_SAMPLE_ADDRESSING,
			.timestamp = 1 + i * 62500,
			.stack = stack,
			.depth = FRAMES,
			.vcpu = i % 4,
			.mode = FXT_MODE_GUEST_KERNEL,
			.stack_end = FXT_STACK_END_ROOT,
			.addressing = FXT_ADDRESSING_LONG_4,
		};

		make_stack(stack);
		out.used += fxt_sample_encode(&sample, place(&out), FXT_RECORD_WORDS_MAX);
	}
	for (uint64_t i = 0; i < SYMBOLS; i++) {
		char name[32];
		struct fxt_symbol symbol = {
			.start = KERNEL + i * SYMBOL_BYTES, .size = SYMBOL_BYTES, .name = name};
		size_t taken;

		symbol.name_bytes =
			(uint32_t)snprintf(name, sizeof(name), "function_%05u", (unsigned)i);
		out.used +=
			fxt_symbols_encode(&symbol, 1, place(&out), FXT_RECORD_WORDS_MAX, &taken);
	}
	out.used += fxt_metadata_encode(FXT_SESSION_END, 1, FXT_VCPU_PROCESS, NULL, 0, place(&out),
					FXT_RECORD_WORDS_MAX);
	flush(&out);
	return !out.failed;
}

struct cost {
	double cpu; /* seconds, user and system */
	double wall;
	long peak_kib;
	long anonymous_kib;
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static long anonymous_kib(pid_t child)
{
	char path[64], line[128];
	long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)child);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "RssAnon:", 8))
			kib = strtol(line + 8, NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

/* Runs a command without output; false: it failed. */
static bool run(char *const arguments[], struct cost *cost)
{
	double begin = seconds();
	struct rusage usage;
	pid_t child = fork();
	int status;

	if (child < 0)
		return false;
	if (!child) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		execvp(arguments[0], arguments);
		_exit(127);
	}
	*cost = (struct cost){0};
	while (!wait4(child, &status, WNOHANG, &usage)) {
		long kib = anonymous_kib(child);

		cost->anonymous_kib = kib > cost->anonymous_kib ? kib : cost->anonymous_kib;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	cost->wall = seconds() - begin;
	cost->cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	cost->peak_kib = usage.ru_maxrss;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static int compare(const void *left, const void *right)
{
	const struct cost *a = left, *b = right;

	return (a->cpu > b->cpu) - (a->cpu < b->cpu);
}

int main(void)
{
	const char *text = getenv("BENCH_SAMPLES");
	uint64_t samples = text ? strtoull(text, NULL, 10) : 1000000;
	char directory[400], trace[512], guestprof[512];
	ssize_t length = readlink("/proc/self/exe", directory, sizeof(directory) - 1);
	struct cost copy[ROUNDS], report[ROUNDS];
	char read_block[] = "bs=1M", from[600];
	bool good = true;
	off_t size;
	int fd;

	if (length < 0)
		return 1;
	directory[length] = 0;
	*strrchr(directory, '/') = 0;
	snprintf(trace, sizeof(trace), "%s/report.fxt", directory);
	snprintf(guestprof, sizeof(guestprof), "%s/../../guestprof", directory);
	snprintf(from, sizeof(from), "if=%s", trace);
	fd = open(trace, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || !write_trace(fd, samples)) {
		printf("not measured: %s: %s\n", trace, strerror(errno));
		unlink(trace);
		return 0;
	}
	size = lseek(fd, 0, SEEK_END);
	close(fd);
	for (int round = 0; round < ROUNDS && good; round++)
		good = run((char *[]){(char[]){"dd"}, from, (char[]){"of=/dev/null"}, read_block,
				      (char[]){"status=none"}, NULL},
			   &copy[round]) &&
		       run((char *[]){guestprof, (char[]){"report"}, trace, NULL}, &report[round]);
	unlink(trace);
	if (!good) {
		printf("not measured: %s report or dd failed\n", guestprof);
		return 0;
	}
	qsort(copy, ROUNDS, sizeof(copy[0]), compare);
	qsort(report, ROUNDS, sizeof(report[0]), compare);
	printf("%llu samples of %d frames, %d symbols, %.1f MiB\n", (unsigned long long)samples,
	       FRAMES, SYMBOLS, (double)size / (1 << 20));
	printf("dd to /dev/null    %6.3f s CPU  %6.3f s\n", copy[ROUNDS / 2].cpu,
	       copy[ROUNDS / 2].wall);
	printf("guestprof report   %6.3f s CPU  %6.3f s  %.1f x  %.0f ns per frame; %.1f MiB "
	       "resident at most, %.1f MiB of it not the file\n",
	       report[ROUNDS / 2].cpu, report[ROUNDS / 2].wall,
	       copy[ROUNDS / 2].cpu > 0 ? report[ROUNDS / 2].cpu / copy[ROUNDS / 2].cpu : 0,
	       report[ROUNDS / 2].cpu * 1e9 / (double)(samples * FRAMES),
	       (double)report[ROUNDS / 2].peak_kib / 1024,
	       (double)report[ROUNDS / 2].anonymous_kib / 1024);
	return 0;
}
