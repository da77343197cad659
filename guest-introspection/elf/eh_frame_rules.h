/* From what call frame instructions have said of a place to the rule that holds there, and the
 * encodings of numbers that .eh_frame has. Private to eh_frame.c and eh_frame_rows.c.
 */
#ifndef GUEST_INTROSPECTION_ELF_EH_FRAME_RULES_H
#define GUEST_INTROSPECTION_ELF_EH_FRAME_RULES_H

#include "base/cursor.h"
#include "guest-introspection/elf/eh_frame_rule.h"

#include <stdbool.h>
#include <stdint.h>

#define EH_FRAME_GENERAL_REGISTERS 16u
#define EH_FRAME_RETURN_ADDRESS 16u /* DWARF's number of it */

/* enum guest_register of DWARF's numbers. */
extern const uint8_t eh_frame_guest_numbers[EH_FRAME_GENERAL_REGISTERS];

/* DW_EH_PE_* of the Linux Standard Base. */
enum pointer_encoding {
	POINTER_ABSOLUTE = 0x00,
	POINTER_ULEB128 = 0x01,
	POINTER_UDATA2 = 0x02,
	POINTER_UDATA4 = 0x03,
	POINTER_UDATA8 = 0x04,
	POINTER_SLEB128 = 0x09,
	POINTER_SDATA2 = 0x0a,
	POINTER_SDATA4 = 0x0b,
	POINTER_SDATA8 = 0x0c,
	POINTER_FORMAT = 0x0f,
	POINTER_PC_RELATIVE = 0x10,
	POINTER_DATA_RELATIVE = 0x30,
	POINTER_RELATION = 0x70,
	POINTER_INDIRECT = 0x80,
	POINTER_OMITTED = 0xff,
};

/* Where a caller's register is found (DWARF 5, 6.4.1). */
enum place_kind {
	PLACE_DEFAULT, /* nothing was said: as the ABI has it */
	PLACE_SAME,
	PLACE_UNDEFINED,
	PLACE_AT_CFA,
	PLACE_AT_BASE, /* in memory at a register + offset */
	PLACE_OTHER,   /* a value or place that is not followed */
};

/* What DWARF numbers: 16 general registers in its own order, and the return address. */
#define EH_FRAME_REGISTERS 17u

/* Where a caller's register is. */
struct eh_frame_place {
	uint8_t kind;
	uint8_t base; /* DWARF's number */
	int64_t offset;
};

struct eh_frame_state {
	struct eh_frame_rule cfa; /* kind, base, dereference and offsets only */
	struct eh_frame_place registers[EH_FRAME_REGISTERS];
};

/* LEB128 of up to 64 bits; what is beyond is dropped. */
uint64_t eh_frame_take_uleb(struct cursor *cursor);
int64_t eh_frame_take_sleb(struct cursor *cursor);

/* Reads an address in one of the encodings of the Linux Standard Base. `data` is what data-relative
 * ones are relative to. False: not one that is known, or it is not there. */
bool eh_frame_read_address(struct cursor *cursor, uint8_t encoding, uint64_t position,
			   uint64_t data, uint64_t *out);

/* Takes an expression with its length: a register + offset, perhaps the word there, + offset, or
 * that of a linkage table. Only kind, base, dereference and offsets are set; `kind` is
 * EH_FRAME_NO_RULE for all else. */
struct eh_frame_rule eh_frame_parse_expression(struct cursor *whole);

/* The rule; of a signal's frame if `signal`. */
struct eh_frame_rule eh_frame_make_rule(const struct eh_frame_state *state, bool signal);

#endif
