/* Page caches of hostile guest memory. Input: the index of a page, then guest memory without paging
 * (tests/linux_layouts.h): a struct address_space, struct pages from 0x400 on. */
#include "base/cursor.h"
#include "tests/linux_layouts.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	uint64_t index = cursor_u64(&cursor);
	struct linux_file file = {.size = INT64_MAX};
	struct linux_cached_file cached;
	struct linux_page_cache cache;
	struct buffer_memory memory;
	uint64_t reads = 0;
	uint8_t bytes[3 * 4096];
	gpa_t page;
	bool found;
	size_t got;

	if (cursor.failed)
		return 0;
	memory = buffer_memory_over((uint8_t *)(uintptr_t)data + cursor.offset,
				    cursor_left(&cursor));
	memory.reads = &reads;
	cache = layout_page_cache(&memory.memory, 0x400);
	found = linux_page_cache_find(&cache, 0, index, &page);
	if (found && page.value % 4096)
		abort();
	if (reads > 64)
		abort();
	linux_cached_file_init(&cached, &cache, &file);
	got = file_source_read(&cached.source, index << 12, bytes, sizeof(bytes));
	if (got > sizeof(bytes) || (!found && got && index < INT64_MAX >> 12))
		abort();
	return 0;
}
