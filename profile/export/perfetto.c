/* A Perfetto trace with CPU samples by thread: github.com/google/perfetto, protos/perfetto/trace.
 * Stacks, frames and names are interned on one packet sequence and stand in front of the first
 * sample that uses them. A packet stands for one tick: a sample that stands for several is written
 * as often. Memory: with distinct stacks. */
#include "profile/export.h"
#include "profile/export/names.h"
#include "profile/protobuf.h"
#include "profile/text.h"

#include <stdlib.h>

/* Field numbers of the messages. */
enum {
	TRACE_PACKET = 1,
	PACKET_PROCESS_TREE = 2,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_INTERNED = 12,
	PACKET_FLAGS = 13,
	PACKET_SAMPLE = 66,
	INTERNED_FUNCTIONS = 5,
	INTERNED_FRAMES = 6,
	INTERNED_STACKS = 7,
	INTERNED_PATHS = 17,
	INTERNED_MAPPINGS = 19,
	STRING_ID = 1,
	STRING_TEXT = 2,
	MAPPING_ID = 1,
	MAPPING_PATH = 7,
	FRAME_ID = 1,
	FRAME_FUNCTION = 2,
	FRAME_MAPPING = 3,
	FRAME_ADDRESS = 4,
	STACK_ID = 1,
	STACK_FRAMES = 2,
	SAMPLE_CPU = 1,
	SAMPLE_PROCESS = 2,
	SAMPLE_THREAD = 3,
	SAMPLE_STACK = 4,
	SAMPLE_MODE = 5,
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

struct perfetto {
	struct call_tree tree; /* a node's number is its stack's */
	uint8_t *given_nodes;
	size_t given_node_count;
	uint8_t *given_frames;
	size_t given_frame_count;
	struct export_names processes;
	struct export_names threads;
	struct protobuf interned, inner, packet, outer;
	bool failed;
};

/* Writes and empties the packet. */
static void put_packet(struct export *export)
{
	struct perfetto *perfetto = export->state;

	protobuf_clear(&perfetto->outer);
	protobuf_add_message(&perfetto->outer, TRACE_PACKET, &perfetto->packet);
	perfetto->failed |= perfetto->outer.failed;
	if (!perfetto->outer.failed)
		fwrite(perfetto->outer.bytes, 1, perfetto->outer.size, export->to);
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

	if (!perfetto->interned.size)
		return;
	protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
	protobuf_add_number(&perfetto->packet, PACKET_FLAGS, flags);
	protobuf_add_message(&perfetto->packet, PACKET_INTERNED, &perfetto->interned);
	protobuf_clear(&perfetto->interned);
	put_packet(export);
}

static gp_status_t begin(struct export *export, struct error *error)
{
	struct perfetto *perfetto = calloc(1, sizeof(*perfetto));
	gp_status_t status;

	if (!perfetto)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	export->state = perfetto;
	status = call_tree_init(&perfetto->tree, error);
	if (status)
		return status;
	for (uint8_t kind = FRAME_KERNEL; kind <= FRAME_USER; kind++) {
		intern_string(perfetto, INTERNED_PATHS, (uint64_t)kind + 1,
			      export_object_name(&(struct frame){.kind = kind}));
		protobuf_add_number(&perfetto->inner, MAPPING_ID, (uint64_t)kind + 1);
		protobuf_add_number(&perfetto->inner, MAPPING_PATH, (uint64_t)kind + 1);
		add_inner(perfetto, &perfetto->interned, INTERNED_MAPPINGS);
	}
	put_interned(export, FLAG_CLEARED | FLAG_NEEDS_STATE);
	return GP_OK;
}

/* True when number `index` is asked for the first time. */
static bool is_first(struct perfetto *perfetto, uint8_t **given, size_t *count, size_t index,
		     size_t capacity)
{
	if (index >= *count) {
		uint8_t *more = realloc(*given, capacity);

		if (!more) {
			perfetto->failed = true;
			return false;
		}
		memset(more + *count, 0, capacity - *count);
		*given = more;
		*count = capacity;
	}
	if ((*given)[index])
		return false;
	(*given)[index] = true;
	return true;
}

static void intern_frame(struct export *export, uint32_t number)
{
	struct perfetto *perfetto = export->state;
	const struct frame *frame = &export->frames->entries[number];
	size_t size = 4 * (size_t)frame->name_bytes + 1;
	char *name;

	if (!is_first(perfetto, &perfetto->given_frames, &perfetto->given_frame_count, number,
		      export->frames->capacity))
		return;
	name = malloc(size);
	if (!name) {
		perfetto->failed = true;
		return;
	}
	text_escape(frame->name, frame->name_bytes, name, size);
	intern_string(perfetto, INTERNED_FUNCTIONS, (uint64_t)number + 1, name);
	free(name);
	protobuf_add_number(&perfetto->inner, FRAME_ID, (uint64_t)number + 1);
	protobuf_add_number(&perfetto->inner, FRAME_FUNCTION, (uint64_t)number + 1);
	protobuf_add_number(&perfetto->inner, FRAME_MAPPING, (uint64_t)frame->kind + 1);
	/* Must be there. A frame is a function, wherever in it: the number keeps them apart. */
	protobuf_add_number(&perfetto->inner, FRAME_ADDRESS, (uint64_t)number + 1);
	add_inner(perfetto, &perfetto->interned, INTERNED_FRAMES);
}

static uint32_t intern_stack(struct export *export, const struct fxt_sample *sample)
{
	struct perfetto *perfetto = export->state;
	uint32_t path[FXT_SAMPLE_DEPTH_MAX];
	size_t depth = export_path(export, sample, path);
	uint32_t node = call_tree_add(&perfetto->tree, path, depth, 1);

	if (!node || !is_first(perfetto, &perfetto->given_nodes, &perfetto->given_node_count, node,
			       perfetto->tree.capacity))
		return node;
	for (size_t i = 0; i < depth; i++)
		intern_frame(export, path[i]);
	protobuf_add_number(&perfetto->inner, STACK_ID, node);
	for (size_t i = 0; i < depth; i++)
		protobuf_add_number(&perfetto->inner, STACK_FRAMES, (uint64_t)path[i] + 1);
	add_inner(perfetto, &perfetto->interned, INTERNED_STACKS);
	return node;
}

static void put_names(struct export *export, const struct export_task *task, uint64_t time_ns)
{
	struct perfetto *perfetto = export->state;
	struct protobuf tree = {0};

	if (export_name_is_new(&perfetto->processes, task->process, 0, task->process_name)) {
		protobuf_add_number(&perfetto->inner, PROCESS_ID, task->process);
		protobuf_add_bytes(&perfetto->inner, PROCESS_COMMAND, task->process_name,
				   strlen(task->process_name));
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
	if (tree.size) {
		protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, time_ns);
		protobuf_add_message(&perfetto->packet, PACKET_PROCESS_TREE, &tree);
		put_packet(export);
	}
	protobuf_deinit(&tree);
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

static gp_status_t add_sample(struct export *export, const struct merge_entry *entry,
			      struct error *error)
{
	struct perfetto *perfetto = export->state;
	const struct fxt_sample *sample = &entry->sample;
	uint64_t modes[] = {[FXT_MODE_GUEST_USER] = 2, [FXT_MODE_GUEST_KERNEL] = 1};
	uint32_t stack = intern_stack(export, sample);
	struct export_task task;

	put_interned(export, FLAG_NEEDS_STATE);
	export_find_task(export, sample, &task);
	put_names(export, &task, entry->time_ns);
	for (uint64_t tick = 0; tick < entry->ticks && !ferror(export->to); tick++) {
		protobuf_add_number(&perfetto->inner, SAMPLE_CPU, sample->vcpu);
		protobuf_add_number(&perfetto->inner, SAMPLE_PROCESS, task.process);
		protobuf_add_number(&perfetto->inner, SAMPLE_THREAD, task.thread);
		protobuf_add_number(&perfetto->inner, SAMPLE_STACK, stack);
		if (sample->mode <= FXT_MODE_GUEST_KERNEL)
			protobuf_add_number(&perfetto->inner, SAMPLE_MODE, modes[sample->mode]);
		protobuf_add_number(&perfetto->inner, SAMPLE_UNWIND_ERROR,
				    unwind_error(sample->stack_end));
		protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, entry->time_ns);
		protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
		protobuf_add_number(&perfetto->packet, PACKET_FLAGS, FLAG_NEEDS_STATE);
		add_inner(perfetto, &perfetto->packet, PACKET_SAMPLE);
		put_packet(export);
	}
	return perfetto->failed || perfetto->tree.failed
		       ? error_set(error, GP_ERR_NO_MEMORY, "no memory for the stacks")
		       : GP_OK;
}

static gp_status_t add_lost(struct export *export, const struct trace_lost *lost,
			    struct error *error)
{
	struct perfetto *perfetto = export->state;

	(void)error;
	protobuf_add_number(&perfetto->inner, SAMPLE_CPU,
			    lost->vcpu == UINT32_MAX ? 0 : lost->vcpu);
	protobuf_add_number(&perfetto->inner, SAMPLE_LOST, lost->records);
	protobuf_add_number(&perfetto->packet, PACKET_TIMESTAMP, lost->begin_ns);
	protobuf_add_number(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
	add_inner(perfetto, &perfetto->packet, PACKET_SAMPLE);
	put_packet(export);
	return GP_OK;
}

static void release(struct export *export)
{
	struct perfetto *perfetto = export->state;

	if (!perfetto)
		return;
	call_tree_deinit(&perfetto->tree);
	free(perfetto->given_nodes);
	free(perfetto->given_frames);
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
	.begin = begin,
	.sample = add_sample,
	.lost = add_lost,
	.release = release,
};
