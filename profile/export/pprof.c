/* pprof's profile.proto in gzip: github.com/google/pprof, proto/profile.proto. One sample for each
 * distinct stack of each thread, with its ticks and their time; process and thread are labels.
 * Functions have no addresses: a location is a function. Memory: with distinct stacks. */
#include "profile/export.h"
#include "profile/gzip.h"
#include "profile/protobuf.h"
#include "profile/text.h"

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
	LOCATION_ID = 1,
	LOCATION_MAPPING = 2,
	LOCATION_LINE = 4,
	LINE_FUNCTION = 1,
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
};

/* The string table: these, then the names of all frames in order. */
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

static gp_status_t add_sample(struct export *export, const struct merge_entry *entry,
			      struct error *error)
{
	static const enum frame_owner owners[OWNER_FRAMES] = {OWNER_PROCESS, OWNER_THREAD};

	(void)error; /* frames and tree keep theirs */
	export_fold(export, owners, OWNER_FRAMES, entry);
	return GP_OK;
}

/* A top-level field goes out at once; the file is never in memory as a whole. */
static void write_field(FILE *to, unsigned field, struct protobuf *message, bool *failed)
{
	struct protobuf outer = {0};

	protobuf_add_message(&outer, field, message);
	*failed |= outer.failed;
	fwrite(outer.bytes, 1, outer.failed ? 0 : outer.size, to);
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

static void build_sample(struct protobuf *message, const struct export *export, uint32_t node)
{
	const struct call_tree *tree = export->state;
	struct protobuf packed = {0};
	uint64_t ticks = tree->nodes[node].self;
	uint32_t owners[OWNER_FRAMES] = {0};
	uint32_t at = node;

	/* Leaf first, as pprof has it; the two nodes before the root are the owners. */
	while (at && tree->nodes[at].parent && tree->nodes[tree->nodes[at].parent].parent) {
		protobuf_add_element(&packed, (uint64_t)tree->nodes[at].frame + 1);
		at = tree->nodes[at].parent;
	}
	owners[1] = tree->nodes[at].frame;
	owners[0] = tree->nodes[tree->nodes[at].parent].frame;
	protobuf_add_message(message, SAMPLE_LOCATIONS, &packed);
	protobuf_clear(&packed);
	protobuf_add_element(&packed, ticks);
	protobuf_add_element(&packed, ticks * export_period_ns(export));
	protobuf_add_message(message, SAMPLE_VALUES, &packed);
	protobuf_deinit(&packed);
	add_owner(message, export, owners[0]);
	add_owner(message, export, owners[1]);
}

static void write_functions(FILE *to, const struct export *export, struct protobuf *message,
			    bool *failed)
{
	struct protobuf line = {0};

	for (size_t i = 0; i < export->frames->count; i++) {
		const struct frame *frame = &export->frames->entries[i];

		if (frame->kind > FRAME_USER)
			continue;
		protobuf_clear(&line);
		protobuf_add_number(&line, LINE_FUNCTION, i + 1);
		protobuf_add_number(message, LOCATION_ID, i + 1);
		protobuf_add_number(message, LOCATION_MAPPING, (uint64_t)frame->kind + 1);
		protobuf_add_message(message, LOCATION_LINE, &line);
		write_field(to, PROFILE_LOCATION, message, failed);
		protobuf_add_number(message, FUNCTION_ID, i + 1);
		protobuf_add_number(message, FUNCTION_NAME, STRING_FRAMES + i);
		protobuf_add_number(message, FUNCTION_SYSTEM_NAME, STRING_FRAMES + i);
		write_field(to, PROFILE_FUNCTION, message, failed);
	}
	protobuf_deinit(&line);
}

static void write_string(FILE *to, const char *text, bool *failed)
{
	struct protobuf outer = {0};

	protobuf_add_bytes(&outer, PROFILE_STRING, text, strlen(text));
	*failed |= outer.failed;
	fwrite(outer.bytes, 1, outer.failed ? 0 : outer.size, to);
	protobuf_deinit(&outer);
}

static void write_strings(FILE *to, const struct export *export, bool *failed)
{
	static const char *const fixed[] = {"",        "samples", "count", "time", "nanoseconds",
					    "process", "thread",  "pid",   "tid"};
	char text[4 * 256 + 1];

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		write_string(to, fixed[i], failed);
	text_escape(export->trace->info.banner, strlen(export->trace->info.banner), text,
		    sizeof(text));
	write_string(to, text, failed);
	snprintf(text, sizeof(text), "%llu ticks were lost", (unsigned long long)export->lost);
	write_string(to, text, failed);
	for (uint8_t kind = FRAME_KERNEL; kind <= FRAME_USER; kind++)
		write_string(to, export_object_name(&(struct frame){.kind = kind}), failed);
	for (size_t i = 0; i < export->frames->count; i++) {
		const struct frame *frame = &export->frames->entries[i];
		size_t size = 4 * (size_t)frame->name_bytes + 1;
		char *name = malloc(size);

		*failed |= !name;
		if (name)
			text_escape(frame->name, frame->name_bytes, name, size);
		write_string(to, name ? name : "", failed);
		free(name);
	}
}

static uint64_t wall_clock_of_first(const struct trace_info *info)
{
	return info->wall_clock_ns ? info->wall_clock_ns + info->first_ns - info->session_ns : 0;
}

static void write_profile(FILE *to, const struct export *export, bool *failed)
{
	const struct call_tree *tree = export->state;
	const struct trace_info *info = &export->trace->info;
	struct protobuf message = {0}, inner = {0};

	add_value_type(&message, STRING_SAMPLES, STRING_COUNT);
	write_field(to, PROFILE_SAMPLE_TYPE, &message, failed);
	add_value_type(&message, STRING_TIME, STRING_NANOSECONDS);
	write_field(to, PROFILE_SAMPLE_TYPE, &message, failed);
	for (size_t node = 1; node < tree->count; node++) {
		if (!tree->nodes[node].self)
			continue;
		build_sample(&message, export, (uint32_t)node);
		write_field(to, PROFILE_SAMPLE, &message, failed);
	}
	for (uint64_t kind = FRAME_KERNEL; kind <= FRAME_USER; kind++) {
		protobuf_add_number(&message, MAPPING_ID, kind + 1);
		protobuf_add_number(&message, MAPPING_FILE, STRING_OBJECTS + kind);
		protobuf_add_number(&message, MAPPING_HAS_FUNCTIONS, 1);
		write_field(to, PROFILE_MAPPING, &message, failed);
	}
	write_functions(to, export, &message, failed);
	write_strings(to, export, failed);
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
	*failed |= message.failed || inner.failed;
	fwrite(message.bytes, 1, message.failed ? 0 : message.size, to);
	protobuf_deinit(&message);
	protobuf_deinit(&inner);
}

static gp_status_t end(struct export *export, struct error *error)
{
	const struct call_tree *tree = export->state;
	bool failed = tree->failed;
	FILE *to = gzip_open(export->to, error);

	if (!to)
		return GP_ERR_NO_MEMORY;
	if (!failed)
		write_profile(to, export, &failed);
	fclose(to);
	return failed ? error_set(error, GP_ERR_NO_MEMORY, "no memory for the profile") : GP_OK;
}

const struct export_format export_pprof = {
	.name = "pprof",
	.summary = "protocol buffer for go tool pprof, gzip",
	.is_binary = true,
	.begin = export_begin_tree,
	.sample = add_sample,
	.end = end,
	.release = export_release_tree,
};
