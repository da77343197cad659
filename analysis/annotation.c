#include "analysis/annotation.h"

#include "base/address.h"
#include "base/cleanup.h"
#include "base/sorting.h"
#include "analysis/text.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* Pieces of a region: samples that are no farther from each other, and what is shown behind the
 * last. As much is in the trace of each sample's place (naming/code_copy.h). */
#define PIECE_GAP 128u
#define PIECE_TAIL 64u
#define PIECE_MAX (TRACE_CODE_MAX / 2)

static const char no_memory[] = "no memory for annotations";

/* Reading: samples by the address they stopped at. */

struct leaf {
	const struct trace_program *program; /* of a user address, where it is known */
	uint64_t address;
	const struct trace_symbol *symbol; /* NULL: in no function that is known */
	uint64_t ticks;
	unsigned bits;
	/* Equal for what is one function: of the kernel, of a file, else of a program. */
	uint64_t owner;
	uint64_t start;
	bool is_region;
	uint64_t offset; /* in the function, or the region: there, of a file's, its own address */
};

struct leaves {
	HASH_TABLE(struct leaf, entries); /* by program and address */
};

static unsigned bits_of(const struct fxt_sample *sample)
{
	switch (sample->flags & FXT_SAMPLE_ADDRESSING ? sample->addressing : 0) {
	case FXT_ADDRESSING_REAL:
		return 16;
	case FXT_ADDRESSING_PROTECTED_UNPAGED:
	case FXT_ADDRESSING_PAGED_32:
	case FXT_ADDRESSING_PAE:
	case FXT_ADDRESSING_COMPATIBILITY_4:
	case FXT_ADDRESSING_COMPATIBILITY_5:
		return 32;
	default:
		return 64;
	}
}

/* False: no memory. */
static bool annotation_add_sample(struct leaves *self, const struct trace *trace,
				  const struct fxt_sample *sample, uint64_t ticks)
{
	const struct leaf key = {
		.program = trace_frame_is_user(sample, 0) ? trace_program_of(trace, sample) : NULL,
		.address = sample->stack[0],
	};
	struct leaf *leaf;
	uint32_t number;

	if (!hash_table_add(&self->table, &key, &number))
		return false;
	leaf = &self->entries[number];
	if (!leaf->bits) {
		leaf->symbol = trace_find_symbol(trace, sample, 0);
		leaf->bits = bits_of(sample);
	}
	leaf->ticks += ticks;
	return true;
}

static gp_status_t read_leaves(struct trace *trace, struct filter *filter, struct leaves *leaves,
			       struct profile_totals *totals, struct error *error)
{
	struct fxt_sample sample;
	struct frames frames;
	gp_status_t status = frames_init(&frames, error);
	uint64_t ticks;
	bool room = true;

	if (status)
		return status;
	trace_rewind(trace);
	while (room && trace_next_sample(trace, &sample, &ticks)) {
		bool taken = !filter || filter_takes(filter, trace, &frames, &sample);

		profile_count(totals, &sample, ticks, taken);
		if (taken && sample_is_running(&sample))
			room = annotation_add_sample(leaves, trace, &sample, ticks);
	}
	if (!room || frames.failed || !trace->reading)
		status = error_set(error, GP_ERR_NO_MEMORY, no_memory);
	frames_deinit(&frames);
	return status;
}

/* Functions out of leaves. */

/* What has no functions: a file's mapping, and the code that unpacks a kernel. */
static bool is_region(const struct trace_symbol *symbol)
{
	return symbol->kind == FXT_SYMBOL_MAPPING ||
	       (symbol->kind == FXT_SYMBOL_BOOT && symbol->name_bytes && symbol->name[0] == '[');
}

static void identify(const struct trace *trace, struct leaf *leaf)
{
	const struct trace_module *module;

	if (!leaf->symbol)
		return;
	leaf->is_region = is_region(leaf->symbol);
	leaf->start = leaf->symbol->start;
	leaf->offset = leaf->address - leaf->start;
	module = trace_find_module(&trace->code, leaf->program,
				   leaf->is_region ? leaf->address : leaf->start);
	if (module) {
		uint64_t shift = module->file_address - module->start;

		leaf->start = leaf->is_region ? 0 : leaf->start + shift;
		leaf->offset = leaf->is_region ? leaf->address + shift : leaf->offset;
		leaf->owner = UINT64_C(1) << 32 | module->file;
	} else if (leaf->program) {
		leaf->owner = UINT64_C(2) << 32 | (uint64_t)(leaf->program - trace->programs.items);
	}
}

static int compare_identities(const struct leaf *a, const struct leaf *b)
{
	int order = compare_u64(!a->symbol, !b->symbol);

	if (!order)
		order = compare_u64(a->is_region, b->is_region);
	if (!order)
		order = compare_u64(a->owner, b->owner);
	return order ? order : compare_u64(a->start, b->start);
}

/* Those without a function last. */
static int compare_leaves(const void *left, const void *right)
{
	const struct leaf *a = left, *b = right;
	int order = compare_identities(a, b);

	if (order || !a->symbol)
		return order;
	return compare_u64(a->offset, b->offset);
}

static int annotation_compare_functions(const void *left, const void *right)
{
	const struct annotation_function *a = left, *b = right;

	if (a->ticks != b->ticks)
		return a->ticks < b->ticks ? 1 : -1;
	return compare_u64(a->symbol->start, b->symbol->start);
}

/* A kernel module's functions have its name behind their own: "ext4_iget [ext4]". */
static bool annotation_is_wanted(const struct trace_symbol *symbol, const char *pattern)
{
	char name[FXT_SYMBOL_NAME_BYTES_MAX + 1], *module;

	if (!pattern)
		return true;
	text_escape(symbol->name, symbol->name_bytes, name, sizeof(name));
	if (!strcmp(pattern, name) || !fnmatch(pattern, name, 0))
		return true;
	module = symbol->kind == FXT_SYMBOL_MODULE ? strstr(name, " [") : NULL;
	if (!module)
		return false;
	*module = 0;
	return !strcmp(pattern, name) || !fnmatch(pattern, name, 0);
}

static void group(const struct leaves *leaves, const char *pattern, struct annotation *out)
{
	struct annotation_function *function = NULL;
	size_t hits = 0;

	for (size_t i = 0; i < leaves->count; i++) {
		const struct leaf *leaf = &leaves->entries[i];
		bool same = i > 0 && !compare_identities(&leaves->entries[i - 1], leaf);

		if (!leaf->symbol) {
			out->nameless += leaf->ticks;
			continue;
		}
		if (!same)
			function = NULL;
		if (!same && annotation_is_wanted(leaf->symbol, pattern)) {
			function = &out->functions[out->count++];
			*function =
				(struct annotation_function){.symbol = leaf->symbol,
							     .program = leaf->program,
							     .start = leaf->address - leaf->offset,
							     .bits = leaf->bits,
							     .is_region = leaf->is_region,
							     .hits = &out->hits[hits]};
		}
		if (!function)
			continue;
		function->ticks += leaf->ticks;
		/* Of several processes. */
		if (function->hit_count && out->hits[hits - 1].offset == leaf->offset) {
			out->hits[hits - 1].ticks += leaf->ticks;
			continue;
		}
		out->hits[hits++] = (struct annotation_hit){leaf->offset, leaf->ticks};
		function->hit_count++;
	}
}

gp_status_t annotation_read(struct trace *trace, struct filter *filter, const char *pattern,
			    struct annotation *out, struct error *error)
{
	struct annotation annotation = {0};
	struct leaves leaves;
	gp_status_t status;

	hash_table_init(&leaves.table, offsetof(struct leaf, symbol), sizeof(struct leaf));
	status = read_leaves(trace, filter, &leaves, &annotation.totals, error);
	if (!status) {
		annotation.functions = calloc(leaves.count + 1, sizeof(*annotation.functions));
		annotation.hits = calloc(leaves.count + 1, sizeof(*annotation.hits));
		if (!annotation.functions || !annotation.hits)
			status = error_set(error, GP_ERR_NO_MEMORY, no_memory);
	}
	if (!status) {
		for (size_t i = 0; i < leaves.count; i++)
			identify(trace, &leaves.entries[i]);
		if (leaves.count)
			qsort(leaves.entries, leaves.count, sizeof(*leaves.entries),
			      compare_leaves);
		group(&leaves, pattern, &annotation);
		if (annotation.count)
			qsort(annotation.functions, annotation.count, sizeof(*annotation.functions),
			      annotation_compare_functions);
		*out = annotation;
	} else {
		annotation_deinit(&annotation);
	}
	hash_table_deinit(&leaves.table);
	return status;
}

void annotation_deinit(struct annotation *annotation)
{
	free(annotation->functions);
	free(annotation->hits);
	*annotation = (struct annotation){0};
}

size_t annotation_where(const struct annotation_function *function, const char **name)
{
	const struct trace_symbol *symbol = function->symbol, *mapping = NULL;
	const char *module = NULL;

	if (function->program)
		mapping = trace_symbols_find(&function->program->mappings, symbol->start);
	if (mapping) {
		*name = mapping->name;
		return mapping->name_bytes;
	}
	if (symbol->kind == FXT_SYMBOL_MODULE)
		module = memmem(symbol->name, symbol->name_bytes, " [", 2);
	if (module) {
		*name = module + 1;
		return symbol->name_bytes - (size_t)(module + 1 - symbol->name);
	}
	*name = symbol->kind == FXT_SYMBOL_FILE   ? "[symbol file]"
		: symbol->kind == FXT_SYMBOL_BOOT ? "[early boot]"
						  : "[kernel]";
	return strlen(*name);
}

/* Listing one function. */

/* How many bytes from `at` on are alike: known or not. */
static size_t run_length(const struct trace_function_code *code, size_t at)
{
	size_t end = at;

	while (end < code->size && !code->known[end] == !code->known[at])
		end++;
	return end - at;
}

/* Names were told with the code: for the program that it was read from. */
static const struct trace_symbol *find_target(const struct trace *trace,
					      const struct annotation_function *function,
					      const struct trace_function_code *code,
					      uint64_t address)
{
	const struct trace_symbol *symbol = function->symbol;

	/* Of a region its own name would say nothing. */
	if (address >= symbol->start && address < symbol->end)
		return function->is_region ? NULL : symbol;
	if (function->program)
		return code->program ? trace_symbols_find(&code->program->functions,
							  address - code->wanted + code->start)
				     : NULL;
	symbol = address >= GUEST_KERNEL_HALF
			 ? trace_symbols_find(&trace->symbols[TRACE_SYMBOLS_KERNEL], address)
			 : trace_symbols_find(&trace->symbols[TRACE_SYMBOLS_BOOT], address);
	return symbol ? symbol : trace_symbols_find(&trace->symbols[TRACE_SYMBOLS_FILE], address);
}

static void set_target(const struct trace *trace, const struct annotation_function *function,
		       const struct trace_function_code *code, struct annotation_line *line)
{
	uint64_t address = line->instruction.target;

	line->target = find_target(trace, function, code, address);
	if (!line->target)
		return;
	line->target_offset = address - line->target->start;
	if (function->program && line->target != function->symbol)
		line->target_offset += code->start - code->wanted;
}

/* The ticks of [offset, offset + size), `*hit` being the first that was not taken yet. */
static void take_hits(const struct annotation_function *function, uint64_t offset, uint64_t size,
		      size_t *hit, struct annotation_line *line)
{
	for (; *hit < function->hit_count && function->hits[*hit].offset < offset + size; ++*hit) {
		line->ticks += function->hits[*hit].ticks;
		line->is_moved =
			line->is_moved || (!line->is_gap && function->hits[*hit].offset != offset);
	}
}

/* What makes lines out of code. */
struct lister {
	const struct trace *trace;
	const struct annotation_function *function;
	struct disassembler *disassembler;
	struct source_lines *lines;
	struct annotation_listing *listing;
	size_t hit; /* the first that is in no line yet */
};

/* How many of `run` bytes at an offset may be one instruction: in a region, whose code begins where
 * a sample was and may have something else in between, each sample is at an instruction. */
static size_t decodable(const struct lister *self, uint64_t offset, size_t run)
{
	const struct annotation_function *function = self->function;
	size_t next = self->hit;

	if (!function->is_region)
		return run;
	if (next < function->hit_count && function->hits[next].offset == offset)
		next++;
	if (next < function->hit_count && function->hits[next].offset - offset < run)
		return (size_t)(function->hits[next].offset - offset);
	return run;
}

static void set_code(const struct lister *self, const struct trace_function_code *code, size_t at,
		     size_t run, struct annotation_line *line)
{
	const struct annotation_function *function = self->function;
	uint64_t address = code->wanted + at;

	disassembler_decode(self->disassembler, code->bytes + at,
			    decodable(self, address - function->start, run), address,
			    &line->instruction);
	memcpy(line->bytes, code->bytes + at, line->instruction.size);
	if (line->instruction.has_target)
		set_target(self->trace, function, code, line);
	if (self->lines)
		line->place_count = source_lines_find(self->lines, function->program,
						      function->symbol, address, line->places);
}

/* False: no memory. */
static bool list_code(struct lister *self, const struct trace_function_code *code)
{
	bool first = true;

	for (size_t at = 0; at < code->size;) {
		uint64_t address = code->wanted + at;
		size_t run = run_length(code, at);
		struct annotation_line line = {.is_gap = !code->known[at], .begins_piece = first};

		if (line.is_gap) {
			line.instruction =
				(struct instruction){.address = address, .size = (unsigned)run};
			self->listing->missing += run;
		} else {
			set_code(self, code, at, run, &line);
			/* Where a copied piece ends within an instruction. */
			if (line.instruction.is_bad && self->function->is_region &&
			    run < INSTRUCTION_BYTES_MAX)
				line.instruction.size = (unsigned)decodable(
					self, address - self->function->start, run);
		}
		take_hits(self->function, address - self->function->start, line.instruction.size,
			  &self->hit, &line);
		at += line.instruction.size;
		if (line.instruction.size > 1 && line.instruction.is_bad && !line.ticks)
			continue;
		if (!vector_add(self->listing, line))
			return false;
		first = false;
	}
	return true;
}

/* Takes code: false when there is none, and nothing is listed. */
static bool find_code(const struct lister *self, uint64_t address, uint64_t size,
		      struct trace_function_code *code)
{
	trace_code_find(&self->trace->code, &self->trace->programs, self->function->program,
			address, size, code);
	if (code->read_at_ns > self->listing->read_at_ns)
		self->listing->read_at_ns = code->read_at_ns;
	self->listing->changed = self->listing->changed || code->changed;
	return code->known_count > 0;
}

/* The piece of a region from hit `first` on: the hits in it, and its bytes. */
static size_t piece_at(const struct annotation_function *function, size_t first, uint64_t *size)
{
	const struct annotation_hit *hits = function->hits;
	size_t end = first + 1;

	while (end < function->hit_count && hits[end].offset - hits[end - 1].offset < PIECE_GAP &&
	       hits[end].offset - hits[first].offset < PIECE_MAX)
		end++;
	*size = hits[end - 1].offset - hits[first].offset + PIECE_TAIL;
	if (end<function->hit_count && * size> hits[end].offset - hits[first].offset)
		*size = hits[end].offset - hits[first].offset;
	return end;
}

static bool list_region(struct lister *self, struct trace_function_code *code)
{
	const struct annotation_function *function = self->function;
	uint64_t size;

	for (size_t at = 0; at < function->hit_count; at = self->hit) {
		size_t end = piece_at(function, at, &size);

		if (find_code(self, function->start + function->hits[at].offset, size, code))
			self->listing->has_code = true;
		if (!list_code(self, code))
			return false;
		self->hit = end;
	}
	return true;
}

static bool list_function(struct lister *self, struct trace_function_code *code)
{
	const struct annotation_function *function = self->function;

	if (!find_code(self, function->start, function->symbol->end - function->symbol->start,
		       code))
		return true;
	self->listing->has_code = true;
	if (!list_code(self, code))
		return false;
	for (; self->hit < function->hit_count; self->hit++)
		self->listing->unplaced += function->hits[self->hit].ticks;
	return true;
}

gp_status_t annotation_list(const struct trace *trace, const struct annotation_function *function,
			    enum disassembler_syntax syntax, struct source_lines *lines,
			    struct annotation_listing *out, struct error *error)
{
	AUTO_FREE struct trace_function_code *code = malloc(sizeof(*code));
	struct annotation_listing listing = {0};
	struct lister lister = {
		.trace = trace, .function = function, .lines = lines, .listing = &listing};
	gp_status_t status;
	bool room;

	if (!code)
		return error_set(error, GP_ERR_NO_MEMORY, no_memory);
	status = disassembler_open(function->bits, syntax, &lister.disassembler, error);
	if (status)
		return status;
	room = function->is_region ? list_region(&lister, code) : list_function(&lister, code);
	disassembler_close(lister.disassembler);
	if (!room) {
		annotation_listing_deinit(&listing);
		return error_set(error, GP_ERR_NO_MEMORY, no_memory);
	}
	/* Of a region without code there are addresses only, as of a function. */
	if (!listing.has_code)
		annotation_listing_deinit(&listing);
	*out = listing;
	return GP_OK;
}

void annotation_listing_deinit(struct annotation_listing *listing)
{
	free(listing->items);
	*listing = (struct annotation_listing){0};
}
