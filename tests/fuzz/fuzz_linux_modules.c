/* The list of modules, their symbols and build ids, from hostile memory. Input: which of the two
 * layouts, then the memory from the list's head on. */
#include "guest-introspection/linux/linux_modules.h"
#include "tests/kernel_memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct kernel_memory kernel;
	uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT];
	struct linux_module_layout layout;
	struct linux_modules modules;
	struct symbol symbol;
	struct error error;

	if (size < 1)
		return 0;
	layout = kernel_memory_module_layout(data[0] & 1);
	data++;
	size--;
	kernel_memory_init(&kernel);
	if (size > KERNEL_SIZE - KERNEL_DATA)
		size = KERNEL_SIZE - KERNEL_DATA;
	memcpy(kernel.bytes + KERNEL_DATA, data, size);
	if (linux_modules_read(&layout, &kernel.memory.memory, &modules, &error) ==
	    GP_ERR_NO_MEMORY)
		return 0;
	for (size_t i = 0; i < modules.count; i++) {
		const struct linux_module *module = &modules.modules[i];

		if (strnlen(module->name, sizeof(module->name)) == sizeof(module->name) ||
		    module->range_count > LINUX_MODULE_RANGES)
			abort();
		if (linux_module_build_id(&layout, &kernel.memory.memory, module, build_id) >
		    sizeof(build_id))
			abort();
	}
	for (size_t i = 0; i < modules.symbols.count; i++) {
		symbol = symbol_table_get(&modules.symbols, i);
		if (symbol.name[strlen(symbol.name) - 1] != ']')
			abort();
	}
	symbol_table_find(&modules.symbols, KERNEL_DIRECT + KERNEL_DATA + 4096, &symbol);
	if (linux_modules_changed(&layout, &kernel.memory.memory, &modules.stamp))
		abort();
	linux_modules_deinit(&modules);
	return 0;
}
