#include "guest-introspection/elf/eh_frame_rules.h"

#include <string.h>

#define STACK_POINTER 7u

const uint8_t eh_frame_guest_numbers[EH_FRAME_GENERAL_REGISTERS] = {
	GUEST_RAX, GUEST_RDX, GUEST_RCX, GUEST_RBX, GUEST_RSI, GUEST_RDI, GUEST_RBP, GUEST_RSP,
	GUEST_R8,  GUEST_R9,  GUEST_R10, GUEST_R11, GUEST_R12, GUEST_R13, GUEST_R14, GUEST_R15,
};

/* What a function leaves as it was (System V ABI for x86-64, 3.2.1), in DWARF's numbers. */
#define CALLEE_SAVED (1u << 3 | 1u << 6 | 1u << 12 | 1u << 13 | 1u << 14 | 1u << 15)

/* DW_OP_*: DWARF 5, 7.7.1. */
enum operation {
	OP_DEREF = 0x06,
	OP_PLUS_UCONST = 0x23,
	OP_LIT0 = 0x30,
	OP_BREG0 = 0x70,
	OP_BREGX = 0x92,
};

static uint64_t take_leb128(struct cursor *cursor, bool is_signed)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t byte = cursor_u8(cursor);

		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		if (is_signed && shift + 7 < 64 && byte & 0x40)
			value |= UINT64_MAX << (shift + 7);
		return value;
	}
	cursor->failed = true;
	return 0;
}

uint64_t eh_frame_take_uleb(struct cursor *cursor)
{
	return take_leb128(cursor, false);
}

int64_t eh_frame_take_sleb(struct cursor *cursor)
{
	return (int64_t)take_leb128(cursor, true);
}

bool eh_frame_read_address(struct cursor *cursor, uint8_t encoding, uint64_t position,
			   uint64_t data, uint64_t *out)
{
	uint64_t value;

	if (encoding == POINTER_OMITTED || encoding & POINTER_INDIRECT)
		return false;
	switch (encoding & POINTER_FORMAT) {
	case POINTER_ABSOLUTE:
	case POINTER_UDATA8:
	case POINTER_SDATA8:
		value = cursor_u64(cursor);
		break;
	case POINTER_ULEB128:
		value = eh_frame_take_uleb(cursor);
		break;
	case POINTER_UDATA2:
		value = cursor_u16(cursor);
		break;
	case POINTER_UDATA4:
		value = cursor_u32(cursor);
		break;
	case POINTER_SLEB128:
		value = (uint64_t)eh_frame_take_sleb(cursor);
		break;
	case POINTER_SDATA2:
		value = (uint64_t)(int64_t)(int16_t)cursor_u16(cursor);
		break;
	case POINTER_SDATA4:
		value = (uint64_t)(int64_t)(int32_t)cursor_u32(cursor);
		break;
	default:
		return false;
	}
	switch (encoding & POINTER_RELATION) {
	case 0:
		break;
	case POINTER_PC_RELATIVE:
		value += position;
		break;
	case POINTER_DATA_RELATIVE:
		value += data;
		break;
	default:
		return false;
	}
	*out = value;
	return !cursor->failed;
}

/* Expressions. */

/* The stubs of a procedure linkage table: rsp + 8, and a word more when so many bytes of the entry
 * were run (GNU ld and gold write this very expression). */
static bool parse_linkage(struct cursor cursor, struct eh_frame_rule *cfa)
{
	static const uint8_t before[] = {0x80, 0x00, 0x3f, 0x1a}; /* rip + 0, 15, and */
	static const uint8_t after[] = {0x2a, 0x33, 0x24, 0x22};  /* ge, 3, shl, plus */
	const uint8_t *rest = cursor_bytes(&cursor, sizeof(before) + 1 + sizeof(after));
	uint8_t limit;

	if (!rest || cursor_left(&cursor) != 0 || memcmp(rest, before, sizeof(before)) != 0 ||
	    memcmp(rest + sizeof(before) + 1, after, sizeof(after)) != 0)
		return false;
	limit = rest[sizeof(before)];
	if (limit < OP_LIT0 || limit > OP_LIT0 + 15)
		return false;
	cfa->kind = EH_FRAME_LINKAGE;
	cfa->threshold = limit - OP_LIT0;
	return true;
}

struct eh_frame_rule eh_frame_parse_expression(struct cursor *whole)
{
	struct eh_frame_rule none = {0};
	struct eh_frame_rule cfa = {0};
	uint64_t size = eh_frame_take_uleb(whole);
	const uint8_t *bytes =
		size <= cursor_left(whole) ? cursor_bytes(whole, (size_t)size) : NULL;
	struct cursor cursor;
	uint64_t number;
	int64_t offset;
	int64_t after = 0;
	uint8_t operation;

	if (!bytes) {
		whole->failed = true;
		return none;
	}
	cursor = cursor_over(bytes, (size_t)size);
	operation = cursor_u8(&cursor);
	number = operation == OP_BREGX ? eh_frame_take_uleb(&cursor)
				       : (uint64_t)operation - OP_BREG0;
	offset = eh_frame_take_sleb(&cursor);
	if (cursor.failed || number >= EH_FRAME_GENERAL_REGISTERS)
		return none;
	cfa.kind = EH_FRAME_CALL;
	cfa.base = eh_frame_guest_numbers[number];
	if (!parse_linkage(cursor, &cfa)) {
		while (cursor_left(&cursor) > 0) {
			int64_t *sum = cfa.dereference ? &after : &offset;

			operation = cursor_u8(&cursor);
			if (operation == OP_DEREF && !cfa.dereference)
				cfa.dereference = true;
			else if (operation == OP_PLUS_UCONST)
				*sum = (int64_t)((uint64_t)*sum + eh_frame_take_uleb(&cursor));
			else
				return none;
		}
	}
	if (cursor.failed || offset != (int32_t)offset || after != (int32_t)after)
		return none;
	cfa.offset = (int32_t)offset;
	cfa.offset_after = (int32_t)after;
	return cfa;
}

/* Rules. */

static bool add_place(struct eh_frame_rule *rule, unsigned number,
		      const struct eh_frame_place *place, bool from_base)
{
	if (place->offset != (int16_t)place->offset)
		return false;
	rule->saved |= (uint16_t)(1u << eh_frame_guest_numbers[number]);
	if (from_base)
		rule->from_base |= (uint16_t)(1u << eh_frame_guest_numbers[number]);
	rule->at[eh_frame_guest_numbers[number]] = (int16_t)place->offset;
	return true;
}

/* The frame that the kernel makes for a signal: everything at the same register + n. That what
 * glibc says of __restore_rt (sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c). */
static struct eh_frame_rule make_signal_rule(const struct eh_frame_state *state)
{
	const struct eh_frame_rule none = {0};
	const struct eh_frame_place *address = &state->registers[EH_FRAME_RETURN_ADDRESS];
	struct eh_frame_place stack = {PLACE_AT_BASE, 0, state->cfa.offset};
	struct eh_frame_rule rule = {.kind = EH_FRAME_SIGNAL, .base = state->cfa.base};

	if (state->cfa.kind != EH_FRAME_CALL || !state->cfa.dereference ||
	    state->cfa.offset_after != 0 || address->kind != PLACE_AT_BASE ||
	    eh_frame_guest_numbers[address->base] != rule.base ||
	    address->offset != (int32_t)address->offset ||
	    !add_place(&rule, STACK_POINTER, &stack, false))
		return none;
	rule.return_address = (int32_t)address->offset;
	for (unsigned i = 0; i < EH_FRAME_GENERAL_REGISTERS; i++) {
		const struct eh_frame_place *place = &state->registers[i];

		if (i != STACK_POINTER && place->kind == PLACE_AT_BASE &&
		    eh_frame_guest_numbers[place->base] == rule.base)
			add_place(&rule, i, place, false);
	}
	return rule;
}

struct eh_frame_rule eh_frame_make_rule(const struct eh_frame_state *state, bool signal)
{
	const struct eh_frame_rule none = {0};
	const struct eh_frame_place *address = &state->registers[EH_FRAME_RETURN_ADDRESS];
	struct eh_frame_rule rule = state->cfa;

	if (address->kind == PLACE_UNDEFINED)
		return (struct eh_frame_rule){.kind = EH_FRAME_ROOT};
	if (signal)
		return make_signal_rule(state);
	/* A caller whose stack pointer is not the CFA: code that changes stacks. */
	if (rule.kind == EH_FRAME_NO_RULE || address->kind != PLACE_AT_CFA ||
	    address->offset != (int32_t)address->offset ||
	    state->registers[STACK_POINTER].kind > PLACE_SAME)
		return none;
	rule.return_address = (int32_t)address->offset;
	for (unsigned i = 0; i < EH_FRAME_GENERAL_REGISTERS; i++) {
		const struct eh_frame_place *place = &state->registers[i];

		if (i == STACK_POINTER)
			continue;
		if (place->kind == PLACE_SAME ||
		    (place->kind == PLACE_DEFAULT && CALLEE_SAVED >> i & 1))
			rule.preserved |= (uint16_t)(1u << eh_frame_guest_numbers[i]);
		else if (place->kind == PLACE_AT_CFA)
			add_place(&rule, i, place, false);
		else if (place->kind == PLACE_AT_BASE &&
			 eh_frame_guest_numbers[place->base] == rule.base)
			add_place(&rule, i, place, true);
	}
	return rule;
}
