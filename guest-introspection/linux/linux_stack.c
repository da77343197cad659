#include "guest-introspection/linux/linux_stack.h"

#include "base/container.h"
#include "guest-introspection/linux/linux_reader.h"
#include "guest-introspection/linux/linux_stack_rules.h"

#include <stdlib.h>
#include <string.h>

/* The symbols that are needed. */
struct places {
	struct range switching;
	struct range entry_text;
	struct range start_text;
	struct range fork;
	struct range retpolines;
	struct range thunks;
	uint64_t syscall_64;
	uint64_t syscall_64_end;
	uint64_t syscall_32;
	struct range syscall_32_leaving;
	bool fork_is_assembly;
};

static bool begins_with(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

static void widen(struct range *range, const struct symbol *symbol, uint64_t size)
{
	if (range->end == 0 || symbol->start < range->start)
		range->start = symbol->start;
	if (symbol->start + size > range->end)
		range->end = symbol->start + size;
}

static void note_place(struct places *places, const struct symbol *symbol)
{
	const char *name = symbol->name;

	if (strcmp(name, "__entry_text_start") == 0) {
		places->entry_text.start = symbol->start;
	} else if (strcmp(name, "__entry_text_end") == 0) {
		places->entry_text.end = symbol->start;
	} else if (strcmp(name, "_sinittext") == 0) {
		places->start_text.start = symbol->start;
	} else if (strcmp(name, "_einittext") == 0) {
		places->start_text.end = symbol->start;
	} else if (strcmp(name, "entry_SYSCALL_64") == 0) {
		places->syscall_64 = symbol->start;
	} else if (strcmp(name, "entry_SYSRETQ_end") == 0) {
		places->syscall_64_end = symbol->start;
	} else if (strcmp(name, "entry_SYSCALL_compat") == 0) {
		places->syscall_32 = symbol->start;
	} else if (strcmp(name, "entry_SYSRETL_compat_unsafe_stack") == 0) {
		places->syscall_32_leaving.start = symbol->start;
	} else if (strcmp(name, "entry_SYSRETL_compat_end") == 0) {
		places->syscall_32_leaving.end = symbol->start;
	} else if (strcmp(name, "__switch_to_asm") == 0) {
		places->switching = (struct range){symbol->start, symbol->start + symbol->size};
	} else if (strcmp(name, "ret_from_fork_asm") == 0) {
		places->fork = (struct range){symbol->start, symbol->start + symbol->size};
		places->fork_is_assembly = true;
	} else if (strcmp(name, "ret_from_fork") == 0 && !places->fork_is_assembly) {
		places->fork = (struct range){symbol->start, symbol->start + symbol->size};
	} else if (strcmp(name, "__x86_return_thunk") == 0) {
		widen(&places->thunks, symbol, 32);
	} else if (begins_with(name, "__x86_indirect_")) {
		/* Each is 32 or 64 bytes long; symbols' sizes go on to whatever is next. */
		widen(&places->thunks, symbol, 32);
		if (begins_with(name, "__x86_indirect_thunk_"))
			widen(&places->retpolines, symbol, 32);
	}
}

static struct places find_places(const struct symbol_table *symbols)
{
	struct places places = {0};

	for (size_t i = 0; i < symbols->count; i++) {
		struct symbol symbol = symbol_table_get(symbols, i);

		if (symbol.name[0] == '_' || symbol.name[0] == 'e' || symbol.name[0] == 'r')
			note_place(&places, &symbol);
	}
	return places;
}

/* Where ORC first says something from `address` on, within the entry code's next page. */
static uint64_t end_of_no_rule(const struct orc *orc, uint64_t address)
{
	for (uint64_t at = address; at < address + 4096; at++) {
		const struct orc_entry *entry = orc_find(orc, at);

		if (!entry || entry->type != ORC_END)
			return at;
	}
	return address;
}

/* Where the first instruction like one of these stands, that saves the user's RSP. */
static uint64_t find_save(const struct guest_memory *memory, const struct address_space *space,
			  const struct range *range)
{
	static const struct {
		uint8_t bytes[5];
		uint8_t size;
	} saves[] = {
		{{0x65, 0x48, 0x89, 0x24, 0x25}, 5}, /* mov %rsp, %gs:disp32 */
		{{0x65, 0x48, 0x89, 0x25}, 4},       /* mov %rsp, %gs:disp32(%rip) */
		{{0x41, 0x89, 0xe0}, 3},             /* mov %esp, %r8d */
	};
	struct linux_reader reader = linux_reader_of(memory, space);
	uint8_t code[64];
	uint64_t size = range->end - range->start;

	size = size < sizeof(code) ? size : sizeof(code);
	if (!linux_read(&reader, range->start, code, size))
		return range->start;
	for (uint64_t at = 0; at < size; at++)
		for (size_t i = 0; i < ARRAY_SIZE(saves); i++)
			if (saves[i].size <= size - at &&
			    memcmp(code + at, saves[i].bytes, saves[i].size) == 0)
				return range->start + at;
	return range->start;
}

static struct syscall_entry find_syscall(const struct linux_stack *stack,
					 const struct guest_memory *memory, uint64_t start,
					 uint64_t end)
{
	struct syscall_entry entry = {0};

	if (!start)
		return entry;
	entry.entering = (struct range){start, end_of_no_rule(&stack->orc, start)};
	entry.rsp_saved = find_save(memory, &stack->unwind.space, &entry.entering);
	if (end > entry.entering.end)
		entry.leaving = (struct range){entry.entering.end, end};
	return entry;
}

/* From the first call over an int3 in the function to where it begins to take registers off the
 * new task's stack. Empty where it does no such thing. */
static struct range find_stuffing(const struct guest_memory *memory,
				  const struct address_space *space, const struct range *function)
{
	static const uint8_t call[] = {0xe8, 0x01, 0x00, 0x00, 0x00, 0xcc};
	static const uint8_t pop[] = {0x41, 0x5f, 0x41, 0x5e}; /* pop %r15; pop %r14 */
	struct linux_reader reader = linux_reader_of(memory, space);
	uint8_t code[256];
	uint64_t size = function->end - function->start;
	struct range range = {0};

	size = size < sizeof(code) ? size : sizeof(code);
	if (!linux_read(&reader, function->start, code, size))
		return range;
	for (uint64_t at = 0; at + sizeof(call) <= size; at++) {
		if (range.start == 0 && memcmp(code + at, call, sizeof(call)) == 0)
			range.start = function->start + at;
		if (range.start != 0 && memcmp(code + at, pop, sizeof(pop)) == 0)
			return (struct range){range.start, function->start + at};
	}
	return (struct range){0};
}

gp_status_t linux_stack_create(const struct guest_memory *memory, const struct linux_kernel *kernel,
			       const struct symbol_table *symbols, struct linux_stack **out,
			       struct error *note, struct error *error)
{
	struct linux_stack *stack = calloc(1, sizeof(*stack));
	struct places places = find_places(symbols);
	gp_status_t status;

	if (!stack)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the kernel's stacks");
	if (note)
		*note = (struct error){0};
	status = orc_read(memory, &kernel->space, symbols, &stack->orc, note);
	if (status == GP_ERR_NO_MEMORY) {
		free(stack);
		return error_set(error, status, "no memory for the kernel's ORC tables");
	}
	stack->source = (struct unwind_source){.find = linux_stack_find,
					       .vouches_for = linux_stack_vouches_for};
	stack->unwind = (struct unwind_kernel){.space = kernel->space, .source = &stack->source};
	stack->entry_text = places.entry_text;
	stack->start_text = places.start_text;
	stack->fork = places.fork;
	stack->retpolines = places.retpolines;
	stack->thunks = places.thunks;
	stack->stuffing = find_stuffing(memory, &kernel->space, &places.switching);
	stack->syscall_64 = find_syscall(stack, memory, places.syscall_64, places.syscall_64_end);
	stack->syscall_32 = find_syscall(stack, memory, places.syscall_32, 0);
	stack->syscall_32.leaving = places.syscall_32_leaving;
	*out = stack;
	return GP_OK;
}

gp_status_t linux_stack_create_from(const struct linux_stack *base, struct linux_stack **out,
				    struct error *error)
{
	struct linux_stack *stack = malloc(sizeof(*stack));

	if (!stack)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the kernel's stacks");
	*stack = *base;
	stack->unwind.source = &stack->source;
	stack->orc = orc_borrow(&base->orc);
	*out = stack;
	return GP_OK;
}

void linux_stack_destroy(struct linux_stack *stack)
{
	if (!stack)
		return;
	orc_deinit(&stack->orc);
	free(stack);
}

const struct unwind_kernel *linux_stack_unwind_kernel(const struct linux_stack *stack)
{
	return &stack->unwind;
}

const struct orc *linux_stack_orc(const struct linux_stack *stack)
{
	return &stack->orc;
}

gp_status_t linux_stack_add_module(struct linux_stack *stack, const struct guest_memory *memory,
				   const struct orc_module *module, struct error *error)
{
	if (stack->orc.kernel.count == 0)
		return error_set(error, GP_ERR_NOT_FOUND, "the kernel has no ORC tables");
	return orc_add_module(&stack->orc, memory, &stack->unwind.space, module, error);
}
