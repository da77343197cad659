/* The symbols of a program, library or vDSO that a process of a Linux guest has mapped.
 *
 * Its bytes come from the guest's page cache; what is not cached there, from the memory of the
 * process; the vDSO from the kernel's own copy. .symtab and the section headers are at the end of
 * a file: of a program that was only run, from a disk, they are mostly not cached (in an initramfs
 * all is), and a static one has no dynamic symbols instead; many have been stripped. What is in
 * neither is looked for in a copy of the file or a file of its debugging information
 * (file_copies.h).
 *
 * Cold: allocates, reads up to all symbols of a file. Any thread; the guest may run meanwhile.
 */
#ifndef GUEST_INTROSPECTION_LINUX_USER_SYMBOLS_H
#define GUEST_INTROSPECTION_LINUX_USER_SYMBOLS_H

#include "guest-introspection/elf/elf_symbols.h"
#include "guest-introspection/elf/file_copies.h"
#include "guest-introspection/linux/linux_mappings.h"
#include "guest-introspection/linux/linux_page_cache.h"

/* The same file gives the same table and build id in every process; only the bias differs. */
struct user_symbols {
	struct elf_image image;
	uint64_t bias;               /* look up `address - bias` */
	struct symbol_table symbols; /* finished; empty when there are none or none are available */
	struct elf_symbols_result result;
	bool copied; /* from a copy, at least in part */
	bool later;  /* one is being looked for: read again in a while */
	bool whole;  /* only one with more symbols than all of the guest's file would do */
};

/* Reads the file that `mapping`, one of code, of the process with `mm` belongs to. `mm` 0: only
 * what the page cache has; `copies` NULL: only what the guest has. `out` is untouched on failure,
 * but for `later` with GP_ERR_NOT_FOUND: GP_ERR_NOT_FOUND (no file and not the vDSO, or its headers
 * are not available), GP_ERR_NOT_SUPPORTED (not an ELF file of x86), GP_ERR_IO_DATA_INTEGRITY,
 * GP_ERR_NO_MEMORY, GP_ERR_OUT_OF_RANGE (more symbols than a table takes). That there are no
 * symbols is no failure.
 */
gp_status_t user_symbols_read(const struct linux_mappings *mappings,
			      const struct linux_page_cache *cache, uint64_t mm,
			      const struct linux_mapping *mapping, struct file_copies *copies,
			      struct user_symbols *out, struct error *error);

/* Asks again for the copy that is looked for `later`, for a file that may not be in the guest any
 * more, and takes its symbols for `symbols`, which is what was read before. Without a build id
 * there is nothing to know it by, and none. `mapping` is the one that was read, or as it was. */
void user_symbols_read_copy(const struct linux_mapping *mapping, struct file_copies *copies,
			    struct user_symbols *symbols);

void user_symbols_deinit(struct user_symbols *symbols);

#endif
