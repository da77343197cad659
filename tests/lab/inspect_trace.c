/* What a trace says, as "WORD NUMBER" lines for a shell script to look at.
 *
 *	inspect_trace FILE             counts, see print_counts()
 *	inspect_trace FILE symbols     "ADDRESS NAME" of each of the guest kernel's symbols in it
 *	inspect_trace FILE leaves      "TICKS MODE NAME" of each sample's innermost frame
 *	inspect_trace FILE unfinished  of each kernel stack that is not whole, once programs run:
 *when, why it ended, its frames
 */
#include "fxt/metadata.h"
#include "analysis/frames.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VCPU_LIMIT 256
#define KERNEL_HALF UINT64_C(0xffff800000000000)
/* Where modules lie with KASLR (Documentation/arch/x86/x86_64/mm.rst). */
#define MODULES_START UINT64_C(0xffffffffc0000000)

struct counts {
	/* What session_end claims. */
	uint64_t claimed_ticks;
	uint64_t claimed_stacks;
	uint64_t claimed_partials;
	uint64_t claimed_dropped;
	/* Ticks that a stack, or the reason for none, stands for. */
	uint64_t told;
	/* Running, and yet no address at all; not those with which a vCPU ends, as in the middle of
	 * the guest's power-off: nobody looks any more. */
	uint64_t without_stack;
	uint64_t modules; /* leaves in kernel mode in a module */
	uint64_t modules_named;
	uint64_t kernel; /* leaves in kernel mode at addresses of the kernel itself */
	uint64_t kernel_named;
	uint64_t low; /* leaves in kernel mode at other addresses: the startup code */
	uint64_t low_named;
	uint64_t user;
	uint64_t user_named;
	uint64_t root; /* stacks that ended at the root */
	uint64_t walked;
	/* Of running vCPUs, once there is a process to run. */
	uint64_t settled;
	uint64_t settled_identified; /* says which task */
	uint64_t settled_kernel;     /* in kernel mode */
	uint64_t settled_whole;      /* of them: is_whole() */
	uint64_t settled_names;      /* of them: the leaf has a name */
};

/* To the thread's start, or on into its program. */
static bool is_whole(const struct fxt_sample *sample)
{
	return sample->stack_end == FXT_STACK_END_ROOT || sample->flags & FXT_SAMPLE_KERNEL_FRAMES;
}

static void see_settled(const struct fxt_sample *sample, uint64_t ticks, bool named,
			struct counts *counts)
{
	if (!counts->settled && !(sample->flags & FXT_SAMPLE_PROCESS && sample->process))
		return;
	/* Another CPU that leaves real mode: neither a task's nor the kernel's own address. */
	if (sample->mode == FXT_MODE_GUEST_KERNEL && sample->stack[0] < KERNEL_HALF)
		return;
	counts->settled += ticks;
	counts->settled_identified += sample->flags & FXT_SAMPLE_THREAD ? ticks : 0;
	if (sample->mode != FXT_MODE_GUEST_KERNEL)
		return;
	counts->settled_kernel += ticks;
	counts->settled_whole += is_whole(sample) ? ticks : 0;
	counts->settled_names += named ? ticks : 0;
}

static void see_claims(const struct trace *trace, struct counts *counts)
{
	struct fxt_reader reader;
	struct fxt_record record;

	if (fxt_reader_init(&reader, trace->bytes, trace->size, NULL))
		return;
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind != FXT_KIND_EVENT ||
		    !fxt_metadata_is(&record.event, FXT_SESSION_END))
			continue;
		fxt_argument_get_u64(&record.event, FXT_TOTALS_TICKS, &counts->claimed_ticks);
		fxt_argument_get_u64(&record.event, FXT_TOTALS_STACKS, &counts->claimed_stacks);
		fxt_argument_get_u64(&record.event, FXT_TOTALS_PARTIALS, &counts->claimed_partials);
		fxt_argument_get_u64(&record.event, FXT_TOTALS_DROPPED, &counts->claimed_dropped);
	}
	fxt_reader_deinit(&reader);
}

static void see_samples(struct trace *trace, struct counts *counts)
{
	/* Of each vCPU's latest sample, if it has no address. */
	uint64_t last_ticks[VCPU_LIMIT] = {0};
	struct fxt_sample sample;
	uint64_t ticks;

	while (trace_next_sample(trace, &sample, &ticks)) {
		uint64_t *last = &last_ticks[sample.vcpu < VCPU_LIMIT ? sample.vcpu : 0];
		bool named;

		counts->told += ticks;
		counts->without_stack += *last;
		*last = 0;
		if (sample.mode == FXT_MODE_HALTED || sample.mode == FXT_MODE_NOT_STARTED)
			continue;
		if (!sample.depth) {
			*last = ticks;
			continue;
		}
		counts->walked += ticks;
		counts->root += sample.stack_end == FXT_STACK_END_ROOT ? ticks : 0;
		named = trace_find_symbol(trace, &sample, 0) != NULL;
		see_settled(&sample, ticks, named, counts);
		if (sample.mode == FXT_MODE_GUEST_USER) {
			counts->user += ticks;
			counts->user_named += named ? ticks : 0;
		} else if (sample.stack[0] >= MODULES_START) {
			counts->modules += ticks;
			counts->modules_named += named ? ticks : 0;
		} else if (sample.stack[0] >= KERNEL_HALF) {
			counts->kernel += ticks;
			counts->kernel_named += named ? ticks : 0;
		} else {
			counts->low += ticks;
			counts->low_named += named ? ticks : 0;
		}
	}
}

static void print_counts(struct trace *trace)
{
	struct counts counts = {0};
	const struct trace_info *info = &trace->info;

	see_claims(trace, &counts);
	see_samples(trace, &counts);
	printf("complete %d\nbad_records %" PRIu64 "\n", info->complete, info->bad_records);
	printf("stacks %" PRIu64 "\npartials %" PRIu64 "\ndropped %" PRIu64 "\n", info->stacks,
	       info->partials, info->dropped_records);
	printf("claimed_ticks %" PRIu64 "\nclaimed_stacks %" PRIu64 "\nclaimed_partials %" PRIu64
	       "\nclaimed_dropped %" PRIu64 "\n",
	       counts.claimed_ticks, counts.claimed_stacks, counts.claimed_partials,
	       counts.claimed_dropped);
	printf("told %" PRIu64 "\nwithout_stack %" PRIu64 "\nwalked %" PRIu64 "\nroot %" PRIu64
	       "\n",
	       counts.told, counts.without_stack, counts.walked, counts.root);
	printf("modules %" PRIu64 "\nmodules_named %" PRIu64 "\n", counts.modules,
	       counts.modules_named);
	printf("settled %" PRIu64 "\nsettled_identified %" PRIu64 "\nsettled_kernel %" PRIu64
	       "\nsettled_whole %" PRIu64 "\nsettled_names %" PRIu64 "\n",
	       counts.settled, counts.settled_identified, counts.settled_kernel,
	       counts.settled_whole, counts.settled_names);
	printf("kernel %" PRIu64 "\nkernel_named %" PRIu64 "\nlow %" PRIu64 "\nlow_named %" PRIu64
	       "\nuser %" PRIu64 "\nuser_named %" PRIu64 "\n",
	       counts.kernel, counts.kernel_named, counts.low, counts.low_named, counts.user,
	       counts.user_named);
}

static void print_symbols(const struct trace *trace)
{
	const struct trace_symbols *symbols = &trace->symbols[TRACE_SYMBOLS_KERNEL];

	for (size_t i = 0; i < symbols->count; i++) {
		printf("%016" PRIx64 " ", symbols->items[i].start);
		trace_print_name(stdout, symbols->items[i].name, symbols->items[i].name_bytes);
		putchar('\n');
	}
}

/* One line for each sample; the script adds up. */
static void print_leaves(struct trace *trace)
{
	struct fxt_sample sample;
	uint64_t ticks;

	while (trace_next_sample(trace, &sample, &ticks)) {
		const struct trace_symbol *symbol;

		if (!sample.depth || sample.mode == FXT_MODE_HALTED ||
		    sample.mode == FXT_MODE_NOT_STARTED)
			continue;
		symbol = trace_find_symbol(trace, &sample, 0);
		printf("%" PRIu64 " %s ", ticks,
		       sample.mode == FXT_MODE_GUEST_USER ? "user" : "kernel");
		if (symbol)
			trace_print_name(stdout, symbol->name, symbol->name_bytes);
		else
			printf("%#" PRIx64, sample.stack[0]);
		putchar('\n');
	}
}

static void print_frame(struct trace *trace, const struct fxt_sample *sample, size_t frame)
{
	const struct trace_symbol *symbol = trace_find_symbol(trace, sample, frame);

	putchar(' ');
	if (!symbol) {
		printf("%#" PRIx64, sample->stack[frame]);
		return;
	}
	trace_print_name(stdout, symbol->name, symbol->name_bytes);
	printf("+%#" PRIx64, sample->stack[frame] - symbol->start);
}

static void print_unfinished(struct trace *trace)
{
	struct counts counts = {0};
	struct fxt_sample sample;
	uint64_t ticks;

	while (trace_next_sample(trace, &sample, &ticks)) {
		if (sample.mode == FXT_MODE_HALTED || sample.mode == FXT_MODE_NOT_STARTED ||
		    !sample.depth)
			continue;
		see_settled(&sample, ticks, true, &counts);
		if (!counts.settled || sample.mode != FXT_MODE_GUEST_KERNEL ||
		    (is_whole(&sample) && trace_find_symbol(trace, &sample, 0)))
			continue;
		printf("%" PRIu64 " ms, %s:", (sample.timestamp - trace->info.first_ns) / 1000000,
		       frames_end_name(sample.stack_end));
		for (size_t i = 0; i < sample.depth; i++)
			print_frame(trace, &sample, i);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	static struct trace trace;
	struct error error = {0};

	if (argc < 2 || trace_open(argv[1], &trace, &error)) {
		fprintf(stderr, "inspect_trace: %s\n", argc < 2 ? "give a trace" : error.text);
		return EXIT_FAILURE;
	}
	if (argc == 2)
		print_counts(&trace);
	else if (!strcmp(argv[2], "symbols"))
		print_symbols(&trace);
	else if (!strcmp(argv[2], "unfinished"))
		print_unfinished(&trace);
	else
		print_leaves(&trace);
	trace_close(&trace);
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
