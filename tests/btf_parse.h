/* btf_adopt() for bytes that stay the test's. */
#ifndef TESTS_BTF_PARSE_H
#define TESTS_BTF_PARSE_H

#include "guest-introspection/elf/btf.h"

#include <stdlib.h>
#include <string.h>

static inline gp_status_t btf_parse(const void *bytes, size_t size, struct btf **out,
				    struct error *error)
{
	void *copy = malloc(size ? size : 1);

	if (!copy)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to copy BTF");
	memcpy(copy, bytes, size);
	return btf_adopt(copy, size, out, error);
}

#endif
