/* What a mapping of a user program is called, and what makes two of them the same. Private to
 * sampler/. */
#ifndef NAMING_USER_MAPPING_H
#define NAMING_USER_MAPPING_H

#include "guest-introspection/linux/linux_mappings.h"

#include <stddef.h>
#include <stdint.h>

/* Which file is mapped, or which kind of memory. */
uint64_t user_mapping_file_identity(const struct linux_mapping *mapping);

/* What makes two mappings at one place the same: file and shift of what is mapped, or the kind of
 * memory. */
uint64_t user_mapping_identity(const struct linux_mapping *mapping);

/* "[libc.so.6]" for a file, what the memory is for others; cut to `size`. */
void user_mapping_name(const struct linux_mapping *mapping, char *out, size_t size);

#endif
