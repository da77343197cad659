/* Reading a long recording: guestprof report on traces of BENCH_SAMPLES (1,000,000) stacks of 30
 * frames, next to copying the same file's bytes in the same run; then how its memory grows: with
 * ten times as many samples of the same stacks (goal: not at all), and with the number of distinct
 * stacks.
 *
 * Interleaved, medians. CPU time, so that others on the host count for little. The mapped file
 * counts as resident memory of whoever reads it; the anonymous part is what the report itself
 * needs. The files lie next to this program while it runs; the largest has 340 bytes a sample.
 */
#include "tests/bench/child.h"
#include "tests/bench/long_trace.h"

#include <errno.h>

enum { ROUNDS = 3 };

/* The size of the file; 0: it cannot be written. */
static off_t write_trace(const char *path, uint64_t samples, uint64_t repeat)
{
	FILE *file = fopen(path, "we");
	off_t size;
	bool good;

	if (!file)
		return 0;
	long_write_trace(file, samples, repeat);
	size = ftello(file);
	good = !ferror(file);
	return fclose(file) || !good ? 0 : size;
}

static void measure(const char *folder, uint64_t samples, uint64_t repeat, int rounds)
{
	char trace[512], guestprof[512], from[600];
	struct cost copies[ROUNDS], reports[ROUNDS], copy, report;
	bool good = true;
	off_t size;

	snprintf(trace, sizeof(trace), "%s/report.fxt", folder);
	snprintf(guestprof, sizeof(guestprof), "%s/../../guestprof", folder);
	snprintf(from, sizeof(from), "if=%s", trace);
	size = write_trace(trace, samples, repeat);
	if (!size) {
		printf("%9llu samples: not measured: %s: %s\n", (unsigned long long)samples, trace,
		       strerror(errno));
		unlink(trace);
		return;
	}
	for (int round = 0; round < rounds && good; round++)
		good = run_child((const char *[]){"dd", from, "bs=1M", "status=none", NULL},
				 "/dev/null", &copies[round]) &&
		       run_child((const char *[]){guestprof, "report", trace, NULL}, "/dev/null",
				 &reports[round]);
	unlink(trace);
	if (!good) {
		printf("not measured: %s report or dd failed\n", guestprof);
		return;
	}
	copy = median_cost(copies, (size_t)rounds);
	report = median_cost(reports, (size_t)rounds);
	printf("%9llu samples, stacks of %8llu, %6.1f MiB: dd %6.3f s CPU; guestprof report %6.3f "
	       "s "
	       "CPU, %.1f x, %.1f ns per frame; %6.1f MiB resident at most, %5.1f MiB of it not "
	       "the file\n",
	       (unsigned long long)samples, (unsigned long long)repeat, (double)size / (1 << 20),
	       copy.cpu, report.cpu, copy.cpu > 0 ? report.cpu / copy.cpu : 0,
	       report.cpu * 1e9 / (double)(samples * LONG_FRAMES), (double)report.peak_kib / 1024,
	       (double)report.anonymous_kib / 1024);
}

int main(void)
{
	const char *text = getenv("BENCH_SAMPLES");
	uint64_t samples = text ? strtoull(text, NULL, 10) : 1000000;
	char folder[400];

	if (!own_folder(folder, sizeof(folder)))
		return 1;
	measure(folder, samples, samples, ROUNDS);
	measure(folder, samples, samples / 10, 1);
	measure(folder, samples * 10, samples, 1);
	return 0;
}
