#include "trace/trace_symbols.h"

#include "base/sorting.h"

#define ENCLOSING_SEARCH 256
/* Where a symbol of unknown size ends if no other follows it. */
#define LONGEST_SYMBOL UINT64_C(0x100000)

static struct trace_symbol symbol_of(const struct fxt_symbol *symbol)
{
	return (struct trace_symbol){
		.start = symbol->start,
		.end = symbol->size > UINT64_MAX - symbol->start ? UINT64_MAX
								 : symbol->start + symbol->size,
		.kind = symbol->kind,
		.name = symbol->name,
		.name_bytes = symbol->name_bytes,
	};
}

/* By start, among equals the narrower one last: it is found first. */
static int compare_symbols(const void *left, const void *right)
{
	const struct trace_symbol *a = left, *b = right;
	int order = compare_u64(a->start, b->start);

	return order ? order : compare_u64(b->end, a->end);
}

static enum trace_symbol_group group_of(uint32_t kind)
{
	switch (kind) {
	case FXT_SYMBOL_FILE:
		return TRACE_SYMBOLS_FILE;
	case FXT_SYMBOL_BOOT:
		return TRACE_SYMBOLS_BOOT;
	default:
		return TRACE_SYMBOLS_KERNEL;
	}
}

bool trace_symbols_see(struct trace_symbols groups[TRACE_SYMBOL_GROUPS],
		       const struct fxt_blob *blob)
{
	struct cursor entries = cursor_over(blob->payload, blob->size);
	struct fxt_symbol symbol;

	while (fxt_symbols_next(&entries, &symbol))
		if (!vector_add(&groups[group_of(symbol.kind)], symbol_of(&symbol)))
			return false;
	return true;
}

void trace_symbols_settle(struct trace_symbols groups[TRACE_SYMBOL_GROUPS])
{
	for (struct trace_symbols *symbols = groups; symbols < groups + TRACE_SYMBOL_GROUPS;
	     symbols++) {
		vector_sort(symbols, compare_symbols);
		for (size_t i = 0; i < symbols->count; i++) {
			struct trace_symbol *symbol = &symbols->items[i];

			if (symbol->end != symbol->start)
				continue;
			symbol->end = symbol->start + LONGEST_SYMBOL;
			if (i + 1 < symbols->count && symbol[1].start < symbol->end)
				symbol->end = symbol[1].start;
		}
	}
}

static int compare_starts(const void *symbol, const void *address)
{
	return compare_u64(((const struct trace_symbol *)symbol)->start,
			   *(const uint64_t *)address);
}

const struct trace_symbol *trace_symbols_find(const struct trace_symbols *symbols, uint64_t address)
{
	size_t count = count_up_to(symbols->items, symbols->count, sizeof(*symbols->items),
				   &address, compare_starts);

	/* A wide one, such as all of the startup code, may begin before a narrow one that ends
	 * too soon. */
	for (size_t i = count; i > 0 && count - i < ENCLOSING_SEARCH; i--)
		if (address < symbols->items[i - 1].end)
			return &symbols->items[i - 1];
	return NULL;
}

/* Symbols of programs: collected in any order, then sorted and cut into programs. */

struct trace_program_entry {
	struct fxt_process_symbols of;
	struct trace_symbol symbol; /* without a name: only that the program began */
};

bool trace_programs_see(struct trace_programs *programs, const struct fxt_blob *blob)
{
	struct trace_program_entry entry = {0};
	struct fxt_symbol symbol;
	struct cursor entries;

	if (!fxt_process_symbols_decode(blob, &entry.of, &entries))
		return true;
	if (!vector_add(&programs->entries, entry))
		return false;
	while (fxt_symbols_next(&entries, &symbol)) {
		if (symbol.kind != FXT_SYMBOL_USER && symbol.kind != FXT_SYMBOL_MAPPING)
			continue;
		entry.symbol = symbol_of(&symbol);
		if (!vector_add(&programs->entries, entry))
			return false;
	}
	return true;
}

static int compare_programs(const void *left, const void *right)
{
	const struct fxt_process_symbols *a = left, *b = right;
	int order = compare_u64(a->process, b->process);

	if (!order)
		order = compare_u64(a->address_space, b->address_space);
	return order ? order : compare_u64(a->valid_from, b->valid_from);
}

/* Within a program: its beginning, functions, mappings. */
static int rank_of(const struct trace_symbol *symbol)
{
	return !symbol->name ? 0 : symbol->kind == FXT_SYMBOL_USER ? 1 : 2;
}

static int compare_program_entries(const void *left, const void *right)
{
	const struct trace_program_entry *a = left, *b = right;
	int order = compare_programs(&a->of, &b->of);

	if (!order)
		order = rank_of(&a->symbol) - rank_of(&b->symbol);
	if (!order)
		order = compare_symbols(&a->symbol, &b->symbol);
	/* Of one place that was named twice: the same in every run. */
	return order ? order : compare_u64((uintptr_t)a->symbol.name, (uintptr_t)b->symbol.name);
}

bool trace_programs_settle(struct trace_programs *programs)
{
	const struct trace_program_entry *entries = programs->entries.items;
	size_t count = programs->entries.count, used = 0;

	if (!count)
		return true;
	vector_sort(&programs->entries, compare_program_entries);
	programs->symbols = calloc(count, sizeof(*programs->symbols));
	if (!programs->symbols)
		return false;
	for (size_t i = 0; i < count; i++) {
		const struct trace_symbol *symbol = &entries[i].symbol;
		struct trace_program *program;
		struct trace_symbols *symbols;

		if ((i == 0 || compare_programs(&entries[i - 1].of, &entries[i].of)) &&
		    !vector_add(programs, (struct trace_program){.of = entries[i].of}))
			return false;
		if (!symbol->name)
			continue;
		program = &programs->items[programs->count - 1];
		symbols =
			symbol->kind == FXT_SYMBOL_USER ? &program->functions : &program->mappings;
		if (!symbols->count)
			symbols->items = &programs->symbols[used];
		else if (!compare_symbols(&symbols->items[symbols->count - 1], symbol))
			continue; /* repeated */
		programs->symbols[used++] = *symbol;
		symbols->count++;
	}
	vector_deinit(&programs->entries);
	return true;
}

void trace_programs_deinit(struct trace_programs *programs)
{
	free(programs->items);
	free(programs->symbols);
	free(programs->entries.items);
}

const struct trace_program *trace_programs_find(const struct trace_programs *programs,
						const struct fxt_process_symbols *wanted)
{
	/* The key is a program's first member. */
	size_t count = count_up_to(programs->items, programs->count, sizeof(*programs->items),
				   wanted, compare_programs);
	const struct trace_program *program = count ? &programs->items[count - 1] : NULL;

	return program && program->of.process == wanted->process &&
			       program->of.address_space == wanted->address_space
		       ? program
		       : NULL;
}
