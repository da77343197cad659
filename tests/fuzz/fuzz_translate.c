/* Address translation over hostile page tables: within memory, canonical, cache agrees.
 *
 * Input: mode, flags, three addresses, then guest memory. */
#include "base/cursor.h"
#include "guest-introspection/x86/translate.h"
#include "tests/buffer_memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	struct address_space space =
		address_space_at(0, (enum addressing_mode)(cursor_u8(&cursor) % 6));
	uint8_t flags = cursor_u8(&cursor);
	uint64_t addresses[3];
	struct translation_cache cache;
	struct buffer_memory memory;

	space.root = cursor_u16(&cursor);
	space.no_execute = flags & 1;
	space.page_size = flags & 2;
	for (unsigned i = 0; i < 3; i++)
		addresses[i] = cursor_u64(&cursor);
	if (cursor.failed)
		return 0;
	memory = buffer_memory_over((uint8_t *)(uintptr_t)data + cursor.offset,
				    cursor_left(&cursor));
	translation_cache_clear(&cache);
	for (unsigned i = 0; i < 6; i++) {
		gva_t address = gva(addresses[i % 3] + (i / 3) * 8);
		struct translation plain = {0};
		struct translation cached = {0};
		uint8_t buffer[64];
		enum translate_result result =
			guest_translate(&space, &memory.memory, address, &plain);

		if (guest_translate_cached(&space, &cache, &memory.memory, address, &cached) !=
		    result)
			abort();
		if (result == TRANSLATE_OK &&
		    (plain.gpa.value != cached.gpa.value || plain.page_size != cached.page_size ||
		     plain.user != cached.user || plain.writable != cached.writable ||
		     plain.executable != cached.executable || plain.gpa.value >> 52 ||
		     (plain.gpa.value ^ address.value) & (plain.page_size - 1)))
			abort();
		guest_read_virtual(&space, &cache, &memory.memory, address, buffer, sizeof(buffer));
	}
	return 0;
}
