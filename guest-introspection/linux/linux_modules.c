#include "guest-introspection/linux/linux_modules.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "guest-introspection/elf/elf_image.h"
#include "guest-introspection/linux/linux_reader.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define PAGE UINT64_C(4096)
#define ORC_ENTRY_SIZE 6u

/* Bounds for what a guest claims. amdgpu, the largest module there is, has some 30 MiB. */
#define RANGE_LIMIT (UINT64_C(256) << 20)
#define SYMBOLS_PER_MODULE 200000u
#define NAMES_PER_MODULE (8u << 20)
#define COPY_BUDGET (UINT64_C(96) << 20) /* bytes read for all modules together */
#define NAME_LIMIT 512u                  /* KSYM_NAME_LEN */
#define NOTE_SECTIONS_MAX 16u            /* modules have one to three */
#define NOTES_MAX 1024u                  /* bytes of one that are looked at */

/* One use of a layout. */
struct walk {
	const struct linux_module_layout *layout;
	struct linux_reader reader;
	uint64_t budget; /* bytes that may still be copied */
	bool damaged;
};

static struct walk walk_begin(const struct linux_module_layout *layout,
			      const struct guest_memory *memory)
{
	return (struct walk){.layout = layout,
			     .reader = linux_reader_of(memory, &layout->space),
			     .budget = COPY_BUDGET};
}

static bool copy(struct walk *walk, uint64_t address, void *buffer, size_t size)
{
	if (size > walk->budget)
		return false;
	walk->budget -= size;
	return linux_read(&walk->reader, address, buffer, size);
}

#define FIELD(name) offsetof(struct linux_module_layout, name)

/* Where a module's memory is: one of the two. */
static bool find_memory_types(const struct btf *btf, struct linux_module_layout *layout)
{
	static const struct linux_member members[] = {
		{"module", "mem", 0, LINUX_REQUIRED, FIELD(memory)},
		{"module_memory", "base", 8, LINUX_REQUIRED, FIELD(memory_base)},
		{"module_memory", "size", 4, LINUX_REQUIRED, FIELD(memory_length)},
	};
	struct btf_member memory;
	int64_t text, init_text;

	if (linux_find_members(btf, members, ARRAY_SIZE(members), layout, NULL) ||
	    !btf_find_member(btf, "module", "mem", &memory) || memory.elements == 0 ||
	    memory.elements > LINUX_MODULE_RANGES || !btf_find_enumerator(btf, "MOD_TEXT", &text) ||
	    !btf_find_enumerator(btf, "MOD_INIT_TEXT", &init_text) || text < 0 || init_text < 0 ||
	    text >= memory.elements || init_text >= memory.elements)
		return false;
	layout->memory_size = memory.size / memory.elements;
	layout->memory_types = memory.elements;
	layout->text_type = (uint32_t)text;
	layout->init_text_type = (uint32_t)init_text;
	return true;
}

static gp_status_t find_blocks(const struct btf *btf, struct linux_module_layout *layout,
			       struct error *error)
{
	static const struct linux_member members[] = {
		{"module", "core_layout", 0, LINUX_REQUIRED, FIELD(core)},
		{"module", "init_layout", 0, LINUX_REQUIRED, FIELD(init)},
		{"module_layout", "base", 8, LINUX_REQUIRED, FIELD(layout_base)},
		{"module_layout", "size", 4, LINUX_REQUIRED, FIELD(layout_size)},
		{"module_layout", "text_size", 4, LINUX_REQUIRED, FIELD(layout_text_size)},
	};

	return linux_find_members(btf, members, ARRAY_SIZE(members), layout, error);
}

gp_status_t linux_module_layout_init(const struct linux_kernel *kernel,
				     const struct symbol_table *symbols, const struct btf *btf,
				     struct linux_module_layout *out, struct error *error)
{
	static const struct linux_member members[] = {
		{"module", "list", 16, LINUX_REQUIRED, FIELD(list)},
		{"module", "name", LINUX_MODULE_NAME_SIZE, LINUX_REQUIRED, FIELD(name)},
		{"module", "state", 4, LINUX_REQUIRED, FIELD(state)},
		{"module", "kallsyms", 8, LINUX_REQUIRED, FIELD(kallsyms)},
		{"mod_kallsyms", "symtab", 8, LINUX_REQUIRED, FIELD(symtab)},
		{"mod_kallsyms", "num_symtab", 4, LINUX_REQUIRED, FIELD(symbol_count)},
		{"mod_kallsyms", "strtab", 8, LINUX_REQUIRED, FIELD(strtab)},
		{"mod_kallsyms", "typetab", 8, LINUX_REQUIRED, FIELD(typetab)},
		{"module", "arch.num_orcs", 4, LINUX_OPTIONAL, FIELD(orc_count)},
		{"module", "arch.orc_unwind_ip", 8, LINUX_OPTIONAL, FIELD(orc_ips)},
		{"module", "arch.orc_unwind", 8, LINUX_OPTIONAL, FIELD(orc_entries)},
		/* include/linux/module.h, kernel/module/sysfs.c, include/linux/sysfs.h */
		{"module", "notes_attrs", 8, LINUX_OPTIONAL, FIELD(notes)},
		{"module_notes_attrs", "notes", 4, LINUX_OPTIONAL, FIELD(note_count)},
		{"module_notes_attrs", "attrs", 0, LINUX_OPTIONAL, FIELD(note_array)},
		{"module_notes_attrs", "grp.bin_attrs", 8, LINUX_OPTIONAL, FIELD(note_list)},
		{"bin_attribute", "size", 8, LINUX_OPTIONAL, FIELD(note_size)},
		{"bin_attribute", "private", 8, LINUX_OPTIONAL, FIELD(note_contents)},
	};
	struct linux_module_layout layout = {.space = kernel->space,
					     .head = linux_symbol_address(symbols, "modules")};
	int64_t unformed = 3;
	gp_status_t status;

	if (!layout.head)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "the guest's symbols have no list of modules");
	status = linux_find_members(btf, members, ARRAY_SIZE(members), &layout, error);
	if (status == GP_OK && !find_memory_types(btf, &layout)) {
		layout.memory_types = 0;
		status = find_blocks(btf, &layout, error);
	}
	if (status != GP_OK)
		return status;
	btf_find_enumerator(btf, "MODULE_STATE_UNFORMED", &unformed);
	layout.unformed = (uint32_t)unformed;
	if (!btf_find_size(btf, "bin_attribute", &layout.note_bytes))
		layout.note_bytes = 0;
	*out = layout;
	return GP_OK;
}
#undef FIELD

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
	if (range.size == 0 || range.size > RANGE_LIMIT || range.start < LINUX_KERNEL_HALF ||
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
static bool read_block(struct walk *walk, uint64_t address, struct linux_module *module,
		       struct linux_range *text)
{
	const struct linux_module_layout *layout = walk->layout;
	struct linux_range block;
	uint32_t size;
	uint32_t text_size;

	if (!linux_read_u64(&walk->reader, address + layout->layout_base, &block.start) ||
	    !linux_read_u32(&walk->reader, address + layout->layout_size, &size) ||
	    !linux_read_u32(&walk->reader, address + layout->layout_text_size, &text_size))
		return false;
	block.size = size;
	add_range(module, block);
	*text = (struct linux_range){.start = block.start, .size = text_size};
	return true;
}

static bool read_ranges(struct walk *walk, struct linux_module *module)
{
	const struct linux_module_layout *layout = walk->layout;

	if (!layout->memory_types) {
		if (!read_block(walk, module->address + layout->core, module, &module->text) ||
		    !read_block(walk, module->address + layout->init, module, &module->init_text))
			return false;
	}
	for (uint32_t i = 0; layout->memory_types && i < layout->memory_types; i++) {
		uint64_t at = module->address + layout->memory + (uint64_t)i * layout->memory_size;
		struct linux_range range;
		uint32_t size;

		if (!linux_read_u64(&walk->reader, at + layout->memory_base, &range.start) ||
		    !linux_read_u32(&walk->reader, at + layout->memory_length, &size))
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

static void read_orc(struct walk *walk, struct linux_module *module)
{
	const struct linux_module_layout *layout = walk->layout;
	uint64_t ips;
	uint64_t entries;
	uint32_t count;

	if (layout->orc_count == LINUX_MEMBER_MISSING || layout->orc_ips == LINUX_MEMBER_MISSING ||
	    layout->orc_entries == LINUX_MEMBER_MISSING ||
	    !linux_read_u64(&walk->reader, module->address + layout->orc_ips, &ips) ||
	    !linux_read_u64(&walk->reader, module->address + layout->orc_entries, &entries) ||
	    !linux_read_u32(&walk->reader, module->address + layout->orc_count, &count) ||
	    count == 0)
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
static gp_status_t read_symbols(struct walk *walk, struct linux_module *module,
				struct symbol_table *table)
{
	const struct linux_module_layout *layout = walk->layout;
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

	if (!linux_read_u64(&walk->reader, module->address + layout->kallsyms, &kallsyms) ||
	    !linux_read_u64(&walk->reader, kallsyms + layout->symtab, &symtab) ||
	    !linux_read_u64(&walk->reader, kallsyms + layout->strtab, &strtab) ||
	    !linux_read_u64(&walk->reader, kallsyms + layout->typetab, &typetab) ||
	    !linux_read_u32(&walk->reader, kallsyms + layout->symbol_count, &count))
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
	if (!copy(walk, symtab, entries, count * sizeof(*entries)) ||
	    !copy(walk, typetab, types, count))
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
	if (!copy(walk, strtab, names, room))
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

static bool read_stamp(struct walk *walk, struct linux_modules_stamp *out)
{
	const struct linux_module_layout *layout = walk->layout;
	struct linux_modules_stamp stamp = {0};
	uint64_t module;

	if (!linux_read_u64(&walk->reader, layout->head, &stamp.newest) ||
	    !linux_read_u64(&walk->reader, layout->head + 8, &stamp.oldest))
		return false;
	module = stamp.newest - layout->list;
	if (stamp.newest != layout->head &&
	    (!linux_read_u64(&walk->reader, module + layout->kallsyms, &stamp.kallsyms) ||
	     !linux_read_u32(&walk->reader, module + layout->state, &stamp.state) ||
	     !copy(walk, module + layout->name, stamp.name, sizeof(stamp.name))))
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
static gp_status_t read_module(struct walk *walk, uint64_t address, struct linux_modules *out)
{
	const struct linux_module_layout *layout = walk->layout;
	struct linux_module module = {.address = address};
	uint32_t state;
	gp_status_t status;

	if (!linux_read_u32(&walk->reader, address + layout->state, &state) ||
	    !copy(walk, address + layout->name, module.name, sizeof(module.name)))
		return GP_ERR_IO_DATA_INTEGRITY;
	if (state == layout->unformed)
		return GP_OK;
	if (!is_name(module.name) || !read_ranges(walk, &module) || module.range_count == 0)
		return GP_ERR_IO_DATA_INTEGRITY;
	read_orc(walk, &module);
	status = read_symbols(walk, &module, &out->symbols);
	if (status != GP_OK)
		return status;
	if (module.incomplete)
		walk->damaged = true;
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
	struct walk walk = walk_begin(layout, memory);
	struct linux_modules found = {0};
	struct linux_modules_stamp after;
	uint64_t node = layout->head;
	size_t room = 0;

	symbol_table_init(&found.symbols);
	if (!read_stamp(&walk, &found.stamp))
		walk.damaged = true;
	for (unsigned step = 0;; step++) {
		gp_status_t status;

		/* Entries that are freed meanwhile may lead anywhere. */
		if (!linux_read_u64(&walk.reader, node, &node) || step == LINUX_MODULE_LIMIT) {
			walk.damaged = true;
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
		status = read_module(&walk, node - layout->list, &found);
		if (status == GP_ERR_NO_MEMORY) {
			linux_modules_deinit(&found);
			return error_set(error, status,
					 "no memory for the symbols of the guest's modules");
		}
		if (status != GP_OK) {
			walk.damaged = true;
			break;
		}
	}
	if (!read_stamp(&walk, &after) || !same_stamp(&found.stamp, &after))
		walk.damaged = true;
	symbol_table_finish(&found.symbols);
	if (clip_symbols(&found) != GP_OK) {
		linux_modules_deinit(&found);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the guest's modules");
	}
	*out = found;
	if (walk.damaged)
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
	struct walk walk = walk_begin(layout, memory);
	struct linux_modules_stamp now;

	return read_stamp(&walk, &now) && !same_stamp(&now, stamp);
}

/* Where the struct bin_attribute number `index` is; 0: there is none any more. */
static uint64_t find_note(struct walk *walk, uint64_t attributes, uint32_t index)
{
	const struct linux_module_layout *layout = walk->layout;
	uint64_t list, attribute;
	uint32_t count;

	if (layout->note_count != LINUX_MEMBER_MISSING)
		return linux_read_u32(&walk->reader, attributes + layout->note_count, &count) &&
				       index < count
			       ? attributes + layout->note_array +
					 (uint64_t)index * layout->note_bytes
			       : 0;
	if (layout->note_list == LINUX_MEMBER_MISSING ||
	    !linux_read_u64(&walk->reader, attributes + layout->note_list, &list) || !list ||
	    !linux_read_u64(&walk->reader, list + (uint64_t)index * sizeof(attribute), &attribute))
		return 0;
	return attribute;
}

unsigned linux_module_build_id(const struct linux_module_layout *layout,
			       const struct guest_memory *memory, const struct linux_module *module,
			       uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT])
{
	struct walk walk = walk_begin(layout, memory);
	uint64_t attributes, attribute, size, contents;
	uint8_t bytes[NOTES_MAX];
	unsigned found = 0;

	if (layout->notes == LINUX_MEMBER_MISSING || layout->note_array == LINUX_MEMBER_MISSING ||
	    layout->note_size == LINUX_MEMBER_MISSING ||
	    layout->note_contents == LINUX_MEMBER_MISSING || !layout->note_bytes ||
	    !linux_read_u64(&walk.reader, module->address + layout->notes, &attributes) ||
	    !attributes)
		return 0;
	for (uint32_t i = 0; i < NOTE_SECTIONS_MAX && !found; i++) {
		attribute = find_note(&walk, attributes, i);
		if (!attribute ||
		    !linux_read_u64(&walk.reader, attribute + layout->note_size, &size) ||
		    !linux_read_u64(&walk.reader, attribute + layout->note_contents, &contents))
			return 0;
		if (size <= sizeof(bytes) && copy(&walk, contents, bytes, (size_t)size))
			found = elf_find_build_id(bytes, (size_t)size, 4,
						  LINUX_MODULE_BUILD_ID_LIMIT, build_id);
	}
	return found;
}
