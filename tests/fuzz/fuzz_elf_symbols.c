/* ELF files are the guest's: whatever they say, and whichever of their pages are at hand, what is
 * found is a sound table. Input: which pages are missing, a bias, the file. */
#include "base/cursor.h"
#include "guest-introspection/elf/elf_symbols.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Pages of 4 KiB as everywhere; of the small files here, mostly one. */
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
	size_t room = 4096 - (size_t)(offset % 4096);

	if (self->missing >> (offset / 4096 % 16) & 1)
		return 0;
	return file_source_read(&self->whole.source, offset, buffer, size < room ? size : room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	uint16_t missing = cursor_u16(&cursor);
	uint64_t bias = cursor_u64(&cursor);
	struct holed_file file = {.source = {.read = holed_read}, .missing = missing};
	struct elf_symbols_result result;
	struct elf_image image;
	struct symbol_table table;
	struct symbol symbol;
	uint64_t value;

	if (cursor.failed)
		return 0;
	file.whole = file_buffer_over(data + cursor.offset, cursor_left(&cursor));
	if (elf_image_read(&file.source, &image, NULL) != GP_OK)
		return 0;
	if (image.segment_count == 0 || image.segment_count > ELF_SEGMENT_LIMIT ||
	    image.build_id_size > ELF_BUILD_ID_LIMIT)
		abort();
	elf_image_bias(&image, bias, bias & 0xfffff, true, &value);
	if (elf_symbols_read(&file.source, &image, bias, &table, &result, NULL) != GP_OK)
		return 0;
	if (table.count == 0 || table.count > SYMBOL_TABLE_LIMIT)
		abort();
	for (size_t i = 0; i < table.count; i++) {
		symbol = symbol_table_get(&table, i);
		if (strnlen(symbol.name, SYMBOL_NAME_LIMIT + 1) > SYMBOL_NAME_LIMIT)
			abort();
		symbol_table_find(&table, symbol.start, &symbol);
	}
	symbol_table_deinit(&table);
	return 0;
}
