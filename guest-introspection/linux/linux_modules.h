/* The modules that a Linux kernel has loaded, and their symbols, read out of guest memory: what
 * /proc/kallsyms shows in brackets.
 *
 * Prepared once per boot; read whenever linux_modules_changed() says so, or an address of the
 * kernel has no name. All cold paths: they allocate. The guest may run meanwhile: what is
 * parsed is a copy, and a module that is being loaded or unloaded may be missing.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_MODULES_H
#define GUEST_INTROSPECTION_LINUX_LINUX_MODULES_H

#include "base/error.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINUX_MODULE_NAME_SIZE 56u /* MODULE_NAME_LEN on 64-bit machines */
#define LINUX_MODULE_LIMIT 2048u
#define LINUX_MODULE_RANGES 8u

/* Linear addresses; size 0: there is none. */
struct linux_range {
	uint64_t start;
	uint64_t size;
};

struct linux_module {
	char name[LINUX_MODULE_NAME_SIZE]; /* terminated; printable */
	uint64_t address;                  /* of its struct module */
	struct linux_range text;
	struct linux_range init_text; /* dropped once it is initialised */
	/* All its memory, these two included. */
	struct linux_range ranges[LINUX_MODULE_RANGES];
	unsigned range_count;
	/* Its unwind tables, inside its memory: `orc_count` times an int32_t that is relative to
	 * itself, at `orc_ips`, and a struct orc_entry of 6 bytes, at `orc_entries`. */
	uint64_t orc_ips;
	uint64_t orc_entries;
	uint32_t orc_count;    /* 0: none, or damaged */
	uint32_t symbol_count; /* that were added */
	bool incomplete;       /* its symbols are damaged or too many */
};

/* Offsets of members, in bytes. A plain value. */
struct linux_module_layout {
	struct address_space space; /* the kernel's own; may be replaced by a newer one */
	uint64_t head;              /* linear address of the list `modules` */
	uint32_t list, name, state, kallsyms;
	uint32_t unformed; /* MODULE_STATE_UNFORMED */
	/* Up to Linux 6.3 `core` and `init`, struct module_layout each; later mem[]. */
	uint32_t core, init; /* struct module_layout */
	uint32_t layout_base, layout_size, layout_text_size;
	uint32_t memory, memory_size;
	uint32_t memory_types; /* struct module_memory in mem[]; 0: there is none */
	uint32_t memory_base, memory_length;
	uint32_t text_type, init_text_type;             /* indices */
	uint32_t symtab, symbol_count, strtab, typetab; /* in struct mod_kallsyms */
	/* LINUX_MEMBER_MISSING where this kernel has none, as in what follows. */
	uint32_t orc_ips, orc_entries, orc_count;
	/* Build ids: in struct module a pointer to struct module_notes_attrs. In that an array of
	 * struct bin_attribute and how many there are; without a count, as in 6.18, a pointer to
	 * pointers to them, of which a null one is the last. */
	uint32_t notes;
	uint32_t note_count, note_array, note_list;
	uint32_t note_bytes;               /* of a struct bin_attribute; 0: not known */
	uint32_t note_size, note_contents; /* in that */
};

/* Finds everything by name. GP_ERR_NOT_FOUND: there is no CONFIG_MODULES.
 * GP_ERR_NOT_SUPPORTED says which member is missing. */
gp_status_t linux_module_layout_init(const struct linux_kernel *kernel,
				     const struct symbol_table *symbols, const struct btf *btf,
				     struct linux_module_layout *out, struct error *error);

/* What the list looked like; changes with each module that is loaded, initialised, or unloaded
 * from either end of the list. */
struct linux_modules_stamp {
	uint64_t newest;
	uint64_t oldest;
	uint64_t kallsyms; /* of the newest; another one when it is initialised */
	uint32_t state;
	char name[LINUX_MODULE_NAME_SIZE];
};

struct linux_modules {
	struct linux_module *modules; /* newest first, as in /proc/modules; owned */
	size_t count;
	/* Finished. A name has its module behind it, as in /proc/kallsyms: "ext4_iget [ext4]". The
	 * kind is upper case for a global symbol. */
	struct symbol_table symbols;
	struct linux_modules_stamp stamp;
};

/* Reads all modules. GP_OK also when there are none. GP_ERR_IO_DATA_INTEGRITY: the list or a module
 * is damaged, or changed meanwhile; `out` has what could be read, deinit it. GP_ERR_NO_MEMORY
 * leaves `out` untouched. */
gp_status_t linux_modules_read(const struct linux_module_layout *layout,
			       const struct guest_memory *memory, struct linux_modules *out,
			       struct error *error);

void linux_modules_deinit(struct linux_modules *modules);

/* Has the list changed since `stamp`? Costs five reads; allocates nothing. What cannot be read has
 * not changed. */
bool linux_modules_changed(const struct linux_module_layout *layout,
			   const struct guest_memory *memory,
			   const struct linux_modules_stamp *stamp);

#define LINUX_MODULE_BUILD_ID_LIMIT 32u /* bytes; SHA-1 has 20 */

/* Returns the bytes of the module's build id, from the notes that the kernel keeps for
 * /sys/module/NAME/notes; 0: it has none, or it cannot be read. Allocates nothing. */
unsigned linux_module_build_id(const struct linux_module_layout *layout,
			       const struct guest_memory *memory, const struct linux_module *module,
			       uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT]);

#endif
