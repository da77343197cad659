/* Code in traces: whose it is, what is newest, what is missing, and one file in several programs.
 */
#include "trace/trace.h"

#include "analysis/frames.h"
#include "tests/unit/trace_file.h"

static struct file file;
static struct trace_function_code code;

enum { MAPPED = 0x7f0000001000, ELSEWHERE = 0x7f0000a01000, IN_FILE = 0x1000 };

static void add_code(struct fxt_process_symbols of, uint64_t read_at, uint64_t address,
		     const char *bytes)
{
	const struct fxt_code blob = {.of = of,
				      .read_at = read_at,
				      .address = address,
				      .bytes = (const uint8_t *)bytes,
				      .size = (uint32_t)strlen(bytes)};

	add_words(&file, fxt_code_encode(&blob, next_word(&file), room(&file)));
}

static void add_kernel_code(uint64_t read_at, uint64_t address, const char *bytes)
{
	add_code((struct fxt_process_symbols){0}, read_at, address, bytes);
}

/* A program of process `id` in address space `id` << 12, with one function of 8 bytes. */
static struct fxt_process_symbols add_program(uint64_t id, uint64_t start)
{
	const struct fxt_process_symbols of = {id, id << 12, 1000};
	const struct fxt_symbol symbol = {.start = start,
					  .size = 8,
					  .kind = FXT_SYMBOL_USER,
					  .name = "work",
					  .name_bytes = 4};
	size_t taken;

	add_words(&file, fxt_process_symbols_encode(&of, &symbol, 1, next_word(&file), room(&file),
						    &taken));
	return of;
}

static void add_module(struct fxt_process_symbols of, uint64_t start, const char *name,
		       const char *build_id)
{
	const struct fxt_module module = {.id = 3,
					  .timestamp = of.valid_from,
					  .thread = {.process = of.process},
					  .name = fxt_text(name),
					  .build_id = fxt_text(build_id)};
	const struct fxt_mmap mapping = {.module = 3,
					 .flags = 5,
					 .timestamp = of.valid_from,
					 .thread = {.process = of.process},
					 .start = start,
					 .range = 0x2000,
					 .vaddr = IN_FILE};

	add_words(&file, fxt_encode_module(&module, next_word(&file), room(&file)));
	add_words(&file, fxt_encode_mmap(&mapping, next_word(&file), room(&file)));
}

static const struct trace_program *program_of(uint64_t process)
{
	for (size_t i = 0; i < trace.programs.count; i++)
		if (trace.programs.items[i].of.process == process)
			return &trace.programs.items[i];
	cr_assert_fail("no program of process %d", (int)process);
	return NULL;
}

Test(trace_code, a_trace_without_any_has_none)
{
	begin(&file);
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, NULL, KERNEL, 64, &code);
	cr_assert_eq(code.size, 64);
	cr_assert_eq(code.known_count, 0);
	cr_assert_null(trace_find_module(&trace.code, NULL, KERNEL));
	end(&file);
}

Test(trace_code, pieces_make_a_function_and_gaps_stay_unknown)
{
	begin(&file);
	add_kernel_code(10, KERNEL + 12, "ghi");
	add_kernel_code(10, KERNEL - 2, "xxabcdef");
	add_kernel_code(10, KERNEL + 100, "other");
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, NULL, KERNEL, 14, &code);
	cr_assert_eq(code.known_count, 8);
	cr_assert_arr_eq(code.bytes, "abcdef", 6);
	cr_assert_arr_eq(code.bytes + 12, "gh", 2);
	cr_assert(code.known[5] && !code.known[6] && !code.known[11] && code.known[12]);
	cr_assert(!code.changed);
	cr_assert_eq(code.read_at_ns, 10);
	end(&file);
}

Test(trace_code, the_latest_bytes_stand_and_that_they_changed_is_told)
{
	begin(&file);
	add_kernel_code(30, KERNEL, "new!");
	add_kernel_code(20, KERNEL, "old!");
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, NULL, KERNEL, 4, &code);
	cr_assert_arr_eq(code.bytes, "new!", 4);
	cr_assert(code.changed);
	cr_assert_eq(code.read_at_ns, 30);
	end(&file);
}

Test(trace_code, programs_do_not_lend_each_other_code)
{
	struct fxt_process_symbols one, two;

	begin(&file);
	one = add_program(1, MAPPED);
	two = add_program(2, MAPPED);
	add_code(one, 10, MAPPED, "one");
	add_kernel_code(10, MAPPED, "kernel");
	add_module(one, MAPPED, "/bin/one", "1111");
	add_module(two, MAPPED, "/bin/one", "2222");
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, program_of(1), MAPPED, 3, &code);
	cr_assert_arr_eq(code.bytes, "one", 3);
	/* The same name is not the same file: build ids differ. */
	trace_code_find(&trace.code, &trace.programs, program_of(2), MAPPED, 3, &code);
	cr_assert_eq(code.known_count, 0);
	end(&file);
}

Test(trace_code, one_file_has_one_code_wherever_it_is_mapped)
{
	struct fxt_process_symbols one, two, three;
	const struct trace_module *module;

	begin(&file);
	one = add_program(1, MAPPED);
	two = add_program(2, ELSEWHERE);
	three = add_program(3, ELSEWHERE);
	add_module(one, MAPPED, "/bin/one", "1111");
	add_module(two, ELSEWHERE, "/chroot/bin/one", "1111");
	add_module(three, ELSEWHERE, "/bin/one", "");
	add_code(one, 10, MAPPED + 0x10, "code");
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, program_of(2), ELSEWHERE + 0x10, 4, &code);
	cr_assert_arr_eq(code.bytes, "code", 4);
	cr_assert_eq(code.program, program_of(1));
	cr_assert_eq(code.start, MAPPED + 0x10);
	module = trace_find_module(&trace.code, program_of(2), ELSEWHERE + 0x1fff);
	cr_assert_not_null(module);
	cr_assert_eq(module->file_address, IN_FILE);
	cr_assert_eq(module->file, trace_find_module(&trace.code, program_of(1), MAPPED)->file);
	cr_assert_neq(module->file, trace_find_module(&trace.code, program_of(3), ELSEWHERE)->file);
	cr_assert_null(trace_find_module(&trace.code, program_of(2), ELSEWHERE + 0x2000));
	cr_assert_null(trace_find_module(&trace.code, program_of(2), ELSEWHERE - 1));
	/* Without a build id, by name only. */
	trace_code_find(&trace.code, &trace.programs, program_of(3), ELSEWHERE + 0x10, 4, &code);
	cr_assert_eq(code.known_count, 0);
	end(&file);
}

/* What a sample of process `id` in user mode at `address` is counted for by module. */
static void assert_group(struct frames *frames, uint64_t id, uint64_t address, const char *expected)
{
	const struct fxt_sample sample = {.flags = FXT_SAMPLE_PROCESS | FXT_SAMPLE_TIMESTAMP |
						   FXT_SAMPLE_STACK | FXT_SAMPLE_MODE |
						   FXT_SAMPLE_ADDRESS_SPACE,
					  .process = id,
					  .timestamp = 2000,
					  .stack = &address,
					  .depth = 1,
					  .mode = FXT_MODE_GUEST_USER,
					  .address_space = id << 12};
	uint32_t number = frames_of_owner(frames, &trace, &sample, OWNER_GROUP);
	const struct frame *frame = &frames->entries[number];

	cr_assert(frame->name_bytes == strlen(expected) &&
			  !memcmp(frame->name, expected, frame->name_bytes),
		  "%.*s, not %s", (int)frame->name_bytes, frame->name, expected);
	cr_assert_eq(frame->kind, FRAME_GROUP);
}

Test(trace_code, by_module_is_by_file)
{
	struct fxt_process_symbols one, two, three;
	struct frames frames;

	begin(&file);
	one = add_program(1, MAPPED);
	two = add_program(2, MAPPED);
	three = add_program(3, MAPPED);
	add_module(one, MAPPED, "/lib/libone.so.1", "1111");
	add_module(two, MAPPED, "two", "2222");
	add_module(three, MAPPED, "", "");
	open_trace(&file);
	cr_assert_eq(frames_init(&frames, NULL), GP_OK);
	/* with and without a function's name */
	assert_group(&frames, 1, MAPPED + 4, "libone.so.1");
	assert_group(&frames, 1, MAPPED + 0x1fff, "libone.so.1");
	assert_group(&frames, 1, MAPPED + 0x2000, "[user]");
	assert_group(&frames, 2, MAPPED + 4, "two");
	assert_group(&frames, 3, MAPPED + 4, "[user]");
	assert_group(&frames, 4, MAPPED + 4, "[user]");
	frames_deinit(&frames);
	end(&file);
}

Test(trace_code, gaps_are_filled_from_the_same_file_and_nothing_else_changes)
{
	struct fxt_process_symbols one, two;

	begin(&file);
	one = add_program(1, MAPPED);
	two = add_program(2, ELSEWHERE);
	add_module(one, MAPPED, "/bin/one", "1111");
	add_module(two, ELSEWHERE, "/bin/one", "1111");
	add_code(one, 20, MAPPED + 0x10, "other-code");
	add_code(two, 10, ELSEWHERE + 0x10, "Other");
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, program_of(2), ELSEWHERE + 0x10, 10, &code);
	cr_assert_eq(code.known_count, 10);
	cr_assert_arr_eq(code.bytes, "Other-code", 10);
	cr_assert_not(code.changed);
	cr_assert_eq(code.program, program_of(2));
	cr_assert_eq(code.start, ELSEWHERE + 0x10);
	end(&file);
}

Test(trace_code, longer_functions_are_cut)
{
	begin(&file);
	add_kernel_code(10, KERNEL, "x");
	open_trace(&file);
	trace_code_find(&trace.code, &trace.programs, NULL, KERNEL, UINT64_MAX, &code);
	cr_assert_eq(code.size, TRACE_CODE_MAX);
	cr_assert_eq(code.known_count, 1);
	end(&file);
}
