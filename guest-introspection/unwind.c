#include "guest-introspection/unwind.h"

#include <string.h>

/* The biggest step from one frame to the next. Kernel stacks are 16 or 32 KiB on Linux;
 * other systems and unikernels get room. Beyond it a "frame pointer" is just a register. */
#define FRAME_SIZE_LIMIT_SUPERVISOR (UINT64_C(1) << 18)
#define FRAME_SIZE_LIMIT_USER (UINT64_C(1) << 24)

/* The longest call that is recognised: FF /2 with SIB and a 32-bit displacement. */
#define LONGEST_CALL 7
#define LONGEST_PROLOGUE 13 /* endbr (4), 5-byte nop of ftrace, push, mov */

const char *stack_end_string(enum stack_end end)
{
	switch (end) {
	case STACK_END_ROOT:
		return "root reached";
	case STACK_END_DEPTH_LIMIT:
		return "depth limit";
	case STACK_END_NOT_PRESENT:
		return "page not present";
	case STACK_END_BAD_POINTER:
		return "bad pointer";
	case STACK_END_OUTSIDE_MEMORY:
		return "outside memory";
	case STACK_END_NO_RULE:
		return "no rule";
	}
	return "unknown";
}

static enum stack_end end_of_result(enum translate_result result)
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

/* Offset in a segment to linear address, with the wrap of the mode. */
static uint64_t linear(const struct unwind_context *context, uint64_t base, uint64_t offset)
{
	return context->word == 8 ? offset : (uint32_t)(base + offset);
}

/* Does a page with these rights belong to code of the leaf's privilege? */
static bool privilege_matches(const struct unwind_context *context,
			      const struct translation *translation)
{
	if (context->user)
		return translation->user;
	return !context->supervisor_pages || !translation->user;
}

/* Do the `count` bytes that end at `end` finish with a near call? (Intel SDM vol. 2, CALL:
 * E8 rel32, and FF /2 with each of its operand forms.) A prefix stands before the opcode and
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

/* Reads up to LONGEST_CALL bytes that end before `address`, to the end of `buffer`. `translation`
 * is that of `address`: mostly the bytes are on the same page. */
static unsigned read_code_before(struct unwind_context *context, uint64_t address,
				 const struct translation *translation,
				 uint8_t buffer[static LONGEST_CALL])
{
	unsigned in_page = (address & 4095) < LONGEST_CALL ? address & 4095 : LONGEST_CALL;
	unsigned wanted = address < LONGEST_CALL ? (unsigned)address : LONGEST_CALL;

	if (in_page == LONGEST_CALL)
		return guest_memory_read(context->memory,
					 gpa(translation->gpa.value - LONGEST_CALL), buffer,
					 LONGEST_CALL)
			       ? LONGEST_CALL
			       : 0;
	for (unsigned attempt = 0; attempt < 2 && wanted > 0; attempt++) {
		if (guest_read_virtual(&context->space, &context->cache, context->memory,
				       gva(address - wanted), buffer + LONGEST_CALL - wanted,
				       wanted) == TRANSLATE_OK)
			return wanted;
		if (wanted == in_page)
			break;
		wanted = in_page;
	}
	return 0;
}

/* guest_read_virtual() from an address whose translation is known. */
static enum translate_result read_translated(struct unwind_context *context, uint64_t address,
					     const struct translation *translation, void *buffer,
					     size_t size)
{
	if ((address & 4095) + size > 4096)
		return guest_read_virtual(&context->space, &context->cache, context->memory,
					  gva(address), buffer, size);
	return guest_memory_read(context->memory, translation->gpa, buffer, size)
		       ? TRANSLATE_OK
		       : TRANSLATE_OUTSIDE_MEMORY;
}

/* Accepts a linear return address, or gives the reason not to. */
static bool check_return_address(struct unwind_context *context, uint64_t address,
				 enum stack_end *end)
{
	struct translation translation;
	uint8_t code[LONGEST_CALL];
	unsigned count;
	enum translate_result result = guest_translate_cached(
		&context->space, &context->cache, context->memory, gva(address), &translation);

	if (result != TRANSLATE_OK) {
		*end = end_of_result(result);
		return false;
	}
	if (!translation.executable || !privilege_matches(context, &translation)) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	count = read_code_before(context, address, &translation, code);
	if (!ends_with_call(code + LONGEST_CALL, count, context->word == 8)) {
		*end = STACK_END_NO_RULE;
		return false;
	}
	return true;
}

/* Applies `rule` to the frame in `context`, which becomes the caller's frame. False: the
 * stack ends here, for the reason in `end`. */
static bool evaluate(struct unwind_context *context, const struct unwind_rule *rule,
		     enum stack_end *end)
{
	unsigned word = context->word;
	uint64_t mask = word == 8 ? UINT64_MAX : UINT32_MAX;
	uint64_t limit = context->user ? FRAME_SIZE_LIMIT_USER : FRAME_SIZE_LIMIT_SUPERVISOR;
	uint64_t base = rule->base == UNWIND_FROM_STACK_POINTER ? context->stack_pointer
								: context->frame_pointer;
	uint64_t cfa = (base + (int64_t)rule->cfa * word) & mask;
	uint64_t frame_pointer = context->frame_pointer;
	uint64_t slots[2] = {0}; /* [saved frame pointer, if next to it,] return address */
	unsigned count = rule->frame_pointer_saved ? 2 : 1;
	struct translation translation;
	enum translate_result result;
	uint64_t low;
	uint64_t address;

	/* The stack grows down: a caller's frame is above its callee's. */
	if (cfa <= context->stack_pointer || cfa - context->stack_pointer > limit ||
	    cfa % word != 0) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	if (rule->frame_pointer_saved && rule->frame_pointer + 1 != rule->return_address)
		count = 1;
	low = (cfa + (int64_t)(rule->return_address - (int)count + 1) * word) & mask;
	low = linear(context, context->stack_base, low);
	result = guest_translate_cached(&context->space, &context->cache, context->memory, gva(low),
					&translation);
	if (result == TRANSLATE_OK && !privilege_matches(context, &translation)) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	if (result == TRANSLATE_OK) {
		uint8_t bytes[sizeof(slots)];

		result = read_translated(context, low, &translation, bytes, (size_t)count * word);
		for (unsigned i = 0; result == TRANSLATE_OK && i < count; i++)
			memcpy(&slots[i], bytes + (size_t)i * word, word);
	}
	if (result == TRANSLATE_OK && rule->frame_pointer_saved && count == 1) {
		frame_pointer = 0;
		low = linear(context, context->stack_base,
			     (cfa + (int64_t)rule->frame_pointer * word) & mask);
		result = guest_read_virtual(&context->space, &context->cache, context->memory,
					    gva(low), &frame_pointer, word);
	}
	if (result != TRANSLATE_OK) {
		*end = end_of_result(result);
		return false;
	}
	address = slots[count - 1];
	if (count == 2)
		frame_pointer = slots[0];
	if (address == 0) {
		*end = STACK_END_ROOT;
		return false;
	}
	address = linear(context, context->code_base, address);
	if (!check_return_address(context, address, end))
		return false;
	context->pc = address;
	context->stack_pointer = cfa;
	context->frame_pointer = frame_pointer;
	context->depth++;
	return true;
}

/* The three places a function's return address can be while its frame is not (or no longer)
 * set up, and the ordinary one. */
static const struct unwind_rule rule_frame = {
	.base = UNWIND_FROM_FRAME_POINTER,
	.cfa = 2,
	.return_address = -1,
	.frame_pointer_saved = true,
	.frame_pointer = -2,
};
static const struct unwind_rule rule_at_entry = {
	.base = UNWIND_FROM_STACK_POINTER,
	.cfa = 1,
	.return_address = -1,
};
static const struct unwind_rule rule_after_push = {
	.base = UNWIND_FROM_STACK_POINTER,
	.cfa = 2,
	.return_address = -1,
	.frame_pointer_saved = true,
	.frame_pointer = -2,
};

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

/* The rule of a leaf, where its instructions prove that the frame pointer does not lead to
 * its caller. NULL: they prove nothing. */
static const struct unwind_rule *repair_leaf(struct unwind_context *context)
{
	uint8_t code[LONGEST_PROLOGUE];
	bool long_mode = context->word == 8;
	unsigned count = read_code(context, context->pc, code, sizeof(code));
	uint8_t before = 0;
	bool before_known;

	if (count == 0)
		return NULL;
	/* Most leaves are elsewhere in a function: look further only for these bytes. */
	switch (code[0]) {
	case 0x55: /* push rbp */
	case 0x0f: /* nop */
	case 0xf3: /* endbr, rep ret */
	case 0xc3: /* ret */
	case 0xc2:
		if (match_return(code, count) || match_prologue(code, count, long_mode))
			return &rule_at_entry;
		return NULL;
	case 0x5d: /* pop rbp, then return or a jump to the last callee */
		if (match_return(code + 1, count - 1) || (count > 1 && code[1] == 0xe9))
			return &rule_after_push;
		return NULL;
	case 0x48: /* mov rbp, rsp */
	case 0x89:
	case 0x8b:
	case 0xe9: /* jmp */
		break;
	default:
		return NULL;
	}
	before_known = guest_read_virtual(&context->space, &context->cache, context->memory,
					  gva(context->pc - 1), &before, 1) == TRANSLATE_OK;
	if (!before_known)
		return NULL;
	if (before == 0x55 && match_frame_move(code, count, long_mode))
		return &rule_after_push;
	/* The frame is gone already: leave or pop rbp stands before the tail jump. */
	if (code[0] == 0xe9 && (before == 0xc9 || before == 0x5d))
		return &rule_at_entry;
	return NULL;
}

static enum unwind_lookup find_by_frame_pointer(const struct unwind_source *source,
						struct unwind_context *context,
						struct unwind_rule *rule)
{
	const struct unwind_rule *repaired;

	(void)source;
	if (context->word == 0)
		return UNWIND_NOT_FOUND;
	if (context->depth == 0) {
		repaired = repair_leaf(context);
		if (repaired) {
			*rule = *repaired;
			return UNWIND_FOUND;
		}
	}
	if (context->frame_pointer == 0)
		return UNWIND_ROOT;
	*rule = rule_frame;
	return UNWIND_FOUND;
}

const struct unwind_source unwind_frame_pointer_source = {.find = find_by_frame_pointer};

static void context_init(struct unwind_context *context, const struct guest_memory *memory,
			 const struct guest_cpu *cpu)
{
	unsigned code_size = guest_code_size(cpu);
	uint64_t mask = code_size == 64 ? UINT64_MAX : UINT32_MAX;
	struct translation leaf;

	context->memory = memory;
	context->space = address_space_of(cpu);
	translation_cache_clear(&context->cache);
	context->word = code_size == 16 ? 0 : code_size / 8;
	context->code_base = code_size == 64 ? 0 : cpu->cs.base;
	context->stack_base = code_size == 64 ? 0 : cpu->ss.base;
	context->user = cpu->cpl == 3;
	context->depth = 0;
	context->pc = (context->code_base + cpu->rip) & mask;
	context->stack_pointer = cpu->gpr[GUEST_RSP] & mask;
	context->frame_pointer = cpu->gpr[GUEST_RBP] & mask;
	/* A leaf that does not translate says nothing: be strict then. */
	context->supervisor_pages =
		cpu->cpl != 3 && context->space.mode >= ADDRESSING_32_BIT &&
		!(guest_translate_cached(&context->space, &context->cache, memory, gva(context->pc),
					 &leaf) == TRANSLATE_OK &&
		  leaf.user);
}

struct unwind_stack guest_unwind(const struct guest_memory *memory, const struct guest_cpu *cpu,
				 uint64_t *pcs, unsigned capacity)
{
	const struct unwind_source *source = &unwind_frame_pointer_source;
	struct unwind_stack stack = {.count = 0, .end = STACK_END_DEPTH_LIMIT};
	struct unwind_context context;
	struct unwind_rule rule;

	if (capacity == 0)
		return stack;
	context_init(&context, memory, cpu);
	pcs[stack.count++] = context.pc;
	/* One step more than fits, to know whether the depth limit cut anything off. */
	for (;;) {
		switch (source->find(source, &context, &rule)) {
		case UNWIND_FOUND:
			break;
		case UNWIND_ROOT:
			stack.end = STACK_END_ROOT;
			return stack;
		case UNWIND_NOT_FOUND:
			stack.end = STACK_END_NO_RULE;
			return stack;
		}
		if (!evaluate(&context, &rule, &stack.end))
			return stack;
		if (stack.count == capacity) {
			stack.end = STACK_END_DEPTH_LIMIT;
			return stack;
		}
		pcs[stack.count++] = context.pc;
	}
}
