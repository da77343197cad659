/* ORC tables in a guest's memory, in each of their formats, for tests. */
#ifndef TESTS_ORC_BUILDER_H
#define TESTS_ORC_BUILDER_H

#include "guest-introspection/linux/orc.h"
#include "tests/buffer_memory.h"

struct orc_builder {
	struct buffer_memory *memory;
	enum orc_format format;
	uint64_t offset;    /* linear - physical */
	uint64_t addresses; /* physical */
	uint64_t entries;
	uint32_t count;
};

/* The number of a register: enum orc_register, but where that has others. */
static inline unsigned orc_number(enum orc_format format, unsigned reg)
{
	static const uint8_t anew[ORC_REGISTER_COUNT] = {
		[ORC_REGISTER_AX] = 1,          [ORC_REGISTER_DX] = 2,
		[ORC_REGISTER_SP] = 3,          [ORC_REGISTER_BP] = 4,
		[ORC_REGISTER_DI] = 5,          [ORC_REGISTER_R10] = 6,
		[ORC_REGISTER_R13] = 7,         [ORC_REGISTER_PREVIOUS_SP] = 8,
		[ORC_REGISTER_SP_INDIRECT] = 9, [ORC_REGISTER_BP_INDIRECT] = 10,
	};

	return format == ORC_FORMAT_4 ? anew[reg] : reg;
}

/* `place` is linear. Registers of sp and bp: enum orc_register. */
static inline void orc_put(struct orc_builder *builder, uint64_t place, enum orc_type type,
			   unsigned sp, int sp_offset, unsigned bp, int bp_offset)
{
	uint64_t at = builder->addresses + builder->count * 4;
	uint64_t entry = builder->entries + builder->count * 6;
	bool registers = type == ORC_REGS || type == ORC_REGS_PARTIAL;
	unsigned bits = 0;

	switch (builder->format) {
	case ORC_FORMAT_1:
		bits = (registers ? type - ORC_CALL : 0) | (type == ORC_END ? 4 : 0);
		break;
	case ORC_FORMAT_2:
		bits = (registers ? (type - ORC_CALL) | 4 : 0) | (type == ORC_END ? 8 : 0);
		break;
	case ORC_FORMAT_3:
	case ORC_FORMAT_4:
	case ORC_FORMAT_UNKNOWN:
		bits = type | (registers ? 8 : 0);
		break;
	}
	buffer_put(builder->memory, at, place - (at + builder->offset), 4);
	sp = orc_number(builder->format, sp);
	bp = orc_number(builder->format, bp);
	buffer_put(builder->memory, entry, (uint16_t)sp_offset, 2);
	buffer_put(builder->memory, entry + 2, (uint16_t)bp_offset, 2);
	buffer_put(builder->memory, entry + 4, sp | bp << 4 | bits << 8, 2);
	builder->count++;
}

#endif
