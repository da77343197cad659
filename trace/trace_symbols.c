#include "trace/trace_symbols.h"

#include <stdlib.h>
#include <string.h>

#define ENCLOSING_SEARCH 256
/* The root of the page tables in CR3, and the bit that tells a program's from the kernel's where
 * they are isolated. */
#define PAGE_TABLES UINT64_C(0x000ffffffffff000)
#define USER_TABLES UINT64_C(0x1000)

struct trace_symbol trace_symbol_of(const struct fxt_symbol *symbol)
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

int trace_compare_symbols(const void *left, const void *right)
{
	const struct trace_symbol *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	/* Among equals the smaller one is found last, so first: the more exact. */
	return a->end < b->end ? 1 : a->end > b->end ? -1 : 0;
}

const struct trace_symbol *trace_find_in(const struct trace_symbols *symbols, uint64_t address)
{
	size_t low = 0, high = symbols->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->entries[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	/* A wide one, such as all of the startup code, may begin before a narrow one that ends
	 * too soon. */
	for (size_t i = low; i > 0 && low - i < ENCLOSING_SEARCH; i--)
		if (address < symbols->entries[i - 1].end)
			return &symbols->entries[i - 1];
	return NULL;
}

/* Symbols of programs: collected in any order, then sorted and cut into programs. */

struct trace_program_entry {
	struct fxt_process_symbols of;
	struct trace_symbol symbol; /* without a name: only that the program began */
};

static bool add_program_entry(struct trace *trace, const struct fxt_process_symbols *of,
			      const struct fxt_symbol *symbol)
{
	struct trace_program_entry *entries = trace->program_entries;

	if (trace->program_entry_count == trace->program_entry_capacity) {
		size_t capacity =
			trace->program_entry_capacity ? trace->program_entry_capacity * 2 : 256;

		entries = realloc(entries, capacity * sizeof(*entries));
		if (!entries)
			return false;
		trace->program_entries = entries;
		trace->program_entry_capacity = capacity;
	}
	entries[trace->program_entry_count++] = (struct trace_program_entry){
		.of = *of, .symbol = symbol ? trace_symbol_of(symbol) : (struct trace_symbol){0}};
	return true;
}

bool trace_see_process_symbols(struct trace *trace, const struct fxt_blob *blob)
{
	struct fxt_process_symbols of;
	struct fxt_symbol symbol;
	struct cursor entries;

	if (!fxt_process_symbols_decode(blob, &of, &entries))
		return true;
	if (!add_program_entry(trace, &of, NULL))
		return false;
	while (fxt_symbols_next(&entries, &symbol))
		if ((symbol.kind == FXT_SYMBOL_USER || symbol.kind == FXT_SYMBOL_MAPPING) &&
		    !add_program_entry(trace, &of, &symbol))
			return false;
	return true;
}

static int compare_programs(const struct fxt_process_symbols *a,
			    const struct fxt_process_symbols *b)
{
	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	if (a->address_space != b->address_space)
		return a->address_space < b->address_space ? -1 : 1;
	return a->valid_from < b->valid_from ? -1 : a->valid_from > b->valid_from;
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
		order = trace_compare_symbols(&a->symbol, &b->symbol);
	if (order)
		return order;
	/* Of one place that was named twice: the same in every run. */
	return a->symbol.name < b->symbol.name ? -1 : a->symbol.name > b->symbol.name;
}

bool trace_settle_programs(struct trace *trace)
{
	struct trace_program_entry *entries = trace->program_entries;
	size_t count = trace->program_entry_count, programs = 0, kept = 0;

	if (!count)
		return true;
	qsort(entries, count, sizeof(*entries), compare_program_entries);
	for (size_t i = 0; i < count; i++)
		programs += i == 0 || compare_programs(&entries[i - 1].of, &entries[i].of);
	trace->programs = calloc(programs, sizeof(*trace->programs));
	trace->program_symbols = calloc(count, sizeof(*trace->program_symbols));
	if (!trace->programs || !trace->program_symbols)
		return false;
	for (size_t i = 0; i < count; i++) {
		const struct trace_symbol *symbol = &entries[i].symbol;
		struct trace_program *program;
		struct trace_symbols *symbols;

		if (i == 0 || compare_programs(&entries[i - 1].of, &entries[i].of))
			trace->programs[trace->program_count++].of = entries[i].of;
		if (!symbol->name)
			continue;
		program = &trace->programs[trace->program_count - 1];
		symbols =
			symbol->kind == FXT_SYMBOL_USER ? &program->functions : &program->mappings;
		if (!symbols->count)
			symbols->entries = &trace->program_symbols[kept];
		else if (!trace_compare_symbols(&symbols->entries[symbols->count - 1], symbol))
			continue; /* said again */
		trace->program_symbols[kept++] = *symbol;
		symbols->count++;
	}
	free(trace->program_entries);
	trace->program_entries = NULL;
	trace->program_entry_count = trace->program_entry_capacity = 0;
	return true;
}

const struct trace_program *trace_find_program(const struct trace *trace,
					       const struct fxt_process_symbols *wanted)
{
	size_t low = 0, high = trace->program_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_programs(&trace->programs[middle].of, wanted) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || trace->programs[low - 1].of.process != wanted->process ||
	    trace->programs[low - 1].of.address_space != wanted->address_space)
		return NULL;
	return &trace->programs[low - 1];
}

const struct trace_program *trace_program_of(const struct trace *trace,
					     const struct fxt_sample *sample)
{
	const uint64_t needed =
		FXT_SAMPLE_PROCESS | FXT_SAMPLE_ADDRESS_SPACE | FXT_SAMPLE_TIMESTAMP;
	struct fxt_process_symbols wanted = {.process = sample->process,
					     .address_space = sample->address_space & PAGE_TABLES,
					     .valid_from = sample->timestamp};
	const struct trace_program *program;

	if (!trace->program_count || (sample->flags & needed) != needed)
		return NULL;
	program = trace_find_program(trace, &wanted);
	if (program)
		return program;
	wanted.address_space = (wanted.address_space & ~USER_TABLES) | FXT_ADDRESS_SPACE_ISOLATED;
	return trace_find_program(trace, &wanted);
}

const struct trace_symbol *trace_find_mapping(const struct trace *trace,
					      const struct fxt_sample *sample, size_t frame)
{
	const struct trace_program *program = trace_program_of(trace, sample);

	if (!program || !trace_frame_is_user(sample, frame))
		return NULL;
	return trace_find_in(&program->mappings, trace_frame_address(sample, frame));
}
