/* The stubs through which a program calls functions of other libraries (the procedure linkage
 * table), which no symbol names: without these, they would have the name of what comes before
 * them.
 *
 * Found by what they are: an indirect jump through a slot that a relocation fills in (x86-64 psABI,
 * section 5.2), in the forms that GNU ld, gold and lld write. 64-bit code only.
 */
#ifndef GUEST_INTROSPECTION_ELF_ELF_PLT_H
#define GUEST_INTROSPECTION_ELF_ELF_PLT_H

#include "guest-introspection/elf/elf_dynamic.h"
#include "guest-introspection/elf/symbol_table.h"

/* Adds a symbol "NAME@plt" for each stub that is available to `table`, which is not finished yet;
 * of one without a name (a function that chooses an implementation), "*ABS*+0xADDRESS@plt", as
 * objdump(1) has it. GP_ERR_NO_MEMORY, GP_ERR_OUT_OF_RANGE (the table is full). Allocates;
 * any thread. */
gp_status_t elf_plt_read(const struct file_source *source, const struct elf_image *image,
			 const struct elf_dynamic *dynamic, struct symbol_table *table,
			 struct error *error);

#endif
