/* kallsyms tables from hostile bytes. Input: the text base (8 bytes), then the tables. */
#include "guest-introspection/linux/kallsyms.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t text_base;
	struct symbol_table table;
	struct symbol symbol;
	struct error error;

	if (size < sizeof(text_base))
		return 0;
	memcpy(&text_base, data, sizeof(text_base));
	data += sizeof(text_base);
	size -= sizeof(text_base);
	for (size_t at = 0, tries = 0; tries < 3; at++, tries++) {
		at = kallsyms_find_digits(data, size, at);
		if (at == size)
			break;
		if (kallsyms_parse(data, size, UINT64_C(0xffffffff82000000), at, text_base, &table,
				   &error) != GP_OK)
			continue;
		for (size_t i = 0; i < table.count; i++) {
			symbol = symbol_table_get(&table, i);
			if (strlen(symbol.name) > 512 || symbol.size == 0)
				abort();
		}
		symbol_table_find(&table, text_base + 100, &symbol);
		symbol_table_deinit(&table);
	}
	return 0;
}
