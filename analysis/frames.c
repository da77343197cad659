#include "analysis/frames.h"

#include "base/address.h"
#include "base/container.h"

#include <stdlib.h>
#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst: "module mapping space". */
#define MODULES_START UINT64_C(0xffffffffa0000000)
#define MODULES_END UINT64_C(0xffffffffff000000)
#define KNOWN_BITS 17
/* Fibonacci hashing: 2^64 / golden ratio. */
#define HASH_MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

/* The frame of an address that was looked up before: most addresses come again and again. */
struct frames_known {
	uint64_t address;
	const struct trace_program *program; /* of a user frame */
	uint32_t frame;
	uint8_t filled;
	uint8_t user;
};

static const char *const mode_names[FRAMES_MODES] = {"unknown", "guest user", "guest kernel",
						     "halted",  "in VMM",     "not started"};
static const char *const end_names[FRAMES_ENDS] = {"unknown",     "root",        "depth limit",
						   "not present", "bad pointer", "outside memory",
						   "no rule",     "not walked"};

const char *frames_mode_name(uint64_t mode)
{
	return mode_names[mode < FRAMES_MODES ? mode : 0];
}

const char *frames_end_name(uint64_t end)
{
	return end_names[end < FRAMES_ENDS ? end : 0];
}

static uint64_t frames_hash_of(const struct hash_table *table, const void *key)
{
	const struct frame *frame = key;
	const uint64_t parts[] = {
		hash_bytes(table, frame->name, frame->name_bytes),
		frame->file ? hash_bytes(table, frame->file, strlen(frame->file)) : 0,
		frame->id,
		(uint64_t)frame->line << 8 | frame->kind,
	};

	return hash_bytes(table, parts, sizeof(parts));
}

static bool is_same_file(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool frames_is_same(const void *entry, const void *key)
{
	const struct frame *a = entry, *b = key;

	return a->kind == b->kind && a->id == b->id && a->is_unnamed == b->is_unnamed &&
	       a->is_inlined == b->is_inlined && a->line == b->line &&
	       a->name_bytes == b->name_bytes && !memcmp(a->name, b->name, a->name_bytes) &&
	       is_same_file(a->file, b->file);
}

gp_status_t frames_init(struct frames *frames, struct error *error)
{
	*frames = (struct frames){0};
	hash_table_init(&frames->table, sizeof(struct frame), sizeof(struct frame));
	frames->table.hash = frames_hash_of;
	frames->table.is_equal = frames_is_same;
	frames->known = calloc((size_t)1 << KNOWN_BITS, sizeof(*frames->known));
	return frames->known
		       ? GP_OK
		       : error_set(error, GP_ERR_NO_MEMORY, "no memory for the names of functions");
}

static void forget_symbols(struct frames *frames)
{
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++)
		for (int user = 0; user < 2; user++) {
			free(frames->of_symbol[group][user]);
			frames->of_symbol[group][user] = NULL;
		}
}

void frames_deinit(struct frames *frames)
{
	for (size_t i = 0; i < frames->count; i++)
		free((char *)(uintptr_t)frames->entries[i].name);
	hash_table_deinit(&frames->table);
	free(frames->known);
	forget_symbols(frames);
	*frames = (struct frames){0};
}

uint32_t frames_intern(struct frames *frames, const struct frame *frame)
{
	size_t file_size = frame->file ? strlen(frame->file) + 1 : 0;
	const struct frame *known;
	struct frame added = *frame;
	uint32_t number = 0;
	char *name;

	if (frames->failed)
		return 0;
	known = hash_table_find(&frames->table, frame);
	if (known)
		return (uint32_t)(known - frames->entries);
	name = malloc((size_t)frame->name_bytes + 1 + file_size);
	if (name) {
		memcpy(name, frame->name, frame->name_bytes);
		name[frame->name_bytes] = 0;
		added.name = name;
		if (file_size)
			added.file = memcpy(name + frame->name_bytes + 1, frame->file, file_size);
	}
	if (!name || !hash_table_add(&frames->table, &added, &number)) {
		free(name);
		frames->failed = true;
	}
	return number;
}

static uint32_t intern_text(struct frames *frames, enum frame_kind kind, uint64_t id,
			    const char *text, bool is_unnamed)
{
	return frames_intern(frames, &(struct frame){.name = text,
						     .name_bytes = (uint32_t)strlen(text),
						     .kind = (uint8_t)kind,
						     .id = id,
						     .is_unnamed = is_unnamed});
}

static uint32_t intern_symbol(struct frames *frames, const struct trace_symbol *symbol, bool user)
{
	enum frame_kind kind = FRAME_KERNEL;

	if (user)
		kind = FRAME_USER;
	else if (symbol->kind == FXT_SYMBOL_MODULE)
		kind = FRAME_MODULE;
	else if (symbol->kind == FXT_SYMBOL_BOOT)
		kind = FRAME_BOOT;
	return frames_intern(frames, &(struct frame){.name = symbol->name,
						     .name_bytes = symbol->name_bytes,
						     .kind = (uint8_t)kind});
}

/* A symbol has many addresses: its name is hashed once. */
static uint32_t of_symbol(struct frames *frames, const struct trace *trace,
			  const struct trace_symbol *symbol, bool user)
{
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++) {
		const struct trace_symbols *symbols = &trace->symbols[group];
		uint32_t **numbers = &frames->of_symbol[group][user], frame;
		size_t index;

		if (!symbols->count || symbol < symbols->items ||
		    symbol >= symbols->items + symbols->count)
			continue;
		if (!*numbers)
			*numbers = calloc(symbols->count, sizeof(**numbers));
		if (!*numbers)
			break;
		index = (size_t)(symbol - symbols->items);
		if ((*numbers)[index])
			return (*numbers)[index] - 1;
		frame = intern_symbol(frames, symbol, user);
		if (!frames->failed)
			(*numbers)[index] = frame + 1;
		return frame;
	}
	return intern_symbol(frames, symbol, user);
}

/* The places in the source of a frame, innermost first. */
static size_t find_places(struct frames *frames, const struct trace *trace,
			  const struct fxt_sample *sample, size_t index,
			  struct source_frame places[SOURCE_FRAMES_MAX])
{
	const struct trace_program *program = NULL;

	if (!frames->lines)
		return 0;
	if (trace_frame_is_user(sample, index))
		program = trace_program_of(trace, sample);
	return source_lines_find(frames->lines, program, trace_find_symbol(trace, sample, index),
				 trace_frame_address(sample, index), places);
}

/* The function `number` where it stands in the source. */
static uint32_t at_place(struct frames *frames, uint32_t number, const struct source_frame *place)
{
	struct frame frame;

	if (frames->failed || !place->file)
		return number;
	frame = frames->entries[number];
	frame.file = place->file;
	frame.line = place->line;
	frame.begin = place->begin;
	return frames_intern(frames, &frame);
}

static uint32_t find_function(struct frames *frames, const struct trace *trace,
			      const struct fxt_sample *sample, size_t index)
{
	const struct trace_symbol *symbol = trace_find_symbol(trace, sample, index);
	bool user = trace_frame_is_user(sample, index);
	uint64_t address = trace_frame_address(sample, index);

	if (symbol)
		return of_symbol(frames, trace, symbol, user);
	if (user)
		return intern_text(frames, FRAME_USER, 0, "[user]", true);
	if (address >= MODULES_START && address < MODULES_END)
		return intern_text(frames, FRAME_MODULE, 0, "[kernel module]", true);
	if (address >= GUEST_KERNEL_HALF)
		return intern_text(frames, FRAME_KERNEL, 0, "[kernel, no symbol]", true);
	return intern_text(frames, FRAME_BOOT, 0, "[early boot, no symbol]", true);
}

static uint32_t look_up(struct frames *frames, const struct trace *trace,
			const struct fxt_sample *sample, size_t index)
{
	struct source_frame places[SOURCE_FRAMES_MAX];
	uint32_t number = find_function(frames, trace, sample, index);
	size_t count;

	if (!frames->with_places)
		return number;
	count = find_places(frames, trace, sample, index, places);
	return count ? at_place(frames, number, &places[count - 1]) : number;
}

uint32_t frames_of_address(struct frames *frames, const struct trace *trace,
			   const struct fxt_sample *sample, size_t index)
{
	uint64_t address = trace_frame_address(sample, index);
	bool user = trace_frame_is_user(sample, index);
	const struct trace_program *program = user ? trace_program_of(trace, sample) : NULL;
	uint64_t hash = address * HASH_MULTIPLIER +
			(program ? (uint64_t)(program - trace->programs.items) + 2 : user) *
				HASH_MULTIPLIER;
	struct frames_known *known = &frames->known[hash >> (64 - KNOWN_BITS)];

	if (frames->known_of != trace->serial) {
		if (frames->known_of)
			memset(frames->known, 0, sizeof(*known) << KNOWN_BITS);
		forget_symbols(frames);
		frames->known_of = trace->serial;
	}
	if (!known->filled || known->address != address || known->user != (uint8_t)user ||
	    known->program != program)
		*known = (struct frames_known){address, program,
					       look_up(frames, trace, sample, index), true, user};
	return known->frame;
}

size_t frames_of_inlined(struct frames *frames, const struct trace *trace,
			 const struct fxt_sample *sample, size_t index, uint32_t *out, size_t most)
{
	struct source_frame places[SOURCE_FRAMES_MAX];
	size_t count = find_places(frames, trace, sample, index, places), used = 0;
	uint8_t kind;

	if (count < 2)
		return 0;
	/* They are part of what they were inlined into. */
	kind = frames->entries[frames_of_address(frames, trace, sample, index)].kind;
	for (size_t i = count - 1; i > 0 && used < most; i--) {
		const struct source_frame *place = &places[i - 1];
		struct frame frame = {.kind = kind, .is_inlined = true};
		char name[512];

		snprintf(name, sizeof(name), "%.480s" FRAME_INLINED, place->function);
		frame.name = name;
		frame.name_bytes = (uint32_t)strlen(name);
		if (frames->with_places && place->file) {
			frame.file = place->file;
			frame.line = place->line;
			frame.begin = place->begin;
		}
		out[used++] = frames_intern(frames, &frame);
	}
	return used;
}

size_t frames_of_stack(struct frames *frames, const struct trace *trace,
		       const struct fxt_sample *sample, bool inlined, uint32_t *out, size_t most)
{
	size_t depth = 0;

	for (size_t i = sample->depth; i > 0; i--) {
		out[depth++] = frames_of_address(frames, trace, sample, i - 1);
		/* What is left of the stack must still fit. */
		if (inlined && !frames->failed)
			depth += frames_of_inlined(frames, trace, sample, i - 1, out + depth,
						   most - depth - (i - 1));
	}
	return depth;
}

static uint32_t of_line(struct frames *frames, const struct trace *trace,
			const struct fxt_sample *sample)
{
	struct source_frame places[SOURCE_FRAMES_MAX];
	char name[1024];
	const struct frame *leaf;
	uint32_t number;

	if (!sample_is_running(sample))
		return intern_text(frames, FRAME_LINE, 0, "[not running]", true);
	if (find_places(frames, trace, sample, 0, places) && places[0].file && places[0].line) {
		snprintf(name, sizeof(name), "%.1000s:%u", places[0].file, places[0].line);
		return intern_text(frames, FRAME_LINE, 0, name, false);
	}
	number = frames_of_address(frames, trace, sample, 0);
	if (frames->failed)
		return 0;
	leaf = &frames->entries[number];
	snprintf(name, sizeof(name), "%.*s [no line]",
		 leaf->name_bytes < 1000 ? (int)leaf->name_bytes : 1000, leaf->name);
	return intern_text(frames, FRAME_LINE, 0, name, true);
}

static uint32_t of_process(struct frames *frames, const struct trace *trace,
			   const struct fxt_sample *sample, bool by_name)
{
	const struct trace_name *name;

	if (!(sample->flags & FXT_SAMPLE_PROCESS))
		return intern_text(frames, FRAME_PROCESS, FRAME_NO_ID, "[no process known]", true);
	name = trace_process_name(trace, sample->process);
	return frames_intern(frames, &(struct frame){.name = name ? name->name : "[no name known]",
						     .name_bytes = name ? name->name_bytes : 15,
						     .kind = FRAME_PROCESS,
						     .id = by_name ? FRAME_NO_ID : sample->process,
						     .is_unnamed = !name});
}

static uint32_t of_thread(struct frames *frames, const struct trace *trace,
			  const struct fxt_sample *sample)
{
	const struct trace_name *name;

	if (!(sample->flags & FXT_SAMPLE_THREAD))
		return intern_text(frames, FRAME_THREAD, FRAME_NO_ID, "[no thread known]", true);
	name = trace_thread_name(trace, sample->thread);
	return frames_intern(frames, &(struct frame){.name = name ? name->name : "[no name known]",
						     .name_bytes = name ? name->name_bytes : 15,
						     .kind = FRAME_THREAD,
						     .id = sample->thread,
						     .is_unnamed = !name});
}

/* Of a program's code the file, by the last part of its path; "[user]" where none is known, and of
 * what a program has made itself. */
static uint32_t of_user_file(struct frames *frames, const struct trace *trace,
			     const struct fxt_sample *sample)
{
	const struct trace_program *program = trace_program_of(trace, sample);
	const struct trace_module *module =
		program ? trace_find_module(&trace->code, program, trace_frame_address(sample, 0))
			: NULL;
	const char *slash;
	struct frame frame = {.kind = FRAME_GROUP};

	if (!module || !module->name_bytes)
		return intern_text(frames, FRAME_GROUP, 0, "[user]", false);
	slash = memrchr(module->name, '/', module->name_bytes);
	frame.name = slash ? slash + 1 : module->name;
	frame.name_bytes = (uint32_t)(module->name + module->name_bytes - frame.name);
	return frames_intern(frames, &frame);
}

static uint32_t of_group(struct frames *frames, const struct trace *trace,
			 const struct fxt_sample *sample)
{
	static const char *const groups[] = {
		[FRAME_KERNEL] = "[kernel]",
		[FRAME_MODULE] = "[kernel modules]",
		[FRAME_BOOT] = "[early boot]",
		[FRAME_USER] = "[user]",
	};
	uint32_t leaf;

	if (!sample_is_running(sample))
		return intern_text(frames, FRAME_GROUP, 0, "[not running]", false);
	leaf = frames_of_address(frames, trace, sample, 0);
	if (frames->failed)
		return 0;
	if (frames->entries[leaf].kind == FRAME_USER)
		return of_user_file(frames, trace, sample);
	return intern_text(frames, FRAME_GROUP, 0, groups[frames->entries[leaf].kind], false);
}

uint32_t frames_of_owner(struct frames *frames, const struct trace *trace,
			 const struct fxt_sample *sample, enum frame_owner owner)
{
	char text[32];

	switch (owner) {
	case OWNER_PROCESS:
		return of_process(frames, trace, sample, false);
	case OWNER_COMMAND:
		return of_process(frames, trace, sample, true);
	case OWNER_THREAD:
		return of_thread(frames, trace, sample);
	case OWNER_VCPU:
		snprintf(text, sizeof(text), "vCPU %llu", (unsigned long long)sample->vcpu);
		return intern_text(frames, FRAME_VCPU, sample->vcpu, text, false);
	case OWNER_MODE:
		return intern_text(frames, FRAME_MODE,
				   sample->mode < FRAMES_MODES ? sample->mode : 0,
				   frames_mode_name(sample->mode), false);
	case OWNER_LINE:
		return of_line(frames, trace, sample);
	case OWNER_GROUP:
	default:
		return of_group(frames, trace, sample);
	}
}
