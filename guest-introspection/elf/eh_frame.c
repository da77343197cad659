#include "guest-introspection/elf/eh_frame.h"

#include "base/sorting.h"
#include "guest-introspection/elf/eh_frame_rows.h"

#include <stdlib.h>
#include <string.h>

/* What is read of one file: .eh_frame, which a browser has 20 MB of, and its sorted index. */
#define SECTION_LIMIT (UINT64_C(32) << 20)
#define INDEX_LIMIT (UINT64_C(16) << 20)

#define BLOCK_SHIFT 6
#define BLOCK_LIMIT (1u << 20)

void eh_frame_deinit(struct eh_frame *table)
{
	free(table->addresses);
	free(table->numbers);
	free(table->rules);
	address_index_deinit(&table->index);
	eh_frame_init(table);
}

struct part {
	struct elf_bytes bytes;
	struct eh_frame_bytes view; /* of them */
};

static void part_deinit(struct part *part)
{
	elf_bytes_deinit(&part->bytes);
}

/* Reads [offset, end). */
static gp_status_t part_read(const struct file_source *source, uint64_t address, uint64_t offset,
			     uint64_t end, struct part *out)
{
	struct elf_bytes *bytes = &out->bytes;
	gp_status_t status = elf_bytes_read(source, (struct elf_part){offset, end - offset}, bytes);

	if (status == GP_OK)
		out->view =
			(struct eh_frame_bytes){.bytes = bytes->bytes,
						.size = bytes->size,
						.address = address - bytes->start,
						.missing = bytes->holes ? bytes->missing : NULL};
	return status;
}

/* The end in the file of the segment that `offset` lies in. */
static uint64_t segment_end(const struct elf_image *image, uint64_t offset, uint64_t limit)
{
	for (unsigned i = 0; i < image->segment_count; i++) {
		const struct elf_segment *segment = &image->segments[i];

		if (offset < segment->offset || offset - segment->offset >= segment->file_size)
			continue;
		if (segment->file_size - (offset - segment->offset) > limit)
			return offset + limit;
		return segment->offset + segment->file_size;
	}
	return offset;
}

/* Is this a usual CIE? With this every linker begins .eh_frame, for it comes first in
 * the startup code: version 1, augmentation zR, factors 1 and -8, return address in column 16. */
static bool is_first_cie(const struct eh_frame_bytes *bytes, size_t offset)
{
	static const uint8_t expected[] = {0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16};
	size_t next;

	return bytes->size - offset >= 4 + sizeof(expected) &&
	       memcmp(bytes->bytes + offset + 4, expected, sizeof(expected)) == 0 &&
	       eh_frame_record_at(bytes, offset, &next) == EH_FRAME_CIE;
}

/* A static program has no header, and its section headers are seldom available. */
static gp_status_t search(const struct file_source *source, const struct elf_image *image,
			  struct part *out, size_t *start)
{
	uint64_t left = SECTION_LIMIT;

	for (unsigned i = 0; i < image->segment_count && left > 0; i++) {
		const struct elf_segment *segment = &image->segments[i];
		uint64_t length = segment->file_size < left ? segment->file_size : left;
		struct part part;
		gp_status_t status;

		if (segment->writable || segment->file_size == 0)
			continue;
		left -= length;
		status = part_read(source, segment->address, segment->offset,
				   segment->offset + length, &part);
		if (status != GP_OK)
			return status;
		for (size_t at = 0; at + 4 <= part.view.size; at += 4) {
			if (!is_first_cie(&part.view, at))
				continue;
			*out = part;
			*start = at;
			return GP_OK;
		}
		part_deinit(&part);
	}
	return GP_ERR_NOT_FOUND;
}

/* .eh_frame_hdr: where .eh_frame is, and where in it each function's record is (Linux Standard
 * Base, Core, 10.6.2). */
struct header {
	struct part part;
	uint64_t address;   /* its own */
	uint64_t frames;    /* of .eh_frame */
	bool frames_known;  /* else a guess: linkers put it right behind */
	size_t entries;     /* where they are in the part */
	size_t entry_count; /* of 8 bytes each */
};

static gp_status_t read_header(const struct file_source *source, const struct elf_image *image,
			       struct header *out)
{
	uint64_t offset = image->exception_frames.offset;
	uint64_t size = image->exception_frames.size;
	struct header header = {.address = image->exception_frames_address};
	struct cursor cursor;
	uint8_t encodings[4];
	uint64_t count;
	gp_status_t status;

	header.frames = (header.address + size + 7) & ~UINT64_C(7);
	if (size > INDEX_LIMIT)
		size = INDEX_LIMIT;
	status = part_read(source, header.address, offset, offset + size, &header.part);
	if (status != GP_OK)
		return status;
	cursor = cursor_over(header.part.view.bytes, header.part.view.size);
	cursor_seek(&cursor, (size_t)(offset % ELF_PAGE));
	cursor_copy(&cursor, encodings, sizeof(encodings));
	header.frames_known =
		encodings[0] == 1 && eh_frame_read_address(&cursor, encodings[1],
							   header.part.view.address + cursor.offset,
							   header.address, &header.frames);
	/* Pairs of 4 bytes relative to the header are what every linker writes. */
	if (header.frames_known && encodings[3] == 0x3b &&
	    eh_frame_read_address(&cursor, encodings[2], 0, header.address, &count)) {
		header.entries = cursor.offset;
		header.entry_count = cursor_left(&cursor) / 8;
		if (count < header.entry_count)
			header.entry_count = (size_t)count;
	}
	*out = header;
	return GP_OK;
}

/* Adds the records from `from` on that the index says there are. */
static void add_indexed(struct eh_frame_builder *builder, const struct header *header,
			const struct eh_frame_bytes *bytes, size_t from, uint32_t *functions)
{
	const struct eh_frame_bytes *index = &header->part.view;

	for (size_t i = 0; i < header->entry_count && !builder->exhausted; i++) {
		size_t at = header->entries + i * 8 + 4;
		int32_t relative;
		uint64_t offset;

		if (index->missing && !elf_bytes_available(index->missing, at, 4))
			continue;
		memcpy(&relative, index->bytes + at, sizeof(relative));
		offset = header->address + (uint64_t)(int64_t)relative - bytes->address;
		if (offset >= from && offset < bytes->size &&
		    eh_frame_builder_add(builder, bytes, (size_t)offset))
			++*functions;
	}
}

static int compare_rows(const void *left, const void *right)
{
	return compare_u64(*(const uint64_t *)left, *(const uint64_t *)right);
}

static void sort_rows(struct eh_frame_builder *builder)
{
	for (size_t i = 1; i < builder->rows.count; i++) {
		if (builder->rows.items[i] >= builder->rows.items[i - 1])
			continue;
		vector_sort(&builder->rows, compare_rows);
		return;
	}
}

/* No more than two for each row: where rows are far apart, small blocks are wasted. */
static uint32_t block_limit(uint32_t row_count)
{
	return row_count < BLOCK_LIMIT / 2 ? 2 * row_count + 1 : BLOCK_LIMIT;
}

/* Makes the table of what was built. */
static gp_status_t finish(struct eh_frame_builder *builder, struct eh_frame *table)
{
	uint32_t count = 0;

	sort_rows(builder);
	table->base = builder->base;
	table->addresses = malloc(builder->rows.count * sizeof(*table->addresses));
	table->numbers = malloc(builder->rows.count * sizeof(*table->numbers));
	table->rules = malloc(builder->rules.count * sizeof(*table->rules));
	if (!table->addresses || !table->numbers || !table->rules)
		return GP_ERR_NO_MEMORY;
	memcpy(table->rules, builder->rules.items, builder->rules.count * sizeof(*table->rules));
	table->rule_count = (uint32_t)builder->rules.count;
	for (size_t i = 0; i < builder->rows.count; i++) {
		uint32_t address = (uint32_t)(builder->rows.items[i] >> 32);
		uint16_t number = (uint16_t)builder->rows.items[i];

		/* Where one function ends the next one begins. */
		if (count > 0 && table->addresses[count - 1] == address)
			count--;
		if (count > 0 && table->numbers[count - 1] == number)
			continue;
		table->addresses[count] = address;
		table->numbers[count++] = number;
	}
	/* It is so already, unless there were more rows than the limit. */
	table->numbers[count - 1] = 0;
	table->row_count = count;
	return address_index_make(table->addresses, table->row_count, BLOCK_SHIFT,
				  block_limit(table->row_count), &table->index);
}

static uint64_t lowest_address(const struct elf_image *image)
{
	uint64_t lowest = UINT64_MAX;

	for (unsigned i = 0; i < image->segment_count; i++)
		if (image->segments[i].address < lowest)
			lowest = image->segments[i].address;
	return lowest;
}

/* Adds all records from `start` on, and where the walk ends before the section does, those that
 * the index (NULL: none) has. */
static gp_status_t build(const struct elf_image *image, const struct eh_frame_bytes *bytes,
			 size_t start, const struct header *header, struct eh_frame *out)
{
	struct eh_frame_builder *builder = calloc(1, sizeof(*builder));
	struct eh_frame table = {0};
	enum eh_frame_record record;
	size_t at = start;
	size_t next = 0;
	gp_status_t status;

	if (!builder || eh_frame_builder_init(builder, lowest_address(image)) != GP_OK) {
		free(builder);
		return GP_ERR_NO_MEMORY;
	}
	while ((record = eh_frame_record_at(bytes, at, &next)) <= EH_FRAME_FDE) {
		if (record == EH_FRAME_FDE && eh_frame_builder_add(builder, bytes, at))
			table.function_count++;
		at = next;
	}
	if (record != EH_FRAME_LAST && header)
		add_indexed(builder, header, bytes, at, &table.function_count);
	/* The vDSO's has no end of its own. */
	table.complete = !builder->exhausted &&
			 (record == EH_FRAME_LAST || (header && header->entry_count > 0 &&
						      table.function_count >= header->entry_count));
	if (builder->no_memory)
		status = GP_ERR_NO_MEMORY;
	else if (builder->rows.count == 0)
		status = GP_ERR_NOT_FOUND;
	else
		status = finish(builder, &table);
	eh_frame_builder_deinit(builder);
	free(builder);
	if (status == GP_OK)
		*out = table;
	else
		eh_frame_deinit(&table);
	return status;
}

static gp_status_t read_by_search(const struct file_source *source, const struct elf_image *image,
				  struct eh_frame *out)
{
	struct part part;
	size_t start;
	gp_status_t status = search(source, image, &part, &start);

	if (status != GP_OK)
		return status;
	status = build(image, &part.view, start, NULL, out);
	/* What was found may not be the first record: that one may lie in a page that is not there.
	 */
	for (size_t page = 0; status == GP_OK && page <= start / ELF_PAGE; page++)
		if (part.bytes.missing[page])
			out->complete = false;
	part_deinit(&part);
	return status;
}

static gp_status_t read_by_header(const struct file_source *source, const struct elf_image *image,
				  struct eh_frame *out)
{
	struct header header;
	struct part part;
	uint64_t offset;
	gp_status_t status = read_header(source, image, &header);

	if (status != GP_OK)
		return status;
	status = elf_image_offset(image, header.frames, &offset)
			 ? part_read(source, header.frames, offset,
				     segment_end(image, offset, SECTION_LIMIT), &part)
			 : GP_ERR_NOT_FOUND;
	if (status == GP_OK) {
		size_t start = (size_t)(offset % ELF_PAGE);

		status = header.frames_known || is_first_cie(&part.view, start)
				 ? build(image, &part.view, start, &header, out)
				 : GP_ERR_NOT_FOUND;
		part_deinit(&part);
	}
	part_deinit(&header.part);
	return status;
}

gp_status_t eh_frame_read(const struct file_source *source, const struct elf_image *image,
			  struct eh_frame *out, struct error *error)
{
	gp_status_t status;

	if (!image->is_64)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "a 32-bit program: followed by frame pointers only");
	status = image->exception_frames.size ? read_by_header(source, image, out)
					      : read_by_search(source, image, out);
	if (status == GP_OK)
		return GP_OK;
	return error_set(error, status,
			 status == GP_ERR_NOT_FOUND ? "no unwind rules can be read"
						    : "no memory for unwind rules");
}

const struct eh_frame_rule *eh_frame_find(const struct eh_frame *table, uint64_t address)
{
	uint64_t relative = address - table->base;
	const struct eh_frame_rule *rule;

	/* Behind the last function there is a row that says so. */
	if (table->row_count == 0 || relative < table->addresses[0] || relative > UINT32_MAX)
		return NULL;
	rule = &table->rules[table->numbers[address_index_find(&table->index, table->addresses,
							       (uint32_t)relative)]];
	return rule->kind == EH_FRAME_NO_RULE ? NULL : rule;
}
