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

static struct output output_begin(uint64_t *words, size_t capacity, enum fxt_record_type type)
{
	return (struct output){
		.words = words,
		.capacity = capacity < FXT_RECORD_WORDS_MAX ? capacity : FXT_RECORD_WORDS_MAX,
		.used = 1,
		.header = fxt_header(type),
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

/* The 16 bits that stand for a string in a header; put_inline() follows. */
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

static void put_inline(struct output *output, const struct fxt_string *string)
{
	if (string->index == 0)
		put_bytes(output, string->text, string->length);
}

/* What fits into bits [first..last] of the header. */
static void put_bits(struct output *output, unsigned first, unsigned last, uint64_t value)
{
	if (value != fxt_bits(value, 0, last - first))
		output->failed = true;
	output->header |= value << first;
}

/* These set their part of the header, from bit `first` on, and put what follows it. */

static void put_string(struct output *output, unsigned first, const struct fxt_string *string)
{
	output->header |= string_ref(output, string) << first;
	put_inline(output, string);
}

/* Text that is always inline; the header has its length. */
static void put_text(struct output *output, unsigned first, unsigned last,
		     const struct fxt_string *text)
{
	if (text->index != 0)
		output->failed = true;
	put_bits(output, first, last, text->length);
	put_bytes(output, text->text, text->length);
}

static void put_thread(struct output *output, unsigned first, const struct fxt_thread_ref *thread)
{
	output->header |= (uint64_t)thread->index << first;
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
	put_inline(output, &argument->name);
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
		put_inline(output, &argument->string);
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

static void put_arguments(struct output *output, unsigned first,
			  const struct fxt_argument *arguments, size_t count)
{
	put_bits(output, first, first + 3, count);
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

static struct output metadata_begin(enum fxt_metadata_type type, uint32_t id, uint64_t *words,
				    size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_METADATA);

	output.header |= (uint64_t)type << 16 | (uint64_t)id << 20;
	return output;
}

size_t fxt_encode_provider_info(const struct fxt_provider_info *info, uint64_t *words,
				size_t capacity)
{
	struct output output =
		metadata_begin(FXT_METADATA_PROVIDER_INFO, info->id, words, capacity);

	put_text(&output, 52, 59, &info->name);
	return output_end(&output);
}

size_t fxt_encode_provider_section(uint32_t id, uint64_t *words, size_t capacity)
{
	struct output output = metadata_begin(FXT_METADATA_PROVIDER_SECTION, id, words, capacity);

	return output_end(&output);
}

size_t fxt_encode_provider_event(uint32_t id, uint8_t event, uint64_t *words, size_t capacity)
{
	struct output output = metadata_begin(FXT_METADATA_PROVIDER_EVENT, id, words, capacity);

	put_bits(&output, 52, 55, event);
	return output_end(&output);
}

size_t fxt_encode_initialization(uint64_t ticks_per_second, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_INITIALIZATION);

	if (ticks_per_second == 0)
		return 0;
	writer_put(&output, ticks_per_second);
	return output_end(&output);
}

size_t fxt_encode_string(const struct fxt_string_entry *entry, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_STRING);

	if (entry->index == 0)
		return 0;
	put_bits(&output, 16, 30, entry->index);
	put_text(&output, 32, 46, &entry->text);
	return output_end(&output);
}

size_t fxt_encode_thread(const struct fxt_thread_entry *entry, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_THREAD);

	if (entry->index == 0)
		return 0;
	put_bits(&output, 16, 23, entry->index);
	writer_put(&output, entry->process);
	writer_put(&output, entry->thread);
	return output_end(&output);
}

size_t fxt_encode_event(const struct fxt_event *event, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_EVENT);

	if (event->type > FXT_EVENT_FLOW_END)
		return 0;
	put_bits(&output, 16, 19, event->type);
	writer_put(&output, event->timestamp);
	put_thread(&output, 24, &event->thread);
	put_string(&output, 32, &event->category);
	put_string(&output, 48, &event->name);
	put_arguments(&output, 20, event->arguments, event->argument_count);
	if (fxt_event_has_extra(event->type))
		writer_put(&output, event->extra);
	return output_end(&output);
}

size_t fxt_encode_blob(const struct fxt_blob *blob, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_BLOB);

	put_string(&output, 16, &blob->name);
	put_bits(&output, 32, 46, blob->size);
	put_bits(&output, 48, 55, blob->type);
	put_bytes(&output, blob->payload, blob->size);
	return output_end(&output);
}

size_t fxt_encode_kernel_object(const struct fxt_kernel_object *object, uint64_t *words,
				size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_KERNEL_OBJECT);

	put_bits(&output, 16, 23, object->type);
	writer_put(&output, object->koid);
	put_string(&output, 24, &object->name);
	put_arguments(&output, 40, object->arguments, object->argument_count);
	return output_end(&output);
}

static struct output scheduling_begin(enum fxt_scheduling_type type, uint16_t cpu,
				      uint64_t timestamp, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_SCHEDULING);

	output.header |= (uint64_t)cpu << 20 | (uint64_t)type << 60;
	writer_put(&output, timestamp);
	return output;
}

size_t fxt_encode_context_switch(const struct fxt_context_switch *event, uint64_t *words,
				 size_t capacity)
{
	struct output output = scheduling_begin(FXT_SCHEDULING_CONTEXT_SWITCH, event->cpu,
						event->timestamp, words, capacity);

	put_bits(&output, 36, 39, event->outgoing_state);
	writer_put(&output, event->outgoing);
	writer_put(&output, event->incoming);
	put_arguments(&output, 16, event->arguments, event->argument_count);
	return output_end(&output);
}

size_t fxt_encode_wakeup(const struct fxt_wakeup *event, uint64_t *words, size_t capacity)
{
	struct output output = scheduling_begin(FXT_SCHEDULING_WAKEUP, event->cpu, event->timestamp,
						words, capacity);

	writer_put(&output, event->thread);
	put_arguments(&output, 16, event->arguments, event->argument_count);
	return output_end(&output);
}

size_t fxt_encode_log(const struct fxt_log *log, uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_LOG);

	writer_put(&output, log->timestamp);
	put_thread(&output, 32, &log->thread);
	put_text(&output, 16, 30, &log->text);
	return output_end(&output);
}

static struct output profiler_begin(enum fxt_profiler_type type,
				    const struct fxt_thread_ref *thread, uint64_t timestamp,
				    uint64_t *words, size_t capacity)
{
	struct output output = output_begin(words, capacity, FXT_TYPE_PROFILER);

	put_bits(&output, 16, 19, type);
	writer_put(&output, timestamp);
	put_thread(&output, 20, thread);
	return output;
}

size_t fxt_encode_module(const struct fxt_module *module, uint64_t *words, size_t capacity)
{
	struct output output = profiler_begin(FXT_PROFILER_MODULE, &module->thread,
					      module->timestamp, words, capacity);

	put_bits(&output, 28, 43, module->id);
	put_text(&output, 44, 51, &module->name);
	put_text(&output, 52, 59, &module->build_id);
	return output_end(&output);
}

size_t fxt_encode_mmap(const struct fxt_mmap *mapping, uint64_t *words, size_t capacity)
{
	struct output output = profiler_begin(FXT_PROFILER_MMAP, &mapping->thread,
					      mapping->timestamp, words, capacity);

	put_bits(&output, 28, 43, mapping->module);
	put_bits(&output, 44, 46, mapping->flags);
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
	put_bits(&output, 28, 35, backtrace->count);
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
	size_t used = fxt_encode_magic(words, capacity), size = used;

	if (size)
		used += size = fxt_encode_provider_info(&info, words + used, capacity - used);
	if (size)
		used += size = fxt_encode_initialization(FXT_TICKS_PER_SECOND, words + used,
							 capacity - used);
	for (size_t i = 0; size && i < ARRAY_SIZE(strings); i++) {
		struct fxt_string_entry entry = {.index = (uint16_t)strings[i].index,
						 .text = fxt_text(strings[i].text)};

		used += size = fxt_encode_string(&entry, words + used, capacity - used);
	}
	return size ? used : 0;
}
