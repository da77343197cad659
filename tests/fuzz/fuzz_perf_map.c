/* A program writes what it likes into its perf map, and pages of it may be missing: names are
 * sound, and no two pieces of code overlap. Input: which pages are missing, the file. */
#include "base/cursor.h"
#include "guest-introspection/elf/perf_map.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct holed_file {
	struct file_source source;
	struct file_buffer whole;
	uint16_t missing; /* bit per page */
};

static size_t holed_read(const struct file_source *source, uint64_t offset, void *buffer,
			 size_t size)
{
	const struct holed_file *self =
		container_of((struct file_source *)(uintptr_t)source, struct holed_file, source);

	if (self->missing >> (offset / 4096 % 16) & 1)
		return 0;
	return file_source_read(&self->whole.source, offset, buffer, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	struct holed_file file = {.source = {.read = holed_read}, .missing = cursor_u16(&cursor)};
	struct symbol_table table;
	uint64_t end = 0;

	if (cursor.failed)
		return 0;
	file.whole = file_buffer_over(data + cursor.offset, cursor_left(&cursor));
	if (perf_map_read(&file.source, file.whole.size, &table, NULL) != GP_OK)
		return 0;
	if (table.count > size / 5)
		abort();
	for (size_t i = 0; i < table.count; i++) {
		struct symbol symbol = symbol_table_get(&table, i);

		if (symbol.start < end || !symbol.name[0] ||
		    strnlen(symbol.name, SYMBOL_NAME_LIMIT + 1) > SYMBOL_NAME_LIMIT)
			abort();
		end = symbol.start + symbol.size;
	}
	symbol_table_deinit(&table);
	return 0;
}
