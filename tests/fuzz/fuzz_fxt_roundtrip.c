/* Any values through writer, ring and reader: they come back unchanged, or are counted as dropped.
 * The input steers which records are made, of what, and when the consumer reads. */
#include "fxt/ring.h"
#include "fxt/code.h"
#include "tests/unit/fxt_support.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MODEL_RECORDS 4096
#define COLLECTED_BYTES (1u << 20)

static uint64_t stack[FXT_SAMPLE_DEPTH_MAX];
static struct fxt_argument arguments[FXT_ARGUMENTS_MAX];

/* A string whose bytes lie in the input. */
static struct fxt_string any_string(struct cursor *input)
{
	uint16_t choice = cursor_u16(input);
	size_t length = choice & 0x3f;
	const void *text;

	if (choice & 0x8000)
		return fxt_indexed(choice & FXT_STRING_INDEX_MAX);
	if (length > cursor_left(input))
		length = cursor_left(input);
	text = cursor_bytes(input, length);
	return text ? fxt_bytes(text, length) : (struct fxt_string){0};
}

static size_t any_arguments(struct cursor *input)
{
	size_t count = cursor_u8(input) % (FXT_ARGUMENTS_MAX + 1);

	for (size_t i = 0; i < count; i++) {
		arguments[i] = (struct fxt_argument){
			.type = (enum fxt_argument_type)(cursor_u8(input) % 11),
			.name = any_string(input)};
		if (arguments[i].type == FXT_ARGUMENT_STRING) {
			arguments[i].string = any_string(input);
		} else if (arguments[i].type == FXT_ARGUMENT_BLOB) {
			struct fxt_string bytes = any_string(input);

			arguments[i].blob.bytes = bytes.text;
			arguments[i].blob.size = bytes.text ? bytes.length : 0;
		} else if (arguments[i].type == FXT_ARGUMENT_BOOL) {
			arguments[i].boolean = cursor_u8(input) & 1;
		} else {
			arguments[i].u64 = cursor_u64(input);
		}
	}
	return count;
}

static size_t any_record(struct cursor *input, uint64_t *words, size_t capacity)
{
	struct fxt_thread_ref thread = {.index = cursor_u8(input), .process = cursor_u64(input)};
	uint64_t number = cursor_u64(input);
	struct fxt_string name;

	switch (cursor_u8(input) % 8) {
	case 0: {
		struct fxt_event event = {.type = (enum fxt_event_type)(number % 11),
					  .timestamp = number,
					  .thread = thread,
					  .extra = ~number};

		event.category = any_string(input);
		event.name = any_string(input);
		event.argument_count = any_arguments(input);
		event.arguments = arguments;
		return fxt_encode_event(&event, words, capacity);
	}
	case 1:
		name = any_string(input);
		return fxt_encode_blob(&(struct fxt_blob){.name = any_string(input),
							  .type = (uint8_t)number,
							  .payload = name.text,
							  .size = name.text ? name.length : 0},
				       words, capacity);
	case 2: {
		struct fxt_context_switch event = {.cpu = (uint16_t)number,
						   .outgoing_state = number & 7,
						   .timestamp = number,
						   .outgoing = 1,
						   .incoming = 2};

		event.argument_count = any_arguments(input);
		event.arguments = arguments;
		return fxt_encode_context_switch(&event, words, capacity);
	}
	case 3: {
		struct fxt_log log = {.timestamp = number, .thread = thread};

		log.text = any_string(input);
		return fxt_encode_log(&log, words, capacity);
	}
	case 4: {
		struct fxt_module module = {
			.id = (uint16_t)number, .timestamp = number, .thread = thread};

		module.name = any_string(input);
		module.build_id = any_string(input);
		return fxt_encode_module(&module, words, capacity);
	}
	case 5: {
		struct fxt_symbol symbol = {
			.start = number, .size = ~number, .kind = (uint32_t)number};
		size_t taken;

		name = any_string(input);
		symbol.name = name.text;
		symbol.name_bytes = name.text ? name.length : 0;
		return fxt_symbols_encode(&symbol, 1, words, capacity, &taken);
	}
	case 6: {
		struct fxt_code code = {.of = {thread.process, number, ~number},
					.read_at = number,
					.address = number / 2},
				back;
		struct fxt_blob blob;
		size_t size;

		name = any_string(input);
		code.bytes = (const uint8_t *)(name.length ? name.text : "?");
		code.size = name.length ? name.length : 1;
		size = fxt_code_encode(&code, words, capacity);
		if (size == 0)
			abort();
		blob = (struct fxt_blob){.payload = words + 3, .size = 40 + code.size};
		if (!fxt_code_decode(&blob, &back) || back.size != code.size ||
		    back.address != code.address || memcmp(back.bytes, code.bytes, code.size))
			abort();
		return size;
	}
	default: {
		struct fxt_sample sample = {
			.flags = number & FXT_SAMPLE_KNOWN_FLAGS,
			.continuation = number,
			.process = thread.process,
			.timestamp = number >> 3,
			.stack = stack,
			.depth = (number >> 11) % (FXT_SAMPLE_DEPTH_MAX + 1),
			.addressing = number >> 7,
		};
		struct fxt_sample back;
		struct fxt_blob blob;
		size_t size = fxt_sample_encode(&sample, words, capacity);

		if (size == 0)
			abort();
		blob = (struct fxt_blob){.payload = words + 1, .size = (size - 1) * 8};
		if (fxt_sample_decode(&blob, &back) || back.flags != sample.flags)
			abort();
		if ((back.flags & FXT_SAMPLE_STACK) &&
		    (back.depth != sample.depth || memcmp(back.stack, stack, back.depth * 8)))
			abort();
		if ((back.flags & FXT_SAMPLE_ADDRESSING) && back.addressing != sample.addressing)
			abort();
		return size;
	}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t words[FXT_RECORD_WORDS_MAX], collected[COLLECTED_BYTES / 8];
	static uint64_t written[COLLECTED_BYTES / 8];
	struct cursor input = cursor_over(data, size);
	uint64_t given = 0, dropped = 0, told = 0, good = 0, written_words = 0;
	size_t used = fxt_write_preamble(collected, FXT_PREAMBLE_WORDS) * 8, at = 0;
	struct fxt_ring ring;
	struct fxt_reader reader;
	struct fxt_record record;

	for (size_t i = 0; i < FXT_SAMPLE_DEPTH_MAX; i++)
		stack[i] = i;
	if (fxt_ring_init(&ring, FXT_RING_BYTES_MIN, NULL) != GP_OK)
		abort();
	while (cursor_left(&input) != 0 && given < MODEL_RECORDS &&
	       used + 2 * FXT_RING_BYTES_MIN < COLLECTED_BYTES) {
		size_t count = any_record(&input, words, FXT_RECORD_WORDS_MAX);
		uint8_t choice;

		given++;
		if (fxt_ring_write(&ring, words, count, given)) {
			memcpy(written + written_words, words, count * 8);
			written_words += count;
		} else {
			dropped++;
		}
		choice = cursor_u8(&input);
		if (choice & 1)
			used += fxt_ring_read(&ring, (char *)collected + used, choice * 32);
	}
	for (bool flushed = false; !flushed;) {
		flushed = fxt_ring_flush_drops(&ring);
		used += fxt_ring_read(&ring, (char *)collected + used, COLLECTED_BYTES - used);
	}
	if (fxt_ring_size_available(&ring) != 0)
		abort();
	/* Everything written is there in order, word for word; every drop has been told. */
	if (fxt_reader_init(&reader, collected, used, NULL) != GP_OK)
		abort();
	while (fxt_reader_next(&reader, &record)) {
		const uint64_t *bytes = (const uint64_t *)((char *)collected + record.offset);
		struct fxt_drops drops;

		if (record.provider != FXT_PROVIDER_ID || record.kind == FXT_KIND_STRING ||
		    record.kind == FXT_KIND_INITIALIZATION || record.kind == FXT_KIND_PROVIDER_INFO)
			continue;
		if (record.kind == FXT_KIND_EVENT && record.words == FXT_DROP_RECORD_WORDS &&
		    record.event.thread.thread == 0 && fxt_event_is_drops(&record.event, &drops) &&
		    (at == written_words || memcmp(bytes, written + at, 56) != 0)) {
			told += drops.records;
			continue;
		}
		if (record.words > written_words - at ||
		    memcmp(bytes, written + at, record.words * 8) != 0)
			abort();
		if (fxt_support_encode(&record, words, FXT_RECORD_WORDS_MAX) != record.words ||
		    memcmp(words, bytes, record.words * 8) != 0)
			abort();
		at += record.words;
		good++;
	}
	if (reader.bad_records != 0 || reader.cut || reader.broken || at != written_words)
		abort();
	if (told != dropped || good + dropped != given ||
	    fxt_ring_totals(&ring).records_dropped != dropped)
		abort();
	fxt_reader_deinit(&reader);
	fxt_ring_deinit(&ring);
	return 0;
}
