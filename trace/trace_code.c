#include "trace/trace_code.h"

#include "trace/trace_symbols.h"

#include <stdlib.h>
#include <string.h>

struct trace_code_piece {
	struct fxt_code code;
	/* Which file it is of and where there; set by trace_settle_code(). UINT32_MAX: of none. */
	uint32_t file;
	uint64_t file_address;
};

struct trace_code {
	struct trace_code_piece *pieces; /* by whose they are, then address, then time */
	size_t piece_count;
	size_t piece_capacity;
	struct trace_code_piece **by_file; /* those of files, by file, then address, then time */
	size_t by_file_count;

	/* As they come, module and mapping records of one process and time in turn. */
	struct seen_module {
		uint64_t process;
		uint64_t valid_from;
		uint16_t id;
		struct fxt_string name;
		struct fxt_string build_id;
	} * seen;
	size_t seen_count;
	size_t seen_capacity;
	struct trace_module *modules; /* by process, time, start */
	size_t module_count;
	size_t module_capacity;
};

/* Room for one more. False: no memory. */
static bool make_room(void **array, size_t *capacity, size_t count, size_t size)
{
	size_t larger = *capacity ? *capacity * 2 : 64;
	void *grown;

	if (count < *capacity)
		return true;
	grown = realloc(*array, larger * size);
	if (!grown)
		return false;
	*array = grown;
	*capacity = larger;
	return true;
}

static bool see_module(struct trace_code *self, const struct fxt_module *module, uint64_t time)
{
	if (!make_room((void **)&self->seen, &self->seen_capacity, self->seen_count,
		       sizeof(*self->seen)))
		return false;
	self->seen[self->seen_count++] = (struct seen_module){
		module->thread.process, time, module->id, module->name, module->build_id};
	return true;
}

/* A mapping follows its module at once: the latest of that number is meant. */
static bool see_mapping(struct trace_code *self, const struct fxt_mmap *mapping, uint64_t time)
{
	const struct seen_module *module = NULL;

	for (size_t i = self->seen_count; i > 0 && self->seen_count - i < 16 && !module; i--)
		if (self->seen[i - 1].id == mapping->module &&
		    self->seen[i - 1].process == mapping->thread.process &&
		    self->seen[i - 1].valid_from == time)
			module = &self->seen[i - 1];
	if (!module || mapping->range > UINT64_MAX - mapping->start)
		return true;
	if (!make_room((void **)&self->modules, &self->module_capacity, self->module_count,
		       sizeof(*self->modules)))
		return false;
	self->modules[self->module_count++] = (struct trace_module){
		.process = module->process,
		.valid_from = time,
		.start = mapping->start,
		.end = mapping->start + mapping->range,
		.file_address = mapping->vaddr,
		.name = module->name.text ? module->name.text : "",
		.name_bytes = module->name.length,
		.build_id = (const uint8_t *)module->build_id.text,
		.build_id_bytes = module->build_id.length,
	};
	return true;
}

static bool see_piece(struct trace_code *self, const struct fxt_blob *blob)
{
	struct fxt_code code;

	if (!fxt_code_decode(blob, &code))
		return true;
	if (!make_room((void **)&self->pieces, &self->piece_capacity, self->piece_count,
		       sizeof(*self->pieces)))
		return false;
	self->pieces[self->piece_count++] =
		(struct trace_code_piece){.code = code, .file = UINT32_MAX};
	return true;
}

bool trace_see_code(struct trace *trace, const struct fxt_record *record)
{
	const struct fxt_reader *reader = &trace->reader;
	bool is_ours = record->kind == FXT_KIND_MODULE || record->kind == FXT_KIND_MMAP ||
		       (record->kind == FXT_KIND_BLOB && fxt_blob_is_code(&record->blob));

	if (!is_ours)
		return true;
	if (!trace->code)
		trace->code = calloc(1, sizeof(*trace->code));
	if (!trace->code)
		return false;
	if (record->kind == FXT_KIND_MODULE)
		return see_module(trace->code, &record->module,
				  fxt_reader_nanoseconds(reader, record->module.timestamp));
	if (record->kind == FXT_KIND_MMAP)
		return see_mapping(trace->code, &record->mmap,
				   fxt_reader_nanoseconds(reader, record->mmap.timestamp));
	return see_piece(trace->code, &record->blob);
}

/* Sorting. */

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_modules(const void *left, const void *right)
{
	const struct trace_module *a = left, *b = right;
	int order = compare_numbers(a->process, b->process);

	if (!order)
		order = compare_numbers(a->valid_from, b->valid_from);
	return order ? order : compare_numbers(a->start, b->start);
}

static int compare_owners(const struct fxt_process_symbols *a, const struct fxt_process_symbols *b)
{
	int order = compare_numbers(a->process, b->process);

	if (!order)
		order = compare_numbers(a->address_space, b->address_space);
	return order ? order : compare_numbers(a->valid_from, b->valid_from);
}

static int compare_pieces(const void *left, const void *right)
{
	const struct trace_code_piece *a = left, *b = right;
	int order = compare_owners(&a->code.of, &b->code.of);

	if (!order)
		order = compare_numbers(a->code.address, b->code.address);
	return order ? order : compare_numbers(a->code.read_at, b->code.read_at);
}

static int compare_by_file(const void *left, const void *right)
{
	const struct trace_code_piece *a = *(struct trace_code_piece *const *)left;
	const struct trace_code_piece *b = *(struct trace_code_piece *const *)right;
	int order = compare_numbers(a->file, b->file);

	if (!order)
		order = compare_numbers(a->file_address, b->file_address);
	return order ? order : compare_numbers(a->code.read_at, b->code.read_at);
}

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
	size_t common = a_size < b_size ? a_size : b_size;
	int order = common ? memcmp(a, b, common) : 0;

	return order ? order : compare_numbers(a_size, b_size);
}

/* By build id; files without one by name. */
static int compare_files(const void *left, const void *right)
{
	const struct trace_module *a = *(struct trace_module *const *)left;
	const struct trace_module *b = *(struct trace_module *const *)right;
	int order = compare_bytes(a->build_id, a->build_id_bytes, b->build_id, b->build_id_bytes);

	if (!order && !a->build_id_bytes)
		order = compare_bytes(a->name, a->name_bytes, b->name, b->name_bytes);
	return order;
}

/* Gives equal files equal numbers. */
static bool number_files(struct trace_code *self)
{
	struct trace_module **order = calloc(self->module_count, sizeof(*order));
	uint32_t file = 0;

	if (!order)
		return false;
	for (size_t i = 0; i < self->module_count; i++)
		order[i] = &self->modules[i];
	qsort(order, self->module_count, sizeof(*order), compare_files);
	for (size_t i = 0; i < self->module_count; i++) {
		file += i > 0 && compare_files(&order[i - 1], &order[i]) != 0;
		order[i]->file = file;
	}
	free(order);
	return true;
}

static const struct trace_module *find_module(const struct trace_code *self, uint64_t process,
					      uint64_t valid_from, uint64_t address)
{
	const struct trace_module wanted = {
		.process = process, .valid_from = valid_from, .start = address};
	size_t low = 0, high = self->module_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_modules(&self->modules[middle], &wanted) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || self->modules[low - 1].process != process ||
	    self->modules[low - 1].valid_from != valid_from ||
	    address >= self->modules[low - 1].end)
		return NULL;
	return &self->modules[low - 1];
}

bool trace_settle_code(struct trace *trace)
{
	struct trace_code *self = trace->code;

	if (!self)
		return true;
	free(self->seen);
	self->seen = NULL;
	self->seen_count = self->seen_capacity = 0;
	if (self->module_count) {
		qsort(self->modules, self->module_count, sizeof(*self->modules), compare_modules);
		if (!number_files(self))
			return false;
	}
	if (!self->piece_count)
		return true;
	qsort(self->pieces, self->piece_count, sizeof(*self->pieces), compare_pieces);
	self->by_file = calloc(self->piece_count, sizeof(struct trace_code_piece *));
	if (!self->by_file)
		return false;
	for (size_t i = 0; i < self->piece_count; i++) {
		struct trace_code_piece *piece = &self->pieces[i];
		const struct trace_module *module =
			find_module(self, piece->code.of.process, piece->code.of.valid_from,
				    piece->code.address);

		if (!module)
			continue;
		piece->file = module->file;
		piece->file_address = piece->code.address - module->start + module->file_address;
		self->by_file[self->by_file_count++] = piece;
	}
	qsort(self->by_file, self->by_file_count, sizeof(struct trace_code_piece *),
	      compare_by_file);
	return true;
}

void trace_free_code(struct trace *trace)
{
	if (!trace->code)
		return;
	free(trace->code->pieces);
	free(trace->code->by_file);
	free(trace->code->seen);
	free(trace->code->modules);
	free(trace->code);
	trace->code = NULL;
}

/* Looking up. */

const struct trace_module *trace_find_module(const struct trace *trace,
					     const struct trace_program *program, uint64_t address)
{
	static const struct fxt_process_symbols kernel;
	const struct fxt_process_symbols *of = program ? &program->of : &kernel;

	return trace->code ? find_module(trace->code, of->process, of->valid_from, address) : NULL;
}

/* In `known`, where there is a byte; the better the larger. */
enum source { SOURCE_SAME_FILE = 1, SOURCE_OWN };

/* Lays a piece, whose first byte is at `address`, over the function at `start`. Pieces of one place
 * come in order of time: the latest stays; but none replaces bytes of a better source. */
static void lay(struct trace_function_code *out, uint64_t start, uint64_t address,
		const struct fxt_code *code, enum source source)
{
	uint64_t skip = address < start ? start - address : 0;
	uint64_t at = address < start ? 0 : address - start, count;

	if (skip >= code->size || at >= out->size)
		return;
	count = code->size - skip;
	if (count > out->size - at)
		count = out->size - at;
	if (code->read_at > out->read_at_ns)
		out->read_at_ns = code->read_at;
	for (uint64_t i = 0; i < count; i++) {
		if (out->known[at + i] > source)
			continue;
		if (out->known[at + i] && out->bytes[at + i] != code->bytes[skip + i])
			out->changed = true;
		out->bytes[at + i] = code->bytes[skip + i];
		out->known[at + i] = (uint8_t)source;
	}
}

/* Pieces begin at most a record's bytes before what they hold. */
static uint64_t first_start(uint64_t start)
{
	return start > FXT_CODE_BYTES_MAX ? start - FXT_CODE_BYTES_MAX : 0;
}

static void lay_own(const struct trace_code *self, const struct fxt_process_symbols *of,
		    uint64_t start, struct trace_function_code *out)
{
	const struct trace_code_piece wanted = {.code = {.of = *of, .address = first_start(start)}};
	size_t low = 0, high = self->piece_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_pieces(&self->pieces[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < self->piece_count; low++) {
		const struct fxt_code *code = &self->pieces[low].code;

		if (compare_owners(&code->of, of) ||
		    (code->address >= start && code->address - start >= out->size))
			break;
		lay(out, start, code->address, code, SOURCE_OWN);
	}
}

/* Returns the last piece, NULL: none. */
static const struct trace_code_piece *lay_same_file(const struct trace_code *self, uint32_t file,
						    uint64_t start, struct trace_function_code *out)
{
	const struct trace_code_piece *last = NULL;
	const struct trace_code_piece wanted = {.file = file, .file_address = first_start(start)};
	const struct trace_code_piece *key = &wanted;
	size_t low = 0, high = self->by_file_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_by_file(&self->by_file[middle], &key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < self->by_file_count; low++) {
		const struct trace_code_piece *piece = self->by_file[low];

		if (piece->file != file ||
		    (piece->file_address >= start && piece->file_address - start >= out->size))
			break;
		lay(out, start, piece->file_address, &piece->code, SOURCE_SAME_FILE);
		if (piece->file_address <= start)
			last = piece;
	}
	return last;
}

static void count_known(struct trace_function_code *out)
{
	out->known_count = 0;
	for (size_t i = 0; i < out->size; i++)
		out->known_count += out->known[i] != 0;
}

void trace_code_find(const struct trace *trace, const struct trace_program *program, uint64_t start,
		     uint64_t size, struct trace_function_code *out)
{
	const struct fxt_process_symbols nobody = {0};
	const struct trace_code_piece *piece;
	const struct trace_module *module;
	bool any_own;
	uint64_t file_address;

	memset(out, 0, sizeof(*out));
	out->size = size < TRACE_CODE_MAX ? (size_t)size : TRACE_CODE_MAX;
	out->program = program;
	out->start = out->wanted = start;
	if (!trace->code)
		return;
	lay_own(trace->code, program ? &program->of : &nobody, start, out);
	count_known(out);
	any_own = out->known_count > 0;
	module = trace_find_module(trace, program, start);
	if (out->known_count == out->size || !module)
		return;
	file_address = start - module->start + module->file_address;
	piece = lay_same_file(trace->code, module->file, file_address, out);
	count_known(out);
	if (any_own || !piece || !out->known_count)
		return;
	out->program = trace_find_program(trace, &piece->code.of);
	out->start = piece->code.address + (file_address - piece->file_address);
}
