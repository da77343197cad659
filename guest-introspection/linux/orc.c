#include "guest-introspection/linux/orc.h"

#include "base/cleanup.h"
#include "guest-introspection/linux/linux_reader.h"

#include <stdlib.h>
#include <string.h>

#define ENTRY_SIZE 6

/* Entries are found within a block of text by bisection; 256 bytes of text have some 7. */
#define BLOCK_SHIFT 8
#define BLOCK_LIMIT (1u << 18)

/* The kernel's image and each module are far smaller; module text is within 2 GiB of it. */
#define TEXT_LIMIT (UINT64_C(1) << 30)

/* SHA-1 of the declaration of struct orc_entry, its types and registers (scripts/orc_hash.sh,
 * Linux 6.4 on), as far as it identifies one. */
#define HASH_SIZE 4
static const struct {
	uint8_t hash[HASH_SIZE];
	enum orc_format format;
} known_hashes[] = {
	{{0xfe, 0x5d, 0x32, 0xbf}, ORC_FORMAT_3},
	{{0x13, 0x7c, 0x36, 0xad}, ORC_FORMAT_4},
};

/* The registers of format 4 by their numbers there (arch/x86/include/asm/orc_types.h). */
static const uint8_t renumbered[ORC_REGISTER_COUNT] = {
	ORC_REGISTER_UNDEFINED,   ORC_REGISTER_AX,          ORC_REGISTER_DX,
	ORC_REGISTER_SP,          ORC_REGISTER_BP,          ORC_REGISTER_DI,
	ORC_REGISTER_R10,         ORC_REGISTER_R13,         ORC_REGISTER_PREVIOUS_SP,
	ORC_REGISTER_SP_INDIRECT, ORC_REGISTER_BP_INDIRECT,
};

static void table_deinit(struct orc_table *table)
{
	free(table->addresses);
	free(table->entries);
	address_index_deinit(&table->index);
	*table = (struct orc_table){0};
}

void orc_deinit(struct orc *orc)
{
	if (!orc->kernel_is_borrowed)
		table_deinit(&orc->kernel);
	for (size_t i = 0; i < orc->module_count; i++)
		table_deinit(&orc->modules[i]);
	free(orc->modules);
	orc_init(orc);
}

/* What the last two bytes of an entry say. */
struct decoded {
	enum orc_type type;
	bool exact;
	uint8_t sp; /* enum orc_register */
	uint8_t bp;
};

/* The types of formats 3 and 4. */
static bool decode_typed(unsigned bits, struct decoded *out)
{
	out->exact = bits & 8;
	out->type = bits & 7;
	if (bits >> 4 || out->type > ORC_REGS_PARTIAL)
		return false;
	/* Without a place on the stack there is nothing to be said of it. */
	return out->type <= ORC_END ? out->sp == ORC_REGISTER_UNDEFINED
				    : out->sp != ORC_REGISTER_UNDEFINED;
}

/* The types of formats 1 and 2. */
static bool decode_untyped(enum orc_format format, unsigned bits, struct decoded *out)
{
	/* Before there was such a bit, it went without saying of saved registers. */
	out->exact = bits & (format == ORC_FORMAT_2 ? 4 : 3);
	if (bits >> (format == ORC_FORMAT_2 ? 4 : 3) || (bits & 3) == 3)
		return false;
	if (bits & (format == ORC_FORMAT_2 ? 8 : 4)) {
		out->type = ORC_END;
		return out->sp == ORC_REGISTER_UNDEFINED;
	}
	if (out->sp == ORC_REGISTER_UNDEFINED) {
		out->type = ORC_UNDEFINED;
		return !out->exact;
	}
	out->type = ORC_CALL + (bits & 3);
	return true;
}

/* False: not valid in `format`. */
static bool decode(enum orc_format format, uint16_t packed, struct decoded *out)
{
	/* Formats 1 to 3 do not have the last register. */
	unsigned limit = format == ORC_FORMAT_4 ? ORC_REGISTER_COUNT : ORC_REGISTER_AX;

	out->sp = packed & 15;
	out->bp = packed >> 4 & 15;
	if (out->sp >= limit || out->bp >= limit)
		return false;
	if (format == ORC_FORMAT_4) {
		out->sp = renumbered[out->sp];
		out->bp = renumbered[out->bp];
	}
	return format >= ORC_FORMAT_3 ? decode_typed(packed >> 8, out)
				      : decode_untyped(format, packed >> 8, out);
}

static uint16_t packed_at(const uint8_t *entry)
{
	return (uint16_t)(entry[4] | entry[5] << 8);
}

enum orc_format orc_detect_format(const uint8_t *entries, size_t count)
{
	static const enum orc_format formats[] = {ORC_FORMAT_4, ORC_FORMAT_3, ORC_FORMAT_2,
						  ORC_FORMAT_1};
	enum orc_format best = ORC_FORMAT_UNKNOWN;
	size_t least = count / 256 + 1;

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		size_t invalid = 0;
		size_t calls = 0;
		size_t from_sp = 0;

		for (size_t k = 0; k < count; k++) {
			const uint8_t *entry = entries + k * ENTRY_SIZE;
			struct decoded decoded;

			if (!decode(formats[i], packed_at(entry), &decoded)) {
				invalid++;
				continue;
			}
			if (decoded.type != ORC_CALL)
				continue;
			calls++;
			from_sp += decoded.sp == ORC_REGISTER_SP && (entry[0] & 7) == 0 &&
				   !(entry[1] & 0x80);
		}
		/* Registers that were numbered anew show here. */
		if (calls == 0 || calls * 2 < count || from_sp * 2 < calls)
			continue;
		/* Where nothing tells two formats apart it does not matter either. */
		if (invalid <= least && (best == ORC_FORMAT_UNKNOWN || invalid < least)) {
			least = invalid;
			best = formats[i];
		}
	}
	return best;
}

/* One place and its entry, for tables that come unsorted. */
struct place {
	uint32_t address;
	struct orc_entry entry;
};

/* The kernel's own order (orc_sort_cmp): where a section ends and another begins at the same
 * address, the end's undefined entry comes first, so that the other one is found. */
static int compare_places(const void *left, const void *right)
{
	const struct place *a = left;
	const struct place *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return (a->entry.type != ORC_UNDEFINED) - (b->entry.type != ORC_UNDEFINED);
}

static bool is_sorted(const struct orc_table *table)
{
	for (uint32_t i = 1; i < table->count; i++)
		if (table->addresses[i] < table->addresses[i - 1] ||
		    (table->addresses[i] == table->addresses[i - 1] &&
		     table->entries[i].type == ORC_UNDEFINED &&
		     table->entries[i - 1].type != ORC_UNDEFINED))
			return false;
	return true;
}

static gp_status_t sort(struct orc_table *table)
{
	AUTO_FREE struct place *places = NULL;

	if (is_sorted(table))
		return GP_OK;
	places = malloc(table->count * sizeof(*places));
	if (!places)
		return GP_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < table->count; i++)
		places[i] = (struct place){table->addresses[i], table->entries[i]};
	qsort(places, table->count, sizeof(*places), compare_places);
	for (uint32_t i = 0; i < table->count; i++) {
		table->addresses[i] = places[i].address;
		table->entries[i] = places[i].entry;
	}
	return GP_OK;
}

struct range {
	uint64_t start;
	uint64_t end;
};

/* Turns what was read, `offsets` of the places at linear address `at` and the packed entries,
 * into a table; in place, but for the blocks. Places outside `text` are dropped. */
static gp_status_t translate_table(struct orc_table *table, enum orc_format format, uint64_t at,
				   const struct range *text, struct error *error)
{
	uint32_t kept = 0;
	gp_status_t status;

	for (uint32_t i = 0; i < table->count; i++) {
		uint64_t address =
			at + (uint64_t)i * 4 + (uint64_t)(int64_t)(int32_t)table->addresses[i];
		uint8_t raw[ENTRY_SIZE];
		struct orc_entry entry;
		struct decoded decoded;

		if (address < text->start || address > text->end)
			continue;
		memcpy(raw, &table->entries[i], sizeof(raw));
		if (!decode(format, packed_at(raw), &decoded))
			decoded = (struct decoded){.type = ORC_UNDEFINED};
		memcpy(&entry.sp_offset, raw, 2);
		memcpy(&entry.bp_offset, raw + 2, 2);
		entry.registers = (uint8_t)(decoded.sp | decoded.bp << 4);
		entry.type = decoded.type & 15;
		entry.exact = decoded.exact;
		table->addresses[kept] = (uint32_t)(address - text->start);
		table->entries[kept++] = entry;
	}
	if (kept == 0)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "no ORC entry of %u lies in the text from %#llx to %#llx",
				 table->count, (unsigned long long)text->start,
				 (unsigned long long)text->end);
	table->count = kept;
	table->start = text->start;
	table->end = text->end;
	status = sort(table);
	if (status == GP_OK)
		status = address_index_make(table->addresses, table->count, BLOCK_SHIFT,
					    BLOCK_LIMIT, &table->index);
	return status == GP_OK ? GP_OK : error_set(error, status, "no memory for the ORC table");
}

/* Copies both arrays. The caller deinits `table` on failure, too. */
static gp_status_t read_raw(struct orc_table *table, const struct guest_memory *memory,
			    const struct address_space *space, uint64_t addresses, uint64_t entries,
			    uint32_t count, struct error *error)
{
	struct linux_reader reader = linux_reader_of(memory, space);

	table->addresses = malloc((size_t)count * sizeof(*table->addresses));
	table->entries = malloc((size_t)count * sizeof(*table->entries));
	table->count = count;
	if (!table->addresses || !table->entries)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for %u ORC entries", count);
	if (!linux_read(&reader, addresses, table->addresses,
			(size_t)count * sizeof(*table->addresses)) ||
	    !linux_read(&reader, entries, table->entries, (size_t)count * sizeof(*table->entries)))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the ORC tables at %#llx and %#llx cannot be read",
				 (unsigned long long)addresses, (unsigned long long)entries);
	return GP_OK;
}

/* The symbols that say where the kernel's tables are; 0: no such symbol. */
struct bounds {
	uint64_t header;
	uint64_t addresses;
	uint64_t addresses_end;
	uint64_t entries;
	uint64_t entries_end;
};

static struct bounds find_bounds(const struct symbol_table *symbols)
{
	static const struct {
		const char *name;
		size_t at;
	} wanted[] = {
		{"__start_orc_header", offsetof(struct bounds, header)},
		{"__start_orc_unwind_ip", offsetof(struct bounds, addresses)},
		{"__stop_orc_unwind_ip", offsetof(struct bounds, addresses_end)},
		{"__start_orc_unwind", offsetof(struct bounds, entries)},
		{"__stop_orc_unwind", offsetof(struct bounds, entries_end)},
	};
	struct bounds bounds = {0};

	for (size_t i = 0; i < symbols->count; i++) {
		struct symbol symbol = symbol_table_get(symbols, i);

		if (symbol.name[0] != '_' || symbol.name[1] != '_' || symbol.name[2] != 's')
			continue;
		for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]); k++)
			if (strcmp(symbol.name, wanted[k].name) == 0)
				memcpy((uint8_t *)&bounds + wanted[k].at, &symbol.start,
				       sizeof(symbol.start));
	}
	return bounds;
}

static enum orc_format choose_format(const struct guest_memory *memory,
				     const struct address_space *space, uint64_t header,
				     const struct orc_table *raw)
{
	enum orc_format format = orc_detect_format((const uint8_t *)raw->entries, raw->count);
	struct linux_reader reader = linux_reader_of(memory, space);
	uint8_t hash[HASH_SIZE];

	if (!header || !linux_read(&reader, header, hash, sizeof(hash)))
		return format;
	/* A known hash is certain, and must agree; an unknown one may differ by a comment only. */
	for (size_t i = 0; i < sizeof(known_hashes) / sizeof(known_hashes[0]); i++)
		if (memcmp(hash, known_hashes[i].hash, sizeof(hash)) == 0 &&
		    format != known_hashes[i].format)
			return ORC_FORMAT_UNKNOWN;
	return format;
}

/* The text that the entries speak for: from the first place to the last, which must be near. */
static bool span(const struct orc_table *raw, uint64_t at, struct range *out)
{
	struct range range = {.start = UINT64_MAX};

	for (uint32_t i = 0; i < raw->count; i++) {
		uint64_t address =
			at + (uint64_t)i * 4 + (uint64_t)(int64_t)(int32_t)raw->addresses[i];

		range.start = address < range.start ? address : range.start;
		range.end = address > range.end ? address : range.end;
	}
	if (range.end - range.start >= TEXT_LIMIT)
		return false;
	*out = range;
	return true;
}

gp_status_t orc_read(const struct guest_memory *memory, const struct address_space *space,
		     const struct symbol_table *symbols, struct orc *out, struct error *error)
{
	struct bounds bounds = find_bounds(symbols);
	struct orc orc = {0};
	struct range text;
	uint64_t count;
	gp_status_t status;

	if (!bounds.addresses || !bounds.addresses_end || !bounds.entries || !bounds.entries_end)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the kernel has no ORC tables: no symbol __start_orc_unwind_ip");
	count = (bounds.addresses_end - bounds.addresses) / 4;
	if (bounds.addresses_end < bounds.addresses || bounds.entries_end < bounds.entries ||
	    count == 0 || count > ORC_ENTRY_LIMIT ||
	    (bounds.entries_end - bounds.entries) / ENTRY_SIZE != count)
		return error_set(error, GP_ERR_OUT_OF_RANGE,
				 "the kernel's ORC tables have impossible bounds: %llu places",
				 (unsigned long long)count);
	status = read_raw(&orc.kernel, memory, space, bounds.addresses, bounds.entries,
			  (uint32_t)count, error);
	if (status == GP_OK) {
		orc.format = choose_format(memory, space, bounds.header, &orc.kernel);
		if (orc.format == ORC_FORMAT_UNKNOWN)
			status = error_set(error, GP_ERR_NOT_SUPPORTED,
					   "the kernel's ORC tables are in an unknown format");
	}
	if (status == GP_OK && !span(&orc.kernel, bounds.addresses, &text))
		status = error_set(error, GP_ERR_OUT_OF_RANGE,
				   "the kernel's ORC tables speak for more than 1 GiB of text");
	if (status == GP_OK)
		status = translate_table(&orc.kernel, orc.format, bounds.addresses, &text, error);
	if (status != GP_OK) {
		orc_deinit(&orc);
		return status;
	}
	*out = orc;
	return GP_OK;
}

/* The first module that ends behind `address`. */
static size_t module_at(const struct orc *orc, uint64_t address)
{
	size_t low = 0;
	size_t high = orc->module_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (orc->modules[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

gp_status_t orc_add_module(struct orc *orc, const struct guest_memory *memory,
			   const struct address_space *space, const struct orc_module *module,
			   struct error *error)
{
	struct range text = {module->text_start, module->text_start + module->text_size};
	struct orc_table table = {0};
	size_t at;
	gp_status_t status;

	if (module->count == 0 || module->count > ORC_ENTRY_LIMIT || module->text_size == 0 ||
	    module->text_size > TEXT_LIMIT || text.end < text.start)
		return error_set(error, GP_ERR_OUT_OF_RANGE,
				 "a module's ORC tables have impossible bounds: %u places",
				 module->count);
	at = module_at(orc, text.start);
	if ((at < orc->module_count && orc->modules[at].start < text.end) ||
	    (text.start < orc->kernel.end && text.end > orc->kernel.start))
		return error_set(error, GP_ERR_ALREADY_EXISTS,
				 "the text at %#llx has ORC tables already",
				 (unsigned long long)text.start);
	if (orc->module_count == orc->module_capacity) {
		size_t capacity = orc->module_capacity ? orc->module_capacity * 2 : 64;
		struct orc_table *modules;

		if (orc->module_count >= ORC_MODULE_LIMIT)
			return error_set(error, GP_ERR_OUT_OF_RANGE, "more than %u modules",
					 ORC_MODULE_LIMIT);
		modules = realloc(orc->modules, capacity * sizeof(*modules));
		if (!modules)
			return error_set(error, GP_ERR_NO_MEMORY, "no memory for %zu modules",
					 capacity);
		orc->modules = modules;
		orc->module_capacity = capacity;
	}
	status = read_raw(&table, memory, space, module->addresses, module->entries, module->count,
			  error);
	if (status == GP_OK)
		status = translate_table(&table, orc->format, module->addresses, &text, error);
	if (status != GP_OK) {
		table_deinit(&table);
		return status;
	}
	memmove(orc->modules + at + 1, orc->modules + at,
		(orc->module_count - at) * sizeof(*orc->modules));
	orc->modules[at] = table;
	orc->module_count++;
	return GP_OK;
}

static const struct orc_entry *find_in(const struct orc_table *table, uint64_t address)
{
	uint32_t wanted = (uint32_t)(address - table->start);

	return wanted < table->addresses[0] ? NULL
					    : &table->entries[address_index_find(
						      &table->index, table->addresses, wanted)];
}

const struct orc_entry *orc_find(const struct orc *orc, uint64_t address)
{
	size_t at;

	if (orc->kernel.count && address >= orc->kernel.start && address < orc->kernel.end)
		return find_in(&orc->kernel, address);
	at = module_at(orc, address);
	if (at < orc->module_count && address >= orc->modules[at].start)
		return find_in(&orc->modules[at], address);
	return NULL;
}
