/* The modules of a guest and their symbols, as the guest itself says they are. */
#include "base/cleanup.h"
#include "guest-introspection/linux/linux_reader.h"
#include "guest-introspection/linux/linux_modules.h"
#include "tests/kernel_memory.h"
#include "tests/unit/image_support.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <elf.h>

static void make_layout(struct prepared_image *image, struct linux_module_layout *layout)
{
	struct error error = {0};
	struct btf *btf;

	cr_assert_eq(linux_btf_read(image->memory, &image->kernel, &image->symbols, &btf, &error),
		     GP_OK, "%s: %s", image->name, error.text);
	cr_assert_eq(linux_module_layout_init(&image->kernel, &image->symbols, btf, layout, &error),
		     GP_OK, "%s: %s", image->name, error.text);
	btf_destroy(btf);
}

/* The module that has `address` in its memory; NULL: none. */
static const struct linux_module *module_of(const struct linux_modules *modules, uint64_t address)
{
	for (size_t i = 0; i < modules->count; i++)
		for (unsigned k = 0; k < modules->modules[i].range_count; k++)
			if (address - modules->modules[i].ranges[k].start <
			    modules->modules[i].ranges[k].size)
				return &modules->modules[i];
	return NULL;
}

/* What the guest's kallsyms says in brackets, without what is no module's. */
static struct image_symbol *read_truth(const char *image, size_t *count)
{
	const size_t room = 1 << 18;
	struct image_symbol *truth = calloc(room, sizeof(*truth));
	char line[1024];
	FILE *file;

	file = image_fopen(image, "kallsyms");
	cr_assert(file && truth, "%s", image);
	*count = 0;
	while (fgets(line, sizeof(line), file)) {
		struct image_symbol *one = &truth[*count];
		unsigned long long start;
		char name[160];
		char module[64];

		if (sscanf(line, "%llx %c %159s [%63[^]]", &start, &one->kind, name, module) != 4 ||
		    strcmp(module, "bpf") == 0 || strncmp(module, "__builtin__", 11) == 0)
			continue;
		one->start = start;
		one->kind = (char)tolower(one->kind);
		snprintf(one->name, sizeof(one->name), "%s [%s]", name, module);
		cr_assert_lt(++*count, room);
	}
	fclose(file);
	qsort(truth, *count, sizeof(*truth), image_symbol_compare);
	return truth;
}

static void compare_symbols(const char *image, const struct symbol_table *table,
			    const struct image_symbol *truth, size_t count)
{
	AUTO_FREE struct image_symbol *found = calloc(table->count + 1, sizeof(*found));

	for (size_t i = 0; i < table->count; i++) {
		struct symbol symbol = symbol_table_get(table, i);

		found[i].start = symbol.start;
		found[i].kind = (char)tolower(symbol.kind);
		snprintf(found[i].name, sizeof(found[i].name), "%s", symbol.name);
		cr_assert_gt(symbol.size, 0);
	}
	qsort(found, table->count, sizeof(*found), image_symbol_compare);
	for (size_t i = 0; i < table->count && i < count; i++)
		cr_assert_eq(image_symbol_compare(&found[i], &truth[i]), 0,
			     "%s: %llx %c %s, the guest says %llx %c %s", image,
			     (unsigned long long)found[i].start, found[i].kind, found[i].name,
			     (unsigned long long)truth[i].start, truth[i].kind, truth[i].name);
	cr_assert_eq(table->count, count, "%s: %zu of %zu", image, table->count, count);
}

/* Against /proc/modules: names, order, addresses. Returns how many there are. */
static size_t compare_modules(const char *image, const struct linux_modules *modules)
{
	char line[1024];
	size_t count = 0;
	FILE *file;

	file = image_fopen(image, "modules");
	while (file && fgets(line, sizeof(line), file)) {
		const struct linux_module *module = &modules->modules[count];
		char name[64];
		unsigned long size;
		char *at = strstr(line, " 0x");
		uint64_t total = 0;

		cr_assert_eq(sscanf(line, "%63s %lu", name, &size), 2);
		cr_assert_lt(count++, modules->count, "%s: %s", image, name);
		cr_assert_str_eq(module->name, name);
		cr_assert(at);
		cr_assert_eq(strtoull(at + 1, NULL, 16), module->text.start, "%s", name);
		for (unsigned i = 0; i < module->range_count; i++)
			total += module->ranges[i].size;
		cr_assert_eq(total, size, "%s: %llu of %lu", name, (unsigned long long)total, size);
		cr_assert_eq(module_of(modules, module->text.start), module);
		cr_assert_eq(module_of(modules, module->text.start + module->text.size - 1),
			     module);
	}
	if (file)
		fclose(file);
	return count;
}

/* The unwind entries of a module are in order, and many of them for its own code. */
static void check_orc(const struct prepared_image *image, const struct linux_module *module)
{
	uint64_t before = 0;
	uint32_t inside = 0;

	cr_assert(module->orc_count, "%s", module->name);
	for (uint32_t i = 0; i < module->orc_count; i++) {
		int32_t relative;
		uint64_t at = module->orc_ips + (uint64_t)i * 4;
		uint64_t ip;

		cr_assert(prepared_image_read(image, at, &relative, 4));
		ip = at + (uint64_t)relative;
		/* Of its initialisation there are entries, too, for memory that is gone. */
		cr_assert_geq(ip, before, "%s %u", module->name, i);
		before = ip;
		inside += ip - module->text.start < module->text.size;
	}
	cr_assert_geq(inside, module->orc_count / 4, "%s: %u of %u", module->name, inside,
		      module->orc_count);
}

Test(linux_modules, every_symbol_equals_proc_kallsyms)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);
	unsigned with_modules = 0;

	for (unsigned i = 0; i < count; i++) {
		struct prepared_image image;
		struct linux_module_layout layout;
		struct linux_modules modules;
		struct error error = {0};
		size_t truth_count;
		size_t expected;
		AUTO_FREE struct image_symbol *truth = read_truth(names[i], &truth_count);
		double begin;

		if (!prepared_image_init(&image, names[i]))
			continue;
		make_layout(&image, &layout);
		begin = seconds_used();
		cr_assert_eq(linux_modules_read(&layout, image.memory, &modules, &error), GP_OK,
			     "%s: %s", names[i], error.text);
		begin = seconds_used() - begin;
		compare_symbols(names[i], &modules.symbols, truth, truth_count);
		expected = compare_modules(names[i], &modules);
		cr_assert_eq(modules.count, expected, "%s: %zu modules, %zu expected", names[i],
			     modules.count, expected);
		for (size_t k = 0; k < modules.count; k++) {
			check_orc(&image, &modules.modules[k]);
			cr_assert_gt(modules.modules[k].symbol_count, 0);
		}
		cr_assert_not(linux_modules_changed(&layout, image.memory, &modules.stamp));
		with_modules += modules.count > 0;
		cr_log_info("%s: %zu modules, %zu symbols equal, read in %.1f ms", names[i],
			    modules.count, truth_count, begin * 1e3);
		linux_modules_deinit(&modules);
		prepared_image_deinit(&image);
	}
	if (!with_modules)
		cr_skip_test("no image with modules, whose names end in -tasks: run "
			     "tests/images/make-image.sh");
}

Test(linux_modules, the_last_symbol_ends_with_its_module)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct prepared_image image;
		struct linux_module_layout layout;
		struct linux_modules modules;

		if (!prepared_image_init(&image, names[i]))
			continue;
		make_layout(&image, &layout);
		cr_assert_eq(linux_modules_read(&layout, image.memory, &modules, NULL), GP_OK);
		for (size_t k = 0; k < modules.symbols.count; k++) {
			struct symbol symbol = symbol_table_get(&modules.symbols, k);
			const struct linux_module *module = module_of(&modules, symbol.start);

			if (!module)
				continue; /* absolute */
			cr_assert_eq(module_of(&modules, symbol.start + symbol.size - 1), module,
				     "%s", symbol.name);
		}
		linux_modules_deinit(&modules);
		prepared_image_deinit(&image);
	}
}

/* Two modules, "mod_a" and "mod_b", the first the newer one, with a page each. */
enum {
	FIRST_MODULE = 0x100,
	SECOND_MODULE = 0x300,
	FIRST_PAGE = 0x1000,
	SECOND_PAGE = 0x2000,
	PAGE_KALLSYMS = 0x800,
	PAGE_SYMBOLS = 0x840,
	PAGE_NAMES = 0xa00,
	PAGE_TYPES = 0xa80,
	SYMBOLS = 4,
};

static uint64_t linear(uint64_t offset)
{
	return KERNEL_DIRECT + KERNEL_DATA + offset;
}

static void put(struct kernel_memory *kernel, uint64_t offset, uint64_t value, unsigned size)
{
	buffer_put(&kernel->memory, KERNEL_DATA + offset, value, size);
}

static void put_symbol(struct kernel_memory *kernel, uint64_t page, unsigned index, uint32_t name,
		       uint64_t value, uint8_t binding, char type)
{
	Elf64_Sym symbol = {
		.st_name = name, .st_info = ELF64_ST_INFO(binding, STT_FUNC), .st_value = value};

	memcpy(kernel->bytes + KERNEL_DATA + page + PAGE_SYMBOLS + index * sizeof(symbol), &symbol,
	       sizeof(symbol));
	kernel->bytes[KERNEL_DATA + page + PAGE_TYPES + index] = (uint8_t)type;
}

static void put_module(struct kernel_memory *kernel, bool types, uint64_t module, uint64_t page,
		       char letter)
{
	static const char names[] = "\0alpha\0beta\0gamma";
	char name[] = "mod_x";

	name[4] = letter;
	memcpy(kernel->bytes + KERNEL_DATA + module + MODULE_NAME, name, sizeof(name));
	put(kernel, module + MODULE_KALLSYMS, linear(page + PAGE_KALLSYMS), 8);
	put(kernel, module + MODULE_ORC_COUNT, 2, 4);
	put(kernel, module + MODULE_ORC_IPS, linear(page + 0x900), 8);
	put(kernel, module + MODULE_ORC_ENTRIES, linear(page + 0x910), 8);
	put(kernel, module + MODULE_MEMORY, linear(page), 8);
	if (types) {
		put(kernel, module + MODULE_MEMORY + 8, 0x400, 4);
		put(kernel, module + MODULE_MEMORY + 16, linear(page + 0x800), 8);
		put(kernel, module + MODULE_MEMORY + 24, 0x800, 4);
	} else {
		put(kernel, module + MODULE_MEMORY + 8, 0x1000, 4);
		put(kernel, module + MODULE_MEMORY + 12, 0x400, 4);
	}
	put(kernel, page + PAGE_KALLSYMS, linear(page + PAGE_SYMBOLS), 8);
	put(kernel, page + PAGE_KALLSYMS + 8, SYMBOLS, 4);
	put(kernel, page + PAGE_KALLSYMS + 16, linear(page + PAGE_NAMES), 8);
	put(kernel, page + PAGE_KALLSYMS + 24, linear(page + PAGE_TYPES), 8);
	memcpy(kernel->bytes + KERNEL_DATA + page + PAGE_NAMES, names, sizeof(names));
	put_symbol(kernel, page, 0, 0, 0, STB_LOCAL, 'U');
	put_symbol(kernel, page, 1, 1, linear(page), STB_LOCAL, 't');
	put_symbol(kernel, page, 2, 7, linear(page + 0x40), STB_GLOBAL, 't');
	put_symbol(kernel, page, 3, 12, linear(page + 0x800), STB_LOCAL, 'd');
}

static void link_modules(struct kernel_memory *kernel, unsigned count)
{
	const uint64_t nodes[] = {0, FIRST_MODULE + MODULE_LIST, SECOND_MODULE + MODULE_LIST};

	for (unsigned i = 0; i <= count; i++) {
		unsigned next = i == count ? 0 : i + 1;

		put(kernel, nodes[i], linear(nodes[next]), 8);
		put(kernel, nodes[next] + 8, linear(nodes[i]), 8);
	}
}

static struct kernel_memory *make_kernel(bool types)
{
	static struct kernel_memory kernel;

	kernel_memory_init(&kernel);
	put_module(&kernel, types, FIRST_MODULE, FIRST_PAGE, 'a');
	put_module(&kernel, types, SECOND_MODULE, SECOND_PAGE, 'b');
	link_modules(&kernel, 2);
	return &kernel;
}

static gp_status_t read_modules(struct kernel_memory *kernel, bool types, struct linux_modules *out)
{
	struct linux_module_layout layout = kernel_memory_module_layout(types);
	struct error error;

	return linux_modules_read(&layout, &kernel->memory.memory, out, &error);
}

Test(linux_modules, both_layouts_are_read)
{
	for (unsigned types = 0; types < 2; types++) {
		struct kernel_memory *kernel = make_kernel(types);
		struct linux_modules modules;
		struct symbol symbol;

		cr_assert_eq(read_modules(kernel, types, &modules), GP_OK);
		cr_assert_eq(modules.count, 2);
		cr_assert_str_eq(modules.modules[0].name, "mod_a");
		cr_assert_str_eq(modules.modules[1].name, "mod_b");
		for (unsigned i = 0; i < 2; i++) {
			const struct linux_module *module = &modules.modules[i];
			uint64_t page = i ? SECOND_PAGE : FIRST_PAGE;

			cr_assert_eq(module->address, linear(i ? SECOND_MODULE : FIRST_MODULE));
			cr_assert_eq(module->text.start, linear(page));
			cr_assert_eq(module->text.size, 0x400);
			cr_assert_eq(module->init_text.size, 0);
			cr_assert_eq(module->range_count, types ? 2 : 1);
			cr_assert_eq(module->symbol_count, 3);
			cr_assert_eq(module->orc_count, 2);
			cr_assert_eq(module->orc_ips, linear(page + 0x900));
			cr_assert_eq(module->orc_entries, linear(page + 0x910));
			cr_assert_eq(module_of(&modules, linear(page + 0xfff)), module);
		}
		cr_assert_null(module_of(&modules, linear(0xfff)));
		cr_assert_null(module_of(&modules, linear(0x3000)));
		cr_assert_eq(modules.symbols.count, 6);
		cr_assert(symbol_table_find(&modules.symbols, linear(FIRST_PAGE + 0x3f), &symbol));
		cr_assert_str_eq(symbol.name, "alpha [mod_a]");
		cr_assert_eq(symbol.kind, 't');
		cr_assert(symbol_table_find(&modules.symbols, linear(SECOND_PAGE + 0x40), &symbol));
		cr_assert_str_eq(symbol.name, "beta [mod_b]");
		cr_assert_eq(symbol.kind, 'T');
		/* The last in a piece of memory ends with it. */
		cr_assert_eq(symbol.size, types ? 0x400 - 0x40 : 0x800 - 0x40);
		cr_assert(symbol_table_find_name(&modules.symbols, "gamma [mod_a]", &symbol));
		cr_assert_eq(symbol.size, 0x800);
		linux_modules_deinit(&modules);
	}
}

Test(linux_modules, no_modules_are_none)
{
	struct kernel_memory *kernel = make_kernel(true);
	struct linux_modules modules;

	link_modules(kernel, 0);
	cr_assert_eq(read_modules(kernel, true, &modules), GP_OK);
	cr_assert_eq(modules.count, 0);
	cr_assert_eq(modules.symbols.count, 0);
	linux_modules_deinit(&modules);
}

Test(linux_modules, what_is_loaded_is_seen)
{
	struct kernel_memory *kernel = make_kernel(true);
	struct linux_module_layout layout = kernel_memory_module_layout(true);
	const struct guest_memory *memory = &kernel->memory.memory;
	struct linux_modules modules;

	link_modules(kernel, 1);
	put(kernel, FIRST_MODULE + MODULE_STATE, 1, 4);
	cr_assert_eq(read_modules(kernel, true, &modules), GP_OK);
	cr_assert_eq(modules.count, 1);
	cr_assert_not(linux_modules_changed(&layout, memory, &modules.stamp));
	put(kernel, FIRST_MODULE + MODULE_STATE, 0, 4); /* initialised */
	cr_assert(linux_modules_changed(&layout, memory, &modules.stamp));
	linux_modules_deinit(&modules);
	cr_assert_eq(read_modules(kernel, true, &modules), GP_OK);
	link_modules(kernel, 2);
	cr_assert(linux_modules_changed(&layout, memory, &modules.stamp));
	link_modules(kernel, 1);
	cr_assert_not(linux_modules_changed(&layout, memory, &modules.stamp));
	kernel->bytes[KERNEL_DATA + FIRST_MODULE + MODULE_NAME] = 'x'; /* another in its place */
	cr_assert(linux_modules_changed(&layout, memory, &modules.stamp));
	linux_modules_deinit(&modules);
}

Test(linux_modules, an_unformed_module_is_passed_over)
{
	struct kernel_memory *kernel = make_kernel(false);
	struct linux_modules modules;

	put(kernel, FIRST_MODULE + MODULE_STATE, 3, 4);
	put(kernel, FIRST_MODULE + MODULE_MEMORY, 0, 8);
	cr_assert_eq(read_modules(kernel, false, &modules), GP_OK);
	cr_assert_eq(modules.count, 1);
	cr_assert_str_eq(modules.modules[0].name, "mod_b");
	linux_modules_deinit(&modules);
}

/* Each of these damages the first module; the list is told as damaged, the second keeps its names
 * where the list still leads to it. */
Test(linux_modules, damage_costs_names_only)
{
	static const struct {
		uint64_t at;
		uint64_t value;
		unsigned size;
		size_t modules;
		size_t symbols;
	} damages[] = {
		{FIRST_MODULE + MODULE_KALLSYMS, 0, 8, 2, 3},
		{FIRST_MODULE + MODULE_KALLSYMS, 0x1000, 8, 2, 3},
		{FIRST_PAGE + PAGE_KALLSYMS, 0, 8, 2, 3},
		{FIRST_PAGE + PAGE_KALLSYMS, KERNEL_DIRECT, 8, 2, 3},
		{FIRST_PAGE + PAGE_KALLSYMS + 8, 0xffffffff, 4, 2, 3},
		{FIRST_PAGE + PAGE_KALLSYMS + 8, 200, 4, 2, 3},
		{FIRST_PAGE + PAGE_KALLSYMS + 16, KERNEL_DIRECT, 8, 2, 3},
		{FIRST_PAGE + PAGE_KALLSYMS + 24, UINT64_MAX, 8, 2, 3},
		/* Another's memory is not this module's. */
		{FIRST_PAGE + PAGE_KALLSYMS, KERNEL_DIRECT + KERNEL_DATA + SECOND_PAGE, 8, 2, 3},
		{FIRST_MODULE + MODULE_NAME, 0, 8, 0, 0},
		{FIRST_MODULE + MODULE_NAME, '\n', 1, 0, 0},
		{FIRST_MODULE + MODULE_LIST, 0x1000, 8, 1, 3},
		{FIRST_MODULE + MODULE_LIST, UINT64_MAX, 8, 1, 3},
		{0, 0, 8, 0, 0},
	};

	for (unsigned i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct kernel_memory *kernel = make_kernel(true);
		struct linux_modules modules;

		put(kernel, damages[i].at, damages[i].value, damages[i].size);
		cr_assert_eq(read_modules(kernel, true, &modules), GP_ERR_IO_DATA_INTEGRITY, "%u",
			     i);
		cr_assert_eq(modules.count, damages[i].modules, "%u: %zu", i, modules.count);
		cr_assert_eq(modules.symbols.count, damages[i].symbols, "%u: %zu", i,
			     modules.symbols.count);
		linux_modules_deinit(&modules);
	}
}

Test(linux_modules, tables_outside_are_not_handed_out)
{
	struct kernel_memory *kernel = make_kernel(false);
	struct linux_modules modules;

	put(kernel, FIRST_MODULE + MODULE_ORC_IPS, linear(FIRST_PAGE + 0xffc), 8);
	put(kernel, SECOND_MODULE + MODULE_ORC_COUNT, 0x40000000, 4);
	put(kernel, FIRST_MODULE + MODULE_MEMORY + 12, 0x1001, 4);
	cr_assert_eq(read_modules(kernel, false, &modules), GP_OK);
	cr_assert_eq(modules.modules[0].orc_count, 0);
	cr_assert_eq(modules.modules[1].orc_count, 0);
	cr_assert_eq(modules.modules[0].text.size, 0);
	cr_assert_eq(modules.modules[1].text.size, 0x400);
	linux_modules_deinit(&modules);
}

Test(linux_modules, circles_end)
{
	struct kernel_memory *kernel = make_kernel(true);
	struct linux_modules modules;
	double before = seconds_used();

	put(kernel, SECOND_MODULE + MODULE_LIST, linear(FIRST_MODULE + MODULE_LIST), 8);
	cr_assert_eq(read_modules(kernel, true, &modules), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_eq(modules.count, LINUX_MODULE_LIMIT);
	linux_modules_deinit(&modules);
	cr_assert_lt(seconds_used() - before, 5.0);
}

Test(linux_modules, names_of_the_guest_s_making_are_made_printable)
{
	struct kernel_memory *kernel = make_kernel(true);
	struct linux_modules modules;
	struct symbol symbol;

	memcpy(kernel->bytes + KERNEL_DATA + FIRST_PAGE + PAGE_NAMES + 1, "a\n \x1b[", 5);
	cr_assert_eq(read_modules(kernel, true, &modules), GP_OK);
	cr_assert(symbol_table_find(&modules.symbols, linear(FIRST_PAGE), &symbol));
	cr_assert_str_eq(symbol.name, "a???[ [mod_a]");
	linux_modules_deinit(&modules);
}

/* Build ids. */

/* All modules of stock kernels have one, of SHA-1, and no two the same. */
static void check_build_ids(const char *name)
{
	struct prepared_image image;
	struct linux_module_layout layout;
	struct linux_modules modules;
	uint8_t ids[64][LINUX_MODULE_BUILD_ID_LIMIT];

	if (!prepared_image_init(&image, name))
		return;
	make_layout(&image, &layout);
	cr_assert_eq(linux_modules_read(&layout, image.memory, &modules, NULL), GP_OK);
	for (size_t i = 0; i < modules.count && i < 64; i++) {
		cr_assert_eq(
			linux_module_build_id(&layout, image.memory, &modules.modules[i], ids[i]),
			20, "%s: %s", name, modules.modules[i].name);
		for (size_t k = 0; k < i; k++)
			cr_assert(memcmp(ids[i], ids[k], 20));
	}
	linux_modules_deinit(&modules);
	prepared_image_deinit(&image);
}

Test(linux_modules, build_ids_of_stock_modules, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned i = 0; i < count; i++)
		check_build_ids(names[i]);
}

/* A module of the test's making: notes at 0x3000, behind their attributes at 0x2000; these are
 * counted, or a list at 0x4000 says where they are. */
static unsigned find_forged_in(bool listed, const void *bytes, size_t size, uint64_t said,
			       uint32_t count, uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT])
{
	static uint8_t memory_bytes[0x6000];
	struct buffer_memory memory = buffer_memory_over(memory_bytes, sizeof(memory_bytes));
	const struct linux_module_layout layout = {.space = {.mode = ADDRESSING_PROTECTED},
						   .notes = 8,
						   .note_count = listed ? LINUX_MEMBER_MISSING : 8,
						   .note_array = 16,
						   .note_list = 8,
						   .note_bytes = 32,
						   .note_size = 8,
						   .note_contents = 16};
	const struct linux_module module = {.address = 0x1000};

	memset(memory_bytes, 0, sizeof(memory_bytes));
	buffer_put(&memory, 0x1008, 0x2000, 8);
	if (listed)
		buffer_put(&memory, 0x2008, 0x4000, 8);
	else
		buffer_put(&memory, 0x2008, count, 4);
	/* All there are of them are the same one. */
	for (uint32_t i = 0; i < count && i < 0x2000 / 8; i++)
		buffer_put(&memory, 0x4000 + i * 8, 0x2010, 8);
	buffer_put(&memory, 0x2010 + 8, said, 8);
	buffer_put(&memory, 0x2010 + 16, 0x3000, 8);
	memcpy(memory_bytes + 0x3000, bytes, size);
	return linux_module_build_id(&layout, &memory.memory, &module, build_id);
}

/* The same for both ways to keep them. */
static unsigned find_forged(const void *bytes, size_t size, uint64_t said, uint32_t count,
			    uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT])
{
	unsigned listed = find_forged_in(true, bytes, size, said, count, build_id);

	memset(build_id, 0, LINUX_MODULE_BUILD_ID_LIMIT);
	cr_assert_eq(find_forged_in(false, bytes, size, said, count, build_id), listed);
	return listed;
}

Test(linux_modules, a_build_id_is_found_behind_other_notes)
{
	static const uint32_t words[] = {4, 5, 1, 0x00585858, 0x11111111, 0x22, /* XXX */
					 4, 4, 3, 0x00554e47, 0x44332211};      /* GNU */
	uint8_t id[LINUX_MODULE_BUILD_ID_LIMIT] = {0};

	cr_assert_eq(find_forged(words, sizeof(words), sizeof(words), 1, id), 4);
	cr_assert_eq(id[0], 0x11);
	cr_assert_eq(id[3], 0x44);
	cr_assert_eq(find_forged(words, sizeof(words), sizeof(words), 0, id), 0);
}

Test(linux_modules, damaged_notes_have_no_build_id)
{
	uint32_t words[] = {4, 4, 3, 0x00554e47, 0x44332211};
	uint8_t id[LINUX_MODULE_BUILD_ID_LIMIT];

	/* Cut anywhere, larger than is looked at, with sizes that are not there. */
	for (size_t size = 0; size < sizeof(words); size++)
		cr_assert_eq(find_forged(words, sizeof(words), size, 1, id), 0);
	cr_assert_eq(find_forged(words, sizeof(words), UINT64_MAX, 1, id), 0);
	words[1] = UINT32_MAX;
	cr_assert_eq(find_forged(words, sizeof(words), sizeof(words), 1, id), 0);
	words[1] = LINUX_MODULE_BUILD_ID_LIMIT + 1;
	cr_assert_eq(find_forged(words, sizeof(words), 1024, UINT32_MAX, id), 0);
	words[0] = UINT32_MAX;
	cr_assert_eq(find_forged(words, sizeof(words), sizeof(words), 1, id), 0);
}
