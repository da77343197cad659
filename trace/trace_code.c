#include "trace/trace_code.h"

#include "base/sorting.h"

/* A mapping follows its module at once: the latest of that number is meant. */
static bool see_mapping(struct trace_code *self, const struct fxt_mmap *mapping, uint64_t time)
{
	struct trace_module module = {0};

	for (size_t back = 1; back <= TRACE_CODE_RECENT && back <= self->recent_count; back++) {
		size_t at = (self->recent_count - back) % TRACE_CODE_RECENT;

		if (self->recent_ids[at] != mapping->module ||
		    self->recent[at].process != mapping->thread.process ||
		    self->recent[at].valid_from != time)
			continue;
		if (mapping->range > UINT64_MAX - mapping->start)
			return true;
		module = self->recent[at];
		module.start = mapping->start;
		module.end = mapping->start + mapping->range;
		module.file_address = mapping->vaddr;
		return vector_add(&self->modules, module);
	}
	return true;
}

bool trace_code_see(struct trace_code *self, const struct fxt_reader *reader,
		    const struct fxt_record *record)
{
	const struct fxt_module *module = &record->module;
	struct trace_code_piece piece = {.file = UINT32_MAX};

	if (record->kind == FXT_KIND_MODULE) {
		size_t at = self->recent_count++ % TRACE_CODE_RECENT;

		self->recent_ids[at] = module->id;
		self->recent[at] = (struct trace_module){
			.process = module->thread.process,
			.valid_from = fxt_reader_nanoseconds(reader, module->timestamp),
			.name = module->name.text ? module->name.text : "",
			.name_bytes = module->name.length,
			.build_id = (const uint8_t *)module->build_id.text,
			.build_id_bytes = module->build_id.length,
		};
	} else if (record->kind == FXT_KIND_MMAP) {
		return see_mapping(self, &record->mmap,
				   fxt_reader_nanoseconds(reader, record->mmap.timestamp));
	} else if (record->kind == FXT_KIND_BLOB && fxt_blob_is_code(&record->blob) &&
		   fxt_code_decode(&record->blob, &piece.code)) {
		return vector_add(&self->pieces, piece);
	}
	return true;
}

/* Sorting. */

static int compare_modules(const void *left, const void *right)
{
	const struct trace_module *a = left, *b = right;
	int order = compare_u64(a->process, b->process);

	if (!order)
		order = compare_u64(a->valid_from, b->valid_from);
	return order ? order : compare_u64(a->start, b->start);
}

static int compare_owners(const struct fxt_process_symbols *a, const struct fxt_process_symbols *b)
{
	int order = compare_u64(a->process, b->process);

	if (!order)
		order = compare_u64(a->address_space, b->address_space);
	return order ? order : compare_u64(a->valid_from, b->valid_from);
}

static int compare_pieces(const void *left, const void *right)
{
	const struct trace_code_piece *a = left, *b = right;
	int order = compare_owners(&a->code.of, &b->code.of);

	if (!order)
		order = compare_u64(a->code.address, b->code.address);
	return order ? order : compare_u64(a->code.read_at, b->code.read_at);
}

static int compare_by_file(const void *left, const void *right)
{
	const struct trace_code_piece *a = *(struct trace_code_piece *const *)left;
	const struct trace_code_piece *b = *(struct trace_code_piece *const *)right;
	int order = compare_u64(a->file, b->file);

	if (!order)
		order = compare_u64(a->file_address, b->file_address);
	return order ? order : compare_u64(a->code.read_at, b->code.read_at);
}

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
	size_t common = a_size < b_size ? a_size : b_size;
	int order = common ? memcmp(a, b, common) : 0;

	return order ? order : compare_u64(a_size, b_size);
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
	VECTOR(struct trace_module *) order = {0};
	uint32_t file = 0;

	for (size_t i = 0; i < self->modules.count; i++)
		if (!vector_add(&order, &self->modules.items[i])) {
			vector_deinit(&order);
			return false;
		}
	vector_sort(&order, compare_files);
	for (size_t i = 0; i < order.count; i++) {
		file += i > 0 && compare_files(&order.items[i - 1], &order.items[i]) != 0;
		order.items[i]->file = file;
	}
	vector_deinit(&order);
	return true;
}

static const struct trace_module *find_module(const struct trace_code *self, uint64_t process,
					      uint64_t valid_from, uint64_t address)
{
	const struct trace_module wanted = {
		.process = process, .valid_from = valid_from, .start = address};
	size_t count = count_up_to(self->modules.items, self->modules.count, sizeof(wanted),
				   &wanted, compare_modules);
	const struct trace_module *module = count ? &self->modules.items[count - 1] : NULL;

	return module && module->process == process && module->valid_from == valid_from &&
			       address < module->end
		       ? module
		       : NULL;
}

bool trace_code_settle(struct trace_code *self)
{
	vector_sort(&self->modules, compare_modules);
	if (!number_files(self))
		return false;
	vector_sort(&self->pieces, compare_pieces);
	for (size_t i = 0; i < self->pieces.count; i++) {
		struct trace_code_piece *piece = &self->pieces.items[i];
		const struct trace_module *module =
			find_module(self, piece->code.of.process, piece->code.of.valid_from,
				    piece->code.address);

		if (!module)
			continue;
		piece->file = module->file;
		piece->file_address = piece->code.address - module->start + module->file_address;
		if (!vector_add(&self->by_file, piece))
			return false;
	}
	vector_sort(&self->by_file, compare_by_file);
	return true;
}

void trace_code_deinit(struct trace_code *self)
{
	vector_deinit(&self->pieces);
	vector_deinit(&self->by_file);
	vector_deinit(&self->modules);
}

/* Looking up. */

const struct trace_module *trace_find_module(const struct trace_code *self,
					     const struct trace_program *program, uint64_t address)
{
	return program ? find_module(self, program->of.process, program->of.valid_from, address)
		       : find_module(self, 0, 0, address);
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
	size_t at = count_before(self->pieces.items, self->pieces.count, sizeof(wanted), &wanted,
				 compare_pieces);

	for (; at < self->pieces.count; at++) {
		const struct fxt_code *code = &self->pieces.items[at].code;

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
	size_t at = count_before(self->by_file.items, self->by_file.count, sizeof(key), &key,
				 compare_by_file);

	for (; at < self->by_file.count; at++) {
		const struct trace_code_piece *piece = self->by_file.items[at];

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

void trace_code_find(const struct trace_code *self, const struct trace_programs *programs,
		     const struct trace_program *program, uint64_t start, uint64_t size,
		     struct trace_function_code *out)
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
	lay_own(self, program ? &program->of : &nobody, start, out);
	count_known(out);
	any_own = out->known_count > 0;
	module = trace_find_module(self, program, start);
	if (out->known_count == out->size || !module)
		return;
	file_address = start - module->start + module->file_address;
	piece = lay_same_file(self, module->file, file_address, out);
	count_known(out);
	if (any_own || !piece || !out->known_count)
		return;
	out->program = trace_programs_find(programs, &piece->code.of);
	out->start = piece->code.address + (file_address - piece->file_address);
}
