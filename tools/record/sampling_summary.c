#include "tools/record/sampling_summary.h"

#include "analysis/hottest.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* A larger trace would take too long to read; report shows the same. */
#define BYTES_MAX (UINT64_C(512) << 20)

static void print_where(const struct recorder_summary *summary, int trace_fd)
{
	static struct trace trace; /* larger than a stack frame should be */
	size_t size = (size_t)summary->file_bytes;
	struct error error = {0};
	void *bytes;

	if (summary->file_bytes > BYTES_MAX || !summary->totals.ticks)
		return;
	bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, trace_fd, 0);
	if (bytes == MAP_FAILED)
		return;
	/* A compressed one would have to be unpacked into a file, which the sandbox does not allow.
	 */
	if (size >= 2 && !memcmp(bytes, "\x1f\x8b", 2)) {
		munmap(bytes, size);
		return;
	}
	if (!trace_open_bytes(bytes, size, &trace, &error)) {
		if (!hottest_print(stderr, &trace, false, &error) && summary->tasks_found)
			hottest_print(stderr, &trace, true, &error);
		trace_close(&trace);
	}
	if (error.status)
		fprintf(stderr, "  the trace could not be read back: %s\n", error.text);
	munmap(bytes, size);
}

void sampling_print_summary(const struct sampling *sampling, const char *end,
			    const struct recorder_summary *summary)
{
	const gp_sampler_totals_t *totals = &summary->totals;

	fprintf(stderr, "\n%s: %s\n", sampling->command, end);
	if (sampling->output_fd < 0)
		return;
	fprintf(stderr, "  %llu ticks = %llu stacks + %llu partial + %llu dropped\n",
		(unsigned long long)totals->ticks, (unsigned long long)totals->full,
		(unsigned long long)totals->partial, (unsigned long long)totals->dropped);
	/* Who follows the trace has seen it, and may keep only its end. */
	if (sampling->options->ready_fd < 0)
		print_where(summary, sampling->output_fd);
	if (!summary->symbols_found)
		fprintf(stderr, "  no kernel symbols: %s\n",
			summary->no_names.status ? summary->no_names.text : "not found");
	if (summary->symbols_found && summary->no_tasks.status)
		fprintf(stderr, "  no processes and threads: %s\n", summary->no_tasks.text);
	if (summary->symbols_found && summary->no_programs.status)
		fprintf(stderr, "  no functions of user programs: %s\n", summary->no_programs.text);
	if (summary->symbols_found && summary->no_stacks.status)
		fprintf(stderr, "  kernel stacks by frame pointers only: %s\n",
			summary->no_stacks.text);
	fprintf(stderr,
		"  trace %s, %llu bytes: look with guestprof report, flamegraph or timeline\n",
		sampling->options->output, (unsigned long long)summary->file_bytes);
}

void sampling_print_json(const char *end, int code, const struct recorder_summary *summary)
{
	printf("\"end\":\"%s\",\"exit_code\":%d,\"ticks\":%llu,\"stacks\":%llu,\"partials\":%llu,"
	       "\"dropped\":%llu,\"addresses\":%llu,\"unnamed\":%llu,\"bytes\":%llu",
	       end, code, (unsigned long long)summary->totals.ticks,
	       (unsigned long long)summary->totals.full,
	       (unsigned long long)summary->totals.partial,
	       (unsigned long long)summary->totals.dropped, (unsigned long long)summary->addresses,
	       (unsigned long long)summary->unnamed, (unsigned long long)summary->file_bytes);
}
