/* Symbol files from hostile bytes, ELF and text. Input: whether a base is given, the file. */
#include "guest-introspection/elf/symbols_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbols_base base = {.address = UINT64_C(0xffffffff9a000000)};
	struct symbol_table table;
	struct error error;
	void *file;

	if (size < 1)
		return 0;
	base.given = data[0] & 1;
	/* An own block, aligned as a file that was read is, and ending where the file does. */
	file = malloc(size);
	memcpy(file, data + 1, size - 1);
	if (symbols_file_parse(file, size - 1, base, &table, &error) == GP_OK) {
		struct symbol symbol;

		for (size_t i = 0; i < table.count; i++) {
			symbol = symbol_table_get(&table, i);
			if (strlen(symbol.name) > SYMBOL_NAME_LIMIT || symbol.size == 0)
				abort();
			symbol_table_find(&table, symbol.start, &symbol);
		}
		symbol_table_deinit(&table);
	}
	free(file);
	return 0;
}
