#include "recording/trace_metadata.h"

#include "base/clock.h"
#include "base/container.h"
#include "fxt/metadata.h"
#include "fxt/writer.h"
#include "guest-introspection/linux/vmcoreinfo.h"

#include <stdio.h>

static void write_event(struct trace_output *output, const char *name, uint64_t thread,
			const struct fxt_argument *arguments, size_t count)
{
	uint64_t words[FXT_RECORD_WORDS_MAX];

	trace_output_words(output, words,
			   fxt_metadata_encode(name, boot_ns(), thread, arguments, count, words,
					       ARRAY_SIZE(words)));
}

/* A text argument; long ones are cut so that the record always fits. */
static struct fxt_argument text_argument(const char *name, const char *value)
{
	enum { LONGEST = 4096 };
	struct fxt_argument argument = fxt_argument_text(name, value ? value : "");

	if (argument.string.length > LONGEST)
		argument.string.length = LONGEST;
	return argument;
}

void trace_metadata_session(struct trace_output *output, const struct trace_session *session,
			    unsigned vcpu_count)
{
	const struct fxt_argument arguments[] = {
		fxt_argument_text(FXT_SESSION_VERSION, GUESTPROF_VERSION),
		fxt_argument_u64(FXT_SESSION_PERIOD, session->period_ns),
		fxt_argument_u64(FXT_SESSION_DEPTH, session->depth),
		fxt_argument_u64(FXT_SESSION_VCPUS, vcpu_count),
		text_argument(FXT_SESSION_TICK_SOURCE, session->tick_source),
		fxt_argument_u64(FXT_SESSION_MEMORY, session->memory_bytes),
		text_argument(FXT_SESSION_KERNEL, session->kernel),
		text_argument(FXT_SESSION_COMMAND_LINE, session->command_line),
		fxt_argument_u64(FXT_SESSION_WALL_CLOCK, clock_ns(CLOCK_REALTIME)),
		text_argument(FXT_SESSION_SOURCE,
			      session->source), /* left out when there is none */
	};

	write_event(output, FXT_SESSION, FXT_VCPU_PROCESS, arguments,
		    ARRAY_SIZE(arguments) - (session->source ? 0 : 1));
	for (unsigned i = 0; i < vcpu_count; i++) {
		uint64_t words[64];
		char name[32];

		snprintf(name, sizeof(name), "vCPU %u", i);
		trace_output_words(output, words,
				   fxt_encode_thread_name(FXT_VCPU_PROCESS, fxt_vcpu_thread(i),
							  fxt_text(name), words,
							  ARRAY_SIZE(words)));
	}
}

/* The build id of the guest's kernel in hexadecimal, by which its debug information is found; ""
 * where it does not say. */
static void read_build_id(const struct linux_guest *guest, char text[2 * BUILD_ID_LIMIT + 1])
{
	struct vmcoreinfo info;

	*text = 0;
	if (guest->missing.symbols.status ||
	    linux_vmcoreinfo_read(guest->programs.memory, &guest->kernel, &guest->symbols, &info,
				  NULL))
		return;
	for (uint32_t i = 0; i < info.build_id_size; i++)
		snprintf(text + (size_t)2 * i, 3, "%02x", info.build_id[i]);
}

void trace_metadata_guest(struct trace_output *output, const struct linux_guest *guest)
{
	const struct linux_kernel *kernel = &guest->kernel;
	char build_id[2 * BUILD_ID_LIMIT + 1];

	read_build_id(guest, build_id);
	const struct fxt_argument arguments[] = {
		text_argument(FXT_GUEST_BANNER, kernel->banner),
		fxt_argument_u64(FXT_GUEST_TEXT_BASE, kernel->text_base),
		text_argument(FXT_GUEST_BUILD_ID, build_id),
	};

	if (!guest->missing.kernel.status)
		write_event(output, FXT_GUEST, FXT_VCPU_PROCESS, arguments, ARRAY_SIZE(arguments));
}

void trace_metadata_console(struct trace_output *output, const struct guest_log_totals *totals)
{
	const struct fxt_argument arguments[] = {
		fxt_argument_u64(FXT_CONSOLE_LINES, totals->lines),
		fxt_argument_u64(FXT_CONSOLE_CUT, totals->cut),
		fxt_argument_u64(FXT_CONSOLE_LOST, totals->lost),
	};

	write_event(output, FXT_CONSOLE, FXT_VCPU_PROCESS, arguments, ARRAY_SIZE(arguments));
}

/* A kernel module as Fuchsia's records for a mapping of code tell it: of process 0, at time 0. */
static void write_module(struct trace_output *output, const struct linux_guest *guest,
			 const struct linux_module *module, const struct linux_range *range,
			 uint16_t id)
{
	uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT];
	unsigned size = linux_module_build_id(&guest->module_layout, guest->programs.memory, module,
					      build_id);
	const struct fxt_module record = {.id = id,
					  .name = fxt_text(module->name),
					  .build_id = fxt_bytes((const char *)build_id, size)};
	const struct fxt_mmap mapping = {
		.module = id, .flags = 5, .start = range->start, .range = range->size};
	uint64_t words[64];

	trace_output_words(output, words, fxt_encode_module(&record, words, ARRAY_SIZE(words)));
	trace_output_words(output, words, fxt_encode_mmap(&mapping, words, ARRAY_SIZE(words)));
}

void trace_metadata_modules(struct trace_output *output, const struct linux_guest *guest,
			    const struct namer *namer)
{
	const struct linux_modules *modules = &guest->modules;
	uint16_t id = 0;

	for (size_t i = 0; i < modules->count; i++) {
		const struct linux_range *ranges[] = {&modules->modules[i].text,
						      &modules->modules[i].init_text};

		for (int range = 0; range < 2; range++)
			if (namer_has_seen(namer, ranges[range]->start, ranges[range]->size))
				write_module(output, guest, &modules->modules[i], ranges[range],
					     id++);
	}
}

void trace_metadata_code(struct trace_output *output, const struct code_totals *kernel,
			 const struct code_totals *user)
{
	const struct fxt_argument arguments[] = {
		fxt_argument_u64(FXT_CODE_FUNCTIONS, kernel->functions + user->functions),
		fxt_argument_u64(FXT_CODE_BYTES, kernel->bytes + user->bytes),
		fxt_argument_u64(FXT_CODE_CHANGED, kernel->changed),
		fxt_argument_u64(FXT_CODE_LEFT_OUT, kernel->left_out + user->left_out),
	};

	write_event(output, FXT_CODE, FXT_VCPU_PROCESS, arguments, ARRAY_SIZE(arguments));
}

void trace_metadata_totals(struct trace_output *output, const gp_sampler_t *session,
			   unsigned vcpu_count, const char *end_reason, gp_sampler_totals_t *sums)
{
	for (unsigned i = 0; i < vcpu_count; i++) {
		gp_sampler_totals_t totals;

		if (gp_sampler_totals(session, i, &totals))
			continue;
		const struct fxt_argument arguments[] = {
			fxt_argument_u64(FXT_TOTALS_VCPU, i),
			fxt_argument_u64(FXT_TOTALS_TICKS, totals.ticks),
			fxt_argument_u64(FXT_TOTALS_STACKS, totals.full),
			fxt_argument_u64(FXT_TOTALS_PARTIALS, totals.partial),
			fxt_argument_u64(FXT_TOTALS_DROPPED, totals.dropped),
			fxt_argument_u64(FXT_TOTALS_FILTERED, totals.filtered),
		};

		write_event(output, FXT_VCPU_TOTALS, fxt_vcpu_thread(i), arguments,
			    ARRAY_SIZE(arguments));
		sums->ticks += totals.ticks;
		sums->full += totals.full;
		sums->partial += totals.partial;
		sums->dropped += totals.dropped;
		sums->filtered += totals.filtered;
	}
	const struct fxt_argument arguments[] = {
		text_argument(FXT_SESSION_END_REASON, end_reason),
		fxt_argument_u64(FXT_TOTALS_TICKS, sums->ticks),
		fxt_argument_u64(FXT_TOTALS_STACKS, sums->full),
		fxt_argument_u64(FXT_TOTALS_PARTIALS, sums->partial),
		fxt_argument_u64(FXT_TOTALS_DROPPED, sums->dropped),
		fxt_argument_u64(FXT_TOTALS_FILTERED, sums->filtered),
	};

	write_event(output, FXT_SESSION_END, FXT_VCPU_PROCESS, arguments, ARRAY_SIZE(arguments));
}
