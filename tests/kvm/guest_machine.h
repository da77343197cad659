/* A tiny guest in a machine, for the tests of the kvm floor: creates, samples, runs, and keeps what
 * came of it. The guests are described in tests/guests/guest.h. */
#ifndef TESTS_KVM_GUEST_MACHINE_H
#define TESTS_KVM_GUEST_MACHINE_H

#include "base/container.h"
#include "base/error.h"
#include "fxt/metadata.h"
#include "fxt/reader.h"
#include "fxt/sample.h"
#include "guest-introspection/elf/symbols_file.h"
#include "vmm/kvm_probe.h"
#include "vmm/machine.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <guestprof/sampler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)
#define MICROSECOND UINT64_C(1000)
/* No test is about time; this only keeps a defect from hanging the run. */
#define HANG_LIMIT (30 * SECOND)

static inline void require_kvm(void)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		cr_skip_test("/dev/kvm cannot be opened: %s", strerror(errno));
	close(fd);
}

/* Some tests ask for what KVM's instruction emulator does not have. */
static inline bool kvm_is_emulated(void)
{
	struct kvm_probe probe;

	kvm_probe(&probe);
	return probe.kind == KVM_EMULATED;
}

/* Guests are built next to the tests. */
static inline void guest_path(const char *mode, char path[static 512])
{
	char own[400];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	cr_assert_gt(length, 0);
	own[length] = 0;
	for (int up = 0; up < 2; up++)
		*strrchr(own, '/') = 0;
	snprintf(path, 512, "%s/guests/%s", own, mode);
}

struct guest_machine {
	struct machine *machine;
	struct symbol_table symbols;
	int console_fd;
	uint64_t entry;
};

struct guest_setup {
	const char *mode; /* NULL: long4 */
	const char *command_line;
	unsigned vcpus;  /* 0: 1 */
	uint64_t memory; /* 0: 16 MiB */
	const char *until;
};

static inline void read_whole_file(const char *path, char **bytes, size_t *size)
{
	struct stat file;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && !fstat(fd, &file), "%s: make kvm-tests builds it", path);
	*size = (size_t)file.st_size;
	*bytes = malloc(*size);
	cr_assert(*bytes && read(fd, *bytes, *size) == file.st_size);
	close(fd);
}

static inline void guest_machine_create(struct guest_machine *guest, struct guest_setup setup)
{
	struct error error = {0};
	char path[512], *bytes;
	struct symbol entry;
	size_t size;

	require_kvm();
	guest_path(setup.mode ? setup.mode : "long4", path);
	read_whole_file(path, &bytes, &size);
	cr_assert_eq(
		symbols_file_parse(bytes, size, (struct symbols_base){0}, &guest->symbols, &error),
		GP_OK, "%s", error.text);
	free(bytes);
	cr_assert(symbol_table_find_name(&guest->symbols, "pvh_start", &entry));
	guest->entry = entry.start;
	guest->console_fd = memfd_create("console", MFD_CLOEXEC);
	struct machine_config config = {
		.kernel = path,
		.command_line = setup.command_line ? setup.command_line : "",
		.vcpus = setup.vcpus ? setup.vcpus : 1,
		.memory = setup.memory ? setup.memory : 16 * MIB,
		.console_input_fd = -1,
		.console_output_fd = guest->console_fd,
		.until = setup.until,
		.until_size = setup.until ? strlen(setup.until) : 0,
	};

	cr_assert_eq(machine_create(&config, &guest->machine, NULL, &error), GP_OK, "%s",
		     error.text);
	cr_assert_eq(machine_start(guest->machine, &error), GP_OK, "%s", error.text);
}

static inline void guest_machine_destroy(struct guest_machine *guest)
{
	machine_destroy(guest->machine);
	symbol_table_deinit(&guest->symbols);
	close(guest->console_fd);
}

/* Runs to the end; a guest that does not end by itself is timed out. */
static inline enum guest_end guest_machine_run(struct guest_machine *guest, uint64_t duration,
					       struct error *error)
{
	struct machine_limits limits = {.duration_ns = duration, .timeout_ns = HANG_LIMIT};

	return machine_run(guest->machine, &limits, error);
}

/* A command line on which the guest works through its call tree for about that long on this
 * machine's KVM: CPUs and emulators are thousands of times apart. Of the last call. */
static inline const char *tree_for(uint64_t ns)
{
	static char command_line[64];
	uint64_t rounds = 1, took = 0;

	for (; took < ns / 4 && rounds < 1u << 30; rounds *= 4) {
		struct guest_machine guest;
		struct timespec begin, end;

		snprintf(command_line, sizeof(command_line), "run=tree rounds=%llu",
			 (unsigned long long)rounds);
		guest_machine_create(&guest, (struct guest_setup){.command_line = command_line});
		clock_gettime(CLOCK_MONOTONIC, &begin);
		cr_assert_eq(guest_machine_run(&guest, 0, NULL), GUEST_POWERED_OFF);
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (uint64_t)(end.tv_sec - begin.tv_sec) * SECOND + (uint64_t)end.tv_nsec -
		       (uint64_t)begin.tv_nsec;
		guest_machine_destroy(&guest);
	}
	/* `rounds` is four times what took that long. */
	snprintf(command_line, sizeof(command_line), "run=tree rounds=%llu",
		 (unsigned long long)(1 + rounds / 4 * ns / (took ? took : 1)));
	return command_line;
}

static inline bool console_has(const struct guest_machine *guest, const char *text)
{
	char bytes[4096] = "";
	ssize_t length = pread(guest->console_fd, bytes, sizeof(bytes) - 1, 0);

	return length > 0 && strstr(bytes, text) != NULL;
}

/* Sessions. */

static inline gp_sampler_t *open_session(struct guest_machine *guest, uint64_t period,
					 uint32_t flags, uint64_t ring_bytes, uint32_t depth)
{
	gp_sampler_config_t config = {.size = sizeof(config),
				      .period_ns = period,
				      .max_depth = depth,
				      .flags = flags,
				      .ring_bytes = ring_bytes};
	gp_sampler_t *session = NULL;

	cr_assert_eq(gp_sampler_create(machine_target(guest->machine), 0, &config, &session),
		     GP_OK);
	return session;
}

/* All that one session gave, in one piece. */
struct session_data {
	uint8_t *bytes;
	size_t size;
};

static inline void read_session(gp_sampler_t *session, struct session_data *data)
{
	size_t more;

	do {
		cr_assert_eq(gp_sampler_read(session, 0, NULL, 0, &more), GP_OK);
		more += 1 << 16;
		data->bytes = realloc(data->bytes, data->size + more);
		cr_assert(data->bytes);
		cr_assert_eq(gp_sampler_read(session, 0, data->bytes + data->size, more, &more),
			     GP_OK);
		data->size += more;
	} while (more);
}

struct session_counts {
	gp_sampler_totals_t data;   /* as counted in the records */
	gp_sampler_totals_t totals; /* as the session says */
	uint64_t modes[8];
	uint64_t ends[8];
};

/* Counts the records and compares with what the session says of itself. Calls `see` for each sample
 * with a stack, in the order of the data. */
static inline struct session_counts check_session(gp_sampler_t *session, unsigned vcpus,
						  struct session_data *data,
						  void (*see)(void *, const struct fxt_sample *),
						  void *context)
{
	uint64_t open[MACHINE_VCPUS_MAX] = {0};
	struct session_counts counts = {0};
	struct fxt_reader reader;
	struct fxt_record record;
	struct error error;

	read_session(session, data);
	cr_assert_eq(fxt_reader_init(&reader, data->bytes, data->size, &error), GP_OK, "%s",
		     error.text);
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;
		struct fxt_drops drops;

		if (record.kind == FXT_KIND_EVENT && fxt_event_is_drops(&record.event, &drops))
			counts.data.dropped += drops.records;
		if (record.kind != FXT_KIND_BLOB || !fxt_blob_is_sample(&record.blob))
			continue;
		cr_assert_null(fxt_sample_decode(&record.blob, &sample));
		cr_assert_lt(sample.vcpu, ARRAY_SIZE(open));
		if (sample.flags & FXT_SAMPLE_CONTINUATION) {
			cr_assert(!open[sample.vcpu] || open[sample.vcpu] == sample.continuation,
				  "a continuation begins before the last one is completed");
			open[sample.vcpu] = sample.continuation;
			counts.data.partial++;
			continue;
		}
		if (sample.flags & FXT_SAMPLE_COMPLETION) {
			cr_assert_eq(open[sample.vcpu], sample.completion);
			open[sample.vcpu] = 0;
		}
		if (!(sample.flags & FXT_SAMPLE_TIMESTAMP))
			continue; /* closes a continuation, stands for no tick */
		counts.data.full++;
		counts.modes[sample.mode & 7]++;
		counts.ends[sample.stack_end & 7]++;
		if (see)
			see(context, &sample);
	}
	for (size_t i = 0; i < ARRAY_SIZE(open); i++)
		cr_assert_eq(open[i], 0, "vCPU %zu: a continuation was never completed", i);
	cr_assert(!reader.cut && !reader.broken && !reader.bad_records && !reader.unresolved);
	fxt_reader_deinit(&reader);
	for (unsigned i = 0; i < vcpus; i++) {
		gp_sampler_totals_t totals;

		cr_assert_eq(gp_sampler_totals(session, i, &totals), GP_OK);
		cr_assert_eq(totals.ticks, totals.full + totals.partial + totals.dropped,
			     "vCPU %u: %llu ticks, %llu + %llu + %llu", i,
			     (unsigned long long)totals.ticks, (unsigned long long)totals.full,
			     (unsigned long long)totals.partial,
			     (unsigned long long)totals.dropped);
		counts.totals.ticks += totals.ticks;
		counts.totals.full += totals.full;
		counts.totals.partial += totals.partial;
		counts.totals.dropped += totals.dropped;
	}
	cr_assert_eq(counts.data.full, counts.totals.full, "%llu in the data, %llu",
		     (unsigned long long)counts.data.full, (unsigned long long)counts.totals.full);
	cr_assert_eq(counts.data.partial, counts.totals.partial);
	return counts;
}

static inline void sleep_ns(uint64_t ns)
{
	struct timespec time = {(time_t)(ns / SECOND), (long)(ns % SECOND)};

	nanosleep(&time, NULL);
}

/* Names. */

static inline const char *frame_name(const struct guest_machine *guest,
				     const struct fxt_sample *sample, size_t frame)
{
	struct symbol symbol;

	if (!symbol_table_find(&guest->symbols, sample->stack[frame] - (frame ? 1 : 0), &symbol))
		return "?";
	return symbol.name;
}

/* The guest's whole call graph: every stack must be a path of it, from a root. */
static inline bool may_call(const char *caller, const char *callee)
{
	static const char *const calls[][2] = {
		{"guest_start", "guest_main"},
		{"guest_start", "ap_main"},
		{"guest_main", "print"},
		{"guest_main", "option"},
		{"guest_main", "option_is"},
		{"guest_main", "option_number"},
		{"guest_main", "end"},
		{"guest_main", "run_tree"},
		{"guest_main", "run_nested"},
		{"guest_main", "run_exits"},
		{"guest_main", "run_idle"},
		{"guest_main", "run_smp"},
		{"option", "start_information"},
		{"option_is", "option"},
		{"option_number", "option"},
		{"end", "option"},
		{"end", "option_is"},
		{"end", "print"},
		{"run_tree", "branch_a"},
		{"branch_a", "leaf_70"},
		{"branch_a", "branch_b"},
		{"branch_b", "leaf_20"},
		{"branch_b", "branch_c"},
		{"branch_c", "leaf_8"},
		{"branch_c", "leaf_2"},
		{"run_nested", "nest"},
		{"nest", "nest"},
		{"run_smp", "print"},
		{"run_smp", "print_number"},
		{"run_smp", "cpu_work_0"},
		{"ap_main", "cpu_work_1"},
		{"ap_main", "cpu_work_2"},
		{"ap_main", "cpu_work_3"},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i][0], caller) && !strcmp(calls[i][1], callee))
			return true;
	return false;
}

static inline bool is_root(const char *name)
{
	return !strcmp(name, "guest_start") || !strcmp(name, "pvh_start") ||
	       !strcmp(name, "enter_mode") || !strcmp(name, "ap_protected");
}

static inline bool stack_has(const struct guest_machine *guest, const struct fxt_sample *sample,
			     const char *name)
{
	for (size_t i = 0; i < sample->depth; i++)
		if (!strcmp(frame_name(guest, sample, i), name))
			return true;
	return false;
}

static inline void assert_exact_stack(const struct guest_machine *guest,
				      const struct fxt_sample *sample)
{
	char text[2048] = "";
	bool exact = sample->depth > 0;

	for (size_t i = 0; i < sample->depth; i++) {
		size_t used = strlen(text);

		snprintf(text + used, sizeof(text) - used, " %s(%llx)",
			 frame_name(guest, sample, i), (unsigned long long)sample->stack[i]);
		if (i && !may_call(frame_name(guest, sample, i), frame_name(guest, sample, i - 1)))
			exact = false;
	}
	if (sample->stack_end == FXT_STACK_END_ROOT)
		exact = exact && is_root(frame_name(guest, sample, sample->depth - 1));
	else
		exact = exact && sample->stack_end == FXT_STACK_END_DEPTH;
	cr_assert(exact, "not a path of the tree (end %llu):%s",
		  (unsigned long long)sample->stack_end, text);
}

#endif
