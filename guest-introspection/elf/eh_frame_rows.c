#include "guest-introspection/elf/eh_frame_rows.h"

#include <stdlib.h>
#include <string.h>

#define ROW_LIMIT ((size_t)1 << 22)
#define RULE_LIMIT 65535u
#define BUCKETS ((size_t)1 << 17)
#define PROBE_LIMIT 256u
/* All of a browser's are some tens of megabytes. */
#define INSTRUCTION_BUDGET ((size_t)64 << 20)

/* DW_CFA_*: DWARF 5, 7.24, and GNU's. */
enum instruction {
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
	CFA_ADVANCE_LOC = 0x40, /* in the upper two bits; the rest is the operand */
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
};

gp_status_t eh_frame_builder_init(struct eh_frame_builder *builder, uint64_t base)
{
	memset(builder, 0, sizeof(*builder));
	builder->base = base;
	builder->budget = INSTRUCTION_BUDGET;
	builder->cie.offset = SIZE_MAX;
	builder->buckets = calloc(BUCKETS, sizeof(*builder->buckets));
	if (builder->buckets && vector_extend(&builder->rules, 1)) /* no rule */
		return GP_OK;
	eh_frame_builder_deinit(builder);
	return GP_ERR_NO_MEMORY;
}

void eh_frame_builder_deinit(struct eh_frame_builder *builder)
{
	vector_deinit(&builder->rows);
	vector_deinit(&builder->rules);
	free(builder->buckets);
	builder->buckets = NULL;
}

static int64_t multiply(int64_t left, int64_t right)
{
	return (int64_t)((uint64_t)left * (uint64_t)right);
}

/* Records. */

static bool is_available(const struct eh_frame_bytes *bytes, size_t offset, size_t size)
{
	return !bytes->missing || elf_bytes_available(bytes->missing, offset, size);
}

/* The record at `offset`: a cursor over all of `bytes` up to its end, behind the identity. */
static enum eh_frame_record open_record(const struct eh_frame_bytes *bytes, size_t offset,
					struct cursor *out, size_t *identity_at, uint64_t *identity)
{
	struct cursor cursor = cursor_over(bytes->bytes, bytes->size);
	uint64_t length;
	bool wide;

	if (offset >= bytes->size || bytes->size - offset < 4)
		return EH_FRAME_LAST;
	if (!is_available(bytes, offset, 4))
		return EH_FRAME_MISSING;
	cursor_seek(&cursor, offset);
	length = cursor_u32(&cursor);
	if (length == 0)
		return EH_FRAME_LAST;
	wide = length == UINT32_MAX;
	if (wide) {
		if (cursor_left(&cursor) < 8)
			return EH_FRAME_DAMAGED;
		if (!is_available(bytes, offset + 4, 8))
			return EH_FRAME_MISSING;
		length = cursor_u64(&cursor);
	}
	if (length > cursor_left(&cursor) || length < (wide ? 8 : 4))
		return EH_FRAME_DAMAGED;
	if (!is_available(bytes, cursor.offset, (size_t)length))
		return EH_FRAME_MISSING;
	cursor.size = cursor.offset + (size_t)length;
	*identity_at = cursor.offset;
	*identity = wide ? cursor_u64(&cursor) : cursor_u32(&cursor);
	*out = cursor;
	return *identity == 0 ? EH_FRAME_CIE : EH_FRAME_FDE;
}

enum eh_frame_record eh_frame_record_at(const struct eh_frame_bytes *bytes, size_t offset,
					size_t *next)
{
	struct cursor cursor;
	size_t identity_at;
	uint64_t identity;
	enum eh_frame_record record = open_record(bytes, offset, &cursor, &identity_at, &identity);

	if (record == EH_FRAME_CIE || record == EH_FRAME_FDE)
		*next = cursor.size;
	return record;
}

/* The number of `rule`, which is stored once. 0 when there are too many. */
static uint16_t intern(struct eh_frame_builder *builder, const struct eh_frame_rule *rule)
{
	const uint8_t *bytes = (const uint8_t *)rule;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	size_t bucket;
	unsigned probes = 0;

	_Static_assert(sizeof(*rule) == 56, "compared as bytes: no padding with anything in it");
	if (rule->kind == EH_FRAME_NO_RULE)
		return 0;
	for (size_t i = 0; i < sizeof(*rule); i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	bucket = (size_t)(hash >> 40) % BUCKETS;
	while (builder->buckets[bucket]) {
		if (memcmp(&builder->rules.items[builder->buckets[bucket]], rule, sizeof(*rule)) ==
		    0)
			return builder->buckets[bucket];
		/* Rules made to collide are done without. */
		if (++probes == PROBE_LIMIT)
			return 0;
		bucket = (bucket + 1) % BUCKETS;
	}
	if (builder->rules.count == RULE_LIMIT)
		return 0;
	if (!vector_add(&builder->rules, *rule)) {
		builder->no_memory = true;
		return 0;
	}
	builder->buckets[bucket] = (uint16_t)(builder->rules.count - 1);
	return builder->buckets[bucket];
}

static void add_row(struct eh_frame_builder *builder, uint64_t address, uint64_t holds,
		    uint16_t number)
{
	if (builder->rows.count == ROW_LIMIT)
		builder->exhausted = true;
	else if (!vector_add(&builder->rows, (address - builder->base) << 32 | holds | number))
		builder->no_memory = true;
}

/* Instructions. */

/* One run over instructions. Without rows for those of a CIE. */
struct run {
	struct eh_frame_builder *builder;
	const struct eh_frame_cie *cie;
	const struct eh_frame_bytes *bytes;
	bool rows;
	uint64_t address; /* where the instructions have come to */
	uint64_t end;
	struct eh_frame_state state;
};

static void advance(struct run *run, uint64_t to)
{
	if (to <= run->address || run->address >= run->end)
		return;
	if (run->rows) {
		struct eh_frame_rule rule = eh_frame_make_rule(&run->state, run->cie->signal);

		add_row(run->builder, run->address, EH_FRAME_ROW_HOLDS,
			intern(run->builder, &rule));
	}
	run->address = to < run->end ? to : run->end;
}

static void advance_by(struct run *run, uint64_t delta)
{
	uint64_t bytes = delta * run->cie->code_factor;

	advance(run, bytes < run->end - run->address ? run->address + bytes : run->end);
}

static void set_place(struct run *run, uint64_t number, enum place_kind kind, int64_t offset)
{
	if (number >= EH_FRAME_REGISTERS)
		return; /* vector registers and the like are not needed */
	run->state.registers[number] = (struct eh_frame_place){.kind = kind, .offset = offset};
}

static void restore(struct run *run, uint64_t number)
{
	if (number < EH_FRAME_REGISTERS)
		run->state.registers[number] = run->cie->state.registers[number];
}

static void set_cfa(struct run *run, uint64_t number, int64_t offset)
{
	run->state.cfa = (struct eh_frame_rule){0};
	if (number >= EH_FRAME_GENERAL_REGISTERS || offset != (int32_t)offset)
		return;
	run->state.cfa.kind = EH_FRAME_CALL;
	run->state.cfa.base = eh_frame_guest_numbers[number];
	run->state.cfa.offset = (int32_t)offset;
}

/* Another register or another offset: only of a CFA that is the sum of two. */
static void change_cfa(struct run *run, const uint64_t *number, int64_t offset)
{
	struct eh_frame_rule *cfa = &run->state.cfa;

	if (cfa->kind != EH_FRAME_CALL || cfa->dereference ||
	    (number && *number >= EH_FRAME_GENERAL_REGISTERS) ||
	    (!number && offset != (int32_t)offset)) {
		*cfa = (struct eh_frame_rule){0};
		return;
	}
	if (number)
		cfa->base = eh_frame_guest_numbers[*number];
	else
		cfa->offset = (int32_t)offset;
}

static void set_expression(struct run *run, struct cursor *cursor, bool value)
{
	uint64_t number = eh_frame_take_uleb(cursor);
	struct eh_frame_rule place = eh_frame_parse_expression(cursor);

	set_place(run, number, PLACE_OTHER, 0);
	if (value || place.kind != EH_FRAME_CALL || place.dereference)
		return;
	if (number >= EH_FRAME_REGISTERS)
		return;
	set_place(run, number, PLACE_AT_BASE, place.offset);
	for (uint8_t i = 0; i < EH_FRAME_GENERAL_REGISTERS; i++)
		if (eh_frame_guest_numbers[i] == place.base)
			run->state.registers[number].base = i;
}

/* An instruction of the extended form. False: not known, and so is what follows. */
static bool run_extended(struct run *run, struct cursor *cursor, uint8_t instruction,
			 unsigned *depth)
{
	int64_t factor = run->cie->data_factor;
	uint64_t number;
	uint64_t value = 0;

	switch (instruction) {
	case CFA_NOP:
		return true;
	case CFA_SET_LOC:
		if (!eh_frame_read_address(cursor, run->cie->encoding,
					   run->bytes->address + cursor->offset, 0, &value))
			return false;
		advance(run, value);
		return true;
	case CFA_ADVANCE_LOC1:
		advance_by(run, cursor_u8(cursor));
		return true;
	case CFA_ADVANCE_LOC2:
		advance_by(run, cursor_u16(cursor));
		return true;
	case CFA_ADVANCE_LOC4:
		advance_by(run, cursor_u32(cursor));
		return true;
	case CFA_OFFSET_EXTENDED:
		number = eh_frame_take_uleb(cursor);
		set_place(run, number, PLACE_AT_CFA,
			  multiply((int64_t)eh_frame_take_uleb(cursor), factor));
		return true;
	case CFA_OFFSET_EXTENDED_SF:
		number = eh_frame_take_uleb(cursor);
		set_place(run, number, PLACE_AT_CFA, multiply(eh_frame_take_sleb(cursor), factor));
		return true;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		number = eh_frame_take_uleb(cursor);
		set_place(run, number, PLACE_AT_CFA,
			  multiply(multiply((int64_t)eh_frame_take_uleb(cursor), factor), -1));
		return true;
	case CFA_RESTORE_EXTENDED:
		restore(run, eh_frame_take_uleb(cursor));
		return true;
	case CFA_UNDEFINED:
		set_place(run, eh_frame_take_uleb(cursor), PLACE_UNDEFINED, 0);
		return true;
	case CFA_SAME_VALUE:
		set_place(run, eh_frame_take_uleb(cursor), PLACE_SAME, 0);
		return true;
	case CFA_REGISTER:
	case CFA_VAL_OFFSET:
		number = eh_frame_take_uleb(cursor);
		eh_frame_take_uleb(cursor);
		set_place(run, number, PLACE_OTHER, 0);
		return true;
	case CFA_VAL_OFFSET_SF:
		number = eh_frame_take_uleb(cursor);
		eh_frame_take_sleb(cursor);
		set_place(run, number, PLACE_OTHER, 0);
		return true;
	case CFA_REMEMBER_STATE:
		if (*depth == EH_FRAME_STATES)
			return false;
		run->builder->states[(*depth)++] = run->state;
		return true;
	case CFA_RESTORE_STATE:
		if (*depth == 0)
			return false;
		run->state = run->builder->states[--*depth];
		return true;
	case CFA_DEF_CFA:
		number = eh_frame_take_uleb(cursor);
		set_cfa(run, number, (int64_t)eh_frame_take_uleb(cursor));
		return true;
	case CFA_DEF_CFA_SF:
		number = eh_frame_take_uleb(cursor);
		set_cfa(run, number, multiply(eh_frame_take_sleb(cursor), factor));
		return true;
	case CFA_DEF_CFA_REGISTER:
		number = eh_frame_take_uleb(cursor);
		change_cfa(run, &number, 0);
		return true;
	case CFA_DEF_CFA_OFFSET:
		change_cfa(run, NULL, (int64_t)eh_frame_take_uleb(cursor));
		return true;
	case CFA_DEF_CFA_OFFSET_SF:
		change_cfa(run, NULL, multiply(eh_frame_take_sleb(cursor), factor));
		return true;
	case CFA_DEF_CFA_EXPRESSION:
		run->state.cfa = eh_frame_parse_expression(cursor);
		return true;
	case CFA_EXPRESSION:
		set_expression(run, cursor, false);
		return true;
	case CFA_VAL_EXPRESSION:
		set_expression(run, cursor, true);
		return true;
	case CFA_GNU_ARGS_SIZE:
		eh_frame_take_uleb(cursor);
		return true;
	default:
		return false;
	}
}

/* Runs the instructions in `cursor`. False: not to their end. */
static bool run_instructions(struct run *run, struct cursor *cursor)
{
	struct eh_frame_builder *builder = run->builder;
	unsigned depth = 0;

	if (cursor_left(cursor) > builder->budget) {
		builder->exhausted = true;
		return false;
	}
	builder->budget -= cursor_left(cursor);
	while (cursor_left(cursor) > 0) {
		uint8_t instruction = cursor_u8(cursor);
		uint8_t operand = instruction & 0x3f;

		switch (instruction & 0xc0) {
		case CFA_ADVANCE_LOC:
			advance_by(run, operand);
			break;
		case CFA_OFFSET:
			set_place(run, operand, PLACE_AT_CFA,
				  multiply((int64_t)eh_frame_take_uleb(cursor),
					   run->cie->data_factor));
			break;
		case CFA_RESTORE:
			restore(run, operand);
			break;
		default:
			if (!run_extended(run, cursor, instruction, &depth))
				return false;
		}
		if (cursor->failed)
			return false;
	}
	return true;
}

/* "z" and then a letter for each thing in the augmentation data. */
static bool parse_augmentation(struct eh_frame_cie *cie, const char *letters, struct cursor *cursor,
			       uint64_t address)
{
	uint64_t size;
	size_t end;
	uint64_t unused;

	if (letters[0] == '\0')
		return true;
	if (letters[0] != 'z')
		return false;
	cie->augmented = true;
	size = eh_frame_take_uleb(cursor);
	if (cursor->failed || size > cursor_left(cursor))
		return false;
	end = cursor->offset + (size_t)size;
	for (const char *letter = letters + 1; *letter; letter++) {
		if (*letter == 'R') {
			cie->encoding = cursor_u8(cursor);
		} else if (*letter == 'S') {
			cie->signal = true;
		} else if (*letter == 'L') {
			cursor_u8(cursor);
		} else if (*letter == 'P') {
			/* Where it is does not matter, so indirection does not either. */
			uint8_t encoding = cursor_u8(cursor) & (uint8_t)~POINTER_INDIRECT;

			if (!eh_frame_read_address(cursor, encoding, address + cursor->offset, 0,
						   &unused))
				return false;
		} else if (*letter != 'B') {
			return false;
		}
	}
	return cursor->offset <= end && cursor_seek(cursor, end);
}

static void read_cie(struct eh_frame_builder *builder, const struct eh_frame_bytes *bytes,
		     size_t offset)
{
	struct eh_frame_cie *cie = &builder->cie;
	struct run run;
	struct cursor cursor;
	size_t identity_at;
	uint64_t identity;
	char letters[8];
	uint64_t return_register;
	uint8_t version;
	unsigned count = 0;

	memset(cie, 0, sizeof(*cie));
	cie->offset = offset;
	if (open_record(bytes, offset, &cursor, &identity_at, &identity) != EH_FRAME_CIE)
		return;
	version = cursor_u8(&cursor);
	if (version != 1 && version != 3 && version != 4)
		return;
	do {
		letters[count] = (char)cursor_u8(&cursor);
	} while (letters[count] && ++count < sizeof(letters));
	if (count == sizeof(letters))
		return;
	/* Size of an address and of a segment selector. */
	if (version == 4 && (cursor_u8(&cursor) != 8 || cursor_u8(&cursor) != 0))
		return;
	cie->code_factor = eh_frame_take_uleb(&cursor);
	cie->data_factor = eh_frame_take_sleb(&cursor);
	return_register = version == 1 ? cursor_u8(&cursor) : eh_frame_take_uleb(&cursor);
	if (return_register != EH_FRAME_RETURN_ADDRESS ||
	    !parse_augmentation(cie, letters, &cursor, bytes->address) || cursor.failed)
		return;
	run = (struct run){.builder = builder, .cie = cie, .bytes = bytes};
	if (!run_instructions(&run, &cursor))
		return;
	cie->state = run.state;
	cie->valid = true;
}

bool eh_frame_builder_add(struct eh_frame_builder *builder, const struct eh_frame_bytes *bytes,
			  size_t offset)
{
	const struct eh_frame_cie *cie = &builder->cie;
	struct run run;
	struct cursor cursor;
	size_t identity_at;
	uint64_t identity;
	uint64_t start;
	uint64_t size;

	if (builder->exhausted ||
	    open_record(bytes, offset, &cursor, &identity_at, &identity) != EH_FRAME_FDE ||
	    identity > identity_at)
		return false;
	if (cie->offset != identity_at - (size_t)identity)
		read_cie(builder, bytes, identity_at - (size_t)identity);
	if (!cie->valid ||
	    !eh_frame_read_address(&cursor, cie->encoding, bytes->address + cursor.offset, 0,
				   &start) ||
	    !eh_frame_read_address(&cursor, cie->encoding & POINTER_FORMAT, 0, 0, &size))
		return false;
	if (size == 0 || start < builder->base || start - builder->base > UINT32_MAX ||
	    size > UINT32_MAX - (start - builder->base))
		return false;
	if (cie->augmented) {
		uint64_t data = eh_frame_take_uleb(&cursor);

		if (cursor.failed || data > cursor_left(&cursor))
			return false;
		cursor_skip(&cursor, (size_t)data);
	}
	run = (struct run){.builder = builder,
			   .cie = cie,
			   .bytes = bytes,
			   .rows = true,
			   .address = start,
			   .end = start + size,
			   .state = cie->state};
	if (!run_instructions(&run, &cursor))
		run.state.cfa.kind = EH_FRAME_NO_RULE; /* from here on */
	if (run.state.cfa.kind == EH_FRAME_NO_RULE)
		run.state.registers[EH_FRAME_RETURN_ADDRESS].kind = PLACE_OTHER;
	advance(&run, run.end);
	add_row(builder, run.end, 0, 0);
	return true;
}
