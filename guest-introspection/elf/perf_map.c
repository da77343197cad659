#include "guest-introspection/elf/perf_map.h"

#include "base/cleanup.h"
#include "base/hexadecimal.h"
#include "base/sorting.h"
#include "base/vector.h"

#define PAGE_SIZE 4096u
/* Two numbers and the longest name. */
#define LINE_LIMIT (2u * 20u + SYMBOL_NAME_LIMIT)

struct line {
	uint64_t start;
	uint64_t size;
	uint32_t number; /* of the line */
	uint32_t name;   /* offset in `names` */
	uint32_t name_size;
};

struct reader {
	VECTOR(struct line) lines;
	struct text_vector names;
	/* The line that is being read, and whether it is to be dropped: it is too long, or its
	 * beginning is not there. */
	char line[LINE_LIMIT];
	size_t length;
	bool dropped;
	bool failed; /* no memory */
};

static bool take_number(const char **at, const char *end, uint64_t *value)
{
	if (end - *at > 2 && (*at)[0] == '0' && ((*at)[1] == 'x' || (*at)[1] == 'X'))
		*at += 2;
	return hexadecimal_take_column(at, end, value);
}

static void take_line(struct reader *self)
{
	const char *at = self->line;
	const char *end = at + self->length;
	struct line line;

	if (end > at && end[-1] == '\r')
		end--;
	if (self->dropped || !take_number(&at, end, &line.start) ||
	    !take_number(&at, end, &line.size) || at == end || line.size == 0 ||
	    line.size > UINT64_MAX - line.start || memchr(at, 0, (size_t)(end - at)))
		return;
	line.name_size = (uint32_t)(end - at);
	if (line.name_size > SYMBOL_NAME_LIMIT)
		line.name_size = SYMBOL_NAME_LIMIT;
	if (self->lines.count == PERF_MAP_LINES)
		return;
	line.number = (uint32_t)self->lines.count;
	line.name = (uint32_t)self->names.count;
	self->failed =
		!vector_append(&self->names, at, line.name_size) || !vector_add(&self->lines, line);
}

static void take_bytes(struct reader *self, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size && !self->failed; i++) {
		if (bytes[i] == '\n') {
			take_line(self);
			self->length = 0;
			self->dropped = false;
		} else if (self->length < sizeof(self->line)) {
			self->line[self->length++] = bytes[i];
		} else {
			self->dropped = true;
		}
	}
}

/* All of the file, page by page: some may not be there. */
static void read_lines(struct reader *self, const struct file_source *source, uint64_t size)
{
	uint64_t end = size < PERF_MAP_BYTES ? size : PERF_MAP_BYTES;
	char page[PAGE_SIZE];

	for (uint64_t at = 0; at < end && !self->failed; at += PAGE_SIZE) {
		size_t wanted = end - at < PAGE_SIZE ? (size_t)(end - at) : PAGE_SIZE;
		size_t got = file_source_read(source, at, page, wanted);

		take_bytes(self, page, got);
		if (got < wanted)
			self->dropped = true;
	}
	/* The last line may still be being written. */
}

static int compare_lines(const void *left, const void *right)
{
	const struct line *a = left;
	const struct line *b = right;

	if (a->start != b->start)
		return compare_u64(a->start, b->start);
	return compare_u64(a->number, b->number);
}

/* Leaves only lines that no later one overlaps. */
static void drop_replaced(struct reader *self)
{
	size_t kept = 0;

	vector_sort(&self->lines, compare_lines);
	for (size_t i = 0; i < self->lines.count; i++) {
		struct line line = self->lines.items[i];
		bool replaced = false;

		while (kept > 0 && !replaced) {
			const struct line *before = &self->lines.items[kept - 1];

			if (line.start - before->start >= before->size)
				break;
			if (before->number < line.number)
				kept--;
			else
				replaced = true;
		}
		if (!replaced)
			self->lines.items[kept++] = line;
	}
	self->lines.count = kept;
}

gp_status_t perf_map_read(const struct file_source *source, uint64_t size, struct symbol_table *out,
			  struct error *error)
{
	AUTO_FREE struct reader *reader = calloc(1, sizeof(*reader));
	struct symbol_table table;

	if (!reader)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for names of generated code");
	symbol_table_init(&table);
	read_lines(reader, source, size);
	drop_replaced(reader);
	for (size_t i = 0; i < reader->lines.count && !reader->failed; i++) {
		const struct line *line = &reader->lines.items[i];
		gp_status_t status =
			symbol_table_add(&table, line->start, line->size, 't',
					 reader->names.items + line->name, line->name_size);

		if (status == GP_ERR_OUT_OF_RANGE)
			break;
		reader->failed = status != GP_OK;
	}
	vector_deinit(&reader->lines);
	vector_deinit(&reader->names);
	if (reader->failed) {
		symbol_table_deinit(&table);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for names of generated code");
	}
	symbol_table_finish(&table);
	*out = table;
	return GP_OK;
}
