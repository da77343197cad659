#include "guest-introspection/linux/kallsyms.h"

#include "base/cleanup.h"
#include "guest-introspection/linux/linux_reader.h"

#include <stdlib.h>
#include <string.h>

/* The tables, each aligned to 8 bytes. Up to 6.3 (and "A" below):
 *
 *   offsets (s32 each) | relative_base (u64) | num_syms (u32) | names | markers (u32 each)
 *   | [seqs_of_names (3 bytes each)] | token_table | token_index (256 x u16)
 *
 * From 6.4 on (404bad70fcf7, "B" below):
 *
 *   num_syms | names | markers | token_table | token_index | offsets | relative_base
 *   | seqs_of_names
 *
 * From 7.0 on there is no relative_base, so that nothing needs more than 4 bytes: they are aligned
 * to those.
 *
 * A name is a length, then that many bytes, each a token; a marker is the offset of each 256th
 * name; token_index holds the offset of each token in token_table. */
#define TOKENS 256
#define INDEX_SIZE (TOKENS * 2)
#define FIRST_DIGIT 0x30
#define DIGITS 10
#define NAMES_PER_MARKER 256
#define SMALLEST_NAME 2     /* a length and a token */
#define LONGEST_NAME 0x3fff /* of a two-byte length */
#define EXPANDED_LIMIT 512  /* KSYM_NAME_LEN, with its kind */
#define WIDE_ALIGN 8        /* of the tables; num_syms has as much room */
#define TABLE_ALIGN 4
#define SEARCH_WORK (16u << 20)

#define PAGE UINT64_C(4096)

struct tables {
	const uint8_t *bytes;
	size_t size;
	uint64_t start;
	size_t token_table;
	size_t token_index;
	uint16_t tokens[TOKENS]; /* offsets from token_table */
	size_t align;            /* WIDE_ALIGN or TABLE_ALIGN */
	size_t names;
	size_t markers;
	uint32_t count;
	uint32_t work; /* steps left for the search, so that a hostile guest cannot prolong it */
};

static uint32_t get_u32(const uint8_t *bytes, size_t offset)
{
	uint32_t value;

	memcpy(&value, bytes + offset, sizeof(value));
	return value;
}

static uint64_t get_u64(const uint8_t *bytes, size_t offset)
{
	uint64_t value;

	memcpy(&value, bytes + offset, sizeof(value));
	return value;
}

static size_t align_up(size_t value, size_t align)
{
	return (value + align - 1) & ~(align - 1);
}

size_t kallsyms_find_digits(const uint8_t *bytes, size_t size, size_t from)
{
	static const char digits[] = "0\0001\0002\0003\0004\0005\0006\0007\0008\0009";
	const uint8_t *found;

	_Static_assert(sizeof(digits) == 2 * DIGITS, "ten digits, each terminated");
	if (from >= size)
		return size;
	found = memmem(bytes + from, size - from, digits, sizeof(digits));
	return found ? (size_t)(found - bytes) : size;
}

static bool is_token_index(const struct tables *tables, size_t at)
{
	return at <= tables->size && tables->size - at >= INDEX_SIZE &&
	       memcmp(tables->bytes + at, tables->tokens, INDEX_SIZE) == 0;
}

/* Is the token table at offset `table`, proven by the index behind it? */
static bool try_tokens(struct tables *tables, size_t table)
{
	size_t at = table;

	for (unsigned token = 0; token < TOKENS; token++) {
		const uint8_t *end;

		if (at - table > UINT16_MAX || at >= tables->size)
			return false;
		tables->tokens[token] = (uint16_t)(at - table);
		end = memchr(tables->bytes + at, 0, tables->size - at);
		if (!end)
			return false;
		at = (size_t)(end - tables->bytes) + 1;
	}
	tables->token_table = table;
	tables->token_index = align_up(at, TABLE_ALIGN);
	if (!is_token_index(tables, tables->token_index))
		tables->token_index = align_up(at, WIDE_ALIGN);
	return is_token_index(tables, tables->token_index);
}

/* From the tokens "0" to "9" to the whole token table. */
static bool find_tokens(struct tables *tables, size_t digits)
{
	size_t at = digits;
	size_t table;

	/* 47 terminated strings before "0" begins token number 1. */
	for (unsigned token = 1; token < FIRST_DIGIT; token++) {
		if (at < 2)
			return false;
		for (at--; at > 0 && tables->bytes[at - 1] != 0; at--)
			if (digits - at > UINT16_MAX)
				return false;
	}
	/* Token 0 begins where the table does, and what is before that need not end with a
	 * zero: seqs_of_names may have no padding. So go by the alignment. */
	if (at < 2)
		return false;
	table = (at - 2) & ~(size_t)(TABLE_ALIGN - 1);
	for (;;) {
		if (memchr(tables->bytes + table, 0, at - 1 - table) != NULL ||
		    at - table > EXPANDED_LIMIT)
			return false;
		if (try_tokens(tables, table))
			return true;
		if (table < TABLE_ALIGN)
			return false;
		table -= TABLE_ALIGN;
	}
}

/* Steps over one name that starts at `at` and ends at or before `end`. `body` and `length` say
 * where its tokens are. Returns the offset behind it, 0 when it does not fit. */
static size_t step_name(const uint8_t *bytes, size_t at, size_t end, size_t *body, size_t *length)
{
	size_t value;

	if (at >= end)
		return 0;
	value = bytes[at++];
	if (value & 0x80) {
		if (at >= end)
			return 0;
		value = (value & 0x7f) | (size_t)bytes[at++] << 7;
	}
	if (value == 0 || value > LONGEST_NAME || value > end - at)
		return 0;
	*body = at;
	*length = value;
	return at + value;
}

/* Are `count` names at `names` exactly what the markers at `markers` say? */
static bool names_match(struct tables *tables, size_t names, size_t markers, uint32_t count,
			size_t align)
{
	size_t at = names;
	size_t body;
	size_t length;

	for (uint32_t i = 0; i < count; i++) {
		if (i % NAMES_PER_MARKER == 0 &&
		    at - names != get_u32(tables->bytes, markers + i / NAMES_PER_MARKER * 4))
			return false;
		at = step_name(tables->bytes, at, markers, &body, &length);
		if (at == 0 || tables->work == 0)
			return false;
		tables->work--;
	}
	return align_up(at, align) == markers;
}

/* What num_syms would be if the names began at `names`; 0: none can be there. */
static uint32_t count_before(const struct tables *tables, size_t names, size_t align)
{
	if (names % align != 0 || names < align ||
	    (align == WIDE_ALIGN && get_u32(tables->bytes, names - 4) != 0))
		return 0;
	return get_u32(tables->bytes, names - align);
}

/* Do the names of `used` markers begin at `names`? */
static bool try_names(struct tables *tables, size_t names, size_t markers, uint32_t used)
{
	for (size_t align = WIDE_ALIGN; align >= TABLE_ALIGN; align /= 2) {
		uint32_t count = count_before(tables, names, align);

		if (count == 0 || count > SYMBOL_TABLE_LIMIT ||
		    (count - 1) / NAMES_PER_MARKER + 1 != used ||
		    !names_match(tables, names, markers, count, align))
			continue;
		tables->align = align;
		tables->names = names;
		tables->markers = markers;
		tables->count = count;
		return true;
	}
	return false;
}

/* Tries the names that end at `markers`, of which the first `rising` could be markers. */
static bool find_names(struct tables *tables, size_t markers, uint32_t rising)
{
	/* What follows the markers may look like a few more of them. */
	const uint32_t fewest = rising > 16 ? rising - 16 : 1;

	for (uint32_t used = rising; used >= fewest; used--) {
		uint32_t last = get_u32(tables->bytes, markers + (used - 1) * 4);
		size_t nearest;
		size_t furthest;

		if (last > markers)
			continue;
		/* Behind the last marker come 1 to 256 names. */
		nearest = markers - last;
		furthest = NAMES_PER_MARKER * (LONGEST_NAME / 16);
		furthest = nearest > furthest ? nearest - furthest : 0;
		for (size_t names = nearest & ~(size_t)(TABLE_ALIGN - 1);
		     names >= TABLE_ALIGN && names >= furthest && tables->work > 0;
		     names -= TABLE_ALIGN) {
			tables->work--;
			if (try_names(tables, names, markers, used))
				return true;
		}
	}
	return false;
}

/* Finds the markers, going back from the token table: a zero, then rising offsets. */
static bool find_markers(struct tables *tables)
{
	const size_t smallest_step = NAMES_PER_MARKER * SMALLEST_NAME;

	for (size_t at = tables->token_table; at >= 2 * TABLE_ALIGN && tables->work > 0;) {
		uint32_t rising = 1;
		uint32_t before = 0;

		at -= TABLE_ALIGN;
		if (get_u32(tables->bytes, at) != 0)
			continue;
		while (at + (rising + 1) * 4 <= tables->token_table) {
			uint32_t value = get_u32(tables->bytes, at + rising * 4);

			if (value < before + smallest_step || value > at)
				break;
			before = value;
			rising++;
		}
		if (rising >= 2 && find_names(tables, at, rising))
			return true;
	}
	return false;
}

/* Expands name number ... at `body` to its kind and name. Returns its length, 0 when it is none. */
static size_t expand(const struct tables *tables, size_t body, size_t length,
		     char out[static EXPANDED_LIMIT + 1])
{
	size_t used = 0;

	for (size_t i = 0; i < length; i++) {
		const char *token = (const char *)tables->bytes + tables->token_table +
				    tables->tokens[tables->bytes[body + i]];

		while (*token) {
			if (used == EXPANDED_LIMIT || *token <= 0x20 || *token == 0x7f)
				return 0;
			out[used++] = *token++;
		}
	}
	out[used] = 0;
	return used;
}

/* How addresses are stored. All of them have been in use; the one that puts `_text` where the
 * kernel is and rises from symbol to symbol is the one. */
enum encoding {
	ABSOLUTE_PERCPU, /* v >= 0: v itself; else base - 1 - v */
	BASE_RELATIVE,   /* base + v, v unsigned */
	TEXT_RELATIVE,   /* `_text` + v, v signed; no base is stored */
	PLACE_RELATIVE,  /* where v itself lies + v, v signed; no base either */
	ENCODINGS,
};

struct offsets {
	size_t at;
	uint64_t base;
	enum encoding encoding;
};

static uint64_t decode(const struct tables *tables, const struct offsets *offsets, uint32_t index)
{
	uint32_t value = get_u32(tables->bytes, offsets->at + (size_t)index * 4);
	int64_t as_signed = (int32_t)value;

	if (offsets->encoding == ABSOLUTE_PERCPU)
		return as_signed >= 0 ? value : offsets->base - 1 - (uint64_t)as_signed;
	if (offsets->encoding == BASE_RELATIVE)
		return offsets->base + value;
	if (offsets->encoding == PLACE_RELATIVE)
		return tables->start + offsets->at + (uint64_t)index * 4 + (uint64_t)as_signed;
	return offsets->base + (uint64_t)as_signed;
}

static bool offsets_fit(const struct tables *tables, const struct offsets *offsets,
			uint32_t text_index, uint64_t text_base)
{
	uint64_t before = 0;

	if (decode(tables, offsets, text_index) != text_base)
		return false;
	for (uint32_t i = 0; i < tables->count; i++) {
		uint64_t address = decode(tables, offsets, i);

		if (address < before)
			return false;
		before = address;
	}
	return true;
}

static bool find_offsets(const struct tables *tables, uint32_t text_index, uint64_t text_base,
			 struct offsets *out)
{
	const size_t bytes = (size_t)tables->count * 4;
	const size_t room = align_up(bytes, tables->align);
	const size_t after = tables->token_index + INDEX_SIZE;
	/* num_syms is right before the names, the base 8 bytes before that. */
	const size_t before = tables->names - tables->align;

	for (unsigned encoding = 0; encoding < ENCODINGS; encoding++) {
		size_t base_size = encoding < TEXT_RELATIVE ? 8 : 0;
		struct offsets offsets = {.encoding = encoding, .base = text_base};

		if (before >= room + base_size) {
			offsets.at = before - base_size - room;
			if (base_size)
				offsets.base = get_u64(tables->bytes, before - base_size);
			if (offsets_fit(tables, &offsets, text_index, text_base)) {
				*out = offsets;
				return true;
			}
		}
		if (after <= tables->size && tables->size - after >= room + base_size) {
			offsets.at = after;
			if (base_size)
				offsets.base = get_u64(tables->bytes, after + room);
			if (offsets_fit(tables, &offsets, text_index, text_base)) {
				*out = offsets;
				return true;
			}
		}
	}
	return false;
}

/* Goes through all names once: sums up their room and finds `_text`, or `_stext` without it. */
static bool survey_names(const struct tables *tables, size_t *room, uint32_t *text_index)
{
	size_t at = tables->names;
	bool found = false;
	bool exact = false;

	*room = 0;
	for (uint32_t i = 0; i < tables->count; i++) {
		char name[EXPANDED_LIMIT + 1];
		size_t body;
		size_t length;
		size_t expanded;

		at = step_name(tables->bytes, at, tables->markers, &body, &length);
		if (at == 0)
			return false;
		expanded = expand(tables, body, length, name);
		if (expanded < 2)
			return false;
		*room += expanded; /* the kind goes, the terminator comes */
		if (!exact && strcmp(name + 1, "_text") == 0) {
			*text_index = i;
			found = exact = true;
		} else if (!found && strcmp(name + 1, "_stext") == 0) {
			*text_index = i;
			found = true;
		}
	}
	return found;
}

/* kallsyms_parse() up to a table that is filled but not finished. */
static gp_status_t fill_table(const uint8_t *bytes, size_t size, uint64_t start, size_t digits,
			      uint64_t text_base, struct symbol_table *out, struct error *error)
{
	struct tables tables = {.bytes = bytes, .size = size, .start = start, .work = SEARCH_WORK};
	struct offsets offsets;
	struct symbol_table table;
	uint32_t text_index = 0;
	size_t room;
	size_t at;
	gp_status_t status;

	if (start % WIDE_ALIGN != 0 || digits > size || !find_tokens(&tables, digits))
		return error_set(error, GP_ERR_NOT_FOUND, "no kallsyms token table");
	if (!find_markers(&tables) || !survey_names(&tables, &room, &text_index))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "a kallsyms token table, but no names that fit it");
	if (!find_offsets(&tables, text_index, text_base, &offsets))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "kallsyms has %u names in an address encoding that is not known",
				 tables.count);
	symbol_table_init(&table);
	status = symbol_table_reserve(&table, tables.count, room);
	at = tables.names;
	for (uint32_t i = 0; status == GP_OK && i < tables.count; i++) {
		char name[EXPANDED_LIMIT + 1];
		size_t body = 0;
		size_t length = 0;

		/* survey_names() has seen all of them fit. */
		at = step_name(bytes, at, tables.markers, &body, &length);
		length = expand(&tables, body, length, name);
		status = symbol_table_add(&table, decode(&tables, &offsets, i), 0, name[0],
					  name + 1, length - 1);
	}
	if (status != GP_OK) {
		symbol_table_deinit(&table);
		return error_set(error, status, "no room for the guest's %u kernel symbols",
				 tables.count);
	}
	*out = table;
	return GP_OK;
}

gp_status_t kallsyms_parse(const uint8_t *bytes, size_t size, uint64_t start, size_t digits,
			   uint64_t text_base, struct symbol_table *out, struct error *error)
{
	gp_status_t status = fill_table(bytes, size, start, digits, text_base, out, error);

	if (status == GP_OK)
		symbol_table_finish(out);
	return status;
}

static bool readable(struct linux_reader *reader, uint64_t page)
{
	uint8_t byte;

	return linux_read(reader, page, &byte, 1);
}

/* Copies the pages around linear address `around` that are there without a hole, at most
 * `before` and `after` bytes of them. `*size` is what was read, from `*start` on. */
static gp_status_t copy_around(const struct guest_memory *memory, const struct linux_kernel *kernel,
			       uint64_t around, uint64_t before, uint64_t after, uint8_t **bytes,
			       size_t *size, uint64_t *start)
{
	struct linux_reader reader = linux_reader_of(memory, &kernel->space);
	uint64_t middle = around & ~(PAGE - 1);
	uint64_t first = middle;
	uint64_t end = middle;
	uint8_t *buffer;

	while (first > kernel->text_base && middle - first < before &&
	       readable(&reader, first - PAGE))
		first -= PAGE;
	while (end < kernel->image_end && end - middle < after && readable(&reader, end))
		end += PAGE;
	if (end <= around)
		return GP_ERR_NOT_FOUND;
	buffer = malloc(end - first);
	if (!buffer)
		return GP_ERR_NO_MEMORY;
	if (!linux_read(&reader, first, buffer, end - first)) {
		free(buffer);
		return GP_ERR_NOT_FOUND;
	}
	*bytes = buffer;
	*size = end - first;
	*start = first;
	return GP_OK;
}

/* Parses the tables around a digit run at linear address `digits`: first only the token table,
 * because there are digit runs elsewhere too, then all in a copy that is big enough for a
 * distribution's kernel, then in one for the largest. */
static gp_status_t parse_around(const struct guest_memory *memory,
				const struct linux_kernel *kernel, uint64_t digits,
				struct symbol_table *out, struct error *error)
{
	static const uint64_t reach[] = {UINT64_C(64) << 10, UINT64_C(4) << 20, UINT64_C(32) << 20};
	gp_status_t status = GP_ERR_NOT_FOUND;

	for (unsigned i = 0; i < sizeof(reach) / sizeof(reach[0]); i++) {
		AUTO_FREE uint8_t *bytes = NULL;
		size_t size = 0;
		uint64_t start = 0;

		status = copy_around(memory, kernel, digits, reach[i],
				     i == 0 ? 2 * reach[i] : reach[i] / 2, &bytes, &size, &start);
		if (status == GP_OK && i == 0) {
			struct tables tables = {.bytes = bytes, .size = size, .start = start};

			if (!find_tokens(&tables, (size_t)(digits - start)))
				return GP_ERR_NOT_FOUND;
			continue;
		}
		if (status == GP_OK)
			status = fill_table(bytes, size, start, (size_t)(digits - start),
					    kernel->text_base, out, error);
		if (status == GP_OK) {
			/* Sorting takes memory: the copy makes room for it. */
			free(bytes);
			bytes = NULL;
			symbol_table_finish(out);
		}
		if (status == GP_ERR_NO_MEMORY)
			return error_set(error, status, "no memory to copy the guest's kallsyms");
		if (status != GP_ERR_NOT_FOUND)
			return status;
	}
	return status;
}

gp_status_t linux_kallsyms_read(const struct guest_memory *memory,
				const struct linux_kernel *kernel, struct symbol_table *out,
				struct error *error)
{
	enum { ATTEMPTS = 16 };
	unsigned attempts = 0;
	struct linux_scan scan;
	gp_status_t status;

	error_set(error, GP_ERR_NOT_FOUND, "no kallsyms in the kernel at 0x%llx",
		  (unsigned long long)kernel->text_base);
	/* The tables are constants; before the kernel has protected its data, nothing tells them
	 * from the rest. */
	for (unsigned pass = 0; pass < 2; pass++) {
		linux_scan_init(&scan, memory, &kernel->space, kernel->text_base, kernel->image_end,
				2 * DIGITS - 1);
		scan.constants = pass == 0;
		while (linux_scan_next(&scan)) {
			size_t at = 0;

			while ((at = kallsyms_find_digits(scan.bytes, scan.size, at)) < scan.size) {
				if (++attempts > ATTEMPTS)
					return GP_ERR_NOT_FOUND;
				status =
					parse_around(memory, kernel, scan.address + at, out, error);
				if (status != GP_ERR_NOT_FOUND)
					return status;
				at++;
			}
		}
	}
	return GP_ERR_NOT_FOUND;
}
