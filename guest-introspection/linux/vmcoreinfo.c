#include "guest-introspection/linux/vmcoreinfo.h"

#include "base/hexadecimal.h"

#include <stdio.h>
#include <string.h>

#define UPPER_HALF (UINT64_C(1) << 63)
#define KERNEL_MAP UINT64_C(0xffffffff80000000) /* Documentation/arch/x86/x86_64/mm.rst */
#define NAME_ROOM 64

/* The line that begins at `at`; false at the end. `*next` is the one behind it. */
static bool next_line(const struct vmcoreinfo *info, size_t *next, const char **line,
		      size_t *length)
{
	const char *end;

	if (*next >= info->size)
		return false;
	*line = info->text + *next;
	end = memchr(*line, '\n', info->size - *next);
	*length = end ? (size_t)(end - *line) : info->size - *next;
	*next += *length + 1;
	return true;
}

const char *vmcoreinfo_find(const struct vmcoreinfo *info, const char *key, size_t *length)
{
	const size_t key_length = strlen(key);
	const char *line;
	size_t line_length;
	size_t next = 0;

	while (next_line(info, &next, &line, &line_length)) {
		if (line_length <= key_length || memcmp(line, key, key_length) != 0 ||
		    line[key_length] != '=')
			continue;
		*length = line_length - key_length - 1;
		return line + key_length + 1;
	}
	return NULL;
}

/* A whole number without a sign, all of `text`. */
static bool read_number(const char *text, size_t length, unsigned base, uint64_t *value)
{
	uint64_t number = 0;

	if (length == 0 || length > 16)
		return false;
	for (size_t i = 0; i < length; i++) {
		int one = hexadecimal_digit(text[i]);

		if (one < 0 || (unsigned)one >= base)
			return false;
		number = number * base + (unsigned)one;
	}
	*value = number;
	return true;
}

static void read_build_id(struct vmcoreinfo *info)
{
	uint8_t bytes[BUILD_ID_LIMIT];
	size_t length;
	const char *text = vmcoreinfo_find(info, "BUILD-ID", &length);

	if (!text || length == 0 || length % 2 || length / 2 > BUILD_ID_LIMIT)
		return;
	for (size_t i = 0; i < length / 2; i++) {
		uint64_t byte;

		if (!read_number(text + 2 * i, 2, 16, &byte))
			return;
		bytes[i] = (uint8_t)byte;
	}
	memcpy(info->build_id, bytes, length / 2);
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
			return error_set(error, GP_ERR_NOT_FOUND, "VMCOREINFO is no text: byte %zu",
					 i);
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
	char text[VMCOREINFO_LIMIT];
	struct symbol data;
	struct symbol length;
	uint64_t address;
	uint64_t size;

	if (!symbol_table_find_name(symbols, "vmcoreinfo_data", &data) ||
	    !symbol_table_find_name(symbols, "vmcoreinfo_size", &length))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no vmcoreinfo_data");
	if (guest_read_virtual(&kernel->space, NULL, memory, gva(data.start), &address,
			       sizeof(address)) != TRANSLATE_OK ||
	    guest_read_virtual(&kernel->space, NULL, memory, gva(length.start), &size,
			       sizeof(size)) != TRANSLATE_OK ||
	    size > sizeof(text) || address < UPPER_HALF ||
	    guest_read_virtual(&kernel->space, NULL, memory, gva(address), text, size) !=
		    TRANSLATE_OK)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's VMCOREINFO cannot be read (yet)");
	return vmcoreinfo_parse(text, size, out, error);
}

/* "KIND(NAME)=NUMBER" */
static bool parse_line(const char *line, size_t length, const char *kind, unsigned base,
		       char name[static NAME_ROOM], uint64_t *value)
{
	const size_t kind_length = strlen(kind);
	const char *end;
	size_t name_length;

	if (length <= kind_length || memcmp(line, kind, kind_length) != 0 ||
	    line[kind_length] != '(')
		return false;
	line += kind_length + 1;
	length -= kind_length + 1;
	end = memchr(line, ')', length);
	if (!end)
		return false;
	name_length = (size_t)(end - line);
	if (name_length == 0 || name_length >= NAME_ROOM || length - name_length < 2 ||
	    end[1] != '=' || !read_number(end + 2, length - name_length - 2, base, value))
		return false;
	memcpy(name, line, name_length);
	name[name_length] = 0;
	return true;
}

static void count(struct vmcoreinfo_comparison *comparison, bool known, bool equal,
		  const char *name)
{
	if (!known)
		comparison->unknown++;
	else if (equal)
		comparison->equal++;
	else if (comparison->different++ == 0)
		snprintf(comparison->first_difference, sizeof(comparison->first_difference), "%s",
			 name);
}

void vmcoreinfo_compare(const struct vmcoreinfo *info, const struct btf *btf,
			const struct symbol_table *symbols, struct vmcoreinfo_comparison *out)
{
	struct vmcoreinfo_comparison comparison = {0};
	const char *line;
	size_t length;
	size_t next = 0;

	while (next_line(info, &next, &line, &length)) {
		struct btf_member member;
		struct symbol symbol;
		char name[NAME_ROOM];
		uint64_t value;
		uint32_t size;

		if (btf && parse_line(line, length, "OFFSET", 10, name, &value)) {
			char *dot = strchr(name, '.');
			bool known;

			if (!dot)
				continue;
			*dot = 0;
			known = btf_find_member(btf, name, dot + 1, &member);
			*dot = '.';
			count(&comparison, known, known && member.offset == value, name);
		} else if (btf && parse_line(line, length, "SIZE", 10, name, &value)) {
			bool known = btf_find_size(btf, name, &size);

			count(&comparison, known, known && size == value, name);
		} else if (symbols && parse_line(line, length, "SYMBOL", 16, name, &value)) {
			/* Of an array that is allocated it is not the symbol's address
			 * (VMCOREINFO_SYMBOL_ARRAY: mem_section). */
			bool known = value >= KERNEL_MAP &&
				     symbol_table_find_name(symbols, name, &symbol);

			count(&comparison, known, known && symbol.start == value, name);
		}
	}
	*out = comparison;
}
