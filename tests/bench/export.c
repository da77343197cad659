/* guestprof export folded against perf script and folding: BENCH_SAMPLES (1,000,000) samples of 30
 * frames, the same ones as a trace of ours and as a perf.data. Goals: ten times faster, at most
 * half the bytes.
 *
 * Interleaved, medians. Both sides must end with the same folded stacks: else nothing is
 * printed as a figure. The kernel's symbols are in the trace on our side, in a file like
 * /proc/kallsyms on perf's. The folding is tests/unit/readers/fold.awk. Files lie next to
 * this program while it runs.
 */
#include "tests/bench/child.h"
#include "tests/bench/long_trace.h"

#include <linux/perf_event.h>
#include <sys/stat.h>

enum { ROUNDS = 3 };

/* A perf.data file: tools/perf/Documentation/perf.data-file-format.txt of the kernel. */
struct perf_section {
	uint64_t offset;
	uint64_t size;
};

struct perf_header {
	char magic[8];
	uint64_t size;
	uint64_t attribute_size;
	struct perf_section attributes;
	struct perf_section data;
	struct perf_section event_types;
	uint64_t features[4];
};

struct perf_attribute {
	struct perf_event_attr attribute;
	struct perf_section ids;
};

/* What `perf record -a -g -e cpu-clock` asks for. */
struct perf_sample {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time;
	uint32_t cpu, reserved;
	uint64_t period;
	uint64_t chain_length;
	uint64_t chain[1 + LONG_FRAMES];
};

#define FINISHED_ROUND 68 /* tools/lib/perf/include/perf/event.h: sorted up to here */
#define ROUND_SAMPLES 1024

static void put(FILE *to, const void *bytes, size_t size)
{
	fwrite(bytes, 1, size, to); /* write_file() sees errors */
}

static void put_names(FILE *to)
{
	struct {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t start, length, offset;
		char name[24];
	} kernel = {
		.header = {.type = PERF_RECORD_MMAP,
			   .misc = PERF_RECORD_MISC_KERNEL,
			   .size = sizeof(kernel)},
		.pid = UINT32_MAX,
		.start = LONG_KERNEL,
		.length = LONG_SYMBOLS * LONG_SYMBOL_BYTES,
		.offset = LONG_KERNEL,
		.name = "[kernel.kallsyms]_text",
	};

	put(to, &kernel, sizeof(kernel));
	for (uint32_t process = 1; process <= LONG_PROCESSES; process++) {
		struct {
			struct perf_event_header header;
			uint32_t pid, tid;
			char name[16];
		} command = {
			.header = {.type = PERF_RECORD_COMM, .size = sizeof(command)},
			.pid = process,
			.tid = process,
		};

		long_process_name(process, command.name);
		put(to, &command, sizeof(command));
	}
}

static void write_perf_data(FILE *to, uint64_t count)
{
	struct perf_attribute attribute = {
		.attribute = {.type = PERF_TYPE_SOFTWARE,
			      .config = PERF_COUNT_SW_CPU_CLOCK,
			      .size = sizeof(struct perf_event_attr),
			      .sample_period = LONG_PERIOD_NS,
			      .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
					     PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD |
					     PERF_SAMPLE_CALLCHAIN}};
	struct perf_header header = {
		.magic = "PERFILE2",
		.size = sizeof(header),
		.attribute_size = sizeof(attribute),
		.attributes = {sizeof(header), sizeof(attribute)},
		.data = {sizeof(header) + sizeof(attribute), 0},
	};
	const struct perf_event_header finished = {.type = FINISHED_ROUND,
						   .size = sizeof(finished)};
	struct long_samples samples = {0};
	struct perf_sample sample = {
		.header = {.type = PERF_RECORD_SAMPLE,
			   .misc = PERF_RECORD_MISC_KERNEL,
			   .size = sizeof(sample)},
		.period = LONG_PERIOD_NS,
		.chain_length = 1 + LONG_FRAMES,
		.chain = {PERF_CONTEXT_KERNEL},
	};

	put(to, &header, sizeof(header));
	put(to, &attribute, sizeof(attribute));
	put_names(to);
	for (uint64_t i = 0; i < count; i++) {
		struct long_sample next;

		long_next(&samples, &next);
		sample.ip = next.stack[0];
		sample.pid = sample.tid = next.process;
		sample.time = next.time_ns;
		sample.cpu = next.vcpu;
		memcpy(sample.chain + 1, next.stack, sizeof(next.stack));
		put(to, &sample, sizeof(sample));
		if (i % ROUND_SAMPLES == ROUND_SAMPLES - 1)
			put(to, &finished, sizeof(finished));
	}
	header.data.size = (uint64_t)ftell(to) - header.data.offset;
	rewind(to);
	put(to, &header, sizeof(header));
}

static void write_trace(FILE *to, uint64_t count)
{
	long_write_trace(to, count, 0);
}

static void write_kallsyms(FILE *to, uint64_t count)
{
	(void)count;
	/* What perf checks that it has the right kernel by. */
	fprintf(to, "%016llx T _text\n", (unsigned long long)LONG_KERNEL);
	for (uint32_t i = 0; i < LONG_SYMBOLS; i++) {
		char name[32];

		long_symbol_name(i, name);
		fprintf(to, "%016llx T %s\n",
			(unsigned long long)(LONG_KERNEL + (uint64_t)i * LONG_SYMBOL_BYTES), name);
	}
}

/* Commands of the shell; $1 is the folder. */
#define SCRIPT                                                                      \
	"perf script --kallsyms \"$1/export.kallsyms\" -i \"$1/export.perf.data\" " \
	"-F comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"
static const char export_folded[] = "\"$1/../../guestprof\" export folded \"$1/export.fxt\"";
static const char script[] = SCRIPT;
static const char script_folded[] = SCRIPT " | awk -v period=250000 -f tests/unit/readers/fold.awk";
static const char compress[] = "gzip -1 <\"$1/export.fxt\"";
static const char export_compressed[] = "\"$1/../../guestprof\" export folded \"$1/export.fxt.gz\"";
static const char compare[] =
	"export LC_ALL=C; cd \"$1\" && sort -o export.ours export.ours && "
	"sort -o export.theirs export.theirs && cmp export.ours export.theirs";
static const char clean_up[] =
	"rm -f \"$1\"/export.fxt \"$1\"/export.fxt.gz \"$1\"/export.perf.data "
	"\"$1\"/export.kallsyms \"$1\"/export.ours \"$1\"/export.theirs";
_Static_assert(LONG_PERIOD_NS == 250000, "the period above");

static bool run_shell(const char *command, const char *folder, const char *output,
		      struct cost *cost)
{
	char path[512];

	if (output)
		snprintf(path, sizeof(path), "%s/%s", folder, output);
	return run_child((const char *[]){"sh", "-c", command, "sh", folder, NULL},
			 output ? path : "/dev/null", cost);
}

/* Writes one of the files; its size, or 0. */
static uint64_t write_file(const char *folder, const char *name,
			   void (*write)(FILE *to, uint64_t count), uint64_t count)
{
	char path[512];
	uint64_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w+e");
	if (!file)
		return 0;
	write(file, count);
	fseek(file, 0, SEEK_END);
	size = ferror(file) ? 0 : (uint64_t)ftell(file);
	return fclose(file) ? 0 : size;
}

static uint64_t size_of(const char *folder, const char *name)
{
	char path[512];
	struct stat file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return stat(path, &file) ? 0 : (uint64_t)file.st_size;
}

static void print_cost(const char *what, struct cost cost, struct cost base)
{
	printf("%-24s %7.3f s CPU  %7.3f s  %5.1f x\n", what, cost.cpu, cost.wall,
	       cost.wall / base.wall);
}

static bool measure(const char *folder)
{
	struct cost ours[ROUNDS], compressed[ROUNDS], alone[ROUNDS], folded[ROUNDS], base;

	for (int round = 0; round < ROUNDS; round++)
		if (!run_shell(export_compressed, folder, "export.ours", &compressed[round]) ||
		    !run_shell(export_folded, folder, "export.ours", &ours[round]) ||
		    !run_shell(script, folder, NULL, &alone[round]) ||
		    !run_shell(script_folded, folder, "export.theirs", &folded[round]))
			return false;
	if (!run_shell(compare, folder, NULL, &base)) {
		printf("the two sides end with different folded stacks\n");
		return false;
	}
	base = median_cost(ours, ROUNDS);
	print_cost("guestprof export folded", base, base);
	print_cost("the same of a .fxt.gz", median_cost(compressed, ROUNDS), base);
	print_cost("perf script alone", median_cost(alone, ROUNDS), base);
	print_cost("perf script and folding", median_cost(folded, ROUNDS), base);
	return true;
}

int main(void)
{
	const char *text = getenv("BENCH_SAMPLES");
	uint64_t samples = text ? strtoull(text, NULL, 10) : 1000000;
	uint64_t trace, data, compressed;
	char folder[400];
	struct cost cost;

	if (!own_folder(folder, sizeof(folder)))
		return 1;
	if (!run_shell("command -v perf", folder, NULL, &cost)) {
		printf("skipped: no perf (Debian package linux-perf)\n");
		return 0;
	}
	trace = write_file(folder, "export.fxt", write_trace, samples);
	data = write_file(folder, "export.perf.data", write_perf_data, samples);
	run_shell(compress, folder, "export.fxt.gz", &cost);
	compressed = size_of(folder, "export.fxt.gz");
	if (!trace || !data || !compressed ||
	    !write_file(folder, "export.kallsyms", write_kallsyms, samples))
		printf("not measured: cannot write into %s\n", folder);
	else if (!measure(folder))
		printf("not measured: guestprof or perf failed\n");
	else
		printf("%llu samples of %d frames, bytes each: %.1f in a perf.data, %.1f in a "
		       "trace (%.2f), %.1f compressed by gzip -1 (%.2f)\n",
		       (unsigned long long)samples, LONG_FRAMES, (double)data / (double)samples,
		       (double)trace / (double)samples, (double)trace / (double)data,
		       (double)compressed / (double)samples, (double)compressed / (double)data);
	run_shell(clean_up, folder, NULL, &cost);
	return 0;
}
