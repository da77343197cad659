#include "fxt/reader.h"

#include "fxt/writer.h"

#include <errno.h>
#include <stdlib.h>

/* One entry of the string table in a word: where the text is in the file (in words), its length,
 * and whether there is one. Offsets instead of pointers survive fxt_reader_grow(). */
#define STRING_KNOWN 0x8000u

struct fxt_provider {
	uint32_t id;
	uint64_t ticks_per_second;
	struct {
		uint64_t process;
		uint64_t thread;
		bool known;
	} threads[FXT_THREAD_INDEX_MAX + 1];
	uint64_t strings[FXT_STRING_INDEX_MAX + 1];
};

/* The words of one record, or of one argument in it. Reading past the end gives zero and fails. */
struct input {
	const uint64_t *words;
	size_t count;
	size_t used;
	bool failed;
};

static uint64_t take(struct input *input)
{
	if (input->failed || input->used == input->count) {
		input->failed = true;
		return 0;
	}
	return input->words[input->used++];
}

/* `size` bytes and their padding, in place; NULL when they are not all there. */
static const void *take_bytes(struct input *input, size_t size)
{
	size_t words = fxt_words(size);
	const void *bytes = input->words + input->used;

	if (input->failed || words > input->count - input->used) {
		input->failed = true;
		return NULL;
	}
	input->used += words;
	return bytes;
}

static struct fxt_string take_text(struct input *input, size_t length)
{
	const void *text = take_bytes(input, length);

	if (!text)
		length = 0;
	return (struct fxt_string){.text = text, .length = (uint16_t)length};
}

static void note(struct fxt_reader *reader, size_t offset, const char *why)
{
	if (reader->problem_count < FXT_READER_PROBLEMS_MAX)
		reader->problems[reader->problem_count++] =
			(struct fxt_problem){.offset = offset, .why = why};
}

static void unresolved(struct fxt_reader *reader, const char *why)
{
	reader->unresolved++;
	note(reader, reader->offset, why);
}

static struct fxt_string take_string(struct fxt_reader *reader, struct input *input, uint64_t ref)
{
	uint64_t entry;

	if (ref & FXT_STRING_REF_INLINE)
		return take_text(input, ref & FXT_STRING_BYTES_MAX);
	if (ref == 0)
		return (struct fxt_string){0};
	entry = reader->provider->strings[ref];
	if (!(entry & STRING_KNOWN)) {
		unresolved(reader, "a string index that no string record has set");
		return (struct fxt_string){.index = (uint16_t)ref};
	}
	return (struct fxt_string){
		.text = (const char *)reader->bytes + (entry >> 16) * sizeof(uint64_t),
		.length = entry & FXT_STRING_BYTES_MAX,
		.index = (uint16_t)ref,
	};
}

static struct fxt_thread_ref take_thread(struct fxt_reader *reader, struct input *input,
					 uint64_t ref)
{
	struct fxt_thread_ref thread = {.index = (uint8_t)ref};

	if (ref == 0) {
		thread.process = take(input);
		thread.thread = take(input);
	} else if (reader->provider->threads[ref].known) {
		thread.process = reader->provider->threads[ref].process;
		thread.thread = reader->provider->threads[ref].thread;
	} else {
		unresolved(reader, "a thread index that no thread record has set");
	}
	return thread;
}

/* False: of a type we do not know. */
static bool take_argument(struct fxt_reader *reader, struct input *input,
			  struct fxt_argument *argument)
{
	uint64_t header = take(input);
	size_t size = fxt_bits(header, 4, 15);
	struct input own;

	if (input->failed || size == 0 || size - 1 > input->count - input->used) {
		input->failed = true;
		return false;
	}
	/* An argument reads within its own size, whatever its fields say. */
	own = (struct input){.words = input->words + input->used, .count = size - 1};
	input->used += size - 1;
	if (fxt_bits(header, 0, 3) > FXT_ARGUMENT_BLOB) {
		reader->unknown_arguments++;
		return false;
	}
	argument->type = (enum fxt_argument_type)fxt_bits(header, 0, 3);
	argument->name = take_string(reader, &own, fxt_bits(header, 16, 31));
	argument->u64 = 0;
	switch (argument->type) {
	case FXT_ARGUMENT_NULL:
		break;
	case FXT_ARGUMENT_I32:
	case FXT_ARGUMENT_U32:
		argument->u32 = (uint32_t)(header >> 32);
		break;
	case FXT_ARGUMENT_BOOL:
		argument->boolean = header >> 32 & 1;
		break;
	case FXT_ARGUMENT_I64:
	case FXT_ARGUMENT_U64:
	case FXT_ARGUMENT_DOUBLE:
	case FXT_ARGUMENT_POINTER:
	case FXT_ARGUMENT_KOID:
		argument->u64 = take(&own);
		break;
	case FXT_ARGUMENT_STRING:
		argument->string = take_string(reader, &own, fxt_bits(header, 32, 47));
		break;
	case FXT_ARGUMENT_BLOB:
		argument->blob.size = (uint32_t)(header >> 32);
		argument->blob.bytes = take_bytes(&own, argument->blob.size);
		break;
	}
	if (own.failed)
		input->failed = true;
	return true;
}

/* Into the reader's own array; returns how many were understood. */
static size_t take_arguments(struct fxt_reader *reader, struct input *input, uint64_t count)
{
	size_t understood = 0;

	for (uint64_t i = 0; i < count && !input->failed; i++)
		if (take_argument(reader, input, &reader->arguments[understood]))
			understood++;
	return understood;
}

static struct fxt_provider *find_provider(struct fxt_reader *reader, uint32_t id)
{
	struct fxt_provider *provider;

	for (size_t i = 0; i < reader->provider_count; i++)
		if (reader->providers[i]->id == id)
			return reader->providers[i];
	if (reader->provider_count == FXT_READER_PROVIDERS_MAX)
		return NULL;
	provider = calloc(1, sizeof(*provider));
	if (!provider)
		return NULL;
	provider->id = id;
	provider->ticks_per_second = FXT_TICKS_PER_SECOND;
	reader->providers[reader->provider_count++] = provider;
	return provider;
}

/* What became of a record. */
enum verdict {
	GOOD,
	BAD,     /* counted and skipped; the reason is set */
	UNKNOWN, /* counted and skipped */
	BROKEN,  /* what follows cannot be understood; the reason is set */
};

static enum verdict read_metadata(struct fxt_reader *reader, struct input *input, uint64_t header,
				  struct fxt_record *record, const char **why)
{
	uint32_t id = (uint32_t)fxt_bits(header, 20, 51);
	struct fxt_provider *provider;

	switch (fxt_bits(header, 16, 19)) {
	case FXT_METADATA_PROVIDER_INFO:
		record->kind = FXT_KIND_PROVIDER_INFO;
		record->provider_info.id = id;
		record->provider_info.name = take_text(input, fxt_bits(header, 52, 59));
		if (input->failed)
			return BAD;
		break;
	case FXT_METADATA_PROVIDER_SECTION:
		record->kind = FXT_KIND_PROVIDER_SECTION;
		record->section = id;
		break;
	case FXT_METADATA_PROVIDER_EVENT:
		record->kind = FXT_KIND_PROVIDER_EVENT;
		record->provider_event.id = id;
		record->provider_event.event = (uint8_t)fxt_bits(header, 52, 55);
		return GOOD;
	case FXT_METADATA_TRACE_INFO:
		record->kind = FXT_KIND_MAGIC;
		return header == FXT_MAGIC ? GOOD : UNKNOWN;
	default:
		return UNKNOWN;
	}
	provider = find_provider(reader, id);
	if (!provider) {
		*why = "more providers than the 16 that can be kept apart (or no memory)";
		return BROKEN;
	}
	reader->provider = provider;
	record->provider = id;
	return GOOD;
}

static enum verdict read_string(struct fxt_reader *reader, struct input *input, uint64_t header,
				struct fxt_record *record, const char **why)
{
	uint64_t index = fxt_bits(header, 16, 30), length = fxt_bits(header, 32, 46);
	/* In words from the beginning of the file, before take_text() moves on. */
	uint64_t place = reader->offset / sizeof(uint64_t) + 1;

	record->kind = FXT_KIND_STRING;
	record->string.index = (uint16_t)index;
	record->string.text = take_text(input, length);
	if (input->failed)
		return BAD;
	if (index == 0) {
		*why = "a string record for index 0, which means the empty string";
		return BAD;
	}
	reader->provider->strings[index] = place << 16 | STRING_KNOWN | length;
	return GOOD;
}

static enum verdict read_thread(struct fxt_reader *reader, struct input *input, uint64_t header,
				struct fxt_record *record, const char **why)
{
	uint64_t index = fxt_bits(header, 16, 23);

	record->kind = FXT_KIND_THREAD;
	record->thread.index = (uint8_t)index;
	record->thread.process = take(input);
	record->thread.thread = take(input);
	if (input->failed)
		return BAD;
	if (index == 0) {
		*why = "a thread record for index 0, which means inline";
		return BAD;
	}
	reader->provider->threads[index].process = record->thread.process;
	reader->provider->threads[index].thread = record->thread.thread;
	reader->provider->threads[index].known = true;
	return GOOD;
}

static enum verdict read_event(struct fxt_reader *reader, struct input *input, uint64_t header,
			       struct fxt_record *record)
{
	struct fxt_event *event = &record->event;

	if (fxt_bits(header, 16, 19) > FXT_EVENT_FLOW_END)
		return UNKNOWN;
	record->kind = FXT_KIND_EVENT;
	event->type = (enum fxt_event_type)fxt_bits(header, 16, 19);
	event->timestamp = take(input);
	event->thread = take_thread(reader, input, fxt_bits(header, 24, 31));
	event->category = take_string(reader, input, fxt_bits(header, 32, 47));
	event->name = take_string(reader, input, fxt_bits(header, 48, 63));
	event->arguments = reader->arguments;
	event->argument_count = take_arguments(reader, input, fxt_bits(header, 20, 23));
	event->extra = fxt_event_has_extra(event->type) ? take(input) : 0;
	return GOOD;
}

static enum verdict read_scheduling(struct fxt_reader *reader, struct input *input, uint64_t header,
				    struct fxt_record *record)
{
	uint64_t count = fxt_bits(header, 16, 19);
	uint16_t cpu = (uint16_t)fxt_bits(header, 20, 35);

	switch (fxt_bits(header, 60, 63)) {
	case FXT_SCHEDULING_CONTEXT_SWITCH:
		record->kind = FXT_KIND_CONTEXT_SWITCH;
		record->context_switch.cpu = cpu;
		record->context_switch.outgoing_state = (uint8_t)fxt_bits(header, 36, 39);
		record->context_switch.timestamp = take(input);
		record->context_switch.outgoing = take(input);
		record->context_switch.incoming = take(input);
		record->context_switch.arguments = reader->arguments;
		record->context_switch.argument_count = take_arguments(reader, input, count);
		return GOOD;
	case FXT_SCHEDULING_WAKEUP:
		record->kind = FXT_KIND_WAKEUP;
		record->wakeup.cpu = cpu;
		record->wakeup.timestamp = take(input);
		record->wakeup.thread = take(input);
		record->wakeup.arguments = reader->arguments;
		record->wakeup.argument_count = take_arguments(reader, input, count);
		return GOOD;
	default:
		return UNKNOWN;
	}
}

static enum verdict read_profiler(struct fxt_reader *reader, struct input *input, uint64_t header,
				  struct fxt_record *record)
{
	uint64_t type = fxt_bits(header, 16, 19), timestamp;
	uint16_t module = (uint16_t)fxt_bits(header, 28, 43);
	struct fxt_thread_ref thread;

	if (type > FXT_PROFILER_BACKTRACE)
		return UNKNOWN;
	timestamp = take(input);
	thread = take_thread(reader, input, fxt_bits(header, 20, 27));
	if (type == FXT_PROFILER_MODULE) {
		record->kind = FXT_KIND_MODULE;
		record->module.id = module;
		record->module.timestamp = timestamp;
		record->module.thread = thread;
		record->module.name = take_text(input, fxt_bits(header, 44, 51));
		record->module.build_id = take_text(input, fxt_bits(header, 52, 59));
	} else if (type == FXT_PROFILER_MMAP) {
		record->kind = FXT_KIND_MMAP;
		record->mmap.module = module;
		record->mmap.flags = (uint8_t)fxt_bits(header, 44, 46);
		record->mmap.timestamp = timestamp;
		record->mmap.thread = thread;
		record->mmap.start = take(input);
		record->mmap.range = take(input);
		record->mmap.vaddr = take(input);
	} else {
		record->kind = FXT_KIND_BACKTRACE;
		record->backtrace.timestamp = timestamp;
		record->backtrace.thread = thread;
		record->backtrace.count = fxt_bits(header, 28, 35);
		record->backtrace.frames =
			take_bytes(input, record->backtrace.count * sizeof(uint64_t));
	}
	return GOOD;
}

static enum verdict read_record(struct fxt_reader *reader, struct input *input, uint64_t header,
				struct fxt_record *record, const char **why)
{
	switch (fxt_header_type(header)) {
	case FXT_TYPE_METADATA:
		return read_metadata(reader, input, header, record, why);
	case FXT_TYPE_INITIALIZATION:
		record->kind = FXT_KIND_INITIALIZATION;
		record->ticks_per_second = take(input);
		if (input->failed)
			return BAD;
		if (record->ticks_per_second == 0) {
			*why = "an initialization record of 0 ticks per second";
			return BAD;
		}
		reader->provider->ticks_per_second = record->ticks_per_second;
		return GOOD;
	case FXT_TYPE_STRING:
		return read_string(reader, input, header, record, why);
	case FXT_TYPE_THREAD:
		return read_thread(reader, input, header, record, why);
	case FXT_TYPE_EVENT:
		return read_event(reader, input, header, record);
	case FXT_TYPE_BLOB:
		record->kind = FXT_KIND_BLOB;
		record->blob.type = (uint8_t)fxt_bits(header, 48, 55);
		record->blob.name = take_string(reader, input, fxt_bits(header, 16, 31));
		record->blob.size = fxt_bits(header, 32, 46);
		record->blob.payload = take_bytes(input, record->blob.size);
		return GOOD;
	case FXT_TYPE_KERNEL_OBJECT:
		record->kind = FXT_KIND_KERNEL_OBJECT;
		record->object.type = (uint8_t)fxt_bits(header, 16, 23);
		record->object.koid = take(input);
		record->object.name = take_string(reader, input, fxt_bits(header, 24, 39));
		record->object.arguments = reader->arguments;
		record->object.argument_count =
			take_arguments(reader, input, fxt_bits(header, 40, 43));
		return GOOD;
	case FXT_TYPE_SCHEDULING:
		return read_scheduling(reader, input, header, record);
	case FXT_TYPE_LOG:
		record->kind = FXT_KIND_LOG;
		record->log.timestamp = take(input);
		record->log.thread = take_thread(reader, input, fxt_bits(header, 32, 39));
		record->log.text = take_text(input, fxt_bits(header, 16, 30));
		return GOOD;
	case FXT_TYPE_PROFILER:
		return read_profiler(reader, input, header, record);
	case FXT_TYPE_USERSPACE_OBJECT:
	case FXT_TYPE_LARGE:
		break;
	}
	return UNKNOWN;
}

static bool stop_cut(struct fxt_reader *reader)
{
	reader->cut = true;
	return false;
}

static bool stop_broken(struct fxt_reader *reader, const char *why)
{
	reader->broken = true;
	/* The reason why it ended is worth more than the last of many small ones. */
	if (reader->problem_count == FXT_READER_PROBLEMS_MAX)
		reader->problem_count--;
	note(reader, reader->offset, why);
	return false;
}

bool fxt_reader_next(struct fxt_reader *reader, struct fxt_record *record)
{
	if (reader->cut || reader->broken)
		return false;
	/* Every turn moves on by at least a word, or ends. */
	while (reader->offset < reader->size) {
		size_t left = reader->size - reader->offset;
		const uint64_t *words = (const uint64_t *)(reader->bytes + reader->offset);
		struct fxt_record result;
		struct input input;
		uint64_t count;
		const char *why = "a record's content goes beyond its length";

		if (left < sizeof(uint64_t))
			return stop_cut(reader);
		count = fxt_header_words(words[0]);
		if (count == 0)
			return stop_broken(reader, "a record of length zero");
		if (count > left / sizeof(uint64_t))
			return stop_cut(reader);
		input = (struct input){.words = words, .count = count, .used = 1};
		result.provider = reader->provider->id;
		switch (read_record(reader, &input, words[0], &result, &why)) {
		case GOOD:
			if (!input.failed) {
				result.offset = reader->offset;
				result.words = count;
				reader->offset += count * sizeof(uint64_t);
				reader->records++;
				*record = result;
				return true;
			}
			__attribute__((fallthrough));
		case BAD:
			reader->bad_records++;
			note(reader, reader->offset, why);
			break;
		case UNKNOWN:
			reader->unknown_records++;
			break;
		case BROKEN:
			return stop_broken(reader, why);
		}
		reader->offset += count * sizeof(uint64_t);
	}
	return false;
}

static bool aligned(const void *bytes)
{
	return (uintptr_t)bytes % _Alignof(uint64_t) == 0;
}

/* Or with as much of it as is there. */
static bool begins_with_magic(const void *bytes, size_t size)
{
	static const uint64_t magic = FXT_MAGIC;

	return size == 0 || memcmp(bytes, &magic, size < 8 ? size : 8) == 0;
}

gp_status_t fxt_reader_init(struct fxt_reader *reader, const void *bytes, size_t size,
			    struct error *error)
{
	struct fxt_reader result = {.bytes = bytes, .size = size};

	if (!aligned(bytes))
		return error_set(error, GP_ERR_INVALID_ARGS, "the trace is not at a multiple of 8");
	if (!begins_with_magic(bytes, size))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "not a trace: it does not begin with FXT's magic number");
	/* Nothing at all is an end before the magic, not a trace without records. */
	result.cut = size < 8;
	/* What comes before any provider is named belongs to a nameless one. */
	result.provider = find_provider(&result, 0);
	if (!result.provider)
		return error_set_errno(error, ENOMEM, "reading the trace");
	*reader = result;
	return GP_OK;
}

void fxt_reader_deinit(struct fxt_reader *reader)
{
	for (size_t i = 0; i < reader->provider_count; i++)
		free(reader->providers[i]);
	reader->provider_count = 0;
	reader->provider = NULL;
	reader->cut = true; /* fxt_reader_next() gives nothing any more */
}

gp_status_t fxt_reader_grow(struct fxt_reader *reader, const void *bytes, size_t size,
			    struct error *error)
{
	if (!aligned(bytes) || size < reader->size)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the trace has shrunk from %zu to %zu bytes, or is not at a "
				 "multiple of 8",
				 reader->size, size);
	if (!begins_with_magic(bytes, size))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "not a trace: it does not begin with FXT's magic number");
	reader->bytes = bytes;
	reader->size = size;
	reader->cut = size < 8;
	return GP_OK;
}

uint64_t fxt_ticks_to_nanoseconds(uint64_t ticks, uint64_t ticks_per_second)
{
	unsigned __int128 nanoseconds;

	if (ticks_per_second == 0 || ticks_per_second == FXT_TICKS_PER_SECOND)
		return ticks;
	nanoseconds = (unsigned __int128)ticks * 1000000000u / ticks_per_second;
	return nanoseconds > UINT64_MAX ? UINT64_MAX : (uint64_t)nanoseconds;
}

uint64_t fxt_reader_nanoseconds(const struct fxt_reader *reader, uint64_t ticks)
{
	return fxt_ticks_to_nanoseconds(ticks, reader->provider->ticks_per_second);
}
