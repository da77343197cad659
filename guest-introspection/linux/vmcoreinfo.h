/* VMCOREINFO: the few lines that a Linux kernel keeps about itself for crash dumps
 * (Documentation/admin-guide/kdump/vmcoreinfo.rst): the build-id, which is the key to anything
 * stored about a kernel, and some offsets to check others against.
 *
 * Cold; allocates nothing. A plain value; any thread.
 */
#ifndef GUEST_INTROSPECTION_LINUX_VMCOREINFO_H
#define GUEST_INTROSPECTION_LINUX_VMCOREINFO_H

#include "base/error.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/elf/symbol_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VMCOREINFO_LIMIT 4096u /* VMCOREINFO_BYTES */
#define BUILD_ID_LIMIT 32u     /* bytes; SHA-1 has 20 */

struct vmcoreinfo {
	uint32_t size;          /* of `text`, terminator excluded */
	uint32_t build_id_size; /* bytes; 0: it does not say (before Linux 5.9) */
	uint8_t build_id[BUILD_ID_LIMIT];
	char text[VMCOREINFO_LIMIT + 1]; /* lines "KEY=VALUE\n", terminated */
};

/* Reads it by the symbol vmcoreinfo_data. GP_ERR_NOT_FOUND: there is none (no CONFIG_VMCORE_INFO,
 * or too early in boot), or it is damaged; `out` is untouched then. */
gp_status_t linux_vmcoreinfo_read(const struct guest_memory *memory,
				  const struct linux_kernel *kernel,
				  const struct symbol_table *symbols, struct vmcoreinfo *out,
				  struct error *error);

/* The part that parses `size` bytes of text, lines as above. GP_ERR_NOT_FOUND when it is none. */
gp_status_t vmcoreinfo_parse(const char *text, size_t size, struct vmcoreinfo *out,
			     struct error *error);

/* The value of the line that begins with "KEY=": `*length` bytes inside `info`, not terminated.
 * NULL, `*length` untouched: there is no such line. */
const char *vmcoreinfo_find(const struct vmcoreinfo *info, const char *key, size_t *length);

#endif
