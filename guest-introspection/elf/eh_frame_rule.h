/* What .eh_frame says of one place in a program's code: how to get from a frame there to its
 * caller. A plain value. */
#ifndef GUEST_INTROSPECTION_ELF_EH_FRAME_RULE_H
#define GUEST_INTROSPECTION_ELF_EH_FRAME_RULE_H

#include "guest-introspection/x86/guest_cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum eh_frame_kind {
	EH_FRAME_NO_RULE,
	EH_FRAME_CALL,
	/* A procedure linkage table: the CFA is a word further from `threshold` on, counted in the
	 * entry of 16 bytes. */
	EH_FRAME_LINKAGE,
	EH_FRAME_SIGNAL, /* registers were saved by the kernel; "CFA" is base + offset */
	EH_FRAME_ROOT,   /* nobody called this */
};

/* Registers are of enum guest_register; offsets are bytes. As struct unwind_rule, which it
 * becomes. */
struct eh_frame_rule {
	uint8_t kind; /* enum eh_frame_kind */
	uint8_t base;
	bool dereference;
	uint8_t threshold;
	int32_t offset;
	int32_t offset_after;
	int32_t return_address;
	uint16_t saved;
	uint16_t from_base; /* of these, those stored at base + n, not CFA + n */
	uint16_t preserved;
	uint16_t unused; /* 0 */
	int16_t at[GUEST_REGISTER_COUNT];
};

#endif
