/* A trace may come from anybody: opening it, walking its samples in either order, naming their
 * frames and tasks, adding them up and writing them in any format must hold for any bytes. Walking
 * it twice must give the same, and every tick must be in every sum. */
#include "analysis/annotation.h"
#include "export/export.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static uint64_t walk(struct trace *trace)
{
	struct fxt_sample sample;
	uint64_t ticks, sum = 0;

	while (trace_next_sample(trace, &sample, &ticks)) {
		const struct trace_name *name = trace_process_name(trace, sample.process);

		sum += ticks;
		if (name && name->name_bytes)
			sum += (uint8_t)name->name[name->name_bytes - 1];
		for (size_t i = 0; i < sample.depth; i++) {
			const struct trace_symbol *symbol = trace_find_symbol(trace, &sample, i);

			if (symbol && symbol->name_bytes)
				sum += (uint8_t)symbol->name[symbol->name_bytes - 1];
		}
	}
	return sum;
}

/* Reads the trace into a tree, with a filter that looks at every field, and merged by time: the
 * ticks must be the same. */
static void add_up(struct trace *trace)
{
	struct profile_options options = {
		.owners = {OWNER_PROCESS, OWNER_THREAD, OWNER_VCPU, OWNER_GROUP},
		.owner_count = 4,
		.idle = true};
	struct filter filter = {0};
	struct profile_totals totals;
	struct merge_entry entry;
	struct call_tree tree, reversed;
	struct frames frames;
	struct merge merge;
	uint64_t ticks = 0, last_ns = 0;

	if (frames_init(&frames, NULL) || call_tree_init(&tree, NULL))
		abort();
	if (profile_read(trace, &options, &frames, &tree, &totals, NULL) ||
	    tree.nodes[CALL_TREE_ROOT].total != totals.ticks)
		abort();
	if (call_tree_sort(&tree, NULL) || call_tree_reverse(&tree, &reversed, NULL) ||
	    reversed.nodes[CALL_TREE_ROOT].total != totals.ticks)
		abort();
	call_tree_deinit(&reversed);
	call_tree_deinit(&tree);
	if (filter_set(&filter, "comm", "*a*", NULL) ||
	    filter_set(&filter, "symbol", "*_*", NULL) || merge_init(&merge, trace, NULL))
		abort();
	while (merge_next(&merge, &entry)) {
		if (entry.time_ns < last_ns)
			abort();
		last_ns = entry.time_ns;
		if (entry.lost)
			continue;
		ticks += entry.ticks;
		filter_takes(&filter, trace, &frames, &entry.sample);
	}
	if (ticks != totals.ticks)
		abort();
	merge_deinit(&merge);
	filter_deinit(&filter);
	frames_deinit(&frames);
	trace_rewind(trace);
}

/* In one format, chosen by the input, by thread or by vCPU. */
static void write_out(struct trace *trace, size_t choice)
{
	struct export export = {.trace = trace, .by_vcpu = choice & 1};
	struct frames frames;
	size_t formats = 0, written_size = 0;
	char *written = NULL;

	while (export_formats[formats])
		formats++;
	export.format = export_formats[choice / 2 % formats];
	if (frames_init(&frames, NULL))
		abort();
	export.frames = &frames;
	export.to = open_memstream(&written, &written_size);
	if (!export.to || export_trace(&export, NULL) || fclose(export.to))
		abort();
	/* Whatever the names are, text stays printable. */
	for (size_t i = 0; !export.format->is_binary && i < written_size; i++)
		if (((unsigned char)written[i] < 0x20 && !strchr("\n\t", written[i])) ||
		    (unsigned char)written[i] >= 0x7f)
			abort();
	free(written);
	frames_deinit(&frames);
}

/* Ticks at instructions: each in one line, or told as not in any. */
static void annotate(struct trace *trace)
{
	struct annotation annotation;

	if (annotation_read(trace, NULL, NULL, &annotation, NULL))
		abort();
	for (size_t i = 0; i < annotation.count && i < 4; i++) {
		const struct annotation_function *function = &annotation.functions[i];
		struct annotation_listing listing;
		uint64_t ticks;

		if (annotation_list(trace, function, DISASSEMBLER_ATT, NULL, &listing, NULL))
			abort();
		ticks = listing.unplaced;
		for (size_t line = 0; line < listing.count; line++)
			ticks += listing.items[line].ticks;
		if (listing.count && ticks != function->ticks)
			abort();
		annotation_listing_deinit(&listing);
	}
	annotation_deinit(&annotation);
	trace_rewind(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct trace trace;
	struct error error;
	char path[64];
	int fd = memfd_create("trace", MFD_CLOEXEC);
	uint64_t first;

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!trace_open(path, &trace, &error)) {
		add_up(&trace);
		annotate(&trace);
		write_out(&trace, size / 8);
		first = walk(&trace);
		trace_rewind(&trace);
		if (walk(&trace) != first || trace.info.good_bytes > trace.info.bytes)
			abort();
		trace_close(&trace);
	}
	close(fd);
	return 0;
}
