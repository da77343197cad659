/* The unwind source that is always there: frame pointers, and what the instructions of interrupted
 * code prove. */
#include "guest-introspection/unwind/unwind_source.h"
#include "guest-introspection/unwind/unwind_call.h"
#include "guest-introspection/unwind/unwind_epilogue.h"

#include <string.h>

#define LONGEST_PROLOGUE 13 /* endbr (4), 5-byte nop of ftrace, push, mov */
#define CALL_SIZE 5         /* E8 rel32 */

/* Reads up to `size` bytes of code from linear `address` on; fewer when the next page cannot
 * be read. */
static unsigned read_code(struct unwind_context *context, uint64_t address, uint8_t *buffer,
			  unsigned size)
{
	unsigned first = 4096 - (address & 4095);

	if (guest_read_virtual(&context->space, &context->cache, context->memory, gva(address),
			       buffer, size) == TRANSLATE_OK)
		return size;
	if (first >= size || guest_read_virtual(&context->space, &context->cache, context->memory,
						gva(address), buffer, first) != TRANSLATE_OK)
		return 0;
	return first;
}

/* Where a function's return address can be: the ordinary place, and two while its frame is not
 * (or no longer) set up. */
enum frame_state {
	FRAME_SET_UP,
	FRAME_AT_ENTRY,   /* the return address on top of the stack */
	FRAME_AFTER_PUSH, /* the caller's frame pointer on top of it */
	FRAME_UNPROVEN,
};

static void make_rule(enum frame_state state, unsigned word, struct unwind_rule *rule)
{
	int slot = (int)word;

	rule->kind = UNWIND_CALL;
	rule->base = state == FRAME_SET_UP ? GUEST_RBP : GUEST_RSP;
	rule->dereference = false;
	rule->offset = state == FRAME_AT_ENTRY ? slot : 2 * slot;
	rule->return_address = -slot;
	rule->saved = state == FRAME_AT_ENTRY ? 0 : UNWIND_BIT(GUEST_RBP);
	rule->preserved = state == FRAME_AT_ENTRY ? UNWIND_BIT(GUEST_RBP) : 0;
	rule->at[GUEST_RBP] = (int16_t)(-2 * slot);
}

/* Length of "mov rbp, rsp" (both encodings) at `code`, 0 when it is something else. */
static unsigned match_frame_move(const uint8_t *code, unsigned count, bool long_mode)
{
	unsigned rex = long_mode ? 1 : 0;

	if (count < rex + 2 || (long_mode && code[0] != 0x48))
		return 0;
	if ((code[rex] == 0x89 && code[rex + 1] == 0xe5) ||
	    (code[rex] == 0x8b && code[rex + 1] == 0xec))
		return rex + 2;
	return 0;
}

/* ret, ret imm16, rep ret */
static bool match_return(const uint8_t *code, unsigned count)
{
	return (count >= 1 && (code[0] == 0xc3 || code[0] == 0xc2)) ||
	       (count >= 2 && code[0] == 0xf3 && code[1] == 0xc3);
}

/* [endbr] [5-byte nop of function tracing] push rbp; mov rbp, rsp */
static bool match_prologue(const uint8_t *code, unsigned count, bool long_mode)
{
	static const uint8_t trace_nop[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};
	unsigned at = 0;

	if (count >= 4 && code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e &&
	    code[3] == (long_mode ? 0xfa : 0xfb))
		at = 4;
	if (count - at >= sizeof(trace_nop) && memcmp(code + at, trace_nop, sizeof(trace_nop)) == 0)
		at += sizeof(trace_nop);
	return at < count && code[at] == 0x55 &&
	       match_frame_move(code + at + 1, count - at - 1, long_mode) != 0;
}

/* What the instructions of an interrupted frame prove of it. FRAME_UNPROVEN: nothing. */
static enum frame_state repair_leaf(struct unwind_context *context)
{
	uint8_t code[LONGEST_PROLOGUE];
	bool long_mode = context->word == 8;
	unsigned count = read_code(context, context->pc, code, sizeof(code));
	uint8_t before = 0;

	if (count == 0)
		return FRAME_UNPROVEN;
	/* Most leaves are elsewhere in a function: look further only for these bytes. */
	switch (code[0]) {
	case 0x55: /* push rbp */
	case 0x0f: /* nop */
	case 0xf3: /* endbr, rep ret */
	case 0xc3: /* ret */
	case 0xc2:
		if (match_return(code, count) || match_prologue(code, count, long_mode))
			return FRAME_AT_ENTRY;
		return FRAME_UNPROVEN;
	case 0x5d: /* pop rbp, then return or a jump to the last callee */
		if (match_return(code + 1, count - 1) || (count > 1 && code[1] == 0xe9))
			return FRAME_AFTER_PUSH;
		return FRAME_UNPROVEN;
	case 0x48: /* mov rbp, rsp */
	case 0x89:
	case 0x8b:
	case 0xe9: /* jmp */
		break;
	default:
		return FRAME_UNPROVEN;
	}
	if (!unwind_read(context, context->pc - 1, &before, 1))
		return FRAME_UNPROVEN;
	if (before == 0x55 && match_frame_move(code, count, long_mode))
		return FRAME_AFTER_PUSH;
	/* The frame is gone already: leave or pop rbp comes before the tail jump. */
	if (code[0] == 0xe9 && (before == 0xc9 || before == 0x5d))
		return FRAME_AT_ENTRY;
	return FRAME_UNPROVEN;
}

/* The rule of an interrupted frame by the return ahead of it; only when what is there is a return
 * address indeed. */
static bool find_by_epilogue(struct unwind_context *context, struct unwind_rule *rule)
{
	struct unwind_epilogue epilogue;
	uint64_t address = 0;
	int word = (int)context->word;
	int cfa;

	if (!unwind_find_epilogue(context, &epilogue))
		return false;
	cfa = (int)epilogue.return_address + word;
	address = unwind_linear(context, context->stack_base,
				context->gpr[GUEST_RSP] + epilogue.return_address);
	if (guest_read_virtual(&context->space, &context->cache, context->memory, gva(address),
			       &rule->address, context->word) != TRANSLATE_OK)
		return false;
	address = context->word == 8 ? rule->address : (uint32_t)rule->address;
	if (!unwind_is_return_address(context, unwind_linear(context, context->code_base, address)))
		return false;
	rule->kind = UNWIND_CALL;
	rule->base = GUEST_RSP;
	rule->dereference = false;
	rule->offset = cfa;
	rule->return_address = -word;
	rule->saved = epilogue.frame_pointer_saved ? UNWIND_BIT(GUEST_RBP) : 0;
	rule->preserved = epilogue.frame_pointer_saved ? 0 : UNWIND_BIT(GUEST_RBP);
	rule->at[GUEST_RBP] = (int16_t)((int)epilogue.frame_pointer - cfa);
	return cfa - (int)epilogue.frame_pointer <= INT16_MAX;
}

/* Does the call right before `address` go to a function that sets up a frame pointer? */
static bool calls_framed_function(struct unwind_context *context, uint64_t address)
{
	uint8_t call[CALL_SIZE], code[LONGEST_PROLOGUE];
	int32_t distance;
	unsigned count;

	if (!unwind_read(context, address - sizeof(call), call, sizeof(call)) || call[0] != 0xe8)
		return false;
	memcpy(&distance, call + 1, sizeof(distance));
	address += (uint64_t)(int64_t)distance;
	if (context->word == 4)
		address &= UINT32_MAX;
	count = read_code(context, address, code, sizeof(code));
	return count > 0 && match_prologue(code, count, context->word == 8);
}

/* Is RBP a frame pointer? In code without them it may be any pointer, and one to a variable that
 * happens to lie below a return address would leave out the frames between. What a frame pointer
 * points to is the caller's, further up the stack, or 0 in an outermost function. The first of a
 * chain may have found anything else to store, but then it is known which function stored it. */
static bool is_frame_pointer(struct unwind_context *context)
{
	uint64_t mask = context->word == 8 ? UINT64_MAX : UINT32_MAX;
	uint64_t pointer = context->gpr[GUEST_RBP], words[2] = {0};
	uint64_t at = unwind_linear(context, context->stack_base, pointer);

	/* One that does not point to the stack: following it gives the reason for the end. */
	if (((pointer - context->gpr[GUEST_RSP]) & mask) > unwind_frame_limit(context) ||
	    !unwind_read(context, at, words, 2 * context->word))
		return true;
	if (context->word == 4) {
		words[1] = words[0] >> 32;
		words[0] &= mask;
	}
	if (!words[0] || !words[1] ||
	    ((words[0] - pointer) & mask) - 1 < unwind_frame_limit(context))
		return true;
	return calls_framed_function(context, unwind_linear(context, context->code_base, words[1]));
}

static enum unwind_lookup find_by_frame_pointer(const struct unwind_source *source,
						struct unwind_context *context,
						struct unwind_rule *rule)
{
	enum frame_state state;

	(void)source;
	if (context->word == 0)
		return UNWIND_NOT_FOUND;
	state = context->exact ? repair_leaf(context) : FRAME_UNPROVEN;
	/* Where one function has no frame pointer its caller may have none, either, as in a library
	 * below a program that has them. */
	if (state == FRAME_UNPROVEN && (context->exact || context->frameless)) {
		context->frameless = find_by_epilogue(context, rule);
		if (context->frameless)
			return UNWIND_FOUND;
	}
	if (state == FRAME_UNPROVEN) {
		if (!(context->known & UNWIND_BIT(GUEST_RBP)))
			return UNWIND_NOT_FOUND;
		if (context->gpr[GUEST_RBP] == 0)
			return UNWIND_ROOT;
		/* Where there are tables, code that is not in them was generated, with frame
		 * pointers. */
		if (!context->chained && !unwind_prepared_source(context) &&
		    !is_frame_pointer(context))
			return UNWIND_NOT_FOUND;
		context->chained = true;
		state = FRAME_SET_UP;
	}
	make_rule(state, context->word, rule);
	return UNWIND_FOUND;
}

const struct unwind_source unwind_frame_pointer_source = {.find = find_by_frame_pointer};
