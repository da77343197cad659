/* The modules of a guest and their symbols, as the guest itself says they are. */
#include "base/cleanup.h"
#include "guest-introspection/linux_modules.h"
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

/* A symbol, "ext4_iget [ext4]". */
struct truth {
	uint64_t start;
	char kind; /* lower case */
	char name[256];
};

static int compare_truth(const void *left, const void *right)
{
	const struct truth *a = left;
	const struct truth *b = right;
	int order;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	order = strcmp(a->name, b->name);
	return order ? order : a->kind - b->kind;
}

/* What the guest's kallsyms says in brackets, without what is no module's. */
static struct truth *read_truth(const char *image, size_t *count)
{
	const size_t room = 1 << 18;
	struct truth *truth = calloc(room, sizeof(*truth));
	char line[1024];
	FILE *file;

	file = image_fopen(image, "kallsyms");
	cr_assert(file && truth, "%s", image);
	*count = 0;
	while (fgets(line, sizeof(line), file)) {
		struct truth *one = &truth[*count];
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
	qsort(truth, *count, sizeof(*truth), compare_truth);
	return truth;
}

static void compare_symbols(const char *image, const struct symbol_table *table,
			    const struct truth *truth, size_t count)
{
	AUTO_FREE struct truth *found = calloc(table->count + 1, sizeof(*found));

	for (size_t i = 0; i < table->count; i++) {
		struct symbol symbol = symbol_table_get(table, i);

		found[i].start = symbol.start;
		found[i].kind = (char)tolower(symbol.kind);
		snprintf(found[i].name, sizeof(found[i].name), "%s", symbol.name);
		cr_assert_gt(symbol.size, 0);
	}
	qsort(found, table->count, sizeof(*found), compare_truth);
	for (size_t i = 0; i < table->count && i < count; i++)
		cr_assert_eq(compare_truth(&found[i], &truth[i]), 0,
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
		cr_assert_eq(linux_modules_find(modules, module->text.start), module);
		cr_assert_eq(
			linux_modules_find(modules, module->text.start + module->text.size - 1),
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
		AUTO_FREE struct truth *truth = read_truth(names[i], &truth_count);
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
			const struct linux_module *module =
				linux_modules_find(&modules, symbol.start);

			if (!module)
				continue; /* absolute */
			cr_assert_eq(linux_modules_find(&modules, symbol.start + symbol.size - 1),
				     module, "%s", symbol.name);
		}
		linux_modules_deinit(&modules);
		prepared_image_deinit(&image);
	}
}
