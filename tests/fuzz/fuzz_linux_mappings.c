/* Mappings and paths of hostile guest memory: they must be told in order, and at a bounded cost.
 * Input: a byte of flags, then guest memory without paging (tests/linux_layouts.h), the mm first.
 */
#include "tests/linux_layouts.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	uint64_t end;
	unsigned count;
};

static bool see(void *context, const struct linux_mapping *mapping)
{
	struct seen *seen = context;

	if (mapping->start < seen->end || mapping->start >= mapping->end ||
	    strnlen(mapping->name, LINUX_PATH_SIZE) == LINUX_PATH_SIZE)
		abort();
	if (mapping->kind == LINUX_MAPPING_FILE && !mapping->file_address)
		abort();
	seen->end = mapping->end;
	seen->count++;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer_memory memory;
	struct linux_files files;
	struct linux_mappings mappings;
	struct linux_mappings_walk walk;
	struct seen seen = {0};
	struct user_memory vdso;
	struct address_space space;
	uint8_t bytes[64];

	if (size < 1)
		return 0;
	memory = buffer_memory_over((uint8_t *)(uintptr_t)data + 1, size - 1);
	files = layout_files(&memory.memory);
	mappings = layout_mappings(&files);
	if (data[0] & 1)
		mappings.mm_tree = LINUX_MEMBER_MISSING;
	mappings.name_shares_tree = data[0] & 2;
	mappings.vsyscall = data[0] & 4;
	walk = linux_mappings_walk(&mappings, 0, see, &seen);
	if (walk.count != seen.count || walk.count > LINUX_MAPPINGS_LIMIT + 1)
		abort();
	if (linux_mappings_vdso(&mappings, 0, &vdso))
		file_source_read(&vdso.source, 0, bytes, sizeof(bytes));
	linux_mappings_space(&mappings, 0, &space);
	return 0;
}
