#include "tools/record/sampling_summary.h"

#include "analysis/profile.h"
#include "analysis/table.h"
#include "analysis/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SHOWN 4
#define NAME_BYTES 60
/* Above this the end would keep people waiting for what report tells as well. */
#define BYTES_MAX (UINT64_C(512) << 20)

/* A guest may call its functions what it likes, at any length. */
static void print_name(const struct frame *frame)
{
	char text[NAME_BYTES] = "";
	FILE *to = fmemopen(text, sizeof(text), "w");

	if (!to)
		return;
	text_print_frame(to, frame);
	fclose(to);
	fputs(text, stderr);
}

/* What takes the most: rows of a table, on one line. */
static void print_rows(const char *label, const struct table *table, const struct frames *frames,
		       uint64_t whole)
{
	fprintf(stderr, "  %s", label);
	for (size_t i = 0; i < table->count && i < SHOWN; i++) {
		fputs(i ? ", " : " ", stderr);
		print_name(&frames->entries[table->rows[i].frame]);
		fprintf(stderr, " %.1f %%", text_percent(table->rows[i].self, whole));
	}
	putc('\n', stderr);
}

/* One pass over the trace and one line: the hottest functions, or the processes. */
static gp_status_t print_hottest(struct trace *trace, bool processes, struct error *error)
{
	struct profile_options options = {.owners = {OWNER_PROCESS}, .owner_count = processes};
	struct profile_totals totals;
	struct call_tree tree = {0};
	struct table table = {0};
	struct frames frames;
	gp_status_t status = frames_init(&frames, error);

	if (status)
		return status;
	status = call_tree_init(&tree, error);
	if (!status)
		status = profile_read(trace, &options, &frames, &tree, &totals, error);
	if (!status)
		status = processes ? table_of_owners(&tree, &frames, &table, error)
				   : table_of_functions(&tree, &frames, &table, error);
	if (!status && totals.running)
		print_rows(processes ? "processes:" : "functions:", &table, &frames,
			   totals.running);
	table_deinit(&table);
	call_tree_deinit(&tree);
	frames_deinit(&frames);
	return status;
}

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
	/* A compressed one is read from a file that would have to be made, which nobody may here.
	 */
	if (size >= 2 && !memcmp(bytes, "\x1f\x8b", 2)) {
		munmap(bytes, size);
		return;
	}
	if (!trace_open_bytes(bytes, size, &trace, &error)) {
		if (!print_hottest(&trace, false, &error) && summary->tasks_found)
			print_hottest(&trace, true, &error);
		trace_close(&trace);
	}
	if (error.status)
		fprintf(stderr, "  where the time went could not be told: %s\n", error.text);
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
