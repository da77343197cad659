/* Source lines and inlined functions: of a program that is compiled here, found by path, by build
 * id, from a server, and of a kernel that is not where its file says. */
#include "analysis/source_lines.h"

#include "base/cleanup.h"
#include "guest-introspection/elf/elf_image.h"
#include "guest-introspection/elf/symbols_file.h"
#include "analysis/profile.h"
#include "tests/unit/trace_file.h"

#include <stdlib.h>
#include <sys/stat.h>

/* What is inlined where, by line. */
static const char source[] = "volatile int sink;\n"
			     "static inline __attribute__((always_inline)) void inner(int x)\n"
			     "{\n"
			     "	sink = x * 3;\n" /* 4 */
			     "}\n"
			     "static inline __attribute__((always_inline)) void middle(int x)\n"
			     "{\n"
			     "	inner(x + 1);\n" /* 8 */
			     "}\n"
			     "__attribute__((noinline)) void outer(int x)\n"
			     "{\n"
			     "	middle(x);\n" /* 12 */
			     "}\n"
			     "int main(void)\n"
			     "{\n"
			     "	for (;;)\n"
			     "		outer(sink);\n"
			     "}\n"
			     "void _text(void) {}\n"
			     "void _start(void) { main(); }\n";

enum { PROCESS = 7, BIAS = 0x10000000, KERNEL_SLIDE = 0x5000000 };

static struct file file;
static char directory[64];
static uint8_t bytes[1 << 20];
static size_t size;
static struct elf_image image;
static struct symbol outer, text;
static struct source_lines *lines;

static char *path_of(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static bool run(const char *format, ...)
{
	char command[2048];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	return system(command) == 0;
}

/* Compiles into directory/`name` with these flags, and reads it. */
static void compile(const char *name, const char *flags)
{
	struct symbol_table table = {0};
	struct file_buffer buffer;
	FILE *stream;

	stream = fopen(path_of("work.c"), "we");
	cr_assert_not_null(stream);
	fputs(source, stream);
	fclose(stream);
	cr_assert(run("cd %s && mkdir -p $(dirname %s) && cc -g -O2 -nostdlib -Wl,--build-id=sha1 "
		      "%s -o %s work.c",
		      directory, name, flags, name));
	stream = fopen(path_of(name), "re");
	size = fread(bytes, 1, sizeof(bytes), stream);
	fclose(stream);
	buffer = file_buffer_over(bytes, size);
	cr_assert_eq(elf_image_read(&buffer.source, &image, NULL), GP_OK);
	cr_assert_eq(image.build_id_size, 20);
	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0}, &table, NULL),
		     GP_OK);
	cr_assert(symbol_table_find_name(&table, "outer", &outer));
	cr_assert(symbol_table_find_name(&table, "_text", &text));
	symbol_table_deinit(&table);
}

/* Needs a compiler and libdw, or skips. Nothing outside the test is asked for anything. */
static void set_up(void)
{
	unsetenv("DEBUGINFOD_URLS");
	snprintf(directory, sizeof(directory), "/tmp/source-lines.XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	if (!run("command -v cc >/dev/null"))
		cr_skip_test("no C compiler");
}

static void tear_down(void)
{
	source_lines_destroy(lines);
	lines = NULL;
	run("rm -rf %s", directory);
}

TestSuite(source_lines, .init = set_up, .fini = tear_down, .timeout = 60);

static const struct fxt_process_symbols of = {PROCESS, 0x4000, 1000};

/* A trace of one program, whose file has the guest's path `path` and this build id. */
static void make_trace(const char *path, const uint8_t *build_id, size_t build_id_size)
{
	const struct fxt_module module = {.id = 1,
					  .timestamp = of.valid_from,
					  .thread = {.process = PROCESS},
					  .name = fxt_text(path),
					  .build_id =
						  fxt_bytes((const char *)build_id, build_id_size)};
	const struct fxt_mmap mapping = {.module = 1,
					 .flags = 5,
					 .timestamp = of.valid_from,
					 .thread = {.process = PROCESS},
					 .start = BIAS + (outer.start & ~UINT64_C(0xfff)),
					 .range = 0x1000,
					 .vaddr = outer.start & ~UINT64_C(0xfff)};
	const struct fxt_symbol symbol = {.start = BIAS + outer.start,
					  .size = outer.size,
					  .kind = FXT_SYMBOL_USER,
					  .name = "outer",
					  .name_bytes = 5};
	size_t taken;

	begin(&file);
	add_words(&file, fxt_process_symbols_encode(&of, &symbol, 1, next_word(&file), room(&file),
						    &taken));
	add_words(&file, fxt_encode_module(&module, next_word(&file), room(&file)));
	add_words(&file, fxt_encode_mmap(&mapping, next_word(&file), room(&file)));
	for (uint64_t i = 0; i < outer.size; i++) {
		uint64_t address = BIAS + outer.start + i;

		add_sample(&file,
			   (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
							FXT_SAMPLE_ADDRESS_SPACE,
					       .timestamp = 2000 + i,
					       .process = PROCESS,
					       .address_space = 0x4000,
					       .mode = FXT_MODE_GUEST_USER,
					       .stack = &address,
					       .depth = 1});
	}
	open_trace(&file);
}

static void create(const char *symfs, const char *vmlinux)
{
	const struct source_options options = {.symfs = symfs, .vmlinux = vmlinux};
	struct error error = {0};
	gp_status_t status = source_lines_create(&options, &trace, &lines, &error);

	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	cr_assert_eq(status, GP_OK, "%s", error.text);
}

static size_t find(uint64_t offset, struct source_frame places[SOURCE_FRAMES_MAX])
{
	return source_lines_find(lines, &trace.programs.items[0],
				 &trace.programs.items[0].functions.items[0],
				 BIAS + outer.start + offset, places);
}

/* How many bytes of outer() are in inner() in middle(); checks the way out of each. */
static unsigned count_inlined(void)
{
	struct source_frame places[SOURCE_FRAMES_MAX];
	unsigned found = 0;

	for (uint64_t i = 0; i < outer.size; i++) {
		if (find(i, places) != 3)
			continue;
		cr_assert_str_eq(places[0].function, "inner");
		cr_assert_str_eq(places[1].function, "middle");
		cr_assert_null(places[2].function);
		/* inner's own line, where middle calls it, and where outer calls that. */
		cr_assert_eq(places[0].line, 4);
		cr_assert_eq(places[1].line, 8);
		cr_assert_eq(places[2].line, 12);
		/* And where they begin. */
		cr_assert_eq(places[0].begin, 2);
		cr_assert_eq(places[1].begin, 6);
		cr_assert_eq(places[2].begin, 10);
		for (int place = 0; place < 3; place++)
			cr_assert_not_null(strstr(places[place].file, "work.c"));
		found++;
	}
	return found;
}

Test(source_lines, a_program_is_found_by_its_path_below_symfs)
{
	struct source_frame places[SOURCE_FRAMES_MAX];
	const char *line;
	size_t length;

	compile("root/bin/work", "-pie");
	make_trace("/bin/work", image.build_id, image.build_id_size);
	create(path_of("root"), NULL);
	cr_assert_gt(count_inlined(), 0);
	cr_assert_eq(source_lines_counts(lines).found, 1);
	cr_assert_eq(source_lines_counts(lines).files, 1);
	/* The same again, from what is known. */
	cr_assert_gt(count_inlined(), 0);
	cr_assert_eq(source_lines_counts(lines).files, 1);
	/* The text of the line. */
	cr_assert_gt(find(0, places), 0);
	line = source_lines_text(lines, places[0].file, 4, &length);
	cr_assert_not_null(line);
	cr_assert_eq(length, strlen("	sink = x * 3;"));
	cr_assert_eq(memcmp(line, "	sink = x * 3;", length), 0);
	cr_assert_null(source_lines_text(lines, places[0].file, 0, &length));
	cr_assert_null(source_lines_text(lines, places[0].file, 1000, &length));
	cr_assert_null(source_lines_text(lines, "/no/such/file.c", 1, &length));
	end(&file);
}

Test(source_lines, debug_information_is_found_by_build_id)
{
	char place[256];
	int used;

	compile("work", "-pie");
	used = snprintf(place, sizeof(place), "root/usr/lib/debug/.build-id/%02x/",
			image.build_id[0]);
	for (unsigned i = 1; i < image.build_id_size; i++)
		used += snprintf(place + used, sizeof(place) - (size_t)used, "%02x",
				 image.build_id[i]);
	cr_assert(run("cd %s && mkdir -p $(dirname %s) && objcopy --only-keep-debug work %s.debug",
		      directory, place, place));
	make_trace("/bin/other", image.build_id, image.build_id_size);
	create(path_of("root"), NULL);
	cr_assert_gt(count_inlined(), 0);
	end(&file);
}

Test(source_lines, a_file_with_another_build_id_is_not_used)
{
	struct source_frame places[SOURCE_FRAMES_MAX];

	compile("root/bin/work", "-pie");
	image.build_id[3] ^= 1;
	make_trace("/bin/work", image.build_id, image.build_id_size);
	create(path_of("root"), NULL);
	cr_assert_eq(find(0, places), 0);
	cr_assert_eq(source_lines_counts(lines).found, 0);
	end(&file);
}

Test(source_lines, a_file_without_a_build_id_in_the_trace_is_not_used)
{
	struct source_frame places[SOURCE_FRAMES_MAX];

	compile("root/bin/work", "-pie");
	make_trace("/bin/work", NULL, 0);
	create(path_of("root"), NULL);
	cr_assert_eq(find(0, places), 0);
	end(&file);
}

Test(source_lines, a_guests_path_does_not_leave_the_directory)
{
	struct source_frame places[SOURCE_FRAMES_MAX];

	compile("outside", "-pie");
	cr_assert_eq(mkdir(path_of("root"), 0700), 0);
	make_trace("/../outside", image.build_id, image.build_id_size);
	create(path_of("root"), NULL);
	cr_assert_eq(find(0, places), 0);
	end(&file);
}

Test(source_lines, a_server_is_asked_when_one_is_named)
{
	struct source_frame places[SOURCE_FRAMES_MAX];
	char place[256], url[128];
	int used;

	compile("work", "-pie");
	used = snprintf(place, sizeof(place), "server/buildid/");
	for (unsigned i = 0; i < image.build_id_size; i++)
		used += snprintf(place + used, sizeof(place) - (size_t)used, "%02x",
				 image.build_id[i]);
	cr_assert(run("cd %s && mkdir -p %s && mv work %s/debuginfo", directory, place, place));
	make_trace("/bin/work", image.build_id, image.build_id_size);
	setenv("DEBUGINFOD_CACHE_PATH", path_of("cache"), 1);
	create(path_of("root"), NULL);
	cr_assert_eq(find(0, places), 0);
	source_lines_destroy(lines);
	snprintf(url, sizeof(url), "file://%s/server", directory);
	setenv("DEBUGINFOD_URLS", url, 1);
	create(path_of("root"), NULL);
	if (!run("ldconfig -p | grep -q libdebuginfod.so.1"))
		cr_skip_test("no libdebuginfod.so.1");
	cr_assert_gt(count_inlined(), 0);
	end(&file);
}

/* A kernel: by its build id, or by the user; where KASLR put it. */
static void check_kernel(bool by_build_id)
{
	const struct trace_symbol symbol = {.kind = FXT_SYMBOL_KERNEL};
	struct source_frame places[SOURCE_FRAMES_MAX];
	char build_id[64] = "";
	unsigned found = 0;
	const char *const name =
		by_build_id ? "root/usr/lib/debug/boot/vmlinux-6.1.0-test" : "vmlinux";

	compile(name, "-static -mcmodel=kernel -fno-pie -no-pie -Wl,-Ttext=0xffffffff81000000");
	for (unsigned i = 0; by_build_id && i < image.build_id_size; i++)
		snprintf(build_id + strlen(build_id), 3, "%02x", image.build_id[i]);
	const struct fxt_argument guest[] = {
		fxt_argument_text(FXT_GUEST_BANNER, "Linux version 6.1.0-test (a@b) #1"),
		fxt_argument_u64(FXT_GUEST_TEXT_BASE, text.start + KERNEL_SLIDE),
		fxt_argument_text(FXT_GUEST_BUILD_ID, build_id),
	};

	begin(&file);
	add_metadata(&file, FXT_GUEST, guest, 3);
	open_trace(&file);
	create(by_build_id ? path_of("root") : NULL, by_build_id ? NULL : path_of(name));
	for (uint64_t i = 0; i < outer.size; i++)
		if (source_lines_find(lines, NULL, &symbol, outer.start + KERNEL_SLIDE + i,
				      places) == 3) {
			cr_assert_str_eq(places[1].function, "middle");
			cr_assert_eq(places[2].line, 12);
			found++;
		}
	cr_assert_gt(found, 0);
	cr_assert_eq(source_lines_find(lines, NULL, &symbol, outer.start, places), 0);
	end(&file);
}

Test(source_lines, a_kernels_file_is_found_by_release_and_build_id)
{
	check_kernel(true);
}

Test(source_lines, a_kernels_file_may_be_named)
{
	check_kernel(false);
}

/* Its sections are not where its file says: it says nothing. */
Test(source_lines, kernel_modules_are_found_by_build_id_and_function)
{
	const uint64_t start = 0xffffffffc0123450;
	struct trace_symbol symbol = {.kind = FXT_SYMBOL_MODULE,
				      .start = start,
				      .name = "outer [work]",
				      .name_bytes = 12};
	struct source_frame places[SOURCE_FRAMES_MAX];
	struct fxt_module module = {.id = 1, .name = fxt_text("work")};
	const struct fxt_mmap mapping = {
		.module = 1, .flags = 5, .start = start & ~UINT64_C(0xfff), .range = 0x2000};
	const char *const place = "root/usr/lib/debug/.build-id/01/23456789abcdef.debug";
	unsigned found = 0;

	compile("work", "-pie");
	cr_assert(run("cd %s && cc -g -O2 -fno-pie -c work.c && "
		      "printf 'int unrelated(void) { return 1; }' >other.c && cc -O2 -c other.c && "
		      "ld -r --build-id=0x0123456789abcdef -o work.ko other.o work.o",
		      directory));
	module.build_id = fxt_bytes("\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
	cr_assert(run("cd %s && mkdir -p $(dirname %s) && cp work.ko %s", directory, place, place));
	begin(&file);
	add_words(&file, fxt_encode_module(&module, next_word(&file), room(&file)));
	add_words(&file, fxt_encode_mmap(&mapping, next_word(&file), room(&file)));
	open_trace(&file);
	create(path_of("root"), NULL);
	for (uint64_t i = 0; i < outer.size; i++)
		if (source_lines_find(lines, NULL, &symbol, start + i, places) == 3) {
			cr_assert_str_eq(places[1].function, "middle");
			cr_assert_eq(places[2].line, 12);
			found++;
		}
	cr_assert_gt(found, 0);
	/* Another function of that name it has not. */
	symbol.name = "inner [work]";
	cr_assert_eq(source_lines_find(lines, NULL, &symbol, start + 0x1000, places), 0);
	end(&file);
}

Test(source_lines, a_named_file_without_debug_information_is_told)
{
	const struct source_options options = {.vmlinux = "/dev/null"};
	struct error error = {0};
	gp_status_t status;

	begin(&file);
	open_trace(&file);
	status = source_lines_create(&options, &trace, &lines, &error);
	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	cr_assert_eq(status, GP_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(error.text, "/dev/null"));
	end(&file);
}

/* Reports. */

Test(source_lines, profiles_have_lines_and_inlined_functions)
{
	struct profile_options by_line = {.owners = {OWNER_LINE}, .owner_count = 1};
	struct profile_options inlined = {.inlined = true};
	struct call_tree tree;
	struct frames frames;
	uint64_t at_line = 0, in_inner = 0;

	compile("root/bin/work", "-pie");
	make_trace("/bin/work", image.build_id, image.build_id_size);
	create(path_of("root"), NULL);
	cr_assert_eq(frames_init(&frames, NULL), GP_OK);
	frames.lines = lines;
	cr_assert_eq(call_tree_init(&tree, NULL), GP_OK);
	cr_assert_eq(profile_read(&trace, &by_line, &frames, &tree, NULL, NULL), GP_OK);
	cr_assert_eq(tree.nodes[0].total, outer.size);
	for (size_t i = 1; i < tree.count; i++) {
		const struct frame *frame = &frames.entries[tree.nodes[i].frame];

		if (frame->kind == FRAME_LINE && strstr(frame->name, "work.c:4"))
			at_line += tree.nodes[i].total;
	}
	call_tree_deinit(&tree);
	cr_assert_eq(call_tree_init(&tree, NULL), GP_OK);
	cr_assert_eq(profile_read(&trace, &inlined, &frames, &tree, NULL, NULL), GP_OK);
	cr_assert_eq(tree.nodes[0].total, outer.size);
	for (size_t i = 1; i < tree.count; i++) {
		const struct call_tree_node *node = &tree.nodes[i];
		const struct call_tree_node *above = &tree.nodes[node->parent];

		if (strcmp(frames.entries[node->frame].name, "inner (inlined)"))
			continue;
		cr_assert_str_eq(frames.entries[above->frame].name, "middle (inlined)");
		cr_assert_str_eq(frames.entries[tree.nodes[above->parent].frame].name, "outer");
		cr_assert_eq(frames.entries[node->frame].kind, FRAME_USER);
		in_inner += node->total;
	}
	cr_assert_gt(in_inner, 0);
	cr_assert_eq(in_inner, at_line);
	call_tree_deinit(&tree);
	frames_deinit(&frames);
	end(&file);
}
