#include "guest-introspection/linux/linux_modules.h"

#include "base/cleanup.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define UPPER_HALF (UINT64_C(1) << 63)
#define PAGE UINT64_C(4096)
#define ORC_ENTRY_SIZE 6u

/* Bounds for what a guest claims. amdgpu, the largest module there is, has some 30 MiB. */
#define RANGE_LIMIT (UINT64_C(256) << 20)
#define SYMBOLS_PER_MODULE 200000u
#define NAMES_PER_MODULE (8u << 20)
#define COPY_BUDGET (UINT64_C(96) << 20) /* bytes read for all modules together */
#define NAME_LIMIT 512u                  /* KSYM_NAME_LEN */

struct reader {
	const struct linux_module_layout *layout;
	const struct guest_memory *memory;
	struct translation_cache cache;
	uint64_t budget;
	bool damaged;
};

static bool read_kernel(struct reader *reader, uint64_t address, void *buffer, size_t size)
{
	if (size > reader->budget || address < UPPER_HALF)
		return false;
	reader->budget -= size;
	return guest_read_virtual(&reader->layout->space, &reader->cache, reader->memory,
				  gva(address), buffer, size) == TRANSLATE_OK;
}

static bool read_u64(struct reader *reader, uint64_t address, uint64_t *value)
{
	return read_kernel(reader, address, value, sizeof(*value));
}

static bool read_u32(struct reader *reader, uint64_t address, uint32_t *value)
{
	return read_kernel(reader, address, value, sizeof(*value));
}

static bool find_member(const struct btf *btf, const char *structure, const char *path,
			uint32_t size, uint32_t *offset, struct error *error)
{
	struct btf_member member;

	if (!btf_find_member(btf, structure, path, &member) || member.bits ||
	    (size && member.size != size)) {
		error_set(error, GP_ERR_NOT_FOUND,
			  "the guest's BTF has no %s.%s as it is known: modules have no names",
			  structure, path);
		return false;
	}
	*offset = member.offset;
	return true;
}

static bool find_memory_types(const struct btf *btf, struct linux_module_layout *layout,
			      struct error *error)
{
	struct btf_member member;
	int64_t text;
	int64_t init_text;

	if (!btf_find_member(btf, "module", "mem", &member) || member.elements == 0 ||
	    member.elements > LINUX_MODULE_RANGES ||
	    !find_member(btf, "module_memory", "base", 8, &layout->memory_base, error) ||
	    !find_member(btf, "module_memory", "size", 4, &layout->memory_length, error))
		return false;
	layout->memory = member.offset;
	layout->memory_size = member.size / member.elements;
	layout->memory_types = member.elements;
	if (!btf_find_enumerator(btf, "MOD_TEXT", &text) ||
	    !btf_find_enumerator(btf, "MOD_INIT_TEXT", &init_text) || text < 0 || init_text < 0 ||
	    text >= member.elements || init_text >= member.elements)
		return false;
	layout->text_type = (uint32_t)text;
	layout->init_text_type = (uint32_t)init_text;
	layout->has_memory_types = true;
	return true;
}

static bool find_layouts(const struct btf *btf, struct linux_module_layout *layout,
			 struct error *error)
{
	return find_member(btf, "module", "core_layout", 0, &layout->core, error) &&
	       find_member(btf, "module", "init_layout", 0, &layout->init, error) &&
	       find_member(btf, "module_layout", "base", 8, &layout->layout_base, error) &&
	       find_member(btf, "module_layout", "size", 4, &layout->layout_size, error) &&
	       find_member(btf, "module_layout", "text_size", 4, &layout->layout_text_size, error);
}

gp_status_t linux_module_layout_init(const struct linux_kernel *kernel,
				     const struct symbol_table *symbols, const struct btf *btf,
				     struct linux_module_layout *out, struct error *error)
{
	struct linux_module_layout layout = {.space = kernel->space};
	struct symbol head;
	int64_t unformed = 3;

	if (!symbol_table_find_name(symbols, "modules", &head))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no list of modules");
	layout.head = head.start;
	if (!find_member(btf, "module", "list", 16, &layout.list, error) ||
	    !find_member(btf, "module", "name", LINUX_MODULE_NAME_SIZE, &layout.name, error) ||
	    !find_member(btf, "module", "state", 4, &layout.state, error) ||
	    !find_member(btf, "module", "kallsyms", 8, &layout.kallsyms, error) ||
	    !find_member(btf, "mod_kallsyms", "symtab", 8, &layout.symtab, error) ||
	    !find_member(btf, "mod_kallsyms", "num_symtab", 4, &layout.symbol_count, error) ||
	    !find_member(btf, "mod_kallsyms", "strtab", 8, &layout.strtab, error) ||
	    !find_member(btf, "mod_kallsyms", "typetab", 8, &layout.typetab, error))
		return GP_ERR_NOT_FOUND;
	if (!find_memory_types(btf, &layout, NULL) && !find_layouts(btf, &layout, error))
		return GP_ERR_NOT_FOUND;
	/* Without these two there is a little less. */
	btf_find_enumerator(btf, "MODULE_STATE_UNFORMED", &unformed);
	layout.unformed = (uint32_t)unformed;
	layout.has_orc =
		find_member(btf, "module", "arch.num_orcs", 4, &layout.orc_count, NULL) &&
		find_member(btf, "module", "arch.orc_unwind_ip", 8, &layout.orc_ips, NULL) &&
		find_member(btf, "module", "arch.orc_unwind", 8, &layout.orc_entries, NULL);
	*out = layout;
	return GP_OK;
}

static bool is_name(const char name[static LINUX_MODULE_NAME_SIZE])
{
	size_t length = strnlen(name, LINUX_MODULE_NAME_SIZE);

	if (length == 0 || length == LINUX_MODULE_NAME_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] <= 0x20 || name[i] >= 0x7f)
			return false;
	return true;
}

static void add_range(struct linux_module *module, struct linux_range range)
{
	/* A range that wraps around is none. */
	if (range.size == 0 || range.size > RANGE_LIMIT || range.start < UPPER_HALF ||
	    range.start + range.size < range.start || module->range_count == LINUX_MODULE_RANGES)
		return;
	module->ranges[module->range_count++] = range;
}

static bool is_range(const struct linux_module *module, struct linux_range range)
{
	for (unsigned i = 0; i < module->range_count; i++) {
		const struct linux_range *one = &module->ranges[i];

		if (range.size && range.start >= one->start &&
		    range.start - one->start <= one->size &&
		    range.size <= one->size - (range.start - one->start))
			return true;
	}
	return false;
}

/* Bytes from `address` to the end of the module's memory that it lies in; 0: in none. */
static uint64_t room_behind(const struct linux_module *module, uint64_t address)
{
	for (unsigned i = 0; i < module->range_count; i++) {
		const struct linux_range *one = &module->ranges[i];

		if (address >= one->start && address - one->start < one->size)
			return one->size - (address - one->start);
	}
	return 0;
}

/* Up to 6.3: two blocks, each with its text first. */
static bool read_block(struct reader *reader, uint64_t address, struct linux_module *module,
		       struct linux_range *text)
{
	const struct linux_module_layout *layout = reader->layout;
	struct linux_range block;
	uint32_t size;
	uint32_t text_size;

	if (!read_u64(reader, address + layout->layout_base, &block.start) ||
	    !read_u32(reader, address + layout->layout_size, &size) ||
	    !read_u32(reader, address + layout->layout_text_size, &text_size))
		return false;
	block.size = size;
	add_range(module, block);
	*text = (struct linux_range){.start = block.start, .size = text_size};
	return true;
}

static bool read_ranges(struct reader *reader, struct linux_module *module)
{
	const struct linux_module_layout *layout = reader->layout;

	if (!layout->has_memory_types) {
		if (!read_block(reader, module->address + layout->core, module, &module->text) ||
		    !read_block(reader, module->address + layout->init, module, &module->init_text))
			return false;
	}
	for (uint32_t i = 0; layout->has_memory_types && i < layout->memory_types; i++) {
		uint64_t at = module->address + layout->memory + (uint64_t)i * layout->memory_size;
		struct linux_range range;
		uint32_t size;

		if (!read_u64(reader, at + layout->memory_base, &range.start) ||
		    !read_u32(reader, at + layout->memory_length, &size))
			return false;
		range.size = size;
		add_range(module, range);
		if (i == layout->text_type)
			module->text = range;
		else if (i == layout->init_text_type)
			module->init_text = range;
	}
	if (!is_range(module, module->text))
		module->text = (struct linux_range){0};
	if (!is_range(module, module->init_text))
		module->init_text = (struct linux_range){0};
	return true;
}

static void read_orc(struct reader *reader, struct linux_module *module)
{
	const struct linux_module_layout *layout = reader->layout;
	uint64_t ips;
	uint64_t entries;
	uint32_t count;

	if (!layout->has_orc || !read_u64(reader, module->address + layout->orc_ips, &ips) ||
	    !read_u64(reader, module->address + layout->orc_entries, &entries) ||
	    !read_u32(reader, module->address + layout->orc_count, &count) || count == 0)
		return;
	if (room_behind(module, ips) < (uint64_t)count * sizeof(int32_t) ||
	    room_behind(module, entries) < (uint64_t)count * ORC_ENTRY_SIZE)
		return;
	module->orc_ips = ips;
	module->orc_entries = entries;
	module->orc_count = count;
}

/* A module's symbols, copied. */
struct symbols {
	Elf64_Sym *table;
	char *types;
	char *names; /* terminated, whatever they are */
	uint32_t count;
	uint32_t names_size; /* without the terminator */
};

/* /proc/kallsyms tells exported symbols by upper case; the binding is what nm(1) goes by. */
static char kind_of(char type, const Elf64_Sym *symbol)
{
	char kind = type;

	if (kind >= 'A' && kind <= 'Z')
		kind = (char)(kind - 'A' + 'a');
	if (kind < 'a' || kind > 'z')
		return '?';
	if (ELF64_ST_BIND(symbol->st_info) != STB_LOCAL && kind != 'w' && kind != 'u')
		kind = (char)(kind - 'a' + 'A');
	return kind;
}

static gp_status_t add_symbols(struct linux_module *module, const struct symbols *symbols,
			       struct symbol_table *table)
{
	const size_t suffix = strlen(module->name) + 3; /* " [" and "]" */
	uint32_t work = NAMES_PER_MODULE;               /* one long name may be used often */
	char name[NAME_LIMIT + LINUX_MODULE_NAME_SIZE + 4];

	for (uint32_t i = 0; i < symbols->count; i++) {
		const Elf64_Sym *symbol = &symbols->table[i];
		gp_status_t status;
		size_t length;

		if (symbol->st_name >= symbols->names_size)
			continue;
		length = strnlen(symbols->names + symbol->st_name, NAME_LIMIT);
		/* Nameless ones are not shown by the guest either (kernel/kallsyms.c). Undefined
		 * ones have no place. */
		if (length == 0 || symbol->st_value == 0 || symbols->types[i] == 'U')
			continue;
		if (length == NAME_LIMIT || length > work) {
			module->incomplete = true;
			continue;
		}
		work -= (uint32_t)length;
		memcpy(name, symbols->names + symbol->st_name, length);
		for (size_t k = 0; k < length; k++)
			if (name[k] <= 0x20 || name[k] == 0x7f)
				name[k] = '?';
		snprintf(name + length, sizeof(name) - length, " [%s]", module->name);
		status =
			symbol_table_add(table, symbol->st_value, 0,
					 kind_of(symbols->types[i], symbol), name, length + suffix);
		if (status == GP_ERR_OUT_OF_RANGE)
			module->incomplete = true;
		else if (status != GP_OK)
			return status;
		else
			module->symbol_count++;
	}
	return GP_OK;
}

/* GP_ERR_NO_MEMORY ends everything; what is damaged leaves the module without symbols. */
static gp_status_t read_symbols(struct reader *reader, struct linux_module *module,
				struct symbol_table *table)
{
	const struct linux_module_layout *layout = reader->layout;
	AUTO_FREE Elf64_Sym *entries = NULL;
	AUTO_FREE char *types = NULL;
	AUTO_FREE char *names = NULL;
	struct symbols symbols;
	uint64_t kallsyms;
	uint64_t symtab;
	uint64_t strtab;
	uint64_t typetab;
	uint64_t room;
	uint32_t count;
	uint32_t last = 0;

	if (!read_u64(reader, module->address + layout->kallsyms, &kallsyms) ||
	    !read_u64(reader, kallsyms + layout->symtab, &symtab) ||
	    !read_u64(reader, kallsyms + layout->strtab, &strtab) ||
	    !read_u64(reader, kallsyms + layout->typetab, &typetab) ||
	    !read_u32(reader, kallsyms + layout->symbol_count, &count))
		goto damaged;
	if (count == 0)
		return GP_OK;
	if (count > SYMBOLS_PER_MODULE ||
	    room_behind(module, symtab) < (uint64_t)count * sizeof(*entries) ||
	    room_behind(module, typetab) < count)
		goto damaged;
	entries = malloc(count * sizeof(*entries));
	types = malloc(count);
	if (!entries || !types)
		return GP_ERR_NO_MEMORY;
	if (!read_kernel(reader, symtab, entries, count * sizeof(*entries)) ||
	    !read_kernel(reader, typetab, types, count))
		goto damaged;
	for (uint32_t i = 0; i < count; i++)
		if (entries[i].st_name > last)
			last = entries[i].st_name;
	room = room_behind(module, strtab);
	if (room > (uint64_t)last + NAME_LIMIT)
		room = (uint64_t)last + NAME_LIMIT;
	if (room == 0 || room > NAMES_PER_MODULE)
		goto damaged;
	names = malloc(room + 1);
	if (!names)
		return GP_ERR_NO_MEMORY;
	if (!read_kernel(reader, strtab, names, room))
		goto damaged;
	names[room] = 0;
	symbols = (struct symbols){.table = entries,
				   .types = types,
				   .names = names,
				   .count = count,
				   .names_size = (uint32_t)room};
	return add_symbols(module, &symbols, table);
damaged:
	module->incomplete = true;
	return GP_OK;
}

static bool read_stamp(struct reader *reader, struct linux_modules_stamp *out)
{
	const struct linux_module_layout *layout = reader->layout;
	struct linux_modules_stamp stamp = {0};
	uint64_t module;

	if (!read_u64(reader, layout->head, &stamp.newest) ||
	    !read_u64(reader, layout->head + 8, &stamp.oldest))
		return false;
	module = stamp.newest - layout->list;
	if (stamp.newest != layout->head &&
	    (!read_u64(reader, module + layout->kallsyms, &stamp.kallsyms) ||
	     !read_u32(reader, module + layout->state, &stamp.state) ||
	     !read_kernel(reader, module + layout->name, stamp.name, sizeof(stamp.name))))
		return false;
	*out = stamp;
	return true;
}

static bool same_stamp(const struct linux_modules_stamp *a, const struct linux_modules_stamp *b)
{
	return a->newest == b->newest && a->oldest == b->oldest && a->kallsyms == b->kallsyms &&
	       a->state == b->state && memcmp(a->name, b->name, sizeof(a->name)) == 0;
}

/* One module of the list. GP_ERR_IO_DATA_INTEGRITY: this is none. */
static gp_status_t read_module(struct reader *reader, uint64_t address, struct linux_modules *out)
{
	const struct linux_module_layout *layout = reader->layout;
	struct linux_module module = {.address = address};
	uint32_t state;
	gp_status_t status;

	if (!read_u32(reader, address + layout->state, &state) ||
	    !read_kernel(reader, address + layout->name, module.name, sizeof(module.name)))
		return GP_ERR_IO_DATA_INTEGRITY;
	if (state == layout->unformed)
		return GP_OK;
	if (!is_name(module.name) || !read_ranges(reader, &module) || module.range_count == 0)
		return GP_ERR_IO_DATA_INTEGRITY;
	read_orc(reader, &module);
	status = read_symbols(reader, &module, &out->symbols);
	if (status != GP_OK)
		return status;
	if (module.incomplete)
		reader->damaged = true;
	out->modules[out->count++] = module;
	return GP_OK;
}

static int compare_ranges(const void *left, const void *right)
{
	const struct linux_range *a = left;
	const struct linux_range *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

/* Ends the last symbol of each piece of memory where that ends, and not at the next module. */
static gp_status_t clip_symbols(struct linux_modules *modules)
{
	AUTO_FREE struct linux_range *ranges = NULL;
	struct symbol_table *table = &modules->symbols;
	size_t count = 0;
	size_t next = 0;

	if (table->count == 0)
		return GP_OK;
	ranges = calloc(modules->count * LINUX_MODULE_RANGES, sizeof(*ranges));
	if (!ranges)
		return GP_ERR_NO_MEMORY;
	for (size_t i = 0; i < modules->count; i++)
		for (unsigned k = 0; k < modules->modules[i].range_count; k++)
			ranges[count++] = modules->modules[i].ranges[k];
	qsort(ranges, count, sizeof(*ranges), compare_ranges);
	for (size_t i = 0; i < table->count; i++) {
		struct symbol_entry *entry = &table->entries[i];
		uint64_t room = PAGE; /* outside: an absolute symbol */

		while (next < count && ranges[next].start <= entry->start)
			next++;
		if (next > 0 && entry->start - ranges[next - 1].start < ranges[next - 1].size)
			room = ranges[next - 1].size - (entry->start - ranges[next - 1].start);
		if (entry->size > room)
			entry->size = room;
	}
	return GP_OK;
}

gp_status_t linux_modules_read(const struct linux_module_layout *layout,
			       const struct guest_memory *memory, struct linux_modules *out,
			       struct error *error)
{
	struct reader reader = {.layout = layout, .memory = memory, .budget = COPY_BUDGET};
	struct linux_modules found = {0};
	struct linux_modules_stamp after;
	uint64_t node = layout->head;
	size_t room = 0;

	translation_cache_clear(&reader.cache);
	symbol_table_init(&found.symbols);
	if (!read_stamp(&reader, &found.stamp))
		reader.damaged = true;
	for (unsigned step = 0;; step++) {
		gp_status_t status;

		/* Entries that are freed meanwhile may lead anywhere. */
		if (!read_u64(&reader, node, &node) || step == LINUX_MODULE_LIMIT) {
			reader.damaged = true;
			break;
		}
		if (node == layout->head)
			break;
		if (found.count == room) {
			struct linux_module *grown;

			room = room ? 2 * room : 64;
			grown = reallocarray(found.modules, room, sizeof(*grown));
			if (!grown) {
				linux_modules_deinit(&found);
				return error_set(error, GP_ERR_NO_MEMORY,
						 "no memory for the guest's modules");
			}
			found.modules = grown;
		}
		status = read_module(&reader, node - layout->list, &found);
		if (status == GP_ERR_NO_MEMORY) {
			linux_modules_deinit(&found);
			return error_set(error, status,
					 "no memory for the symbols of the guest's modules");
		}
		if (status != GP_OK) {
			reader.damaged = true;
			break;
		}
	}
	if (!read_stamp(&reader, &after) || !same_stamp(&found.stamp, &after))
		reader.damaged = true;
	symbol_table_finish(&found.symbols);
	if (clip_symbols(&found) != GP_OK) {
		linux_modules_deinit(&found);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the guest's modules");
	}
	*out = found;
	if (reader.damaged)
		return error_set(
			error, GP_ERR_IO_DATA_INTEGRITY,
			"the guest's modules are damaged or just being loaded: %zu of them "
			"have names",
			found.count);
	return GP_OK;
}

void linux_modules_deinit(struct linux_modules *modules)
{
	free(modules->modules);
	symbol_table_deinit(&modules->symbols);
	*modules = (struct linux_modules){0};
}

bool linux_modules_changed(const struct linux_module_layout *layout,
			   const struct guest_memory *memory,
			   const struct linux_modules_stamp *stamp)
{
	struct reader reader = {.layout = layout, .memory = memory, .budget = PAGE};
	struct linux_modules_stamp now;

	translation_cache_clear(&reader.cache);
	return read_stamp(&reader, &now) && !same_stamp(&now, stamp);
}

const struct linux_module *linux_modules_find(const struct linux_modules *modules, uint64_t address)
{
	for (size_t i = 0; i < modules->count; i++)
		if (room_behind(&modules->modules[i], address))
			return &modules->modules[i];
	return NULL;
}
