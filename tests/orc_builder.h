/* ORC tables in a guest's memory, in each of their formats, for tests. */
#ifndef TESTS_ORC_BUILDER_H
#define TESTS_ORC_BUILDER_H

#include "guest-introspection/orc.h"
#include "tests/buffer_memory.h"

struct orc_builder {
	struct buffer_memory *memory;
	enum orc_format format;
	uint64_t offset;    /* linear - physical */
	uint64_t addresses; /* physical */
	uint64_t entries;
	uint32_t count;
};

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
	case ORC_FORMAT_UNKNOWN:
		bits = type | (registers ? 8 : 0);
		break;
	}
	buffer_put(builder->memory, at, place - (at + builder->offset), 4);
	buffer_put(builder->memory, entry, (uint16_t)sp_offset, 2);
	buffer_put(builder->memory, entry + 2, (uint16_t)bp_offset, 2);
	buffer_put(builder->memory, entry + 4, sp | bp << 4 | bits << 8, 2);
	builder->count++;
}

#endif
