#include "guest-introspection/linux/vmcoreinfo.h"

#include "base/hexadecimal.h"
#include "guest-introspection/linux/linux_reader.h"

#include <string.h>

const char *vmcoreinfo_find(const struct vmcoreinfo *info, const char *key, size_t *length)
{
	const size_t key_length = strlen(key);

	for (const char *line = info->text; *line;) {
		size_t line_length = strcspn(line, "\n");

		if (line_length > key_length && memcmp(line, key, key_length) == 0 &&
		    line[key_length] == '=') {
			*length = line_length - key_length - 1;
			return line + key_length + 1;
		}
		line += line_length + (line[line_length] == '\n');
	}
	return NULL;
}

static void read_build_id(struct vmcoreinfo *info)
{
	size_t length;
	const char *text = vmcoreinfo_find(info, "BUILD-ID", &length);

	if (!text || length % 2 || length / 2 > BUILD_ID_LIMIT)
		return;
	for (size_t i = 0; i < length; i += 2) {
		int high = hexadecimal_digit(text[i]), low = hexadecimal_digit(text[i + 1]);

		if (high < 0 || low < 0)
			return;
		info->build_id[i / 2] = (uint8_t)(high << 4 | low);
	}
	info->build_id_size = (uint32_t)(length / 2);
}

gp_status_t vmcoreinfo_parse(const char *text, size_t size, struct vmcoreinfo *out,
			     struct error *error)
{
	/* crash_save_vmcoreinfo_init() begins with it (kernel/vmcore_info.c). */
	static const char first[] = "OSRELEASE=";
	struct vmcoreinfo info = {.size = (uint32_t)size};

	if (size > VMCOREINFO_LIMIT || size < sizeof(first) - 1 ||
	    memcmp(text, first, sizeof(first) - 1) != 0)
		return error_set(error, GP_ERR_NOT_FOUND, "no VMCOREINFO in %zu bytes", size);
	for (size_t i = 0; i < size; i++)
		if (text[i] != '\n' && (text[i] < 0x20 || text[i] == 0x7f))
			return error_set(error, GP_ERR_NOT_FOUND,
					 "VMCOREINFO is not text: byte %zu", i);
	memcpy(info.text, text, size);
	read_build_id(&info);
	*out = info;
	return GP_OK;
}

gp_status_t linux_vmcoreinfo_read(const struct guest_memory *memory,
				  const struct linux_kernel *kernel,
				  const struct symbol_table *symbols, struct vmcoreinfo *out,
				  struct error *error)
{
	struct linux_reader reader = linux_reader_of(memory, &kernel->space);
	uint64_t data = linux_symbol_address(symbols, "vmcoreinfo_data");
	uint64_t length = linux_symbol_address(symbols, "vmcoreinfo_size");
	char text[VMCOREINFO_LIMIT];
	uint64_t address, size;

	if (!data || !length)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no vmcoreinfo_data");
	if (!linux_read_u64(&reader, data, &address) || !linux_read_u64(&reader, length, &size) ||
	    size > sizeof(text) || !linux_read(&reader, address, text, size))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's VMCOREINFO cannot be read (yet)");
	return vmcoreinfo_parse(text, size, out, error);
}
