/* .eh_frame is the guest's: whatever it says, and whichever of its pages are at hand, what is made
 * of it is a sound table, within bounded time. Input: which pages are missing, then the file. */
#include "base/cursor.h"
#include "guest-introspection/elf/eh_frame.h"

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
	size_t room = 4096 - (size_t)(offset % 4096);

	if (self->missing >> (offset / 4096 % 16) & 1)
		return 0;
	return file_source_read(&self->whole.source, offset, buffer, size < room ? size : room);
}

static void check(const struct eh_frame *table)
{
	if (table->row_count == 0 || table->rule_count == 0 ||
	    table->rules[0].kind != EH_FRAME_NO_RULE)
		abort();
	for (uint32_t i = 0; i < table->row_count; i++) {
		const struct eh_frame_rule *rule;

		if (table->numbers[i] >= table->rule_count ||
		    (i > 0 && table->addresses[i] <= table->addresses[i - 1]))
			abort();
		rule = eh_frame_find(table, table->base + table->addresses[i]);
		if (rule != (table->numbers[i] ? &table->rules[table->numbers[i]] : NULL))
			abort();
		if (rule && (rule->base >= GUEST_REGISTER_COUNT || rule->kind > EH_FRAME_ROOT ||
			     rule->from_base & ~rule->saved || rule->saved & rule->preserved))
			abort();
	}
	if (eh_frame_find(table, table->base + table->addresses[0] - 1))
		abort();
	eh_frame_find(table, UINT64_MAX);
	eh_frame_find(table, table->base + table->addresses[table->row_count - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor cursor = cursor_over(data, size);
	uint16_t missing = cursor_u16(&cursor);
	struct holed_file file = {.source = {.read = holed_read}, .missing = missing};
	struct elf_image image;
	struct eh_frame table;

	if (cursor.failed)
		return 0;
	file.whole = file_buffer_over(data + cursor.offset, cursor_left(&cursor));
	if (elf_image_read(&file.source, &image, NULL) != GP_OK)
		return 0;
	/* Sparse segments of gigabytes are for the limits, not for a million runs. */
	for (unsigned i = 0; i < image.segment_count; i++)
		if (image.segments[i].file_size > 1 << 20)
			return 0;
	if (image.exception_frames.size > 1 << 20)
		return 0;
	if (eh_frame_read(&file.source, &image, &table, NULL) != GP_OK)
		return 0;
	check(&table);
	eh_frame_deinit(&table);
	return 0;
}
