/* x86 instructions as text, by capstone, which is loaded when the first one is asked for: nobody
 * else needs it, least of all a recorder. One thread at a time. Any bytes. */
#ifndef ANALYSIS_DISASSEMBLER_H
#define ANALYSIS_DISASSEMBLER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSTRUCTION_TEXT_MAX 200
#define INSTRUCTION_BYTES_MAX 15

enum disassembler_syntax { DISASSEMBLER_ATT, DISASSEMBLER_INTEL };

struct instruction {
	uint64_t address;
	unsigned size; /* bytes, at least 1 */
	bool is_bad;   /* no instruction: one byte, as data */
	bool is_call;
	bool is_jump; /* conditional ones included */
	bool has_target;
	uint64_t target;   /* of a direct call or jump */
	char mnemonic[32]; /* prefixes included */
	char operands[INSTRUCTION_TEXT_MAX];
};

struct disassembler;

/* GP_ERR_NOT_SUPPORTED: there is no capstone here; the text says what to install. `bits`: 16, 32 or
 * 64. */
gp_status_t disassembler_open(unsigned bits, enum disassembler_syntax syntax,
			      struct disassembler **out, struct error *error);
void disassembler_close(struct disassembler *disassembler);

/* The instruction that begins at bytes[0], at linear address `address`; `size` is at least 1. */
void disassembler_decode(struct disassembler *disassembler, const uint8_t *bytes, size_t size,
			 uint64_t address, struct instruction *out);

#endif
