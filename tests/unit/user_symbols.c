/* Symbols and build ids of user programs, out of page caches and memory of real guests. */
#include "guest-introspection/linux/user_symbols.h"

#include "base/cleanup.h"
#include "guest-introspection/elf/symbols_file.h"
#include "tests/unit/tasks_image.h"

#include <elf.h>

/* One executable mapping, and all of its file in the process. */
struct program {
	struct linux_mapping mapping;
	char path[LINUX_PATH_SIZE];
	bool found;
	bool (*wanted)(const struct linux_mapping *mapping, const void *argument);
	const void *argument;
};

static bool look_for_program(void *context, const struct linux_mapping *mapping)
{
	struct program *program = context;

	if (!mapping->executable || !program->wanted(mapping, program->argument))
		return true;
	program->mapping = *mapping;
	snprintf(program->path, sizeof(program->path), "%s", mapping->name);
	program->mapping.name = program->path;
	program->found = true;
	return false;
}

static bool has_name(const struct linux_mapping *mapping, const void *name)
{
	return strcmp(mapping->name, name) == 0;
}

static bool holds_address(const struct linux_mapping *mapping, const void *address)
{
	uint64_t value = *(const uint64_t *)address;

	return value >= mapping->start && value < mapping->end;
}

static bool find_program(const struct tasks_image *image, uint64_t mm,
			 bool (*wanted)(const struct linux_mapping *, const void *),
			 const void *argument, struct program *out)
{
	*out = (struct program){.wanted = wanted, .argument = argument};
	linux_mappings_walk(&image->mappings, mm, look_for_program, out);
	return out->found;
}

/* The text symbols of `table` that `other` has not. */
static size_t missing_text(const struct symbol_table *table, const struct symbol_table *other)
{
	size_t missing = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct symbol one = symbol_table_get(table, i);
		bool found = false;
		size_t low = 0;
		size_t high = other->count;

		/* Stubs are in no table of a file. */
		if (!symbol_kind_is_text(one.kind) || strstr(one.name, "@plt"))
			continue;
		while (low < high) {
			size_t middle = low + (high - low) / 2;

			if (symbol_table_get(other, middle).start < one.start)
				low = middle + 1;
			else
				high = middle;
		}
		for (; low < other->count && !found; low++) {
			struct symbol two = symbol_table_get(other, low);

			if (two.start != one.start)
				break;
			found = strcmp(one.name, two.name) == 0 && symbol_kind_is_text(two.kind);
		}
		missing += !found;
	}
	return missing;
}

static uint64_t mm_of(const struct tasks_image *image, unsigned pid)
{
	for (unsigned i = 0; i < image->process_count; i++)
		if (image->processes[i].pid == pid)
			return image->processes[i].mm;
	return 0;
}

/* Names of the copies in the images' files/. */
static const char *const libc_path = "/lib/x86_64-linux-gnu/libc.so.6";
static const char *const paths[] = {
	"/bin/tasks-static-fp",        "/bin/tasks-static-nofp",
	"/bin/tasks-dynamic-fp",       "/bin/tasks-dynamic-nofp",
	"/bin/tasks-static-32",        "/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
};

static void read_host_copy(const struct tasks_image *image, const char *path, char **bytes,
			   size_t *size, struct symbol_table *table)
{
	struct error error = {0};
	char name[300];

	snprintf(name, sizeof(name), "files/%.255s", strrchr(path, '/') + 1);
	*bytes = tasks_image_text(image->base.name, name, size);
	cr_assert(*bytes, "%s", name);
	if (symbols_file_parse(*bytes, *size, (struct symbols_base){0}, table, &error) != GP_OK)
		symbol_table_init(table);
}

/* Whether .note.gnu.build-id of a whole file says the same. */
static bool has_build_id(const char *bytes, size_t size, const struct elf_image *image)
{
	static const uint8_t header[] = {4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};
	const char *found = memmem(bytes, size, header, sizeof(header));

	return image->build_id_size == 20 && found &&
	       memcmp(found + sizeof(header), image->build_id, 20) == 0;
}

Test(user_symbols, programs_out_of_the_page_cache_equal_whole_files)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		unsigned files = 0;
		size_t symbols = 0;

		if (!tasks_image_init(&image, names[i]))
			continue;
		for (unsigned p = 0; p < sizeof(paths) / sizeof(paths[0]); p++) {
			struct program program = {0};
			struct linux_cached_file cached;
			struct elf_image elf;
			struct symbol_table table;
			struct symbol_table truth;
			struct elf_symbols_result result;
			struct error error = {0};
			AUTO_FREE char *bytes = NULL;
			size_t size;

			for (unsigned k = 0; k < image.process_count && !program.found; k++)
				if (image.processes[k].mm)
					find_program(&image, image.processes[k].mm, has_name,
						     paths[p], &program);
			if (!program.found)
				continue;
			read_host_copy(&image, paths[p], &bytes, &size, &truth);
			linux_cached_file_init(&cached, &image.cache, &program.mapping.file);
			cr_assert_eq(elf_image_read(&cached.source, &elf, &error), GP_OK, "%s: %s",
				     paths[p], error.text);
			cr_assert(has_build_id(bytes, size, &elf), "%s", paths[p]);
			cr_assert_eq(
				elf_symbols_read(&cached.source, &elf, 0, &table, &result, &error),
				GP_OK, "%s: %s", paths[p], error.text);
			cr_assert_eq(result.missing, 0);
			cr_assert_gt(table.count, 10);
			cr_assert_eq(missing_text(&truth, &table), 0, "%s: %zu not found", paths[p],
				     missing_text(&truth, &table));
			cr_assert_eq(missing_text(&table, &truth), 0, "%s: %zu too many", paths[p],
				     missing_text(&table, &truth));
			symbols += table.count;
			files++;
			symbol_table_deinit(&table);
			symbol_table_deinit(&truth);
		}
		cr_assert_geq(files, 6, "%s: %u", names[i], files);
		cr_log_info("%s: %u files, %zu symbols equal", names[i], files, symbols);
		tasks_image_deinit(&image);
	}
}

/* The symbol of a linear address in a process, by its mappings. */
static void name_address(const struct tasks_image *image, uint64_t mm, uint64_t address, char *name,
			 size_t size)
{
	struct program program;
	struct user_symbols symbols;
	struct symbol symbol;

	snprintf(name, size, "?");
	if (!find_program(image, mm, holds_address, &address, &program) ||
	    user_symbols_read(&image->mappings, &image->cache, mm, &program.mapping, NULL, &symbols,
			      NULL) != GP_OK)
		return;
	if (symbol_table_find(&symbols.symbols, address - symbols.bias, &symbol))
		snprintf(name, size, "%s", symbol.name);
	user_symbols_deinit(&symbols);
}

Test(user_symbols, known_call_trees_are_named)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		AUTO_FREE char *truth = NULL;
		char *line;
		char *rest;
		unsigned frames = 0;

		if (!tasks_image_init(&image, names[i]))
			continue;
		truth = tasks_image_text(names[i], "calltrees", NULL);
		cr_assert(truth);
		for (line = strtok_r(truth, "\n", &rest); line;
		     line = strtok_r(NULL, "\n", &rest)) {
			unsigned pid = (unsigned)strtoul(line, NULL, 10);
			char *words;
			char *word = strtok_r(line, " ", &words);

			/* One of each program is enough, at 3000 symbols a frame. Of the one on
			 * a disk, names are not cached. */
			if (!strstr(words, " raw ") || strstr(words, " ext4 "))
				continue;
			for (; word; word = strtok_r(NULL, " ", &words)) {
				char *at = strchr(word, '@');
				char name[256];

				if (!at || *word == '?' || at[1] == '?')
					continue;
				*at = '\0';
				/* A return address is behind its call. */
				name_address(&image, mm_of(&image, pid),
					     strtoull(at + 1, NULL, 16) - 1, name, sizeof(name));
				cr_assert_str_eq(name, word, "%s: process %u: %s is not %s",
						 names[i], pid, at + 1, word);
				frames++;
			}
		}
		cr_assert_geq(frames, 40, "%s: %u", names[i], frames);
		cr_log_info("%s: %u frames named", names[i], frames);
		tasks_image_deinit(&image);
	}
}

Test(user_symbols, the_vdso_is_read_out_of_memory)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		unsigned with_64 = 0;
		unsigned with_32 = 0;

		if (!tasks_image_init(&image, names[i]))
			continue;
		for (unsigned k = 0; k < image.process_count; k++) {
			struct program program;
			struct user_memory memory;
			struct user_memory own;
			struct address_space space;
			struct elf_image elf;
			struct elf_image touched;
			struct symbol_table table;
			struct elf_symbols_result result;
			struct symbol symbol;
			struct error error = {0};
			uint64_t bias;

			if (!image.processes[k].mm || !find_program(&image, image.processes[k].mm,
								    has_name, "[vdso]", &program))
				continue;
			cr_assert(linux_mappings_vdso(&image.mappings, image.processes[k].mm,
						      &memory));
			cr_assert_eq(elf_image_read(&memory.source, &elf, &error), GP_OK, "%s",
				     error.text);
			cr_assert(elf_image_bias(&elf, program.mapping.start, 0, true, &bias));
			cr_assert_eq(bias, program.mapping.start);
			cr_assert_gt(elf.build_id_size, 0);
			cr_assert_eq(
				elf_symbols_read(&memory.source, &elf, 0, &table, &result, &error),
				GP_OK, "%s", error.text);
			cr_assert(symbol_table_find_name(
				&table, elf.is_64 ? "__vdso_clock_gettime" : "__kernel_vsyscall",
				&symbol));
			cr_assert(symbol_table_find(&table, symbol.start, &symbol));
			*(elf.is_64 ? &with_64 : &with_32) += 1;
			symbol_table_deinit(&table);
			/* A process that used it has the same in its own memory. */
			cr_assert(linux_mappings_space(&image.mappings, image.processes[k].mm,
						       &space));
			user_memory_init(&own, image.base.memory, &space);
			cr_assert(user_memory_add(&own, program.mapping.start, program.mapping.end,
						  0));
			if (elf_image_read(&own.source, &touched, NULL) == GP_OK)
				cr_assert_eq(memcmp(&touched, &elf, sizeof(elf)), 0);
		}
		cr_assert_geq(with_64, 40, "%s: %u", names[i], with_64);
		cr_log_info("%s: vDSO of %u 64-bit and %u 32-bit processes", names[i], with_64,
			    with_32);
		tasks_image_deinit(&image);
	}
}

/* Without a page cache: what the processes themselves have of their C library. */
Test(user_symbols, dynamic_symbols_out_of_memory_are_those_of_the_file)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		struct symbol_table truth;
		AUTO_FREE char *bytes = NULL;
		unsigned read = 0;
		size_t size;
		size_t symbols_read = 0;

		if (!tasks_image_init(&image, names[i]))
			continue;
		read_host_copy(&image, libc_path, &bytes, &size, &truth);
		for (unsigned k = 0; k < image.process_count; k++) {
			uint64_t mm = image.processes[k].mm;
			struct program program;
			struct user_symbols symbols;
			struct user_symbols cached;
			struct error error = {0};

			if (!mm || !find_program(&image, mm, has_name, libc_path, &program))
				continue;
			cr_assert_eq(user_symbols_read(&image.mappings, &image.cache, mm,
						       &program.mapping, NULL, &cached, &error),
				     GP_OK, "%s", error.text);
			program.mapping.file.mapping = 0; /* where no page cache is */
			if (user_symbols_read(&image.mappings, &image.cache, mm, &program.mapping,
					      NULL, &symbols, &error) == GP_OK) {
				cr_assert(has_build_id(bytes, size, &symbols.image));
				cr_assert(!symbols.result.full);
				cr_assert_eq(symbols.bias, cached.bias);
				cr_assert_eq(missing_text(&symbols.symbols, &truth), 0);
				cr_assert_leq(missing_text(&truth, &symbols.symbols),
					      symbols.result.missing);
				symbols_read += symbols.symbols.count;
				read++;
				user_symbols_deinit(&symbols);
			} else {
				/* A forked process has no pages that it did not touch. */
				cr_assert_eq(error.status, GP_ERR_NOT_FOUND, "%s", error.text);
			}
			cr_assert_eq(missing_text(&truth, &cached.symbols), 0);
			user_symbols_deinit(&cached);
		}
		cr_assert_geq(read, 5, "%s: %u", names[i], read);
		cr_log_info("%s: %zu symbols of the C library in %u processes' memory", names[i],
			    symbols_read, read);
		symbol_table_deinit(&truth);
		tasks_image_deinit(&image);
	}
}

/* A place that has one file for every question. */
struct one_file {
	struct file_copies copies;
	struct file_buffer file;
	struct file_copy_wanted asked;
	unsigned given;
	bool late;
};

static enum file_copy_result give(struct file_copies *copies, const struct file_copy_wanted *wanted,
				  const struct file_source **out)
{
	struct one_file *self = container_of(copies, struct one_file, copies);

	self->asked = *wanted;
	if (self->late)
		return FILE_COPY_LATER;
	self->given++;
	*out = &self->file.source;
	return FILE_COPY_FOUND;
}

static void take_back(struct file_copies *copies, const struct file_source *source)
{
	struct one_file *self = container_of(copies, struct one_file, copies);

	cr_assert_eq(source, &self->file.source);
	self->given--;
}

/* Without a page cache, but with a copy of the file. */
Test(user_symbols, what_is_not_in_memory_comes_from_a_copy_with_the_same_build_id)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++) {
		struct one_file place = {.copies = {.find = give, .release = take_back}};
		struct tasks_image image;
		struct symbol_table truth;
		AUTO_FREE char *bytes = NULL;
		unsigned read = 0, absent = 0;
		size_t size;

		if (!tasks_image_init(&image, names[i]))
			continue;
		read_host_copy(&image, libc_path, &bytes, &size, &truth);
		for (unsigned k = 0; k < image.process_count; k++) {
			uint64_t mm = image.processes[k].mm;
			struct program program;
			struct user_symbols symbols;
			struct error error = {0};
			gp_status_t status;
			char *note;

			if (!mm || !find_program(&image, mm, has_name, libc_path, &program))
				continue;
			program.mapping.file.mapping = 0;
			place.file = file_buffer_over(bytes, size);
			status = user_symbols_read(&image.mappings, &image.cache, mm,
						   &program.mapping, &place.copies, &symbols,
						   &error);
			cr_assert_eq(place.given, 0);
			cr_assert_eq(place.asked.size, size);
			if (status != GP_OK) {
				/* Nothing of it at hand: nothing to know a copy by. */
				cr_assert_eq(place.asked.build_id_size, 0);
				absent++;
				continue;
			}
			cr_assert_eq(place.asked.build_id_size, 20);
			cr_assert(!place.asked.whole && !place.asked.code);
			if (symbols.copied) {
				cr_assert_eq(missing_text(&truth, &symbols.symbols), 0);
				cr_assert_eq(missing_text(&symbols.symbols, &truth), 0);
				read++;
			}
			cr_assert_geq(symbols.symbols.count, truth.count);
			user_symbols_deinit(&symbols);
			/* Of another version: what the guest has is all there is. */
			note = memmem(bytes, size, symbols.image.build_id, 20);
			cr_assert(note);
			note[7] ^= 1;
			cr_assert_eq(user_symbols_read(&image.mappings, &image.cache, mm,
						       &program.mapping, &place.copies, &symbols,
						       &error),
				     GP_OK);
			cr_assert(!symbols.copied && !symbols.later);
			user_symbols_deinit(&symbols);
			note[7] ^= 1;
			place.late = true;
			cr_assert_eq(user_symbols_read(&image.mappings, &image.cache, mm,
						       &program.mapping, &place.copies, &symbols,
						       &error),
				     GP_OK);
			cr_assert(!symbols.copied && symbols.later);
			user_symbols_deinit(&symbols);
			place.late = false;
		}
		/* Some have all of its symbols in memory. */
		cr_assert_geq(read, 1, "%s: %u, %u absent", names[i], read, absent);
		symbol_table_deinit(&truth);
		tasks_image_deinit(&image);
	}
}

/* A program on a disk: what it has not used is not cached. */
Test(user_symbols, a_program_that_is_cached_in_part_has_the_symbols_that_are)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);
	static const char path[] = "/mnt/ext4/program";
	unsigned tried = 0;

	for (unsigned i = 0; i < count; i++) {
		struct tasks_image image;
		struct program program = {0};
		struct user_symbols symbols;
		struct symbol_table truth;
		struct error error = {0};
		AUTO_FREE char *bytes = NULL;
		uint64_t mm = 0;
		size_t size;

		if (!tasks_image_init(&image, names[i]))
			continue;
		for (unsigned k = 0; k < image.process_count && !program.found; k++) {
			mm = image.processes[k].mm;
			if (mm)
				find_program(&image, mm, has_name, path, &program);
		}
		if (program.found) {
			read_host_copy(&image, path, &bytes, &size, &truth);
			cr_assert_eq(user_symbols_read(&image.mappings, &image.cache, mm,
						       &program.mapping, NULL, &symbols, &error),
				     GP_OK, "%s", error.text);
			cr_assert(has_build_id(bytes, size, &symbols.image));
			cr_assert_eq(missing_text(&symbols.symbols, &truth), 0);
			if (symbols.result.full)
				cr_assert_leq(missing_text(&truth, &symbols.symbols),
					      symbols.result.missing);
			cr_log_info("%s: %zu symbols of %zu, %llu known to be missing", names[i],
				    symbols.symbols.count, truth.count,
				    (unsigned long long)symbols.result.missing);
			user_symbols_deinit(&symbols);
			symbol_table_deinit(&truth);
			tried++;
		}
		tasks_image_deinit(&image);
	}
	if (tried == 0)
		cr_skip_test("no image has a program on a disk: remake those in -tasks");
}
