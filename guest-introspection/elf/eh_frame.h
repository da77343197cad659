/* Rules for the stacks of a user program, from the .eh_frame of its file.
 *
 * What a compiler writes for exceptions says for every instruction where the caller's frame, return
 * address and registers are (System V ABI for x86-64, 3.7 and 4.2.4), so that code without
 * frame pointers can be followed. The file's bytes may be available in parts only, such as those
 * pages that a guest has cached: then there are rules for the functions whose records are.
 *
 * libdw would read the same, but wants a whole file that it trusts, and allocates while looking
 * up; the tests compare with it. Reading is cold and allocates; looking up is hot, allocates
 * nothing and may be done by any number of threads. 64-bit programs only.
 */
#ifndef GUEST_INTROSPECTION_ELF_EH_FRAME_H
#define GUEST_INTROSPECTION_ELF_EH_FRAME_H

#include "base/error.h"
#include "guest-introspection/elf/address_index.h"
#include "guest-introspection/elf/eh_frame_rule.h"
#include "guest-introspection/elf/elf_image.h"
#include "guest-introspection/elf/file_source.h"

#include <stdbool.h>
#include <stdint.h>

/* The rules of one file. Read-only once made. */
struct eh_frame {
	uint64_t base;       /* lowest address of the image; rows are relative to it */
	uint32_t row_count;  /* sorted */
	uint32_t rule_count; /* rule 0 is EH_FRAME_NO_RULE */
	uint32_t *addresses;
	uint16_t *numbers; /* rule of each row */
	struct eh_frame_rule *rules;
	struct address_index index; /* of `addresses` */
	uint32_t function_count;
	/* All that the file has was available. If not, it may be worth reading again later. */
	bool complete;
};

static inline void eh_frame_init(struct eh_frame *table)
{
	*table = (struct eh_frame){0};
}

/* Reads the rules of the file in `source`, whose headers are `image`. `out` is untouched on
 * failure: GP_ERR_NOT_FOUND (it has none, or none are available), GP_ERR_NOT_SUPPORTED (32-bit),
 * GP_ERR_IO_DATA_INTEGRITY, GP_ERR_NO_MEMORY. Looks at some 100 MB at most. */
gp_status_t eh_frame_read(const struct file_source *source, const struct elf_image *image,
			  struct eh_frame *out, struct error *error);

void eh_frame_deinit(struct eh_frame *table);

/* The rule that holds for the instruction at `address` of the file; NULL: there is none. */
const struct eh_frame_rule *eh_frame_find(const struct eh_frame *table, uint64_t address);

#endif
