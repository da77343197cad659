/* ORC: the tables by which a Linux kernel built without frame pointers unwinds its own stacks,
 * read out of guest memory (arch/x86/include/asm/orc_types.h, arch/x86/kernel/unwind_orc.c).
 *
 * Two parallel arrays, sorted by the kernel: the places in the text, and for each what holds
 * from there on. Preparing copies, checks and translates them into one form; a cold path that
 * allocates. Looking up reads nothing of the guest, allocates nothing, takes no lock: any
 * thread, also while a vCPU is stopped. A prepared `struct orc` does not change, except that
 * orc_add_module() needs it for itself.
 */
#ifndef GUEST_INTROSPECTION_LINUX_ORC_H
#define GUEST_INTROSPECTION_LINUX_ORC_H

#include "base/error.h"
#include "guest-introspection/elf/address_index.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Hard limits, whatever a guest claims. A distribution's kernel has half a million entries. */
#define ORC_ENTRY_LIMIT 2000000u
#define ORC_MODULE_LIMIT 2000u

/* The numbers are those of the tables up to Linux 7.0; ORC_FORMAT_4 has others. */
enum orc_register {
	ORC_REGISTER_UNDEFINED, /* of bp: as it is */
	ORC_REGISTER_PREVIOUS_SP,
	ORC_REGISTER_DX,
	ORC_REGISTER_DI,
	ORC_REGISTER_BP,
	ORC_REGISTER_SP,
	ORC_REGISTER_R10,
	ORC_REGISTER_R13,
	ORC_REGISTER_BP_INDIRECT, /* the word at bp + offset */
	ORC_REGISTER_SP_INDIRECT, /* the word at sp, + offset */
	ORC_REGISTER_AX,          /* since 7.1 */
	ORC_REGISTER_COUNT,
};

enum orc_type {
	ORC_UNDEFINED,    /* nothing is known here */
	ORC_END,          /* nothing is above this on the stack, or nothing that tables can tell */
	ORC_CALL,         /* the previous stack pointer; the return address is below it */
	ORC_REGS,         /* the address of a struct pt_regs */
	ORC_REGS_PARTIAL, /* the address of the CPU's interrupt frame */
};

/* One entry, whatever format it came in. */
struct orc_entry {
	int16_t sp_offset;
	int16_t bp_offset;
	uint8_t registers; /* of sp in bits 0-3, of bp in bits 4-7: enum orc_register */
	uint8_t type : 4;  /* enum orc_type */
	uint8_t exact : 4; /* the return address is that of interrupted code */
};

_Static_assert(sizeof(struct orc_entry) == 6, "half a million of them");

/* How registers, type, signal and end are packed into the last two bytes. */
enum orc_format {
	ORC_FORMAT_UNKNOWN,
	ORC_FORMAT_1, /* type in bits 8-9, end in bit 10: Linux 4.14 to 6.2 */
	ORC_FORMAT_2, /* signal in bit 10, end in bit 11: 6.3 */
	ORC_FORMAT_3, /* type in bits 8-10, signal in bit 11; a header with a hash: 6.4 */
	ORC_FORMAT_4, /* the same, with the registers numbered anew: 7.1 */
};

/* The entries of one piece of text. */
struct orc_table {
	uint64_t start; /* linear address of the first entry */
	uint64_t end;   /* behind the last address that the entries speak for */
	uint32_t count;
	uint32_t *addresses; /* from `start` */
	struct orc_entry *entries;
	struct address_index index; /* of `addresses` */
};

struct orc {
	enum orc_format format;
	struct orc_table kernel;
	bool kernel_is_borrowed;   /* from another struct orc, which must live longer */
	struct orc_table *modules; /* sorted by start, disjoint */
	size_t module_count;
	size_t module_capacity;
};

static inline void orc_init(struct orc *orc)
{
	*orc = (struct orc){0};
}

void orc_deinit(struct orc *orc);

/* The kernel's tables of `from`, and no module's: nothing is copied. */
static inline struct orc orc_borrow(const struct orc *from)
{
	return (struct orc){
		.format = from->format, .kernel = from->kernel, .kernel_is_borrowed = true};
}

/* Reads the kernel's own tables, whose bounds are symbols. `space` are its page tables.
 * GP_ERR_NOT_FOUND: it has none (CONFIG_UNWINDER_FRAME_POINTER). GP_ERR_NOT_SUPPORTED: they are
 * in no format that is known here, and nothing is guessed. GP_ERR_OUT_OF_RANGE, GP_ERR_NO_MEMORY.
 * `out` is untouched on failure. The guest may run meanwhile; `out` is a checked copy. */
gp_status_t orc_read(const struct guest_memory *memory, const struct address_space *space,
		     const struct symbol_table *symbols, struct orc *out, struct error *error);

/* Where one module has its tables (struct mod_arch_specific: orc_unwind_ip, orc_unwind,
 * num_orcs) and its text. All linear addresses. */
struct orc_module {
	uint64_t addresses;
	uint64_t entries;
	uint32_t count;
	uint64_t text_start;
	uint64_t text_size;
};

/* Adds one text of a module; entries for other text than the one given are left out. A module that
 * starts has two, which share its tables: the one of its start is freed afterwards.
 * GP_ERR_ALREADY_EXISTS when another one has that text; otherwise as orc_read(). */
gp_status_t orc_add_module(struct orc *orc, const struct guest_memory *memory,
			   const struct address_space *space, const struct orc_module *module,
			   struct error *error);

/* The entry that holds for `address`, NULL when no table speaks for it. */
const struct orc_entry *orc_find(const struct orc *orc, uint64_t address);

/* Which format these entries are in, by what is consistent: most are calls found from SP, an
 * undefined place names no register, reserved bits are 0. */
enum orc_format orc_detect_format(const uint8_t *entries, size_t count);

#endif
