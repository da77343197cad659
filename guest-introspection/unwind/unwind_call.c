#include "guest-introspection/unwind/unwind_call.h"

/* The longest call that is recognised: FF /2 with SIB and a 32-bit displacement. */
#define LONGEST_CALL 7
#define CODE_BYTES 8 /* a word, which is cheaper to read */

enum stack_end unwind_end_of_result(enum translate_result result)
{
	switch (result) {
	case TRANSLATE_NOT_PRESENT:
		return STACK_END_NOT_PRESENT;
	case TRANSLATE_OUTSIDE_MEMORY:
		return STACK_END_OUTSIDE_MEMORY;
	case TRANSLATE_OK:
	case TRANSLATE_NON_CANONICAL:
	case TRANSLATE_RESERVED:
		break;
	}
	return STACK_END_BAD_POINTER;
}

/* Does the frame run on the page tables of the program that was prepared? Bits below and above the
 * address are no part of it (Intel SDM vol. 3, 4.5: PCID, and LAM's). */
static bool is_program(const struct unwind_context *context)
{
	uint64_t address = (UINT64_C(1) << 52) - 4096;

	return context->user && context->word == 8 && context->program &&
	       ((context->program->root ^ context->space.root) & address & ~X86_ISOLATION_BIT) == 0;
}

const struct unwind_source *unwind_prepared_source(const struct unwind_context *context)
{
	if (context->user)
		return is_program(context) ? context->program->source : NULL;
	return context->kernel ? context->kernel->source : NULL;
}

/* Do the `count` bytes that end at `end` finish with a near call? (Intel SDM vol. 2, CALL:
 * E8 rel32, and FF /2 with each of its operand forms.) A prefix comes before the opcode and
 * changes nothing. */
static bool ends_with_call(const uint8_t *end, unsigned count, bool long_mode)
{
	if (count >= 5 && end[-5] == 0xe8)
		return true;
	for (unsigned length = 2; length <= LONGEST_CALL && length <= count; length++) {
		const uint8_t *opcode = end - length;
		unsigned mod;
		unsigned rm;
		unsigned expected = 2;

		if (opcode[0] != 0xff || (opcode[1] >> 3 & 7) != 2)
			continue;
		mod = opcode[1] >> 6;
		rm = opcode[1] & 7;
		if (mod != 3 && rm == 4) {
			if (length < 3)
				continue;
			expected++;
			if (mod == 0 && (opcode[2] & 7) == 5)
				expected += 4;
		}
		if (mod == 0 && rm == 5) /* RIP-relative, or absolute in 32-bit code */
			expected += 4;
		else if (mod == 1)
			expected += 1;
		else if (mod == 2)
			expected += 4;
		if (length == expected)
			return true;
	}
	/* 32-bit code calls through a far gate with 9A ptr16:32. */
	return !long_mode && count >= 7 && end[-7] == 0x9a;
}

/* Makes `page` the one that `address` is on. Neighbouring frames share it: their stack mostly, and
 * in a kernel of large pages their code. */
static bool go_to(struct unwind_context *context, struct unwind_page *page, uint64_t address,
		  bool code, enum stack_end *end)
{
	struct translation translation;
	uint64_t offset;
	enum translate_result result;

	result = guest_translate_cached(&context->space, &context->cache, context->memory,
					gva(address), &translation);
	if (result != TRANSLATE_OK) {
		*end = unwind_end_of_result(result);
		return false;
	}
	if ((code && !translation.executable) || !unwind_privilege_matches(context, &translation)) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	offset = address & (translation.page_size - 1);
	*page = (struct unwind_page){.start = address - offset,
				     .size = translation.page_size,
				     .gpa = translation.gpa.value - offset};
	return true;
}

static inline bool come_to(struct unwind_context *context, struct unwind_page *page,
			   uint64_t address, bool code, enum stack_end *end)
{
	return address - page->start < page->size || go_to(context, page, address, code, end);
}

/* Reads up to LONGEST_CALL bytes of code that end before `address`, to the end of `buffer`, where
 * they cross a page. */
static unsigned read_code_across(struct unwind_context *context, uint64_t address, unsigned in_page,
				 uint8_t buffer[static CODE_BYTES])
{
	unsigned wanted = address < LONGEST_CALL ? (unsigned)address : LONGEST_CALL;

	for (unsigned attempt = 0; attempt < 2 && wanted > 0; attempt++) {
		if (guest_read_virtual(&context->space, &context->cache, context->memory,
				       gva(address - wanted), buffer + CODE_BYTES - wanted,
				       wanted) == TRANSLATE_OK)
			return wanted;
		if (wanted == in_page)
			break;
		wanted = in_page;
	}
	return 0;
}

/* Mostly they are on the same page as what they return to. */
static inline unsigned read_code_before(struct unwind_context *context, uint64_t address,
					uint8_t buffer[static CODE_BYTES])
{
	const struct unwind_page *page = &context->code_page;
	uint64_t offset = address - page->start;

	if (offset >= CODE_BYTES)
		return guest_memory_read(context->memory, gpa(page->gpa + offset - CODE_BYTES),
					 buffer, CODE_BYTES)
			       ? CODE_BYTES
			       : 0;
	return read_code_across(context, address, (unsigned)offset, buffer);
}

static bool is_behind_call(struct unwind_context *context, uint64_t address, enum stack_end *end)
{
	uint8_t code[CODE_BYTES];
	unsigned count;

	if (!come_to(context, &context->code_page, address, true, end))
		return false;
	count = read_code_before(context, address, code);
	if (!ends_with_call(code + CODE_BYTES, count, context->word == 8)) {
		*end = STACK_END_NO_RULE;
		return false;
	}
	return true;
}

/* Accepts a linear return address, or gives the reason not to. */
bool unwind_check_return_address(struct unwind_context *context, uint64_t address,
				 enum stack_end *end)
{
	const struct unwind_source *source;

	if (is_behind_call(context, address, end))
		return true;
	source = unwind_prepared_source(context);
	if (!source)
		return false;
	return source->vouches_for && source->vouches_for(source, address);
}

bool unwind_is_return_address(struct unwind_context *context, uint64_t address)
{
	enum stack_end end;

	return unwind_check_return_address(context, address, &end);
}

#define RETURN_SLOT (-8)
#define FRAME_POINTER_SLOT (-16)

/* Below the CFA of an ordinary call. */
struct frame_top {
	uint64_t frame_pointer;
	uint64_t return_address;
};

/* Reads the return address and, if the rule has it, the frame pointer. */
static bool read_top(struct unwind_context *context, const struct unwind_rule *rule, uint64_t cfa,
		     struct frame_top *top, enum stack_end *end)
{
	const struct unwind_page *page = &context->stack_page;
	uint64_t offset;
	enum translate_result result;

	if (!come_to(context, &context->stack_page, cfa + RETURN_SLOT, false, end))
		return false;
	offset = cfa - page->start;
	*end = STACK_END_OUTSIDE_MEMORY;
	if (!rule->saved)
		return guest_memory_read(context->memory, gpa(page->gpa + offset + RETURN_SLOT),
					 &top->return_address, sizeof(top->return_address));
	if (rule->at[GUEST_RBP] == FRAME_POINTER_SLOT && offset >= sizeof(*top))
		return guest_memory_read(context->memory,
					 gpa(page->gpa + offset + FRAME_POINTER_SLOT), top,
					 sizeof(*top));
	if (!guest_memory_read(context->memory, gpa(page->gpa + offset + RETURN_SLOT),
			       &top->return_address, sizeof(top->return_address)))
		return false;
	result = guest_read_virtual(&context->space, &context->cache, context->memory,
				    gva(cfa + (uint64_t)(int64_t)rule->at[GUEST_RBP]),
				    &top->frame_pointer, sizeof(top->frame_pointer));
	*end = unwind_end_of_result(result);
	return result == TRANSLATE_OK;
}

/* A rule of an ordinary call in 64-bit code. */
static inline bool is_plain(const struct unwind_context *context, const struct unwind_rule *rule)
{
	return rule->kind == UNWIND_CALL && context->word == 8 && !rule->dereference &&
	       !rule->from_base && rule->return_address == RETURN_SLOT &&
	       !(rule->saved & ~UNWIND_BIT(GUEST_RBP)) && rule->base < GUEST_REGISTER_COUNT &&
	       (context->known & UNWIND_BIT(rule->base));
}

enum unwind_step unwind_plain_call(struct unwind_context *context, const struct unwind_rule *rule,
				   enum stack_end *end)
{
	uint64_t now = context->gpr[GUEST_RSP], cfa;
	struct frame_top top;

	if (!is_plain(context, rule))
		return UNWIND_NOT_PLAIN;
	cfa = context->gpr[rule->base] + (uint64_t)(int64_t)rule->offset;
	/* The stack grows down, in whole words: a caller's frame is above its callee's. */
	if (cfa % 8 != 0 || cfa <= now || cfa - now > unwind_frame_limit(context)) {
		if (rule->other_stack)
			return UNWIND_NOT_PLAIN;
		*end = STACK_END_BAD_POINTER;
		return UNWIND_ENDS;
	}
	if (!read_top(context, rule, cfa, &top, end))
		return UNWIND_ENDS;
	if (!top.return_address) {
		*end = STACK_END_ROOT;
		return UNWIND_ENDS;
	}
	if (!unwind_check_return_address(context, top.return_address, end))
		return UNWIND_ENDS;
	if (rule->saved)
		context->gpr[GUEST_RBP] = top.frame_pointer;
	context->known = (context->known & rule->preserved) | rule->saved | UNWIND_BIT(GUEST_RSP);
	context->gpr[GUEST_RSP] = cfa;
	context->pc = top.return_address;
	context->exact = false;
	return UNWIND_STEPPED;
}
