/* A Perfetto trace with CPU samples by thread: github.com/google/perfetto, protos/perfetto/trace.
 * Stacks, frames and names are interned on one packet sequence and stand in front of the first
 * sample that uses them. A packet stands for one tick: a sample that stands for several is written
 * as often. Each vCPU's counter "cpu-clock" goes up by the period with every tick in which it ran.
 * What each vCPU did is slices on a track of its own, the console's lines are instants on one.
 * Memory: with distinct stacks. */
#include "export/export.h"
#include "export/lanes.h"
#include "export/names.h"
#include "export/protobuf.h"
#include "analysis/text.h"

#include "base/container.h"

#include <stdlib.h>

/* Field numbers of the messages. */
enum {
	TRACE_PACKET = 1,
	PACKET_PROCESS_TREE = 2,
	PACKET_CLOCKS = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_EVENT = 11,
	PACKET_INTERNED = 12,
	PACKET_FLAGS = 13,
	PACKET_SYSTEM = 45,
	PACKET_DEFAULTS = 59,
	PACKET_TRACK = 60,
	PACKET_SAMPLE = 66,
	TRACK_ID = 1,
	TRACK_NAME = 2,
	TRACK_PARENT = 5,
	EVENT_ARGUMENT = 4,
	EVENT_TYPE = 9,
	EVENT_TRACK = 11,
	EVENT_CATEGORY = 22,
	EVENT_NAME = 23,
	ARGUMENT_NUMBER = 3,
	ARGUMENT_NAME = 10,
	CLOCKS_CLOCK = 1,
	CLOCKS_PRIMARY = 2,
	CLOCK_ID = 1,
	CLOCK_TIMESTAMP = 2,
	SYSTEM_NAMES = 1,
	SYSTEM_CPUS = 8,
	NAMES_SYSTEM = 1,
	NAMES_VERSION = 2,
	NAMES_RELEASE = 3,
	NAMES_MACHINE = 4,
	DEFAULTS_SAMPLES = 12,
	SAMPLES_TIMEBASE = 1,
	TIMEBASE_PERIOD = 1,
	TIMEBASE_COUNTER = 4,
	INTERNED_FUNCTIONS = 5,
	INTERNED_FRAMES = 6,
	INTERNED_STACKS = 7,
	INTERNED_PATHS = 17,
	INTERNED_SOURCES = 18,
	INTERNED_MAPPINGS = 19,
	STRING_ID = 1,
	STRING_TEXT = 2,
	MAPPING_ID = 1,
	MAPPING_PATH = 7,
	FRAME_ID = 1,
	FRAME_FUNCTION = 2,
	FRAME_MAPPING = 3,
	FRAME_ADDRESS = 4,
	FRAME_SOURCE_PATH = 5,
	FRAME_LINE_NUMBER = 6,
	STACK_ID = 1,
	STACK_FRAMES = 2,
	SAMPLE_CPU = 1,
	SAMPLE_PROCESS = 2,
	SAMPLE_THREAD = 3,
	SAMPLE_STACK = 4,
	SAMPLE_MODE = 5,
	SAMPLE_COUNT = 6,
	SAMPLE_UNWIND_ERROR = 16,
	SAMPLE_LOST = 17,
	TREE_PROCESSES = 1,
	TREE_THREADS = 2,
	PROCESS_ID = 1,
	PROCESS_COMMAND = 3,
	THREAD_ID = 1,
	THREAD_NAME = 2,
	THREAD_PROCESS = 3,
};

/* TracePacket.SequenceFlags */
enum { FLAG_CLEARED = 1, FLAG_NEEDS_STATE = 2 };
#define SEQUENCE 1

/* BuiltinClock. A file's times are of this one unless it says otherwise. */
enum { CLOCK_REALTIME_ID = 1, CLOCK_BOOTTIME_ID = 6 };
#define SW_CPU_CLOCK 1 /* PerfEvents.Counter */

/* TrackEvent.Type */
enum { EVENT_BEGIN = 1, EVENT_END = 2, EVENT_INSTANT = 3 };
/* Numbers of our tracks; each vCPU's is one higher than that of the one before. */
enum { TRACK_CONSOLE = 0x67700001, TRACK_VCPUS, TRACK_NO_VCPU, TRACK_FIRST_VCPU };

struct perfetto {
	struct call_tree tree; /* a node's number is its stack's */
	struct given {
		uint8_t *items; /* by number: whether it is in the file */
		size_t count;
		size_t capacity;
	} given_nodes, given_frames;
	struct export_names processes;
	struct export_names threads;
	struct protobuf interned, inner, packet, outer;
	uint64_t ran[TRACE_VCPUS_MAX]; /* ticks of each vCPU so far */
	struct lanes lanes;
	bool has_track[TRACK_FIRST_VCPU - TRACK_CONSOLE + TRACE_VCPUS_MAX];
	bool failed;
};

/* Writes and empties the packet. */
static void put_packet(struct export *export)
{
	struct perfetto *perfetto = export->state;

	protobuf_clear(&perfetto->outer);
	protobuf_add_message(&perfetto->outer, TRACE_PACKET, &perfetto->packet);
	perfetto->failed |= perfetto->outer.failed;
	protobuf_write(&perfetto->outer, export->to);
	protobuf_clear(&perfetto->packet);
}

static void add_inner(struct perfetto *perfetto, struct protobuf *to, unsigned field)
{
	protobuf_add_message(to, field, &perfetto->inner);
	protobuf_clear(&perfetto->inner);
}

static void intern_string(struct perfetto *perfetto, unsigned field, uint64_t id, const char *text)
{
	protobuf_add_number(&perfetto->inner, STRING_ID, id);
	protobuf_add_bytes(&perfetto->inner, STRING_TEXT, text, strlen(text));
	add_inner(perfetto, &perfetto->interned, field);
}

static void put_interned(struct export *export, uint64_t flags)
{
	struct perfetto *perfetto = export->state;

	if (!perfetto->interned.bytes.count)
		return;
	protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
	protobuf_add_number(&perfetto->packet, PACKET_FLAGS, flags);
	protobuf_add_message(&perfetto->packet, PACKET_INTERNED, &perfetto->interned);
	protobuf_clear(&perfetto->interned);
	put_packet(export);
}

/* The time of day, where the trace has it: viewers show it then. */
static void put_clocks(struct export *export)
{
	struct perfetto *perfetto = export->state;
	const struct trace_info *info = &export->trace->info;
	const uint64_t clocks[][2] = {{CLOCK_BOOTTIME_ID, info->session_ns},
				      {CLOCK_REALTIME_ID, info->wall_clock_ns}};
	struct protobuf snapshot = {0};

	if (!info->wall_clock_ns)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(clocks); i++) {
		protobuf_add_number(&perfetto->inner, CLOCK_ID, clocks[i][0]);
		protobuf_add_number(&perfetto->inner, CLOCK_TIMESTAMP, clocks[i][1]);
		add_inner(perfetto, &snapshot, CLOCKS_CLOCK);
	}
	protobuf_add_number(&snapshot, CLOCKS_PRIMARY, CLOCK_BOOTTIME_ID);
	protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, info->session_ns);
	protobuf_add_message(&perfetto->packet, PACKET_CLOCKS, &snapshot);
	put_packet(export);
	protobuf_deinit(&snapshot);
}

static void add_text(struct protobuf *message, unsigned field, const char *text, size_t size)
{
	char escaped[4 * TRACE_TEXT_MAX + 1];

	text_escape(text, size, escaped, sizeof(escaped));
	protobuf_add_bytes(message, field, escaped, strlen(escaped));
}

/* What uname(2) says in the guest: "Linux version 6.1.0-56-amd64 (...". */
static void put_system(struct export *export)
{
	static const char before[] = "Linux version ";
	struct perfetto *perfetto = export->state;
	const struct trace_info *info = &export->trace->info;
	struct protobuf system = {0};

	if (!strncmp(info->banner, before, strlen(before))) {
		const char *release = info->banner + strlen(before);

		add_text(&perfetto->inner, NAMES_SYSTEM, "Linux", strlen("Linux"));
		add_text(&perfetto->inner, NAMES_VERSION, info->banner, strlen(info->banner));
		add_text(&perfetto->inner, NAMES_RELEASE, release, strcspn(release, " "));
		add_text(&perfetto->inner, NAMES_MACHINE, "x86_64", strlen("x86_64"));
		add_inner(perfetto, &system, SYSTEM_NAMES);
	}
	protobuf_add_number(&system, SYSTEM_CPUS, info->vcpus);
	if (system.bytes.count) {
		protobuf_add_message(&perfetto->packet, PACKET_SYSTEM, &system);
		put_packet(export);
	}
	protobuf_deinit(&system);
}

/* What the samples count. */
static void add_defaults(struct export *export)
{
	struct perfetto *perfetto = export->state;
	struct protobuf samples = {0}, defaults = {0};

	protobuf_add_number(&perfetto->inner, TIMEBASE_PERIOD, export_period_ns(export));
	protobuf_add_number(&perfetto->inner, TIMEBASE_COUNTER, SW_CPU_CLOCK);
	add_inner(perfetto, &samples, SAMPLES_TIMEBASE);
	protobuf_add_message(&defaults, DEFAULTS_SAMPLES, &samples);
	protobuf_add_message(&perfetto->packet, PACKET_DEFAULTS, &defaults);
	protobuf_deinit(&samples);
	protobuf_deinit(&defaults);
}

static bool perfetto_begin(struct export *export)
{
	struct perfetto *perfetto = calloc(1, sizeof(*perfetto));

	export->state = perfetto;
	if (!perfetto || call_tree_init(&perfetto->tree, NULL))
		return false;
	put_clocks(export);
	put_system(export);
	for (uint8_t kind = FRAME_KERNEL; kind <= FRAME_USER; kind++) {
		intern_string(perfetto, INTERNED_PATHS, (uint64_t)kind + 1,
			      export_object_name(&(struct frame){.kind = kind}));
		protobuf_add_number(&perfetto->inner, MAPPING_ID, (uint64_t)kind + 1);
		protobuf_add_number(&perfetto->inner, MAPPING_PATH, (uint64_t)kind + 1);
		add_inner(perfetto, &perfetto->interned, INTERNED_MAPPINGS);
	}
	add_defaults(export);
	put_interned(export, FLAG_CLEARED | FLAG_NEEDS_STATE);
	return true;
}

/* True when number `index` of `count` is asked for the first time. */
static bool is_first(struct perfetto *perfetto, struct given *given, size_t index, size_t count)
{
	if (!vector_extend(given, count)) {
		perfetto->failed = true;
		return false;
	}
	if (given->items[index])
		return false;
	given->items[index] = true;
	return true;
}

static void intern_frame(struct export *export, uint32_t number)
{
	struct perfetto *perfetto = export->state;
	const struct frame *frame = &export->frames->entries[number];
	size_t size = 4 * (size_t)frame->name_bytes + 1;
	char *name;

	if (!is_first(perfetto, &perfetto->given_frames, number, export->frames->count))
		return;
	name = malloc(size);
	if (!name) {
		perfetto->failed = true;
		return;
	}
	text_escape(frame->name, frame->name_bytes, name, size);
	intern_string(perfetto, INTERNED_FUNCTIONS, (uint64_t)number + 1, name);
	free(name);
	if (frame->file)
		intern_string(perfetto, INTERNED_SOURCES, (uint64_t)number + 1, frame->file);
	protobuf_add_number(&perfetto->inner, FRAME_ID, (uint64_t)number + 1);
	protobuf_add_number(&perfetto->inner, FRAME_FUNCTION, (uint64_t)number + 1);
	protobuf_add_number(&perfetto->inner, FRAME_MAPPING, (uint64_t)frame->kind + 1);
	/* Must be there. A frame is a function, or a line of it, wherever in it: the number keeps
	 * them apart. */
	protobuf_add_number(&perfetto->inner, FRAME_ADDRESS, (uint64_t)number + 1);
	if (frame->file)
		protobuf_add_number(&perfetto->inner, FRAME_SOURCE_PATH, (uint64_t)number + 1);
	protobuf_add_number(&perfetto->inner, FRAME_LINE_NUMBER, frame->line);
	add_inner(perfetto, &perfetto->interned, INTERNED_FRAMES);
}

static uint32_t intern_stack(struct export *export, const struct fxt_sample *sample)
{
	struct perfetto *perfetto = export->state;
	uint32_t path[EXPORT_DEPTH_MAX];
	size_t depth = export_path(export, sample, path);
	uint32_t node = call_tree_add(&perfetto->tree, path, depth, 1);

	if (!node || !is_first(perfetto, &perfetto->given_nodes, node, perfetto->tree.count))
		return node;
	for (size_t i = 0; i < depth; i++)
		intern_frame(export, path[i]);
	protobuf_add_number(&perfetto->inner, STACK_ID, node);
	for (size_t i = 0; i < depth; i++)
		protobuf_add_number(&perfetto->inner, STACK_FRAMES, (uint64_t)path[i] + 1);
	add_inner(perfetto, &perfetto->interned, INTERNED_STACKS);
	return node;
}

static void perfetto_put_names(struct export *export, const struct export_task *task,
			       uint64_t time_ns)
{
	struct perfetto *perfetto = export->state;
	struct protobuf tree = {0};

	if (export_name_is_new(&perfetto->processes, task->process, 0, task->process_name)) {
		protobuf_add_number(&perfetto->inner, PROCESS_ID, task->process);
		protobuf_add_bytes(&perfetto->inner, PROCESS_COMMAND, task->process_name,
				   strlen(task->process_name));
		/* A command line of one word is cut at its first blank, for programs that write
		 * all theirs into that word; of two words the first is the name as it is. */
		if (strchr(task->process_name, ' '))
			protobuf_add_bytes(&perfetto->inner, PROCESS_COMMAND, "", 0);
		add_inner(perfetto, &tree, TREE_PROCESSES);
	}
	if (export_name_is_new(&perfetto->threads, task->thread, task->process,
			       task->thread_name)) {
		protobuf_add_number(&perfetto->inner, THREAD_ID, task->thread);
		protobuf_add_number(&perfetto->inner, THREAD_PROCESS, task->process);
		protobuf_add_bytes(&perfetto->inner, THREAD_NAME, task->thread_name,
				   strlen(task->thread_name));
		add_inner(perfetto, &tree, TREE_THREADS);
	}
	if (tree.bytes.count) {
		protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, time_ns);
		protobuf_add_message(&perfetto->packet, PACKET_PROCESS_TREE, &tree);
		put_packet(export);
	}
	protobuf_deinit(&tree);
}

/* Says what a track is before it is used first. */
static void need_track(struct export *export, uint64_t track, const char *name, uint64_t parent)
{
	struct perfetto *perfetto = export->state;

	if (perfetto->has_track[track - TRACK_CONSOLE])
		return;
	perfetto->has_track[track - TRACK_CONSOLE] = true;
	protobuf_add_number(&perfetto->inner, TRACK_ID, track);
	protobuf_add_bytes(&perfetto->inner, TRACK_NAME, name, strlen(name));
	protobuf_add_number(&perfetto->inner, TRACK_PARENT, parent);
	protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
	add_inner(perfetto, &perfetto->packet, PACKET_TRACK);
	put_packet(export);
}

/* Of what is in perfetto->inner so far. */
static void put_event(struct export *export, uint64_t time_ns, unsigned type, uint64_t track)
{
	struct perfetto *perfetto = export->state;

	protobuf_add_number(&perfetto->inner, EVENT_TYPE, type);
	protobuf_add_number(&perfetto->inner, EVENT_TRACK, track);
	protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, time_ns);
	protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
	protobuf_add_number(&perfetto->packet, PACKET_FLAGS, FLAG_NEEDS_STATE);
	add_inner(perfetto, &perfetto->packet, PACKET_EVENT);
	put_packet(export);
}

static void add_event_text(struct export *export, const char *category, const char *name)
{
	struct perfetto *perfetto = export->state;

	protobuf_add_bytes(&perfetto->inner, EVENT_CATEGORY, category, strlen(category));
	protobuf_add_bytes(&perfetto->inner, EVENT_NAME, name, strlen(name));
}

static void perfetto_put_piece(struct export *export, const struct lane_piece *piece)
{
	struct perfetto *perfetto = export->state;
	uint64_t track = piece->vcpu == LANES_NO_VCPU
				 ? TRACK_NO_VCPU
				 : TRACK_FIRST_VCPU + (uint64_t)piece->vcpu % TRACE_VCPUS_MAX;
	struct protobuf ticks = {0};
	char name[32];

	lanes_name(piece->vcpu, name, sizeof(name));
	need_track(export, TRACK_VCPUS, "vCPUs", 0);
	need_track(export, track, name, TRACK_VCPUS);
	add_event_text(export, "vcpu", piece->state);
	protobuf_add_bytes(&ticks, ARGUMENT_NAME, "ticks", strlen("ticks"));
	protobuf_add_number(&ticks, ARGUMENT_NUMBER, piece->ticks);
	protobuf_add_message(&perfetto->inner, EVENT_ARGUMENT, &ticks);
	protobuf_deinit(&ticks);
	put_event(export, piece->begin_ns, EVENT_BEGIN, track);
	put_event(export, piece->end_ns, EVENT_END, track);
}

static void perfetto_add_line(struct export *export, const struct console_line *line)
{
	char text[4 * EXPORT_LINE_MAX + 1];

	if (!export_line_text(line, text))
		return;
	need_track(export, TRACK_CONSOLE, "Console", 0);
	add_event_text(export, "console", text);
	put_event(export, line->time_ns, EVENT_INSTANT, TRACK_CONSOLE);
}

static void perfetto_end(struct export *export)
{
	struct perfetto *perfetto = export->state;

	lanes_finish(&perfetto->lanes, export, perfetto_put_piece);
}

/* Profiling.StackUnwindError; 0: the stack is whole. */
static uint64_t unwind_error(uint64_t end)
{
	switch (end) {
	case FXT_STACK_END_ROOT:
		return 0;
	case FXT_STACK_END_DEPTH:
		return 6; /* UNWIND_ERROR_MAX_FRAMES_EXCEEDED */
	case FXT_STACK_END_NO_RULE:
		return 3; /* UNWIND_ERROR_UNWIND_INFO */
	default:
		return 2; /* UNWIND_ERROR_MEMORY_INVALID */
	}
}

static void put_sample(struct export *export, const struct merge_entry *entry)
{
	struct perfetto *perfetto = export->state;
	const struct fxt_sample *sample = &entry->sample;
	uint64_t modes[] = {[FXT_MODE_GUEST_USER] = 2, [FXT_MODE_GUEST_KERNEL] = 1};
	uint32_t stack = intern_stack(export, sample);
	uint64_t *ran = &perfetto->ran[sample->vcpu % TRACE_VCPUS_MAX];
	struct export_task task;

	put_interned(export, FLAG_NEEDS_STATE);
	export_find_task(export, sample, &task);
	perfetto_put_names(export, &task, entry->time_ns);
	for (uint64_t tick = 0; tick < entry->ticks && !ferror(export->to); tick++) {
		protobuf_add_number(&perfetto->inner, SAMPLE_CPU, sample->vcpu);
		protobuf_add_number(&perfetto->inner, SAMPLE_PROCESS, task.process);
		protobuf_add_number(&perfetto->inner, SAMPLE_THREAD, task.thread);
		protobuf_add_number(&perfetto->inner, SAMPLE_STACK, stack);
		if (sample->mode <= FXT_MODE_GUEST_KERNEL)
			protobuf_add_number(&perfetto->inner, SAMPLE_MODE, modes[sample->mode]);
		protobuf_add_number(&perfetto->inner, SAMPLE_COUNT,
				    ++*ran * export_period_ns(export));
		protobuf_add_number(&perfetto->inner, SAMPLE_UNWIND_ERROR,
				    unwind_error(sample->stack_end));
		protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, entry->time_ns);
		protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
		protobuf_add_number(&perfetto->packet, PACKET_FLAGS, FLAG_NEEDS_STATE);
		add_inner(perfetto, &perfetto->packet, PACKET_SAMPLE);
		put_packet(export);
	}
}

static void perfetto_add_sample(struct export *export, const struct merge_entry *entry)
{
	struct perfetto *perfetto = export->state;

	lanes_add_sample(&perfetto->lanes, export, entry, perfetto_put_piece);
	if (sample_is_running(&entry->sample))
		put_sample(export, entry);
	export->failed |= perfetto->failed || perfetto->tree.failed;
}

static void perfetto_add_lost(struct export *export, const struct trace_lost *lost)
{
	struct perfetto *perfetto = export->state;

	protobuf_add_number(&perfetto->inner, SAMPLE_CPU,
			    lost->vcpu == UINT32_MAX ? 0 : lost->vcpu);
	protobuf_add_number(&perfetto->inner, SAMPLE_LOST, lost->records);
	protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, lost->begin_ns);
	protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
	add_inner(perfetto, &perfetto->packet, PACKET_SAMPLE);
	put_packet(export);
	lanes_add_lost(&perfetto->lanes, export, lost, perfetto_put_piece);
}

static void perfetto_release(struct export *export)
{
	struct perfetto *perfetto = export->state;

	if (!perfetto)
		return;
	call_tree_deinit(&perfetto->tree);
	free(perfetto->given_nodes.items);
	free(perfetto->given_frames.items);
	protobuf_deinit(&perfetto->interned);
	protobuf_deinit(&perfetto->inner);
	protobuf_deinit(&perfetto->packet);
	protobuf_deinit(&perfetto->outer);
	free(perfetto);
}

const struct export_format export_perfetto = {
	.name = "perfetto",
	.summary = "for ui.perfetto.dev, CPU samples by thread",
	.is_binary = true,
	.takes_idle = true,
	.has_inlined = true,
	.has_places = true,
	.begin = perfetto_begin,
	.sample = perfetto_add_sample,
	.lost = perfetto_add_lost,
	.line = perfetto_add_line,
	.end = perfetto_end,
	.release = perfetto_release,
};
