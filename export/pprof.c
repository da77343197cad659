/* pprof's profile.proto in gzip: github.com/google/pprof, proto/profile.proto. One sample for each
 * distinct stack of each thread, with its ticks and their time; process and thread are labels.
 * Functions have no addresses: a location is a function, at a line of the source if there is one,
 * with what was inlined there. Memory: with distinct stacks. */
#include "export/export.h"
#include "export/functions.h"
#include "trace/gzip.h"
#include "export/protobuf.h"
#include "analysis/text.h"

#include "base/container.h"

#include <stdlib.h>

/* Field numbers of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_TIME = 9,
	PROFILE_DURATION = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_COMMENT = 13,
	PROFILE_DEFAULT_SAMPLE_TYPE = 14,
	VALUE_TYPE = 1,
	VALUE_UNIT = 2,
	SAMPLE_LOCATIONS = 1,
	SAMPLE_VALUES = 2,
	SAMPLE_LABEL = 3,
	LABEL_KEY = 1,
	LABEL_TEXT = 2,
	LABEL_NUMBER = 3,
	MAPPING_ID = 1,
	MAPPING_FILE = 5,
	MAPPING_HAS_FUNCTIONS = 7,
	MAPPING_HAS_FILES = 8,
	MAPPING_HAS_LINES = 9,
	MAPPING_HAS_INLINED = 10,
	LOCATION_ID = 1,
	LOCATION_MAPPING = 2,
	LOCATION_LINE = 4,
	LINE_FUNCTION = 1,
	LINE_NUMBER = 2,
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
	FUNCTION_FILE = 4,
	FUNCTION_BEGIN = 5,
};

/* The string table: these, then the names of all frames in order, then their files. */
enum {
	STRING_EMPTY,
	STRING_SAMPLES,
	STRING_COUNT,
	STRING_TIME,
	STRING_NANOSECONDS,
	STRING_PROCESS,
	STRING_THREAD,
	STRING_PID,
	STRING_TID,
	STRING_BANNER,
	STRING_LOST,
	STRING_OBJECTS, /* by frame_kind, four of them */
	STRING_FRAMES = STRING_OBJECTS + FRAME_USER + 1,
};

#define OWNER_FRAMES 2 /* process and thread stand in front of each stack */

static void pprof_add_sample(struct export *export, const struct merge_entry *entry)
{
	static const enum frame_owner owners[OWNER_FRAMES] = {OWNER_PROCESS, OWNER_THREAD};

	export_fold(export, owners, OWNER_FRAMES, entry);
}

struct writer {
	const struct export *export;
	FILE *to;
	/* A frame that was not inlined, and below it what was: a node's number is that of the
	 * location it ends. */
	struct call_tree locations;
	uint32_t *functions; /* of frames: export_functions() */
	uint32_t *begun;     /* by frame: the location that it begins; 0: none yet */
	bool failed;
};

/* A top-level field goes out at once; the file is never in memory as a whole. */
static void write_field(struct writer *writer, unsigned field, struct protobuf *message)
{
	struct protobuf outer = {0};

	protobuf_add_message(&outer, field, message);
	writer->failed |= outer.failed;
	protobuf_write(&outer, writer->to);
	protobuf_deinit(&outer);
	protobuf_clear(message);
}

static void add_value_type(struct protobuf *message, uint64_t type, uint64_t unit)
{
	protobuf_add_number(message, VALUE_TYPE, type);
	protobuf_add_number(message, VALUE_UNIT, unit);
}

static void add_label(struct protobuf *message, uint64_t key, uint64_t text, uint64_t number)
{
	struct protobuf label = {0};

	protobuf_add_number(&label, LABEL_KEY, key);
	protobuf_add_number(&label, LABEL_TEXT, text);
	protobuf_add_number(&label, LABEL_NUMBER, number);
	protobuf_add_message(message, SAMPLE_LABEL, &label);
	protobuf_deinit(&label);
}

static void add_owner(struct protobuf *message, const struct export *export, uint32_t number)
{
	const struct frame *frame = &export->frames->entries[number];
	bool is_process = frame->kind == FRAME_PROCESS;

	add_label(message, is_process ? STRING_PROCESS : STRING_THREAD,
		  STRING_FRAMES + (uint64_t)number, 0);
	if (frame->id != FRAME_NO_ID)
		add_label(message, is_process ? STRING_PID : STRING_TID, 0, frame->id);
}

/* The locations of a stack, leaf first, into `packed`: a frame that was not inlined begins one, and
 * what was inlined there is part of it. */
static void add_locations(struct writer *writer, const uint32_t *path, size_t depth,
			  struct protobuf *packed)
{
	const struct frames *frames = writer->export->frames;
	uint32_t numbers[EXPORT_DEPTH_MAX], node = CALL_TREE_ROOT;
	size_t count = 0;

	for (size_t i = 0; i < depth; i++) {
		bool is_part = i && frames->entries[path[i]].is_inlined;

		uint32_t parent = is_part ? node : CALL_TREE_ROOT;

		node = is_part ? 0 : writer->begun[path[i]];
		if (!node)
			node = call_tree_child(&writer->locations, parent, path[i]);
		if (node == CALL_TREE_NONE)
			return;
		if (!is_part) {
			writer->begun[path[i]] = node;
			count++;
		}
		numbers[count - 1] = node;
	}
	for (; count > 0; count--) {
		writer->locations.nodes[numbers[count - 1]].self = 1;
		protobuf_add_element(packed, numbers[count - 1]);
	}
}

static void build_sample(struct protobuf *message, struct writer *writer, uint32_t node)
{
	const struct export *export = writer->export;
	const struct call_tree *tree = export->state;
	struct protobuf packed = {0};
	uint64_t ticks = tree->nodes[node].self;
	uint32_t path[CALL_TREE_DEPTH_MAX];
	size_t depth = call_tree_path(tree, node, path);

	/* The two in front are the owners. */
	add_locations(writer, path + OWNER_FRAMES, depth - OWNER_FRAMES, &packed);
	protobuf_add_message(message, SAMPLE_LOCATIONS, &packed);
	protobuf_clear(&packed);
	protobuf_add_element(&packed, ticks);
	protobuf_add_element(&packed, ticks * export_period_ns(export));
	protobuf_add_message(message, SAMPLE_VALUES, &packed);
	protobuf_deinit(&packed);
	add_owner(message, export, path[0]);
	add_owner(message, export, path[1]);
}

static void write_mappings(struct writer *writer, struct protobuf *message)
{
	const struct export *export = writer->export;

	for (uint64_t kind = FRAME_KERNEL; kind <= FRAME_USER; kind++) {
		protobuf_add_number(message, MAPPING_ID, kind + 1);
		protobuf_add_number(message, MAPPING_FILE, STRING_OBJECTS + kind);
		protobuf_add_number(message, MAPPING_HAS_FUNCTIONS, 1);
		protobuf_add_number(message, MAPPING_HAS_FILES, export->frames->with_places);
		protobuf_add_number(message, MAPPING_HAS_LINES, export->frames->with_places);
		protobuf_add_number(message, MAPPING_HAS_INLINED, export->inlined);
		write_field(writer, PROFILE_MAPPING, message);
	}
}

static void write_locations(struct writer *writer, struct protobuf *message)
{
	const struct call_tree_node *nodes = writer->locations.nodes;
	struct protobuf line = {0};

	for (uint32_t node = 1; node < writer->locations.count; node++) {
		const struct frame *frame = &writer->export->frames->entries[nodes[node].frame];

		if (!nodes[node].self)
			continue;
		protobuf_add_number(message, LOCATION_ID, node);
		protobuf_add_number(message, LOCATION_MAPPING, (uint64_t)frame->kind + 1);
		/* Innermost first. */
		for (uint32_t at = node; at; at = nodes[at].parent) {
			uint32_t number = nodes[at].frame;

			protobuf_clear(&line);
			protobuf_add_number(&line, LINE_FUNCTION,
					    (uint64_t)writer->functions[number] + 1);
			protobuf_add_number(&line, LINE_NUMBER,
					    writer->export->frames->entries[number].line);
			protobuf_add_message(message, LOCATION_LINE, &line);
		}
		write_field(writer, PROFILE_LOCATION, message);
	}
	protobuf_deinit(&line);
}

static void write_functions(struct writer *writer, struct protobuf *message)
{
	const struct frames *frames = writer->export->frames;

	for (size_t i = 0; i < frames->count; i++) {
		const struct frame *frame = &frames->entries[i];

		if (frame->kind > FRAME_USER || writer->functions[i] != i)
			continue;
		protobuf_add_number(message, FUNCTION_ID, i + 1);
		protobuf_add_number(message, FUNCTION_NAME, STRING_FRAMES + i);
		protobuf_add_number(message, FUNCTION_SYSTEM_NAME, STRING_FRAMES + i);
		if (frame->file)
			protobuf_add_number(message, FUNCTION_FILE,
					    STRING_FRAMES + frames->count + i);
		protobuf_add_number(message, FUNCTION_BEGIN, frame->begin);
		write_field(writer, PROFILE_FUNCTION, message);
	}
}

static void write_string(struct writer *writer, const char *text)
{
	struct protobuf outer = {0};

	protobuf_add_bytes(&outer, PROFILE_STRING, text, strlen(text));
	writer->failed |= outer.failed;
	protobuf_write(&outer, writer->to);
	protobuf_deinit(&outer);
}

static void write_escaped(struct writer *writer, const char *text, size_t text_bytes)
{
	size_t size = 4 * text_bytes + 1;
	char *escaped = malloc(size);

	writer->failed |= !escaped;
	if (escaped)
		text_escape(text, text_bytes, escaped, size);
	write_string(writer, escaped ? escaped : "");
	free(escaped);
}

static void write_strings(struct writer *writer)
{
	static const char *const fixed[] = {"",        "samples", "count", "time", "nanoseconds",
					    "process", "thread",  "pid",   "tid"};
	const struct export *export = writer->export;
	const struct frames *frames = export->frames;
	char text[64];

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		write_string(writer, fixed[i]);
	write_escaped(writer, export->trace->info.banner, strlen(export->trace->info.banner));
	snprintf(text, sizeof(text), "%llu ticks were lost", (unsigned long long)export->lost);
	write_string(writer, text);
	for (uint8_t kind = FRAME_KERNEL; kind <= FRAME_USER; kind++)
		write_string(writer, export_object_name(&(struct frame){.kind = kind}));
	for (size_t i = 0; i < frames->count; i++)
		write_escaped(writer, frames->entries[i].name,
			      export_bare_name(&frames->entries[i]));
	for (size_t i = 0; frames->with_places && i < frames->count; i++) {
		const char *file = writer->functions[i] == i ? frames->entries[i].file : NULL;

		write_escaped(writer, file ? file : "", file ? strlen(file) : 0);
	}
}

static uint64_t wall_clock_of_first(const struct trace_info *info)
{
	return info->wall_clock_ns ? info->wall_clock_ns + info->first_ns - info->session_ns : 0;
}

static void write_profile(struct writer *writer)
{
	const struct export *export = writer->export;
	const struct call_tree *tree = export->state;
	const struct trace_info *info = &export->trace->info;
	struct protobuf message = {0}, inner = {0};

	add_value_type(&message, STRING_SAMPLES, STRING_COUNT);
	write_field(writer, PROFILE_SAMPLE_TYPE, &message);
	add_value_type(&message, STRING_TIME, STRING_NANOSECONDS);
	write_field(writer, PROFILE_SAMPLE_TYPE, &message);
	for (size_t node = 1; node < tree->count; node++) {
		if (!tree->nodes[node].self)
			continue;
		build_sample(&message, writer, (uint32_t)node);
		write_field(writer, PROFILE_SAMPLE, &message);
	}
	write_mappings(writer, &message);
	write_locations(writer, &message);
	write_functions(writer, &message);
	write_strings(writer);
	/* The rest are fields of the profile itself. */
	protobuf_add_number(&message, PROFILE_TIME, wall_clock_of_first(info));
	protobuf_add_number(&message, PROFILE_DURATION, info->last_ns - info->first_ns);
	add_value_type(&inner, STRING_TIME, STRING_NANOSECONDS);
	protobuf_add_message(&message, PROFILE_PERIOD_TYPE, &inner);
	protobuf_add_number(&message, PROFILE_PERIOD, export_period_ns(export));
	protobuf_add_number(&message, PROFILE_COMMENT, STRING_BANNER);
	if (export->lost)
		protobuf_add_number(&message, PROFILE_COMMENT, STRING_LOST);
	protobuf_add_number(&message, PROFILE_DEFAULT_SAMPLE_TYPE, STRING_TIME);
	writer->failed |= message.failed || inner.failed || writer->locations.failed;
	protobuf_write(&message, writer->to);
	protobuf_deinit(&message);
	protobuf_deinit(&inner);
}

static void pprof_end(struct export *export)
{
	struct writer writer = {
		.export = export,
		.functions = export_functions(export->frames),
		.begun = calloc(export->frames->count + 1, sizeof(*writer.begun)),
	};

	writer.failed =
		call_tree_init(&writer.locations, NULL) || !writer.functions || !writer.begun;
	writer.to = gzip_open(export->to, NULL);
	if (writer.to) {
		if (!writer.failed)
			write_profile(&writer);
		fclose(writer.to);
	}
	export->failed = writer.failed || !writer.to;
	call_tree_deinit(&writer.locations);
	free(writer.functions);
	free(writer.begun);
}

const struct export_format export_pprof = {
	.name = "pprof",
	.summary = "protocol buffer for go tool pprof, gzip",
	.is_binary = true,
	.has_inlined = true,
	.has_places = true,
	.begin = export_begin_tree,
	.sample = pprof_add_sample,
	.end = pprof_end,
	.release = export_release_tree,
};
