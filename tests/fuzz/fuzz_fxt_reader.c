/* Any bytes behind the magic: the reader stays inside them, ends, and what it gives can be written
 * and read again without changing any more. */
#include "fxt/code.h"
#include "tests/unit/fxt_support.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void touch(const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sink += ((const uint8_t *)bytes)[i];
}

static void touch_arguments(const struct fxt_argument *arguments, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		touch(arguments[i].name.text, arguments[i].name.length);
		if (arguments[i].type == FXT_ARGUMENT_STRING)
			touch(arguments[i].string.text, arguments[i].string.length);
		else if (arguments[i].type == FXT_ARGUMENT_BLOB)
			touch(arguments[i].blob.bytes, arguments[i].blob.size);
	}
}

static void touch_record(const struct fxt_record *record)
{
	struct fxt_process_symbols process;
	struct fxt_symbol symbol;
	struct fxt_sample sample;
	struct fxt_code code;
	struct cursor entries;

	if (record->kind == FXT_KIND_EVENT) {
		touch(record->event.name.text, record->event.name.length);
		touch(record->event.category.text, record->event.category.length);
		touch_arguments(record->event.arguments, record->event.argument_count);
	} else if (record->kind == FXT_KIND_BLOB) {
		touch(record->blob.name.text, record->blob.name.length);
		touch(record->blob.payload, record->blob.size);
		if (!fxt_sample_decode(&record->blob, &sample))
			touch(sample.stack, sample.depth * 8);
		if (fxt_code_decode(&record->blob, &code))
			touch(code.bytes, code.size);
		entries = cursor_over(record->blob.payload, record->blob.size);
		while (fxt_symbols_next(&entries, &symbol))
			touch(symbol.name, symbol.name_bytes);
		if (fxt_process_symbols_decode(&record->blob, &process, &entries)) {
			sink += process.process + process.address_space + process.valid_from;
			while (fxt_symbols_next(&entries, &symbol))
				touch(symbol.name, symbol.name_bytes);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t once[FXT_RECORD_WORDS_MAX], file_of_one[FXT_RECORD_WORDS_MAX + 1];
	static uint64_t twice[FXT_RECORD_WORDS_MAX];
	uint64_t *file = malloc(size + 8);
	struct fxt_reader reader, second;
	struct fxt_record record, again;
	size_t last = 0;

	file[0] = FXT_MAGIC;
	memcpy(file + 1, data, size);
	if (fxt_reader_init(&reader, file, size + 8, NULL) != GP_OK)
		abort();
	while (fxt_reader_next(&reader, &record)) {
		size_t words = fxt_support_encode(&record, once, FXT_RECORD_WORDS_MAX);

		if (record.offset < last || record.words == 0)
			abort();
		last = record.offset + record.words * 8;
		touch_record(&record);
		sink += fxt_reader_nanoseconds(&reader, record.offset);
		/* Canonical after one writing. Only self-contained kinds: indices need a table. */
		if (words == 0 || words > record.words)
			abort();
		file_of_one[0] = FXT_MAGIC;
		memcpy(file_of_one + 1, once, words * 8);
		if (fxt_reader_init(&second, file_of_one, (words + 1) * 8, NULL) != GP_OK)
			abort();
		if (!fxt_reader_next(&second, &again) || !fxt_reader_next(&second, &again))
			abort();
		if (again.kind != record.kind || again.words != words || second.bad_records != 0)
			abort();
		if (fxt_support_encode(&again, twice, FXT_RECORD_WORDS_MAX) != words ||
		    memcmp(once, twice, words * 8) != 0)
			abort();
		fxt_reader_deinit(&second);
	}
	if (reader.offset > size + 8 ||
	    (!reader.cut && !reader.broken && reader.offset != size + 8))
		abort();
	fxt_reader_deinit(&reader);
	free(file);
	return 0;
}
