/* The symbols of an ELF program or library of which only parts may be available.
 *
 * .symtab when its section can be found, and .dynsym when that has gaps or is not there; without
 * section headers (not cached, stripped, in memory) the dynamic symbols by PT_DYNAMIC. A symbol
 * whose entry or name is not available is counted as missing.
 */
#ifndef GUEST_INTROSPECTION_ELF_ELF_SYMBOLS_H
#define GUEST_INTROSPECTION_ELF_ELF_SYMBOLS_H

#include "guest-introspection/elf/elf_image.h"
#include "guest-introspection/elf/symbol_table.h"

/* Whether a symbol names something that may be in memory: by its st_info and st_shndx. */
bool elf_symbol_is_named(unsigned info, unsigned section);

/* The letter of nm(1) for one that does. `zeroed`: the file has no bytes of it. */
char elf_symbol_kind(unsigned info, bool executable, bool writable, bool zeroed);

struct elf_symbols_result {
	bool full;    /* .symtab was there: static functions too */
	bool dynamic; /* dynamic symbols were read */
	/* Entries of the tables that were read and that are not in the result because their pages
	 * are not available; an upper bound, entries that name nothing included. */
	uint64_t missing;
};

/* Reads the symbols of `image` into `out`, a finished table at the file's own addresses that the
 * caller deinits: look up `address - bias`. `loaded_bias` is the bias of the image in `source` when
 * that is a process's memory, where the dynamic linker may have made addresses of .dynamic
 * absolute, else 0. `out` and `result` are untouched on failure: GP_ERR_NOT_FOUND (no symbols, or
 * none available), GP_ERR_NO_MEMORY, GP_ERR_OUT_OF_RANGE (past the limits of a table). Allocates: a
 * cold path; any thread. */
gp_status_t elf_symbols_read(const struct file_source *source, const struct elf_image *image,
			     uint64_t loaded_bias, struct symbol_table *out,
			     struct elf_symbols_result *result, struct error *error);

#endif
