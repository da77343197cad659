#include "guest-introspection/linux/linux_reader.h"

#include <string.h>

bool linux_read(struct linux_reader *reader, uint64_t address, void *buffer, size_t size)
{
	return (address >= LINUX_KERNEL_HALF || reader->space->mode < ADDRESSING_4_LEVEL) &&
	       guest_read_virtual(reader->space, reader->shared ? reader->shared : &reader->own,
				  reader->memory, gva(address), buffer, size) == TRANSLATE_OK;
}

size_t linux_read_text(struct linux_reader *reader, uint64_t address, char *text, size_t size)
{
	size_t length = 0;

	/* It may end right before a page that is not there. */
	while (length + 1 < size && linux_read(reader, address + length, &text[length], 1) &&
	       text[length])
		length++;
	text[length] = '\0';
	return length;
}

void linux_scan_init(struct linux_scan *scan, const struct guest_memory *memory,
		     const struct address_space *space, uint64_t start, uint64_t end,
		     unsigned overlap)
{
	linux_reader_share(&scan->reader, memory, space, NULL);
	scan->next = start;
	scan->end = end;
	scan->overlap = overlap;
	scan->constants = scan->joined = false;
}

bool linux_scan_next(struct linux_scan *scan)
{
	uint8_t *page = scan->buffer + LINUX_SCAN_OVERLAP;

	for (; scan->next < scan->end; scan->joined = false) {
		uint64_t address = scan->next;
		size_t before = scan->joined ? scan->overlap : 0;
		struct translation translation;

		scan->next += LINUX_PAGE_SIZE;
		if (scan->constants && (!linux_translate(&scan->reader, address, &translation) ||
					translation.writable || translation.executable))
			continue;
		memcpy(page - before, page + LINUX_PAGE_SIZE - before, before);
		if (!linux_read(&scan->reader, address, page, LINUX_PAGE_SIZE))
			continue;
		scan->joined = true;
		scan->address = address - before;
		scan->bytes = page - before;
		scan->size = LINUX_PAGE_SIZE + before;
		return true;
	}
	return false;
}

gp_status_t linux_find_members(const struct btf *btf, const struct linux_member *members,
			       size_t count, void *out, struct error *error)
{
	for (size_t i = 0; i < count; i++) {
		const struct linux_member *wanted = &members[i];
		struct btf_member found;
		uint32_t offset = LINUX_MEMBER_MISSING;

		if (btf_find_member(btf, wanted->structure, wanted->path, &found) && !found.bits &&
		    (!wanted->size || found.size == wanted->size)) {
			offset = found.offset;
			while (i + 1 < count && members[i + 1].field == wanted->field)
				i++;
		} else if (i + 1 < count && members[i + 1].field == wanted->field) {
			continue;
		} else if (wanted->need == LINUX_REQUIRED) {
			return error_set(error, GP_ERR_NOT_SUPPORTED,
					 "this kernel has no %s.%s as expected", wanted->structure,
					 wanted->path);
		}
		memcpy((char *)out + wanted->field, &offset, sizeof(offset));
	}
	return GP_OK;
}

uint64_t linux_member_value(const void *bytes, size_t size, uint32_t offset, size_t width)
{
	uint64_t value = 0;

	if (width <= sizeof(value) && offset <= size && width <= size - offset)
		memcpy(&value, (const char *)bytes + offset, width);
	return value;
}

uint64_t linux_symbol_address(const struct symbol_table *symbols, const char *name)
{
	struct symbol symbol;

	return symbol_table_find_name(symbols, name, &symbol) ? symbol.start : 0;
}
