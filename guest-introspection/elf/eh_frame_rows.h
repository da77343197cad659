/* Call frame information, record by record, into rows: from which address on which rule holds.
 *
 * The format is that of .eh_frame (Linux Standard Base, Core, "Exception Frames"; DWARF 5, 6.4),
 * for 64-bit x86 (System V ABI, figure 3.36 numbers the registers). Bytes are the guest's: every
 * length is checked, every loop ends with them. What one instruction or expression is not known to
 * mean makes the rule unknown there, never a guess. Private to eh_frame.c; cold: allocates.
 */
#ifndef GUEST_INTROSPECTION_ELF_EH_FRAME_ROWS_H
#define GUEST_INTROSPECTION_ELF_EH_FRAME_ROWS_H

#include "base/error.h"
#include "base/vector.h"
#include "guest-introspection/elf/eh_frame_rules.h"
#include "guest-introspection/elf/elf_image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a file as far as it is available, from a whole page on. */
struct eh_frame_bytes {
	const uint8_t *bytes;
	size_t size;
	uint64_t address;       /* of the first byte, in the file's terms */
	const uint8_t *missing; /* one for each page: not available, zeroes; NULL: all is there */
};

enum eh_frame_record {
	EH_FRAME_CIE,
	EH_FRAME_FDE,
	EH_FRAME_LAST,    /* the end: a length of 0, or of the bytes */
	EH_FRAME_MISSING, /* not available */
	EH_FRAME_DAMAGED,
};

/* What remember_state may nest. */
#define EH_FRAME_STATES 32u

struct eh_frame_cie {
	size_t offset; /* in the bytes; SIZE_MAX: none */
	bool valid;
	bool signal;
	bool augmented;
	uint8_t encoding; /* of addresses in its FDEs */
	uint64_t code_factor;
	int64_t data_factor;
	struct eh_frame_state state; /* after its instructions */
};

/* Rows as they come, and each rule once. */
struct eh_frame_builder {
	uint64_t base;           /* rows are relative to it */
	struct word_vector rows; /* address << 32, ROW_HOLDS, number of the rule */
	VECTOR(struct eh_frame_rule) rules;
	uint16_t *buckets;
	size_t budget; /* bytes of instructions that will still be looked at */
	bool exhausted;
	bool no_memory;
	struct eh_frame_cie cie; /* the last one seen: neighbours mostly share it */
	struct eh_frame_state states[EH_FRAME_STATES];
};

#define EH_FRAME_ROW_HOLDS (UINT64_C(1) << 31) /* not the end of a function */

gp_status_t eh_frame_builder_init(struct eh_frame_builder *builder, uint64_t base);
void eh_frame_builder_deinit(struct eh_frame_builder *builder);

/* The kind of record at `offset`, and where the next one begins. */
enum eh_frame_record eh_frame_record_at(const struct eh_frame_bytes *bytes, size_t offset,
					size_t *next);

/* Adds the rows of the FDE at `offset`. False: none were added, its CIE is damaged or not
 * available, or it says nothing of any code. */
bool eh_frame_builder_add(struct eh_frame_builder *builder, const struct eh_frame_bytes *bytes,
			  size_t offset);

#endif
