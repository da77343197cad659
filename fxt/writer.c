#include "fxt/writer.h"

#include "base/container.h"

/* A record under construction: its header is words[0], `used` counts it. */
struct output {
	uint64_t *words;
	size_t capacity;
	size_t used;
	uint64_t header;
	bool failed;
};

static struct output output_begin(uint64_t *words, size_t capacity, uint64_t header)
{
	return (struct output){
		.words = words,
		.capacity = capacity < FXT_RECORD_WORDS_MAX ? capacity : FXT_RECORD_WORDS_MAX,
		.used = 1,
		.header = header,
		.failed = capacity == 0,
	};
}

static size_t output_end(struct output *output)
{
	if (output->failed)
		return 0;
	output->words[0] = fxt_header_with_size(output->header, output->used);
	return output->used;
}

static void writer_put(struct output *output, uint64_t word)
{
	if (output->failed || output->used == output->capacity)
		output->failed = true;
	else
		output->words[output->used++] = word;
}

/* Bytes, zero-padded to whole words. */
static void put_bytes(struct output *output, const void *bytes, size_t size)
{
	size_t count = fxt_words(size);

	if (output->failed || count > output->capacity - output->used) {
		output->failed = true;
		return;
	}
	if (count == 0)
		return;
	output->words[output->used + count - 1] = 0;
	memcpy(output->words + output->used, bytes, size);
	output->used += count;
}

/* The 16 bits that stand for a string in a header. */
static uint64_t string_ref(struct output *output, const struct fxt_string *string)
{
	if (string->index > FXT_STRING_INDEX_MAX ||
	    (string->index == 0 && string->length > FXT_STRING_BYTES_MAX)) {
		output->failed = true;
		return 0;
	}
	if (string->index != 0)
		return string->index;
	return string->length != 0 ? FXT_STRING_REF_INLINE | string->length : 0;
}

static void put_string(struct output *output, const struct fxt_string *string)
{
	if (string->index == 0)
		put_bytes(output, string->text, string->length);
}

static void put_thread(struct output *output, const struct fxt_thread_ref *thread)
{
	if (thread->index != 0)
		return;
	writer_put(output, thread->process);
	writer_put(output, thread->thread);
}

static void put_argument(struct output *output, const struct fxt_argument *argument)
{
	size_t start = output->used;
	uint64_t header = (uint64_t)argument->type | string_ref(output, &argument->name) << 16;

	writer_put(output, 0); /* the header, once the size is known */
	put_string(output, &argument->name);
	switch (argument->type) {
	case FXT_ARGUMENT_NULL:
		break;
	case FXT_ARGUMENT_I32:
	case FXT_ARGUMENT_U32:
		header |= (uint64_t)argument->u32 << 32;
		break;
	case FXT_ARGUMENT_BOOL:
		header |= (uint64_t)argument->boolean << 32;
		break;
	case FXT_ARGUMENT_I64:
	case FXT_ARGUMENT_U64:
	case FXT_ARGUMENT_DOUBLE:
	case FXT_ARGUMENT_POINTER:
	case FXT_ARGUMENT_KOID:
		writer_put(output, argument->u64);
		break;
	case FXT_ARGUMENT_STRING:
		header |= string_ref(output, &argument->string) << 32;
		put_string(output, &argument->string);
		break;
	case FXT_ARGUMENT_BLOB:
		header |= (uint64_t)argument->blob.size << 32;
		put_bytes(output, argument->blob.bytes, argument->blob.size);
		break;
	default:
		output->failed = true;
		break;
	}
	if (!output->failed)
		output->words[start] = fxt_header_with_size(header, output->used - start);
}

/* The count as a header holds it; the arguments themselves follow with put_arguments(). */
static uint64_t argument_count(struct output *output, size_t count)
{
	if (count > FXT_ARGUMENTS_MAX)
		output->failed = true;
	return count & FXT_ARGUMENTS_MAX;
}

static void put_arguments(struct output *output, const struct fxt_argument *arguments, size_t count)
{
	for (size_t i = 0; i < count && !output->failed; i++)
		put_argument(output, &arguments[i]);
}

size_t fxt_encode_magic(uint64_t *words, size_t capacity)
{
	if (capacity == 0)
		return 0;
	words[0] = FXT_MAGIC;
	return 1;
}

static uint64_t metadata_header(enum fxt_metadata_type type, uint32_t id)
{
	return fxt_header(FXT_TYPE_METADATA) | (uint64_t)type << 16 | (uint64_t)id << 20;
}

size_t fxt_encode_provider_info(const struct fxt_provider_info *info, uint64_t *words,
				size_t capacity)
{
	struct output output = output_begin(words, capacity,
					    metadata_header(FXT_METADATA_PROVIDER_INFO, info->id));

	if (info->name.index != 0 || info->name.length > FXT_NAME_BYTES_MAX)
		return 0;
	output.header |= (uint64_t)info->name.length << 52;
	put_bytes(&output, info->name.text, info->name.length);
	return output_end(&output);
}

size_t fxt_encode_provider_section(uint32_t id, uint64_t *words, size_t capacity)
{
	struct output output =
		output_begin(words, capacity, metadata_header(FXT_METADATA_PROVIDER_SECTION, id));

	return output_end(&output);
}

size_t fxt_encode_provider_event(uint32_t id, uint8_t event, uint64_t *words, size_t capacity)
{
	struct output output =
		output_begin(words, capacity, metadata_header(FXT_METADATA_PROVIDER_EVENT, id));

	if (event > 0xf)
		return 0;
	output.header |= (uint64_t)event << 52;
	return output_end(&output);
}

size_t fxt_encode_initialization(uint64_t ticks_per_second, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_INITIALIZATION));

	if (ticks_per_second == 0)
		return 0;
	writer_put(&output, ticks_per_second);
	return output_end(&output);
}

size_t fxt_encode_string(const struct fxt_string_entry *entry, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_STRING));

	if (entry->index == 0 || entry->index > FXT_STRING_INDEX_MAX || entry->text.index != 0 ||
	    entry->text.length > FXT_STRING_BYTES_MAX)
		return 0;
	output.header |= (uint64_t)entry->index << 16 | (uint64_t)entry->text.length << 32;
	put_bytes(&output, entry->text.text, entry->text.length);
	return output_end(&output);
}

size_t fxt_encode_thread(const struct fxt_thread_entry *entry, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_THREAD));

	if (entry->index == 0)
		return 0;
	output.header |= (uint64_t)entry->index << 16;
	writer_put(&output, entry->process);
	writer_put(&output, entry->thread);
	return output_end(&output);
}

size_t fxt_encode_event(const struct fxt_event *event, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_EVENT));

	if (event->type > FXT_EVENT_FLOW_END)
		return 0;
	output.header |= (uint64_t)event->type << 16;
	output.header |= argument_count(&output, event->argument_count) << 20;
	output.header |= (uint64_t)event->thread.index << 24;
	output.header |= string_ref(&output, &event->category) << 32;
	output.header |= string_ref(&output, &event->name) << 48;
	writer_put(&output, event->timestamp);
	put_thread(&output, &event->thread);
	put_string(&output, &event->category);
	put_string(&output, &event->name);
	put_arguments(&output, event->arguments, event->argument_count);
	if (fxt_event_has_extra(event->type))
		writer_put(&output, event->extra);
	return output_end(&output);
}

size_t fxt_encode_blob(const struct fxt_blob *blob, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_BLOB));

	if (blob->size > FXT_STRING_BYTES_MAX)
		return 0;
	output.header |= string_ref(&output, &blob->name) << 16;
	output.header |= (uint64_t)blob->size << 32 | (uint64_t)blob->type << 48;
	put_string(&output, &blob->name);
	put_bytes(&output, blob->payload, blob->size);
	return output_end(&output);
}

size_t fxt_encode_kernel_object(const struct fxt_kernel_object *object, uint64_t *words,
				size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_KERNEL_OBJECT));

	output.header |= (uint64_t)object->type << 16;
	output.header |= string_ref(&output, &object->name) << 24;
	output.header |= argument_count(&output, object->argument_count) << 40;
	writer_put(&output, object->koid);
	put_string(&output, &object->name);
	put_arguments(&output, object->arguments, object->argument_count);
	return output_end(&output);
}

size_t fxt_encode_context_switch(const struct fxt_context_switch *event, uint64_t *words,
				 size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_SCHEDULING));

	if (event->outgoing_state > 0xf)
		return 0;
	output.header |= argument_count(&output, event->argument_count) << 16;
	output.header |= (uint64_t)event->cpu << 20 | (uint64_t)event->outgoing_state << 36 |
			 (uint64_t)FXT_SCHEDULING_CONTEXT_SWITCH << 60;
	writer_put(&output, event->timestamp);
	writer_put(&output, event->outgoing);
	writer_put(&output, event->incoming);
	put_arguments(&output, event->arguments, event->argument_count);
	return output_end(&output);
}

size_t fxt_encode_wakeup(const struct fxt_wakeup *event, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_SCHEDULING));

	output.header |= argument_count(&output, event->argument_count) << 16;
	output.header |= (uint64_t)event->cpu << 20 | (uint64_t)FXT_SCHEDULING_WAKEUP << 60;
	writer_put(&output, event->timestamp);
	writer_put(&output, event->thread);
	put_arguments(&output, event->arguments, event->argument_count);
	return output_end(&output);
}

size_t fxt_encode_log(const struct fxt_log *log, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_LOG));

	if (log->text.index != 0 || log->text.length > FXT_STRING_BYTES_MAX)
		return 0;
	output.header |= (uint64_t)log->text.length << 16 | (uint64_t)log->thread.index << 32;
	writer_put(&output, log->timestamp);
	put_thread(&output, &log->thread);
	put_bytes(&output, log->text.text, log->text.length);
	return output_end(&output);
}

static struct output profiler_begin(enum fxt_profiler_type type,
				    const struct fxt_thread_ref *thread, uint64_t timestamp,
				    uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, fxt_header(FXT_TYPE_PROFILER));

	output.header |= (uint64_t)type << 16 | (uint64_t)thread->index << 20;
	writer_put(&output, timestamp);
	put_thread(&output, thread);
	return output;
}

size_t fxt_encode_module(const struct fxt_module *module, uint64_t *words, size_t capacity)
{
	struct output output = profiler_begin(FXT_PROFILER_MODULE, &module->thread,
					      module->timestamp, words, capacity);

	if (module->name.index != 0 || module->name.length > FXT_NAME_BYTES_MAX ||
	    module->build_id.index != 0 || module->build_id.length > FXT_NAME_BYTES_MAX)
		return 0;
	output.header |= (uint64_t)module->id << 28 | (uint64_t)module->name.length << 44 |
			 (uint64_t)module->build_id.length << 52;
	put_bytes(&output, module->name.text, module->name.length);
	put_bytes(&output, module->build_id.text, module->build_id.length);
	return output_end(&output);
}

size_t fxt_encode_mmap(const struct fxt_mmap *mapping, uint64_t *words, size_t capacity)
{
	struct output output = profiler_begin(FXT_PROFILER_MMAP, &mapping->thread,
					      mapping->timestamp, words, capacity);

	if (mapping->flags > 7)
		return 0;
	output.header |= (uint64_t)mapping->module << 28 | (uint64_t)mapping->flags << 44;
	writer_put(&output, mapping->start);
	writer_put(&output, mapping->range);
	writer_put(&output, mapping->vaddr);
	return output_end(&output);
}

size_t fxt_encode_backtrace(const struct fxt_backtrace *backtrace, uint64_t *words, size_t capacity)
{
	struct output output = profiler_begin(FXT_PROFILER_BACKTRACE, &backtrace->thread,
					      backtrace->timestamp, words, capacity);

	if (backtrace->count > FXT_BACKTRACE_FRAMES_MAX)
		return 0;
	output.header |= (uint64_t)backtrace->count << 28;
	put_bytes(&output, backtrace->frames, backtrace->count * sizeof(uint64_t));
	return output_end(&output);
}

size_t fxt_encode_process_name(uint64_t process, struct fxt_string name, uint64_t *words,
			       size_t capacity)
{
	return fxt_encode_kernel_object(&(struct fxt_kernel_object){.type = FXT_OBJECT_PROCESS,
								    .koid = process,
								    .name = name},
					words, capacity);
}

size_t fxt_encode_thread_name(uint64_t process, uint64_t thread, struct fxt_string name,
			      uint64_t *words, size_t capacity)
{
	struct fxt_argument argument = {
		.name = fxt_indexed(FXT_STRING_PROCESS), .type = FXT_ARGUMENT_KOID, .u64 = process};

	return fxt_encode_kernel_object(&(struct fxt_kernel_object){.type = FXT_OBJECT_THREAD,
								    .koid = thread,
								    .name = name,
								    .arguments = &argument,
								    .argument_count = 1},
					words, capacity);
}

size_t fxt_write_preamble(uint64_t *words, size_t capacity)
{
	static const struct {
		enum fxt_string_index index;
		const char *text;
	} strings[] = {
		{FXT_STRING_KERNEL_META, "kernel:meta"},
		{FXT_STRING_DROP_STATS, "drop_stats"},
		{FXT_STRING_NUM_RECORDS, "num_records"},
		{FXT_STRING_NUM_BYTES, "num_bytes"},
		{FXT_STRING_SAMPLE, "guestprof.sample"},
		{FXT_STRING_SYMBOLS, "guestprof.symbols"},
		{FXT_STRING_GUESTPROF, "guestprof"},
		{FXT_STRING_PROCESS, "process"},
		{FXT_STRING_PROCESS_SYMBOLS, "guestprof.process_symbols"},
	};
	struct fxt_provider_info info = {.id = FXT_PROVIDER_ID,
					 .name = fxt_text(FXT_PROVIDER_NAME)};
	size_t used = 0, size;

	size = fxt_encode_magic(words, capacity);
	if (size == 0)
		return 0;
	used += size;
	size = fxt_encode_provider_info(&info, words + used, capacity - used);
	if (size == 0)
		return 0;
	used += size;
	size = fxt_encode_initialization(FXT_TICKS_PER_SECOND, words + used, capacity - used);
	if (size == 0)
		return 0;
	used += size;
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		struct fxt_string_entry entry = {.index = (uint16_t)strings[i].index,
						 .text = fxt_text(strings[i].text)};

		size = fxt_encode_string(&entry, words + used, capacity - used);
		if (size == 0)
			return 0;
		used += size;
	}
	return used;
}
