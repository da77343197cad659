/* Symbols from the bytes of a file: ELF (.symtab, else .dynsym), System.map, output of nm(1).
 *
 * The caller reads the file; nothing here opens one. The bytes are not trusted.
 */
#ifndef GUEST_INTROSPECTION_ELF_SYMBOLS_FILE_H
#define GUEST_INTROSPECTION_ELF_SYMBOLS_FILE_H

#include "base/error.h"
#include "guest-introspection/elf/symbol_table.h"

#include <stddef.h>
#include <stdint.h>

/* Where the guest put the file's contents, when not where the file says. */
struct symbols_base {
	bool given;
	/* Linear address of the file's lowest loaded byte: for ELF its lowest PT_LOAD segment (a
	 * kernel's per-CPU template at 0 does not count), for text its `_text`, or
	 * its lowest text symbol without one. */
	uint64_t address;
};

/* Reads the symbols of `size` bytes into `out`, a finished table that the caller deinits.
 * `out` is untouched on failure: GP_ERR_NOT_SUPPORTED (neither format, or an ELF of another
 * machine), GP_ERR_NOT_FOUND (no symbols in it), GP_ERR_IO_DATA_INTEGRITY (damaged; the
 * text says where), GP_ERR_OUT_OF_RANGE (past the limits of a table), GP_ERR_NO_MEMORY.
 * Allocates: a cold path. Any thread. */
gp_status_t symbols_file_parse(const void *bytes, size_t size, struct symbols_base base,
			       struct symbol_table *out, struct error *error);

#endif
