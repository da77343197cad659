/* Linux's own symbol table, read out of guest memory: every name and address of vmlinux that
 * /proc/kallsyms would show to root. Modules are not in it.
 *
 * The tables (kernel/kallsyms.c, scripts/kallsyms.c) are recognised by what they are, not by the
 * kernel's version: distributions move features between versions.
 */
#ifndef GUEST_INTROSPECTION_LINUX_KALLSYMS_H
#define GUEST_INTROSPECTION_LINUX_KALLSYMS_H

#include "base/error.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/elf/symbol_table.h"

#include <stddef.h>
#include <stdint.h>

/* Reads the symbols of `kernel` into `out`, a finished table that the caller deinits.
 * `out` is untouched on failure: GP_ERR_NOT_FOUND when no tables are there (built without
 * CONFIG_KALLSYMS, or too early in boot), GP_ERR_NO_MEMORY. Allocates: a cold path. The
 * guest may run meanwhile; what is parsed is a copy. */
gp_status_t linux_kallsyms_read(const struct guest_memory *memory,
				const struct linux_kernel *kernel, struct symbol_table *out,
				struct error *error);

/* The part that parses: `bytes` is a copy of the kernel's memory from linear address `start` on,
 * which holds all tables; `token_table` is the offset of a digit run found in it by
 * kallsyms_find_digits(). GP_ERR_NOT_FOUND when these are not the tables after all. */
gp_status_t kallsyms_parse(const uint8_t *bytes, size_t size, uint64_t start, size_t digits,
			   uint64_t text_base, struct symbol_table *out, struct error *error);

/* The offset of the first "0\0" "1\0" ... "9\0" from `from` on, `size` when there is none. */
size_t kallsyms_find_digits(const uint8_t *bytes, size_t size, size_t from);

#endif
