/* Fuchsia's own form of samples: backtrace records of type 10, as its src/performance/lib/fxt has
 * them, with names of processes and threads and its drop records. A record stands for one tick: a
 * sample that stands for several is written as often. A record holds 255 frames; what is deeper
 * loses its outermost ones. Addresses stay addresses: nobody else's symbols are written. What each
 * vCPU did is durations on its thread, the console's lines are log records. */
#include "export/export.h"
#include "export/lanes.h"
#include "export/names.h"

#include "base/container.h"
#include "fxt/writer.h"

#include <stdlib.h>

#define WORDS 512 /* more than any record here */
_Static_assert(4 * EXPORT_LINE_MAX + 64 <= WORDS * sizeof(uint64_t), "room for a line");

struct fuchsia {
	uint64_t words[WORDS];
	struct export_names processes;
	struct export_names threads;
	struct lanes lanes;
};

static void fuchsia_put(struct export *export, size_t words)
{
	const struct fuchsia *fuchsia = export->state;

	fwrite(fuchsia->words, sizeof(uint64_t), words, export->to);
}

static bool fuchsia_begin(struct export *export)
{
	struct fuchsia *fuchsia = calloc(1, sizeof(*fuchsia));

	export->state = fuchsia;
	if (!fuchsia)
		return false;
	fuchsia_put(export, fxt_write_preamble(fuchsia->words, WORDS));
	return true;
}

static void fuchsia_put_names(struct export *export, const struct export_task *task)
{
	struct fuchsia *fuchsia = export->state;

	if (export_name_is_new(&fuchsia->processes, task->process, 0, task->process_name))
		fuchsia_put(export,
			    fxt_encode_process_name(task->process, fxt_text(task->process_name),
						    fuchsia->words, WORDS));
	if (export_name_is_new(&fuchsia->threads, task->thread, task->process, task->thread_name))
		fuchsia_put(export, fxt_encode_thread_name(task->process, task->thread,
							   fxt_text(task->thread_name),
							   fuchsia->words, WORDS));
}

static struct fxt_thread_ref vcpu_thread(uint32_t vcpu)
{
	return (struct fxt_thread_ref){.process = FXT_VCPU_PROCESS,
				       .thread = vcpu == LANES_NO_VCPU ? FXT_VCPU_PROCESS
								       : fxt_vcpu_thread(vcpu)};
}

static void fuchsia_put_piece(struct export *export, const struct lane_piece *piece)
{
	struct fuchsia *fuchsia = export->state;
	struct fxt_argument ticks = {
		.name = fxt_text("ticks"), .type = FXT_ARGUMENT_U64, .u64 = piece->ticks};
	struct fxt_event event = {
		.type = FXT_EVENT_DURATION_COMPLETE,
		.timestamp = piece->begin_ns,
		.extra = piece->end_ns,
		.thread = vcpu_thread(piece->vcpu),
		.category = fxt_text("vcpu"),
		.name = fxt_text(piece->state),
		.arguments = &ticks,
		.argument_count = 1,
	};
	struct export_task task = {
		.process = event.thread.process,
		.thread = event.thread.thread,
		.process_name = "[no process known]",
	};

	/* A drop record says it. */
	if (piece->state == lanes_lost)
		return;
	lanes_name(piece->vcpu, task.thread_name, sizeof(task.thread_name));
	fuchsia_put_names(export, &task);
	fuchsia_put(export, fxt_encode_event(&event, fuchsia->words, WORDS));
}

static void fuchsia_add_sample(struct export *export, const struct merge_entry *entry)
{
	struct fuchsia *fuchsia = export->state;
	const struct fxt_sample *sample = &entry->sample;
	struct export_task task;
	struct fxt_backtrace backtrace = {.timestamp = entry->time_ns, .frames = sample->stack};
	size_t words;

	lanes_add_sample(&fuchsia->lanes, export, entry, fuchsia_put_piece);
	if (!sample_is_running(sample))
		return;
	export_find_task(export, sample, &task);
	fuchsia_put_names(export, &task);
	backtrace.thread.process = task.process;
	backtrace.thread.thread = task.thread;
	backtrace.count =
		sample->depth < FXT_BACKTRACE_FRAMES_MAX ? sample->depth : FXT_BACKTRACE_FRAMES_MAX;
	words = fxt_encode_backtrace(&backtrace, fuchsia->words, WORDS);
	for (uint64_t tick = 0; tick < entry->ticks && !ferror(export->to); tick++)
		fuchsia_put(export, words);
}

static void fuchsia_add_lost(struct export *export, const struct trace_lost *lost)
{
	struct fuchsia *fuchsia = export->state;
	struct fxt_argument arguments[] = {
		{.name = fxt_indexed(FXT_STRING_NUM_RECORDS),
		 .type = FXT_ARGUMENT_U64,
		 .u64 = lost->records},
		{.name = fxt_indexed(FXT_STRING_NUM_BYTES),
		 .type = FXT_ARGUMENT_U64,
		 .u64 = lost->bytes},
	};
	struct fxt_event event = {
		.type = FXT_EVENT_DURATION_COMPLETE,
		.timestamp = lost->begin_ns,
		.extra = lost->end_ns,
		.thread = vcpu_thread(lost->vcpu),
		.category = fxt_indexed(FXT_STRING_KERNEL_META),
		.name = fxt_indexed(FXT_STRING_DROP_STATS),
		.arguments = arguments,
		.argument_count = ARRAY_SIZE(arguments),
	};

	fuchsia_put(export, fxt_encode_event(&event, fuchsia->words, WORDS));
	lanes_add_lost(&fuchsia->lanes, export, lost, fuchsia_put_piece);
}

static void fuchsia_add_line(struct export *export, const struct console_line *line)
{
	struct fuchsia *fuchsia = export->state;
	char text[4 * EXPORT_LINE_MAX + 1];
	struct fxt_log log = {.timestamp = line->time_ns, .thread = vcpu_thread(LANES_NO_VCPU)};

	export_line_text(line, text);
	log.text = fxt_text(text);
	fuchsia_put(export, fxt_encode_log(&log, fuchsia->words, WORDS));
}

static void fuchsia_end(struct export *export)
{
	struct fuchsia *fuchsia = export->state;

	lanes_finish(&fuchsia->lanes, export, fuchsia_put_piece);
}

static void fuchsia_release(struct export *export)
{
	free(export->state);
}

const struct export_format export_fuchsia = {
	.name = "fuchsia",
	.summary = "Fuchsia trace with its own records of samples",
	.is_binary = true,
	.takes_idle = true,
	.begin = fuchsia_begin,
	.sample = fuchsia_add_sample,
	.lost = fuchsia_add_lost,
	.line = fuchsia_add_line,
	.end = fuchsia_end,
	.release = fuchsia_release,
};
