#include "guest-introspection/unwind/unwind.h"

#include "guest-introspection/unwind/unwind_call.h"

#include <string.h>

/* From one stack to another, in one walk. Linux nests a task's stack, a soft interrupt's, an
 * interrupt's, an exception's, an NMI's and a machine check's. */
#define STACK_SWITCH_LIMIT 8

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

/* The values of the words that a rule asks for. */
struct saved_words {
	uint64_t return_address;
	uint64_t code_segment;
	uint64_t gpr[GUEST_REGISTER_COUNT];
};

/* A whole struct pt_regs of Linux is 21 words. */
#define SAVED_BLOCK (24 * 8)

static uint64_t word_at(const uint8_t *bytes, unsigned word)
{
	uint64_t value;
	uint32_t half;

	if (word == 8) {
		memcpy(&value, bytes, 8);
		return value;
	}
	memcpy(&half, bytes, 4);
	return half;
}

/* Reads what `rule` says is stored around `cfa`, with one read where it lies close together. */
static enum translate_result read_saved(struct unwind_context *context,
					const struct unwind_rule *rule, uint64_t base, uint64_t cfa,
					uint64_t mask, struct saved_words *out, bool *rights)
{
	bool interruption = rule->kind == UNWIND_INTERRUPTION;
	unsigned word = context->word;
	int low = rule->return_address;
	int high = rule->return_address + (interruption ? (int)word : 0);
	bool block;
	uint64_t start;
	struct translation translation;
	enum translate_result result;
	uint8_t bytes[SAVED_BLOCK];

	for (unsigned left = rule->saved & ~rule->from_base; left; left &= left - 1) {
		int at = rule->at[__builtin_ctz(left)];

		low = at < low ? at : low;
		high = at > high ? at : high;
	}
	block = high - low <= (int)(SAVED_BLOCK - word);
	/* Too far apart for one read: the return address first. */
	if (!block) {
		low = rule->return_address;
		high = low + (interruption ? (int)word : 0);
	}
	start = unwind_linear(context, context->stack_base, (cfa + (int64_t)low) & mask);
	result = guest_translate_cached(&context->space, &context->cache, context->memory,
					gva(start), &translation);
	if (result != TRANSLATE_OK)
		return result;
	*rights = unwind_privilege_matches(context, &translation);
	if (!*rights)
		return TRANSLATE_OK;
	result = read_translated(context, start, &translation, bytes, (size_t)(high - low) + word);
	if (result != TRANSLATE_OK)
		return result;
	out->return_address = word_at(bytes + (rule->return_address - low), word);
	if (interruption)
		out->code_segment = word_at(bytes + (rule->return_address - low) + word, word);
	for (unsigned left = rule->saved; left; left &= left - 1) {
		unsigned number = (unsigned)__builtin_ctz(left);
		bool from_base = rule->from_base & UNWIND_BIT(number);
		uint64_t from = from_base ? base : cfa;

		if (block && !from_base) {
			out->gpr[number] = word_at(bytes + (rule->at[number] - low), word);
			continue;
		}
		start = unwind_linear(context, context->stack_base,
				      (from + (int64_t)rule->at[number]) & mask);
		out->gpr[number] = 0;
		result = guest_read_virtual(&context->space, &context->cache, context->memory,
					    gva(start), &out->gpr[number], word);
		if (result != TRANSLATE_OK)
			return result;
	}
	return TRANSLATE_OK;
}

/* Base and CFA of the frame; false when the base is not known or the CFA cannot be read. */
static bool find_cfa(struct unwind_context *context, const struct unwind_rule *rule, uint64_t mask,
		     uint64_t *base_out, uint64_t *out, enum stack_end *end)
{
	uint64_t cfa;
	uint64_t base;
	uint64_t word = 0;
	enum translate_result result;

	if (rule->base == UNWIND_BASE_ADDRESS) {
		base = rule->address;
	} else if (rule->base < GUEST_REGISTER_COUNT && (context->known & UNWIND_BIT(rule->base))) {
		base = context->gpr[rule->base];
	} else {
		*end = STACK_END_NO_RULE;
		return false;
	}
	cfa = (base + (int64_t)rule->offset) & mask;
	if (rule->dereference) {
		result = guest_read_virtual(&context->space, &context->cache, context->memory,
					    gva(unwind_linear(context, context->stack_base, cfa)),
					    &word, context->word);
		if (result != TRANSLATE_OK) {
			*end = unwind_end_of_result(result);
			return false;
		}
		cfa = (word + (int64_t)rule->offset_after) & mask;
	}
	*base_out = base;
	*out = cfa;
	return true;
}

/* The stack grows down: a caller's frame is above its callee's. Only interruptions, rules that load
 * a stack pointer and those that say so go over to another stack, which is wherever it is; guests
 * nest these a few levels deep. */
static bool check_stack_pointer(struct unwind_context *context, const struct unwind_rule *rule,
				uint64_t stack_pointer)
{
	uint64_t limit = unwind_frame_limit(context);
	uint64_t now = context->gpr[GUEST_RSP];

	/* Interrupted code may have anything there, such as what is a program's. */
	if (rule->kind == UNWIND_CALL && stack_pointer % context->word != 0)
		return false;
	if (stack_pointer > now && stack_pointer - now <= limit)
		return true;
	return (rule->kind != UNWIND_CALL || rule->dereference || rule->other_stack) &&
	       ++context->stack_switches <= STACK_SWITCH_LIMIT;
}

/* The selectors of user code in Linux's GDT (arch/x86/include/asm/segment.h, __USER32_CS and
 * __USER_CS), which SYSRET fixes at 16 apart. Another one is of a program's own descriptor
 * table and may have any size and base. */
#define USER_CODE_32 0x23
#define USER_CODE_64 0x33

/* The tables that user code runs with. A kernel with page-table isolation has two tables for
 * a process, 4 KiB apart; its own one maps the program's half whole, but not executable from the
 * top entry on (arch/x86/mm/pti.c, __pti_set_user_pgtbl), and would not let a single return
 * address pass. The program's own are then right in everything. */
static void enter_user_space(struct unwind_context *context)
{
	uint64_t addresses[] = {context->pc, context->gpr[GUEST_RSP]};

	context->space = address_space_of(context->cpu);
	unwind_forget_pages(context);
	if (context->space.mode < ADDRESSING_4_LEVEL || !context->space.no_execute)
		return;
	for (unsigned i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		unsigned shift = context->space.mode == ADDRESSING_5_LEVEL ? 48 : 39;
		uint64_t entry;

		if (!guest_memory_read(context->memory,
				       gpa(context->space.root + (addresses[i] >> shift & 511) * 8),
				       &entry, sizeof(entry)) ||
		    !(entry & 1))
			continue;
		if (entry >> 63)
			context->space.root |= X86_ISOLATION_BIT;
		return;
	}
}

/* Goes on in the user code that entered the kernel. Its address is a fact, wherever it points. */
static void enter_user(struct unwind_context *context, uint64_t pc, uint64_t stack_pointer,
		       uint16_t code_segment)
{
	context->user = true;
	context->supervisor_pages = false;
	context->exact = true;
	context->chained = false;
	context->code_base = 0;
	context->stack_base = 0;
	context->word = code_segment == USER_CODE_64 ? 8 : code_segment == USER_CODE_32 ? 4 : 0;
	context->pc = pc;
	context->gpr[GUEST_RSP] = stack_pointer;
	context->known |= UNWIND_BIT(GUEST_RSP);
	if (context->word == 4)
		for (unsigned i = 0; i < GUEST_REGISTER_COUNT; i++)
			context->gpr[i] &= UINT32_MAX;
	enter_user_space(context);
}

static bool evaluate_interruption(struct unwind_context *context, const struct unwind_rule *rule,
				  const struct saved_words *words, enum stack_end *end)
{
	uint64_t stack_pointer = words->gpr[GUEST_RSP];
	struct translation translation;
	enum translate_result result;

	if (rule->kind == UNWIND_INTERRUPTION && (words->code_segment & 3) == 3) {
		for (unsigned left = rule->saved; left; left &= left - 1)
			context->gpr[__builtin_ctz(left)] = words->gpr[__builtin_ctz(left)];
		context->known = (context->known & rule->preserved) | rule->saved;
		enter_user(context, words->return_address, stack_pointer,
			   (uint16_t)words->code_segment);
		return true;
	}
	if (!check_stack_pointer(context, rule, stack_pointer)) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	result = guest_translate_cached(&context->space, &context->cache, context->memory,
					gva(words->return_address), &translation);
	if (result != TRANSLATE_OK) {
		*end = unwind_end_of_result(result);
		return false;
	}
	if (!translation.executable || !unwind_privilege_matches(context, &translation)) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	for (unsigned left = rule->saved; left; left &= left - 1)
		context->gpr[__builtin_ctz(left)] = words->gpr[__builtin_ctz(left)];
	context->known = (context->known & rule->preserved) | rule->saved;
	context->pc = words->return_address;
	context->exact = rule->exact;
	return true;
}

/* Applies `rule` to the frame in `context`, which becomes the caller's frame. False: the
 * stack ends here, for the reason in `end`. */
static bool evaluate(struct unwind_context *context, const struct unwind_rule *rule,
		     enum stack_end *end)
{
	uint64_t mask = context->word == 8 ? UINT64_MAX : UINT32_MAX;
	struct saved_words words;
	enum translate_result result;
	bool rights = true;
	uint64_t base;
	uint64_t cfa;
	uint64_t address;

	if (rule->kind == UNWIND_USER) {
		context->known &= rule->preserved;
		enter_user(context, rule->user.pc, rule->user.stack_pointer,
			   rule->user.code_segment);
		return true;
	}
	if (!find_cfa(context, rule, mask, &base, &cfa, end))
		return false;
	if (rule->kind == UNWIND_CALL && !check_stack_pointer(context, rule, cfa)) {
		*end = STACK_END_BAD_POINTER;
		return false;
	}
	result = read_saved(context, rule, base, cfa, mask, &words, &rights);
	if (result != TRANSLATE_OK || !rights) {
		*end = rights ? unwind_end_of_result(result) : STACK_END_BAD_POINTER;
		return false;
	}
	if (rule->kind != UNWIND_CALL)
		return evaluate_interruption(context, rule, &words, end);
	if (words.return_address == 0) {
		*end = STACK_END_ROOT;
		return false;
	}
	address = unwind_linear(context, context->code_base, words.return_address);
	if (!unwind_check_return_address(context, address, end))
		return false;
	for (unsigned left = rule->saved; left; left &= left - 1)
		context->gpr[__builtin_ctz(left)] = words.gpr[__builtin_ctz(left)];
	context->known = (context->known & rule->preserved) | rule->saved | UNWIND_BIT(GUEST_RSP);
	context->gpr[GUEST_RSP] = cfa;
	context->pc = address;
	context->exact = false;
	return true;
}

static bool translate_leaf(struct unwind_context *context, struct translation *leaf)
{
	return guest_translate_cached(&context->space, &context->cache, context->memory,
				      gva(context->pc), leaf) == TRANSLATE_OK;
}

static void context_init(struct unwind_context *context, const struct guest_memory *memory,
			 const struct unwind_kernel *kernel, const struct unwind_program *program,
			 const struct guest_cpu *cpu)
{
	unsigned code_size = guest_code_size(cpu);
	uint64_t mask = code_size == 64 ? UINT64_MAX : UINT32_MAX;
	struct translation leaf;
	bool mapped = false;

	context->memory = memory;
	context->kernel = NULL;
	context->program = program;
	context->cpu = cpu;
	unwind_forget_pages(context);
	context->word = code_size == 16 ? 0 : code_size / 8;
	context->code_base = code_size == 64 ? 0 : cpu->cs.base;
	context->stack_base = code_size == 64 ? 0 : cpu->ss.base;
	context->user = cpu->cpl == 3;
	context->stack_switches = 0;
	context->exact = true;
	context->frameless = false;
	context->chained = false;
	context->pc = (context->code_base + cpu->rip) & mask;
	context->known = UNWIND_ALL_REGISTERS;
	for (unsigned i = 0; i < GUEST_REGISTER_COUNT; i++)
		context->gpr[i] = cpu->gpr[i] & mask;
	/* Code that the kernel's own tables do not map (firmware, another kernel after kexec) is
	 * not the kernel's. */
	if (kernel && cpu->cpl != 3 && code_size == 64) {
		context->space = kernel->space;
		mapped = translate_leaf(context, &leaf) && !leaf.user;
		if (mapped)
			context->kernel = kernel;
	}
	if (!context->kernel) {
		context->space = address_space_of(cpu);
		mapped = cpu->cpl != 3 && context->space.mode >= ADDRESSING_32_BIT &&
			 translate_leaf(context, &leaf);
	}
	/* A leaf that does not translate says nothing: be strict then. */
	context->supervisor_pages =
		cpu->cpl != 3 && context->space.mode >= ADDRESSING_32_BIT && !(mapped && leaf.user);
}

/* Asks the source that was prepared for the frame's code, and for all else follows frame pointers.
 */
static enum unwind_lookup find_rule(struct unwind_context *context, struct unwind_rule *rule)
{
	const struct unwind_source *source = &unwind_frame_pointer_source;
	const struct unwind_source *prepared = unwind_prepared_source(context);
	enum unwind_lookup lookup;

	rule->from_base = 0;
	rule->other_stack = false;
	if (!prepared)
		return source->find(source, context, rule);
	lookup = prepared->find(prepared, context, rule);
	if (lookup != UNWIND_NOT_FOUND)
		return lookup;
	if (context->user)
		return source->find(source, context, rule);
	/* Generated code. A kernel with a source of its own has a starting point for each stack:
	 * a frame pointer of 0 is not one. */
	lookup = source->find(source, context, rule);
	return lookup == UNWIND_ROOT ? UNWIND_NO_RULE : lookup;
}

struct unwind_stack guest_unwind(const struct guest_memory *memory,
				 const struct unwind_kernel *kernel, const struct guest_cpu *cpu,
				 uint64_t *pcs, unsigned capacity)
{
	return guest_unwind_program(memory, kernel, NULL, cpu, pcs, capacity);
}

struct unwind_stack guest_unwind_program(const struct guest_memory *memory,
					 const struct unwind_kernel *kernel,
					 const struct unwind_program *program,
					 const struct guest_cpu *cpu, uint64_t *pcs,
					 unsigned capacity)
{
	struct unwind_stack stack = {.end = STACK_END_DEPTH_LIMIT};
	struct unwind_context context;
	struct unwind_rule rule;
	enum unwind_step step;
	bool in_user;

	if (capacity == 0)
		return stack;
	context_init(&context, memory, kernel, program, cpu);
	in_user = context.user;
	pcs[stack.count++] = context.pc;
	stack.user_frame = in_user ? 0 : 1;
	/* One step more than fits, to know whether the depth limit cut anything off. */
	for (;;) {
		switch (find_rule(&context, &rule)) {
		case UNWIND_FOUND:
			break;
		case UNWIND_ROOT:
			stack.end = STACK_END_ROOT;
			return stack;
		case UNWIND_NOT_FOUND:
		case UNWIND_NO_RULE:
			stack.end = STACK_END_NO_RULE;
			return stack;
		}
		step = unwind_plain_call(&context, &rule, &stack.end);
		if (step == UNWIND_ENDS ||
		    (step == UNWIND_NOT_PLAIN && !evaluate(&context, &rule, &stack.end)))
			return stack;
		if (stack.count == capacity) {
			stack.end = STACK_END_DEPTH_LIMIT;
			return stack;
		}
		pcs[stack.count++] = context.pc;
		in_user = in_user || context.user;
		if (!in_user)
			stack.user_frame = stack.count;
	}
}
