/* A trace file as the reports see it: what it says of itself, samples and their weights, names. */
#include "fxt/ring.h"
#include "trace/gzip.h"
#include "tests/unit/trace_file.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static bool named(const struct trace_symbol *symbol, const char *name)
{
	return symbol && symbol->name_bytes == strlen(name) &&
	       !memcmp(symbol->name, name, symbol->name_bytes);
}

static void assert_named(const struct fxt_sample *sample, size_t frame, const char *name)
{
	const struct trace_symbol *symbol = trace_find_symbol(&trace, sample, frame);

	cr_assert(name ? named(symbol, name) : !symbol, "frame %zu, %#llx: '%.*s', expected '%s'",
		  frame, (unsigned long long)sample->stack[frame],
		  symbol ? (int)symbol->name_bytes : 4, symbol ? symbol->name : "none",
		  name ? name : "none");
}

Test(trace, says_what_its_session_was)
{
	static const uint64_t stack[] = {KERNEL};
	struct file file;

	begin(&file);
	add_metadata(&file, FXT_SESSION,
		     (struct fxt_argument[]){
			     fxt_argument_text(FXT_SESSION_VERSION, "0.1.0"),
			     fxt_argument_text(FXT_SESSION_TICK_SOURCE, "timer"),
			     fxt_argument_text(FXT_SESSION_KERNEL, "vmlinuz"),
			     fxt_argument_text(FXT_SESSION_COMMAND_LINE, "console=ttyS0"),
			     fxt_argument_u64(FXT_SESSION_PERIOD, 250000),
			     fxt_argument_u64(FXT_SESSION_DEPTH, 64),
			     fxt_argument_u64(FXT_SESSION_VCPUS, 2),
			     fxt_argument_u64(FXT_SESSION_MEMORY, 1 << 29),
		     },
		     8);
	add_stack(&file, 0, 500, stack, 1);
	add_stack(&file, 1, 300, stack, 1);
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_CONTINUATION,
					      .continuation = 7,
					      .timestamp = 900});
	add_metadata(
		&file, FXT_GUEST,
		(struct fxt_argument[]){fxt_argument_text(FXT_GUEST_BANNER, "Linux version 6")}, 1);
	add_metadata(
		&file, FXT_SESSION_END,
		(struct fxt_argument[]){fxt_argument_text(FXT_SESSION_END_REASON, "powered off")},
		1);
	open_trace(&file);
	cr_assert_str_eq(trace.info.version, "0.1.0");
	cr_assert_str_eq(trace.info.tick_source, "timer");
	cr_assert_str_eq(trace.info.kernel, "vmlinuz");
	cr_assert_str_eq(trace.info.command_line, "console=ttyS0");
	cr_assert_str_eq(trace.info.banner, "Linux version 6");
	cr_assert_str_eq(trace.info.end_reason, "powered off");
	cr_assert_eq(trace.info.period_ns, 250000);
	cr_assert_eq(trace.info.depth, 64);
	cr_assert_eq(trace.info.vcpus, 2);
	cr_assert_eq(trace.info.memory_bytes, 1 << 29);
	cr_assert_eq(trace.info.stacks, 2);
	cr_assert_eq(trace.info.partials, 1);
	cr_assert_eq(trace.info.first_ns, 300);
	cr_assert_eq(trace.info.last_ns, 900);
	cr_assert(trace.info.complete);
	cr_assert(!trace.info.cut && !trace.info.broken);
	cr_assert_eq(trace.info.good_bytes, file.used * 8);
	end(&file);
}

Test(trace, long_texts_are_cut_and_missing_ones_empty)
{
	char text[TRACE_TEXT_MAX + 100];
	struct file file;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = 0;
	begin(&file);
	add_metadata(&file, FXT_SESSION,
		     (struct fxt_argument[]){fxt_argument_text(FXT_SESSION_COMMAND_LINE, text),
					     /* of another type than the reader wants */
					     fxt_argument_u64(FXT_SESSION_KERNEL, 1)},
		     2);
	open_trace(&file);
	cr_assert_eq(strlen(trace.info.command_line), TRACE_TEXT_MAX - 1);
	cr_assert_str_empty(trace.info.kernel);
	cr_assert_str_empty(trace.info.banner);
	cr_assert_eq(trace.info.period_ns, 0);
	cr_assert(!trace.info.complete, "no session_end");
	end(&file);
}

/* The weight of a stack is its own tick and those of the partial samples it completes, vCPU by
 * vCPU. */
Test(trace, a_stack_weighs_the_ticks_it_completes)
{
	static const uint64_t stack[] = {KERNEL};
	struct fxt_sample partial = {.flags = FXT_SAMPLE_CONTINUATION, .timestamp = 1};
	struct fxt_sample full = {.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_COMPLETION,
				  .timestamp = 2,
				  .stack = stack,
				  .depth = 1};
	struct { /* expected, in file order */
		uint64_t vcpu, ticks;
	} expected[] = {{1, 2}, {0, 4}, {0, 1}, {0, 1}, {1, 1}};
	struct fxt_sample sample;
	struct file file;
	uint64_t ticks;

	begin(&file);
	partial.vcpu = 0;
	partial.continuation = 100;
	for (int i = 0; i < 3; i++)
		add_sample(&file, partial);
	partial.vcpu = 1;
	partial.continuation = 200;
	add_sample(&file, partial);
	full.vcpu = 1;
	full.completion = 200;
	add_sample(&file, full); /* 1 + 1 */
	full.vcpu = 0;
	full.completion = 100;
	add_sample(&file, full); /* 1 + 3 */
	add_sample(&file, full); /* completed already: 1 */
	add_stack(&file, 0, 3, stack, 1);
	/* What lost its completion does not go to another stack. */
	partial.vcpu = 1;
	partial.continuation = 201;
	add_sample(&file, partial);
	full.vcpu = 1;
	full.completion = 202;
	add_sample(&file, full);
	open_trace(&file);
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < 5; i++) {
			cr_assert(trace_next_sample(&trace, &sample, &ticks));
			cr_assert_eq(sample.vcpu, expected[i].vcpu);
			cr_assert_eq(ticks, expected[i].ticks, "sample %zu: %llu", i,
				     (unsigned long long)ticks);
		}
		cr_assert(!trace_next_sample(&trace, &sample, &ticks));
		trace_rewind(&trace);
	}
	end(&file);
}

Test(trace, a_return_address_belongs_to_the_call_before_it)
{
	/* Leaf at the first byte of b; then a's return address is b's first byte as well: the call
	 * is a's last instruction. */
	static const uint64_t stack[] = {KERNEL + 0x100, KERNEL + 0x100, KERNEL + 0x200,
					 KERNEL + 0x201};
	struct fxt_sample sample;
	struct file file;
	uint64_t ticks;

	begin(&file);
	/* Not in order in the file. */
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, "b");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "a");
	add_stack(&file, 0, 1, stack, 4);
	open_trace(&file);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	assert_named(&sample, 0, "b");
	assert_named(&sample, 1, "a");
	assert_named(&sample, 2, "b");
	assert_named(&sample, 3, NULL);
	end(&file);
}

Test(trace, the_kernel_names_its_half_files_all_and_boot_code_the_rest)
{
	static const uint64_t stack[] = {KERNEL, 0x1001, 0x2001, 0x3001, KERNEL + 0x1001};
	struct fxt_sample sample, user;
	struct file file;
	uint64_t ticks;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x10, "kernel");
	add_symbol(&file, FXT_SYMBOL_FILE, KERNEL, 0x10, "file over kernel");
	add_symbol(&file, FXT_SYMBOL_FILE, KERNEL + 0x1000, 0x10, "file");
	add_symbol(&file, FXT_SYMBOL_FILE, 0x1000, 0x10, "low file");
	add_symbol(&file, FXT_SYMBOL_BOOT, 0x1000, 0x10, "boot below file");
	add_symbol(&file, FXT_SYMBOL_BOOT, 0x2000, 0x10, "boot");
	/* A kernel symbol down here is a lie. */
	add_symbol(&file, FXT_SYMBOL_KERNEL, 0x3000, 0x10, "kernel at a low address");
	add_stack(&file, 0, 1, stack, 5);
	open_trace(&file);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	assert_named(&sample, 0, "kernel");
	assert_named(&sample, 1, "low file");
	assert_named(&sample, 2, "boot");
	assert_named(&sample, 3, NULL);
	assert_named(&sample, 4, "file");
	/* A process has its own things at the addresses of the startup code. */
	user = sample;
	user.mode = FXT_MODE_GUEST_USER;
	assert_named(&user, 1, "low file");
	assert_named(&user, 2, NULL);
	end(&file);
}

static void add_program(struct file *file, uint64_t process, uint64_t space, uint64_t from,
			uint32_t kind, uint64_t start, uint64_t size, const char *name)
{
	const struct fxt_process_symbols of = {process, space, from};
	struct fxt_symbol symbol = {.start = start,
				    .size = size,
				    .kind = kind,
				    .name = name,
				    .name_bytes = name ? (uint32_t)strlen(name) : 0};
	size_t taken;

	add_words(file, fxt_process_symbols_encode(&of, &symbol, name ? 1 : 0, next_word(file),
						   room(file), &taken));
}

static bool user_frame_is(uint64_t process, uint64_t space, uint64_t time, uint64_t address,
			  const char *name)
{
	const struct fxt_sample sample = {.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
						   FXT_SAMPLE_ADDRESS_SPACE | FXT_SAMPLE_TIMESTAMP,
					  .process = process,
					  .address_space = space,
					  .timestamp = time,
					  .mode = FXT_MODE_GUEST_USER,
					  .stack = &address,
					  .depth = 1};
	const struct trace_symbol *symbol = trace_find_symbol(&trace, &sample, 0);

	if (!symbol || !name)
		return !symbol && !name;
	return symbol->name_bytes == strlen(name) && !memcmp(symbol->name, name, strlen(name));
}

Test(trace, programs_have_the_names_of_their_process_tables_and_time)
{
	static struct file file;

	begin(&file);
	add_program(&file, 7, 0x5000, 200, FXT_SYMBOL_USER, 0x1000, 0x10, "second");
	add_program(&file, 7, 0x5000, 100, FXT_SYMBOL_MAPPING, 0x1000, 0x1000, "[file]");
	add_program(&file, 7, 0x5000, 100, FXT_SYMBOL_USER, 0x1000, 0x10, "first");
	add_program(&file, 7, 0x5000, 100, FXT_SYMBOL_USER, 0x1000, 0x10, "first");
	add_program(&file, 7, 0x5000, 150, FXT_SYMBOL_USER, 0, 0, NULL);
	add_program(&file, 7, 0x6000, 120, FXT_SYMBOL_USER, 0x1000, 0x10, "executed");
	add_program(&file, 8, 0x8001, 100, FXT_SYMBOL_USER, 0x1000, 0x10, "isolated");
	add_symbol(&file, FXT_SYMBOL_FILE, 0x1000, 0x20, "given");
	open_trace(&file);
	cr_assert_eq(trace.programs.count, 5);
	cr_assert(user_frame_is(7, 0x5000, 100, 0x1008, "first"));
	cr_assert(user_frame_is(7, 0x5fff, 149, 0x1008, "first"), "CR3 holds more than the root");
	/* Of a file the user gave, before the mapping; then the mapping. */
	cr_assert(user_frame_is(7, 0x5000, 149, 0x1018, "given"));
	cr_assert(user_frame_is(7, 0x5000, 149, 0x1028, "[file]"));
	/* Between two programs nobody knows; and before the first, and in other tables. */
	cr_assert(user_frame_is(7, 0x5000, 150, 0x1008, "given"));
	cr_assert(user_frame_is(7, 0x5000, 199, 0x1028, NULL));
	cr_assert(user_frame_is(7, 0x5000, 99, 0x1028, NULL));
	cr_assert(user_frame_is(7, 0x5000, 5000, 0x1008, "second"));
	cr_assert(user_frame_is(7, 0x5000, 5000, 0x1028, NULL));
	cr_assert(user_frame_is(7, 0x6000, 5000, 0x1008, "executed"));
	cr_assert(user_frame_is(9, 0x5000, 5000, 0x1028, NULL));
	/* Isolated tables come in pairs, others do not. */
	cr_assert(user_frame_is(8, 0x8000, 100, 0x1008, "isolated"));
	cr_assert(user_frame_is(8, 0x9000, 100, 0x1008, "isolated"));
	cr_assert(user_frame_is(8, 0x9000, 99, 0x1028, NULL));
	cr_assert(user_frame_is(7, 0x7000, 5000, 0x1028, NULL), "0x6000 is not its pair");
	end(&file);
}

Test(trace, symbols_without_a_size_reach_to_the_next)
{
	static const uint64_t stack[] = {KERNEL + 0x4f,     KERNEL + 0x51,
					 KERNEL + 0x100000, KERNEL + 0x60 + 0x100001,
					 UINT64_MAX,        0};
	struct fxt_sample sample;
	struct file file;
	uint64_t ticks;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + 0x60, 0, "last");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0, "first");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + 0x50, 0, "second");
	add_symbol(&file, FXT_SYMBOL_MODULE, UINT64_MAX - 15, 32, "beyond the end");
	add_stack(&file, 0, 1, stack, 6);
	open_trace(&file);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	assert_named(&sample, 0, "first");
	assert_named(&sample, 1, "second");
	assert_named(&sample, 2, "last");
	assert_named(&sample, 3, NULL);
	assert_named(&sample, 4, "beyond the end");
	assert_named(&sample, 5, NULL); /* 0 - 1 is an address like another */
	end(&file);
}

Test(trace, counts_drops)
{
	struct fxt_ring ring;
	struct file file;

	begin(&file);
	cr_assert_eq(fxt_ring_init(&ring, 4096, NULL), GP_OK);
	ring.drop_process = FXT_VCPU_PROCESS;
	ring.drop_thread = fxt_vcpu_thread(0);
	fxt_ring_count_drops(&ring, 12, 1, 2);
	cr_assert(fxt_ring_flush_drops(&ring));
	add_words(&file, fxt_ring_read(&ring, next_word(&file), 4096) / 8);
	fxt_ring_deinit(&ring);
	open_trace(&file);
	cr_assert_eq(trace.info.dropped_records, 12);
	end(&file);
}

/* A recording may end at any byte: what is whole is given, and the file says that it is cut. */
Test(trace, cut_anywhere_it_gives_what_is_whole)
{
	static const uint64_t stack[] = {KERNEL, KERNEL + 9};
	size_t ends[4], preamble;
	struct error error;
	struct file file;

	begin(&file);
	preamble = file.used * 8;
	add_stack(&file, 0, 1, stack, 2);
	ends[0] = file.used * 8;
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 16, "name");
	ends[1] = file.used * 8;
	add_stack(&file, 0, 2, stack, 2);
	ends[2] = file.used * 8;
	add_metadata(&file, FXT_SESSION_END, NULL, 0);
	ends[3] = file.used * 8;
	for (size_t size = 1; size <= ends[3]; size++) {
		struct fxt_sample sample;
		uint64_t ticks;

		put(&file, file.words, size);
		error = (struct error){0};
		cr_assert_eq(trace_open(file.path, &trace, &error), GP_OK, "%zu bytes: %s", size,
			     error.text);
		cr_assert_eq(trace.info.stacks, (uint64_t)((size >= ends[0]) + (size >= ends[2])));
		cr_assert_eq(trace.symbols[TRACE_SYMBOLS_KERNEL].count, size >= ends[1]);
		cr_assert_eq(trace.info.complete, size == ends[3]);
		cr_assert_leq(trace.info.good_bytes, size);
		cr_assert_eq(trace.info.bytes, size);
		if (size % 8)
			cr_assert(trace.info.cut, "%zu bytes", size);
		if (size > preamble && (size == ends[0] || size == ends[1] || size == ends[2]))
			cr_assert(!trace.info.cut, "%zu bytes", size);
		for (uint64_t i = 0; i < trace.info.stacks; i++) {
			cr_assert(trace_next_sample(&trace, &sample, &ticks));
			cr_assert_eq(sample.depth, 2);
			cr_assert_eq(sample.stack[1], KERNEL + 9);
		}
		cr_assert(!trace_next_sample(&trace, &sample, &ticks));
		trace_close(&trace);
	}
	close(file.fd);
}

Test(trace, a_bad_record_is_skipped_and_told)
{
	static const uint64_t stack[] = {KERNEL};
	struct fxt_sample sample;
	struct file file;
	size_t event;
	uint64_t ticks;

	begin(&file);
	add_stack(&file, 0, 1, stack, 1);
	event = file.used;
	add_metadata(&file, FXT_SESSION,
		     (struct fxt_argument[]){fxt_argument_text(FXT_SESSION_KERNEL, "vmlinuz")}, 1);
	add_stack(&file, 0, 2, stack, 1);
	/* 15 arguments, says the header; there is one. */
	file.words[event] |= UINT64_C(0xf) << 20;
	open_trace(&file);
	cr_assert_eq(trace.info.bad_records, 1);
	cr_assert_not_null(trace.info.problem);
	cr_assert_eq(trace.info.problem_offset, event * 8);
	cr_assert(!trace.info.broken);
	cr_assert_str_empty(trace.info.kernel);
	cr_assert_eq(trace.info.stacks, 2);
	cr_assert(trace_next_sample(&trace, &sample, &ticks) &&
		  trace_next_sample(&trace, &sample, &ticks));
	cr_assert_eq(sample.timestamp, 2);
	end(&file);
}

Test(trace, a_length_that_cannot_be_true_ends_it)
{
	static const uint64_t stack[] = {KERNEL};
	struct fxt_sample sample;
	struct file file;
	size_t second;
	uint64_t ticks;

	begin(&file);
	add_stack(&file, 0, 1, stack, 1);
	second = file.used;
	add_stack(&file, 0, 2, stack, 1);
	add_metadata(&file, FXT_SESSION_END, NULL, 0);
	file.words[second] &= ~UINT64_C(0xfff0); /* a record of no words */
	open_trace(&file);
	cr_assert(trace.info.broken);
	cr_assert(!trace.info.complete);
	cr_assert_eq(trace.info.good_bytes, second * 8);
	cr_assert_eq(trace.info.problem_offset, second * 8);
	cr_assert_eq(trace.info.stacks, 1);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	cr_assert(!trace_next_sample(&trace, &sample, &ticks));
	end(&file);
}

static void refuse(const char *path, gp_status_t status, const char *why)
{
	struct error error = {0};

	cr_assert_eq(trace_open(path, &trace, &error), status, "%s: %d", path, error.status);
	cr_assert(strstr(error.text, path), "%s", error.text);
	cr_assert(strstr(error.text, why), "%s", error.text);
	/* Nothing is left behind; closing again does no harm. */
	cr_assert_null(trace.bytes);
	trace_close(&trace);
}

Test(trace, what_is_no_trace_is_refused_by_name)
{
	static const char elf[] = "\177ELF, or whatever else this may be";
	struct file file = {.fd = -1};

	refuse("/nonexistent/trace.fxt", GP_ERR_NOT_FOUND, "cannot open");
	refuse("/", GP_ERR_INVALID_ARGS, "not a regular file");
	refuse("/dev/null", GP_ERR_INVALID_ARGS, "not a regular file");
	put(&file, "", 0);
	refuse(file.path, GP_ERR_IO_DATA_INTEGRITY, "empty");
	put(&file, elf, sizeof(elf));
	refuse(file.path, GP_ERR_IO_DATA_INTEGRITY, "");
	close(file.fd);
}

Test(trace, untrusted_names_are_escaped)
{
	static const char name[] = "a b~\x1b[2J\n\x7f\xc3\xa4\0z";
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	cr_assert_not_null(to);
	trace_print_name(to, name, sizeof(name) - 1);
	fclose(to);
	cr_assert_str_eq(text, "a b~\\x1b[2J\\x0a\\x7f\\xc3\\xa4\\x00z");
	free(text);
}

/* As gzip writes them: in several members, cut, with something behind. */
static void put_compressed(struct file *file, size_t cut, size_t members, const char *behind)
{
	static char bytes[WORDS * 8];
	FILE *to = fmemopen(bytes, sizeof(bytes), "w");
	size_t piece = file->used / members * 8, size;

	cr_assert_not_null(to);
	for (size_t i = 0; i < members; i++) {
		FILE *stream = gzip_open(to, NULL);

		cr_assert_not_null(stream);
		fwrite((char *)file->words + i * piece, 1,
		       i + 1 < members ? piece : file->used * 8 - i * piece, stream);
		cr_assert_eq(fclose(stream), 0);
	}
	fputs(behind, to);
	size = (size_t)ftell(to);
	cr_assert_eq(fclose(to), 0);
	put(file, bytes, size - cut);
}

Test(trace, a_compressed_file_is_the_same_trace)
{
	static const uint64_t stack[] = {KERNEL};
	static struct file file;
	struct fxt_sample sample;
	struct error error = {0};
	uint64_t ticks;

	begin(&file);
	for (uint64_t i = 1; i <= 500; i++)
		add_stack(&file, 0, i, stack, 1);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x10, "named");
	for (size_t members = 1; members <= 3; members++) {
		put_compressed(&file, 0, members, members == 3 ? "no gzip" : "");
		cr_assert_eq(trace_open(file.path, &trace, &error), GP_OK, "%s", error.text);
		cr_assert_eq(trace.info.stacks, 500);
		cr_assert_not(trace.info.cut);
		cr_assert_eq(trace.size, file.used * 8);
		cr_assert(trace_next_sample(&trace, &sample, &ticks));
		cr_assert_not_null(trace_find_symbol(&trace, &sample, 0));
		end(&file);
		file.fd = -1;
	}
}

Test(trace, a_compressed_file_that_is_cut_gives_what_is_whole)
{
	static const uint64_t stack[] = {KERNEL};
	static struct file file;
	uint64_t last = UINT64_MAX;

	begin(&file);
	for (uint64_t i = 1; i <= 500; i++)
		add_stack(&file, 0, i * i * i * 7919, stack, 1);
	for (size_t cut = 9; cut < 1500; cut += 97) {
		struct error error = {0};

		put_compressed(&file, cut, 1, "");
		cr_assert_eq(trace_open(file.path, &trace, &error), GP_OK, "%s", error.text);
		cr_assert_leq(trace.info.stacks, last);
		last = trace.info.stacks;
		end(&file);
		file.fd = -1;
	}
	cr_assert_lt(last, 500);
	cr_assert_gt(last, 0);
}

Test(trace, what_is_no_trace_compressed_is_refused)
{
	static struct file file;
	struct error error = {0};

	begin(&file);
	file.words[0]++;
	put_compressed(&file, 0, 1, "");
	cr_assert_neq(trace_open(file.path, &trace, &error), GP_OK);
	cr_assert(strstr(error.text, file.path), "%s", error.text);
	put_compressed(&file, 0, 1, "");
	cr_assert_eq(setenv("TMPDIR", "/nowhere", 1), 0);
	cr_assert_neq(trace_open(file.path, &trace, &error), GP_OK);
	cr_assert(strstr(error.text, "/nowhere"), "%s", error.text);
	close(file.fd);
}
