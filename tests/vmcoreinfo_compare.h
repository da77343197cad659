/* How the OFFSET(), SIZE() and SYMBOL() lines of VMCOREINFO compare with what was found in other
 * ways: a second opinion on BTF and kallsyms. */
#ifndef TESTS_VMCOREINFO_COMPARE_H
#define TESTS_VMCOREINFO_COMPARE_H

#include "guest-introspection/elf/btf.h"
#include "guest-introspection/linux/vmcoreinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VMCOREINFO_NAME 64

struct vmcoreinfo_comparison {
	unsigned equal;
	unsigned different;
	unsigned unknown; /* lines about what the other source does not have */
	char first_difference[64];
};

/* "KIND(NAME)=NUMBER" */
static inline bool vmcoreinfo_parse_line(const char *line, size_t length, const char *kind,
					 unsigned base, char name[static VMCOREINFO_NAME],
					 uint64_t *value)
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
	if (name_length == 0 || name_length >= VMCOREINFO_NAME || length - name_length < 3 ||
	    end[1] != '=')
		return false;
	*value = strtoull(end + 2, NULL, (int)base); /* ends with the line */
	memcpy(name, line, name_length);
	name[name_length] = 0;
	return true;
}

static inline void vmcoreinfo_count(struct vmcoreinfo_comparison *comparison, bool known,
				    bool equal, const char *name)
{
	if (!known)
		comparison->unknown++;
	else if (equal)
		comparison->equal++;
	else if (comparison->different++ == 0)
		snprintf(comparison->first_difference, sizeof(comparison->first_difference), "%s",
			 name);
}

static inline void vmcoreinfo_compare(const struct vmcoreinfo *info, const struct btf *btf,
				      const struct symbol_table *symbols,
				      struct vmcoreinfo_comparison *out)
{
	struct vmcoreinfo_comparison comparison = {0};

	for (const char *line = info->text, *next; *line; line = next) {
		size_t length = strcspn(line, "\n");
		struct btf_member member;
		struct symbol symbol;
		char name[VMCOREINFO_NAME];
		uint64_t value;
		uint32_t size;

		next = line + length + (line[length] == '\n');
		if (btf && vmcoreinfo_parse_line(line, length, "OFFSET", 10, name, &value)) {
			char *dot = strchr(name, '.');
			bool known;

			if (!dot)
				continue;
			*dot = 0;
			known = btf_find_member(btf, name, dot + 1, &member);
			*dot = '.';
			vmcoreinfo_count(&comparison, known, known && member.offset == value, name);
		} else if (btf && vmcoreinfo_parse_line(line, length, "SIZE", 10, name, &value)) {
			bool known = btf_find_size(btf, name, &size);

			vmcoreinfo_count(&comparison, known, known && size == value, name);
		} else if (symbols &&
			   vmcoreinfo_parse_line(line, length, "SYMBOL", 16, name, &value)) {
			/* Of an array that is allocated it is not the symbol's address
			 * (VMCOREINFO_SYMBOL_ARRAY: mem_section). */
			bool known = value >= UINT64_C(0xffffffff80000000) &&
				     symbol_table_find_name(symbols, name, &symbol);

			vmcoreinfo_count(&comparison, known, known && symbol.start == value, name);
		}
	}
	*out = comparison;
}

#endif
