/* Symbol files named on a command line: FILE or FILE@BASE. */
#ifndef RECORDING_SYMBOL_FILES_H
#define RECORDING_SYMBOL_FILES_H

#include "base/error.h"
#include "guest-introspection/elf/symbol_table.h"

#define SYMBOL_FILES_MAX 8

struct symbol_files {
	struct symbol_table tables[SYMBOL_FILES_MAX];
	unsigned count;
};

/* Reads an ELF file or a System.map. BASE (hexadecimal with 0x, or decimal) is the address its
 * lowest segment is loaded at. The error names the file. */
gp_status_t symbol_files_add(struct symbol_files *files, const char *argument, struct error *error);
/* Reads the symbols of a kernel that was given to be booted. `*found` is false, and `*out`
 * untouched, where it is no ELF file or has none: most have not. */
gp_status_t symbol_files_read_kernel(const char *path, struct symbol_table *out, bool *found,
				     struct error *error);

void symbol_files_deinit(struct symbol_files *files);

#endif
