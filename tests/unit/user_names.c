/* Names of user programs' functions over memory images of real guests: through the whole chain from
 * a stopped vCPU to the reader of the trace, and what must not be named. Processes that end:
 * user_names_ended.c. */
#include "naming/user_names.h"

#include "base/clock.h"
#include "trace/trace.h"
#include "naming/code_copy.h"
#include "naming/namer.h"
#include "recording/recorder.h"
#include "tests/unit/named_guest.h"

/* From a stopped vCPU to the trace's reader. */

static void wait_for_ticks(gp_sampler_t *session)
{
	gp_sampler_totals_t totals = {0};
	uint64_t before;

	cr_assert_eq(gp_sampler_totals(session, 0, &totals), GP_OK);
	before = totals.full;
	while (totals.full < before + 3) {
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
		gp_sampler_totals(session, 0, &totals);
	}
}

/* The trace has the whole function's code, as the process has it in memory; what is in no page
 * table came from the page cache and is not compared. Returns the bytes that were. */
static uint64_t check_code(const struct thread *thread, const struct fxt_sample *sample,
			   const struct trace_symbol *symbol)
{
	static struct trace_function_code code;
	struct address_space space;
	uint64_t compared = 0;

	trace_code_find(&trace.code, &trace.programs, trace_program_of(&trace, sample),
			symbol->start, symbol->end - symbol->start, &code);
	cr_assert_gt(code.size, 0);
	cr_assert(linux_mappings_space(&image.mappings, thread->mm, &space));
	cr_assert_eq(code.known_count, code.size, "%.*s: %zu of %zu", (int)symbol->name_bytes,
		     symbol->name, code.known_count, code.size);
	for (size_t i = 0; i < code.size; i++) {
		uint8_t byte;

		if (guest_read_virtual(&space, NULL, image.base.memory, gva(symbol->start + i),
				       &byte, 1) != TRANSLATE_OK)
			continue;
		cr_assert_eq(code.bytes[i], byte);
		compared++;
	}
	return compared;
}

static void check_whole_chain(const char *name)
{
	static struct truth truth[1024];
	const gp_sampler_config_t sampling = {.size = sizeof(sampling),
					      .period_ns = 500000,
					      .max_depth = 16,
					      .ring_bytes = 1 << 20};
	struct recorder_config config = {.target = &fake.target, .about = {.depth = 16}};
	struct linux_task_cpu remembered = {0};
	struct recorder_summary summary;
	struct recorder *recorder;
	struct fxt_sample sample;
	struct linux_task task;
	struct error error = {0};
	struct guest_cpu cpu;
	gp_sampler_t *session;
	uint64_t ticks, seen = 0, wrong = 0, compared = 0;
	unsigned count;
	char path[64];

	if (!open_image(name))
		return;
	count = read_truth(truth, ARRAY_SIZE(truth));
	cr_assert_gt(count, 150, "%s: %u", name, count);
	cpu = image.base.image.cpus[0];
	fake.cpus = &cpu;
	cr_assert_eq(linux_task_current(&guest->programs.tasks, image.base.memory, NULL, &cpu,
					&remembered, &task),
		     LINUX_TASK_FOUND);
	config.fd = memfd_create("trace", MFD_CLOEXEC);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &sampling, &session), GP_OK);
	config.session = session;
	cr_assert_eq(recorder_start(&config, &recorder, &error), GP_OK, "%s", error.text);
	for (unsigned i = 0; i < count; i++) {
		/* The vCPU runs that thread, in user mode, in that function. */
		forge(remembered.offset + guest->programs.tasks.current, truth[i].thread.task);
		cpu.cpl = 3;
		cpu.cs.selector |= 3;
		cpu.rip = truth[i].address;
		cpu.gpr[GUEST_RSP] = cpu.gpr[GUEST_RBP] = 0;
		cpu.cr3 = truth[i].thread.root | (guest->programs.tasks.isolated ? 0x1000 : 0) | 5;
		cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
		wait_for_ticks(session);
		cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	}
	recorder_finish(recorder, "tested", &summary);
	cr_assert_eq(summary.problem.status, GP_OK, "%s", summary.problem.text);
	cr_assert_eq(summary.no_programs.status, GP_OK, "%s", summary.no_programs.text);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", config.fd);
	cr_assert_eq(trace_open(path, &trace, &error), GP_OK, "%s", error.text);
	cr_assert_eq(trace.info.bad_records, 0);
	while (trace_next_sample(&trace, &sample, &ticks)) {
		const struct trace_symbol *symbol, *mapping;
		const struct trace_program *program;

		/* A tick that the end of a session came before has no stack. */
		if (sample.mode != FXT_MODE_GUEST_USER || !sample.depth)
			continue;
		symbol = trace_find_symbol(&trace, &sample, 0);
		program = trace_program_of(&trace, &sample);
		mapping = program ? trace_symbols_find(&program->mappings, sample.stack[0]) : NULL;
		cr_assert(sample.flags & FXT_SAMPLE_PROCESS);
		for (unsigned i = 0; i < count; i++) {
			if ((uint32_t)truth[i].thread.tid != sample.thread ||
			    truth[i].address != sample.stack[0])
				continue;
			seen++;
			wrong += !symbol_is(symbol, truth[i].name);
			cr_expect(symbol_is(symbol, truth[i].name),
				  "%s: %llu: %#llx is %.*s not %s", name,
				  (unsigned long long)sample.process,
				  (unsigned long long)sample.stack[0],
				  symbol ? (int)symbol->name_bytes : 1, symbol ? symbol->name : "?",
				  truth[i].name);
			cr_assert(mapping && mapping->name[0] == '[' && mapping->name_bytes > 4);
			if (symbol && symbol->kind == FXT_SYMBOL_USER)
				compared += check_code(&truth[i].thread, &sample, symbol);
			break;
		}
	}
	cr_assert_geq(seen, 3 * (uint64_t)count);
	cr_assert_eq(wrong, 0);
	cr_assert_eq(summary.unnamed, 0, "%llu of %llu", (unsigned long long)summary.unnamed,
		     (unsigned long long)summary.addresses);
	cr_assert_gt(compared, 10000, "%llu", (unsigned long long)compared);
	cr_assert_eq(trace.info.code_left_out, 0);
	cr_assert_eq(strlen(trace.info.kernel_build_id), 40, "%s", trace.info.kernel_build_id);
	cr_log_info("%s: %u frames of %zu programs in %zu bytes", name, count, trace.programs.count,
		    trace.info.bytes);
	trace_close(&trace);
	gp_sampler_close(session);
	close(config.fd);
	close_image();
}

Test(user_names, call_trees_have_their_names_in_the_trace, .timeout = 300)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++)
		check_whole_chain(names[i]);
}

Test(user_names, a_process_with_other_page_tables_gets_no_names, .timeout = 60)
{
	struct truth truth;
	struct thread strange;

	open_any();
	truth = one_frame();
	strange = truth.thread;
	strange.root = another(&truth.thread).root;
	cr_assert(see(&strange, boot_ns(), truth.address));
	for (int i = 0; i < 5; i++)
		look();
	read_back();
	cr_assert_eq(trace.programs.count, 0);
	cr_assert_eq(named_count, 0);
	trace_close(&trace);
	/* Nor does one that is not there. */
	strange.pid = 4000000;
	cr_assert(see(&strange, boot_ns(), truth.address));
	look();
	read_back();
	cr_assert_eq(trace.programs.count, 0);
	trace_close(&trace);
	close_image();
}

Test(user_names, after_exec_the_names_before_it_do_not_hold, .timeout = 60)
{
	uint64_t start = boot_ns() - 1000000;
	struct truth truth;
	struct thread old;

	open_any();
	truth = one_frame();
	old = truth.thread;
	old.root = another(&truth.thread).root;
	cr_assert(see(&old, start, truth.address));
	cr_assert(see(&truth.thread, start + 100, truth.address));
	/* From another vCPU, read later. */
	cr_assert_not(see(&old, start + 50, truth.address));
	cr_assert_not(see(&truth.thread, start + 90, truth.address));
	look();
	read_back();
	cr_assert(symbol_is(name_at(&truth.thread, start + 100, truth.address), truth.name));
	cr_assert(symbol_is(name_at(&truth.thread, start + 90, truth.address), truth.name));
	cr_assert(symbol_is(name_at(&truth.thread, start + 5000, truth.address), truth.name));
	cr_assert_null(name_at(&truth.thread, start + 89, truth.address));
	cr_assert_null(name_at(&old, start, truth.address));
	cr_assert_null(name_at(&old, start + 5000, truth.address));
	cr_assert_eq(named_count, 1);
	trace_close(&trace);
	close_image();
}

Test(user_names, a_program_between_on_other_tables_separates_two_on_the_same, .timeout = 60)
{
	uint64_t start = boot_ns() - 1000000;
	struct truth truth;
	struct thread other;

	open_any();
	truth = one_frame();
	other = truth.thread;
	other.root = another(&truth.thread).root;
	cr_assert(see(&truth.thread, start, truth.address));
	cr_assert(see(&other, start + 100, truth.address));
	cr_assert(see(&truth.thread, start + 200, truth.address));
	look();
	read_back();
	cr_assert_null(name_at(&truth.thread, start, truth.address));
	cr_assert_null(name_at(&truth.thread, start + 199, truth.address));
	cr_assert(symbol_is(name_at(&truth.thread, start + 200, truth.address), truth.name));
	trace_close(&trace);
	close_image();
}

Test(user_names, a_new_name_begins_a_new_program, .timeout = 60)
{
	uint64_t start = boot_ns() - 1000000;
	struct truth truth;
	uint64_t process;

	open_any();
	truth = one_frame();
	process = (uint64_t)truth.thread.pid;
	user_names_see_process(namer, process, "sh", 2);
	cr_assert(see(&truth.thread, start, truth.address));
	look(); /* named by now */
	user_names_see_process(namer, process, "sh", 2);
	cr_assert_not(see(&truth.thread, start + 10, truth.address));
	user_names_see_process(namer, process, "python3", 7);
	cr_assert(see(&truth.thread, start + 100, truth.address + 1));
	write_out();
	read_back();
	/* The old names have ended although nothing new has been found yet. */
	cr_assert(symbol_is(name_at(&truth.thread, start + 99, truth.address), truth.name));
	cr_assert_null(name_at(&truth.thread, start + 100, truth.address));
	trace_close(&trace);
	look();
	read_back();
	cr_assert_not_null(name_at(&truth.thread, start + 100, truth.address + 1));
	trace_close(&trace);
	close_image();
}

Test(user_names, another_program_behind_the_same_tables_is_noticed, .timeout = 60)
{
	uint64_t first = boot_ns(), second, third, stack;
	struct truth truth;

	open_any();
	truth = one_frame();
	cr_assert(see(&truth.thread, first, truth.address));
	look();
	/* A stack somewhere else: it is not the same program any more. */
	stack = truth.thread.mm + guest->programs.mappings.mm_stack_start;
	forge(stack, peek(stack) + 4096);
	second = boot_ns();
	cr_assert_not(see(&truth.thread, second, truth.address));
	look();
	third = boot_ns();
	cr_assert_not(see(&truth.thread, third, truth.address));
	look();
	read_back();
	cr_assert(symbol_is(name_at(&truth.thread, first, truth.address), truth.name));
	cr_assert_null(name_at(&truth.thread, second, truth.address));
	cr_assert(symbol_is(name_at(&truth.thread, third, truth.address), truth.name));
	cr_assert_eq(trace.programs.count, 3);
	trace_close(&trace);
	close_image();
}

/* What is not a function of a file. */
struct other_memory {
	uint64_t vdso, jit, heap, stack;
};

static bool note_memory(void *context, const struct linux_mapping *mapping)
{
	struct other_memory *memory = context;

	if (!strcmp(mapping->name, "[vdso]"))
		memory->vdso = mapping->start;
	if (mapping->kind == LINUX_MAPPING_ANONYMOUS && mapping->executable)
		memory->jit = mapping->start;
	if (mapping->kind == LINUX_MAPPING_HEAP)
		memory->heap = mapping->start;
	if (mapping->kind == LINUX_MAPPING_STACK)
		memory->stack = mapping->end - 16;
	return true;
}

Test(user_names, memory_without_a_file_says_what_it_is, .timeout = 60)
{
	uint64_t now = boot_ns();
	struct other_memory memory = {0};
	const struct thread *thread = NULL;
	const struct trace_symbol *symbol;
	unsigned vdso = 0;

	open_any();
	for (unsigned i = 0; i < thread_count && !(memory.vdso && memory.jit && memory.heap); i++) {
		memory = (struct other_memory){0};
		thread = &threads[i];
		linux_mappings_walk(&image.mappings, thread->mm, note_memory, &memory);
	}
	cr_assert(memory.vdso && memory.jit && memory.heap && memory.stack);
	see(thread, now, memory.jit + 5);
	see(thread, now, memory.heap + 5);
	see(thread, now, memory.stack);
	see(thread, now, 0x1234);
	see(thread, now, UINT64_MAX);
	for (uint64_t at = memory.vdso; at < memory.vdso + 0x2000; at += 16)
		see(thread, now, at);
	look();
	read_back();
	cr_assert(symbol_is(name_at(thread, now, memory.jit + 5), "[jit]"));
	cr_assert(symbol_is(name_at(thread, now, memory.heap + 5), "[heap]"));
	cr_assert(symbol_is(name_at(thread, now, memory.stack), "[stack]"));
	cr_assert_null(name_at(thread, now, 0x1234));
	cr_assert_null(name_at(thread, now, UINT64_MAX));
	for (uint64_t at = memory.vdso; at < memory.vdso + 0x2000; at += 16) {
		symbol = name_at(thread, now, at);
		cr_assert_not_null(symbol);
		vdso += symbol_is(symbol, "__vdso_clock_gettime");
		cr_assert(symbol->kind == FXT_SYMBOL_USER || symbol_is(symbol, "[vdso]"));
	}
	cr_assert_gt(vdso, 0);
	trace_close(&trace);
	close_image();
}

/* Code that a program made itself, of which there is a page. */
struct made_code {
	struct address_space space;
	uint64_t start;
};

static bool find_made_code(void *context, const struct linux_mapping *mapping)
{
	struct made_code *made = context;
	uint8_t byte;

	if (mapping->kind == LINUX_MAPPING_ANONYMOUS && mapping->executable &&
	    guest_read_virtual(&made->space, NULL, image.base.memory, gva(mapping->start), &byte,
			       1) == TRANSLATE_OK)
		made->start = mapping->start;
	return !made->start;
}

Test(user_names, of_code_without_functions_there_is_what_follows_a_sample, .timeout = 60)
{
	static struct trace_function_code code;
	uint64_t now = boot_ns();
	const struct thread *thread = NULL;
	struct made_code made = {0};
	uint8_t bytes[CODE_WINDOW_BYTES];
	uint64_t at;

	open_any();
	for (unsigned i = 0; i < thread_count && !made.start; i++) {
		thread = &threads[i];
		if (linux_mappings_space(&image.mappings, thread->mm, &made.space))
			linux_mappings_walk(&image.mappings, thread->mm, find_made_code, &made);
	}
	cr_assert(made.start);
	/* Behind the functions that its map names, if it has one. */
	at = made.start + 4096 - CODE_WINDOW_BYTES;
	cr_assert_eq(guest_read_virtual(&made.space, NULL, image.base.memory, gva(at), bytes,
					sizeof(bytes)),
		     TRANSLATE_OK);
	see(thread, now, at);
	look();
	read_back();
	cr_assert(symbol_is(name_at(thread, now, at), "[jit]"));
	cr_assert_eq(trace.programs.count, 1);
	trace_code_find(&trace.code, &trace.programs, &trace.programs.items[0], at - 1,
			sizeof(bytes) + 2, &code);
	cr_assert_eq(code.known_count, sizeof(bytes));
	cr_assert_not(code.known[0]);
	cr_assert_arr_eq(code.bytes + 1, bytes, sizeof(bytes));
	trace_close(&trace);
	close_image();
}

/* Mappings as Fuchsia's records: whose, where, of which file. */
Test(user_names, modules_and_mappings_are_in_the_trace, .timeout = 60)
{
	uint64_t now = boot_ns();
	struct fxt_reader reader;
	struct fxt_record record;
	unsigned modules = 0, mappings = 0;
	struct truth truth;

	open_any();
	truth = one_frame();
	see(&truth.thread, now, truth.address);
	look();
	see(&truth.thread, now + 5, truth.address + 1); /* in the same mapping */
	look();
	cr_assert_eq(fxt_reader_init(&reader, file, file_words * 8, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record)) {
		if (record.kind == FXT_KIND_MODULE) {
			const struct fxt_module *module = &record.module;

			modules++;
			cr_assert_eq(module->timestamp, now);
			cr_assert_eq(module->thread.process, (uint32_t)truth.thread.pid);
			cr_assert(module->name.length > 5 &&
				  !memcmp(module->name.text, "/bin/", 5));
			cr_assert_eq(module->build_id.length, 20);
		}
		if (record.kind == FXT_KIND_MMAP) {
			const struct fxt_mmap *mapping = &record.mmap;

			mappings++;
			cr_assert_eq(mapping->timestamp, now);
			cr_assert(truth.address >= mapping->start &&
				  truth.address - mapping->start < mapping->range);
			cr_assert_eq(mapping->flags, 5);
			cr_assert(!mapping->vaddr || mapping->vaddr <= mapping->start);
		}
	}
	fxt_reader_deinit(&reader);
	cr_assert_eq(modules, 1);
	cr_assert_eq(mappings, 1);
	close_image();
}

Test(user_names, more_than_it_takes_is_left_out_and_costs_bounded_memory, .timeout = 120)
{
	uint64_t now = boot_ns();
	struct thread thread = {.pid = 1, .tid = 1};
	struct truth truth;

	open_any();
	truth = one_frame();
	/* A process for each sample; programs without end in one; addresses without end. A look
	 * makes room. */
	for (uint32_t i = 1; i < 5 * USER_SPACES_MAX; i++) {
		thread.pid = (int32_t)i + 100000;
		thread.root = (uint64_t)i << 13;
		see(&thread, now + i, i);
	}
	look();
	thread.pid = 99999;
	for (uint32_t i = 1; i < 5000; i++) {
		thread.root = (uint64_t)(i % 77) << 13;
		see(&thread, now + i, i);
	}
	look();
	for (uint64_t i = 1; i < 3 * USER_SPACE_ADDRESSES_MAX; i++)
		see(&thread, now + 5000, i << 4);
	for (uint64_t i = 1; i < 3 * (uint64_t)USER_ADDRESSES_MAX; i++) {
		thread.pid = (int32_t)(200000 + i % 40);
		thread.root = (uint64_t)thread.pid << 13;
		see(&thread, now + 100000 + i, i << 4);
	}
	look();
	/* What is real is still found. */
	now = boot_ns() + 1000000000;
	see(&truth.thread, now, truth.address);
	for (int i = 0; i < 1000 && !named_count; i++)
		look();
	cr_assert_eq(named_count, 1);
	read_back();
	cr_assert(symbol_is(name_at(&truth.thread, now, truth.address), truth.name));
	trace_close(&trace);
	close_image();
}

/* A guest that writes anything anywhere into what is read of a process costs names, nothing else.
 */
Test(user_names, forged_processes_cost_bounded_time, .timeout = 120)
{
	uint64_t random = 88172645463325252, tree, now, seen = 0;
	struct timespec begin, end;
	struct truth truth;

	open_any();
	truth = one_frame();
	tree = peek(mappings_root(&truth.thread));
	if (guest->programs.mappings.mm_tree != LINUX_MEMBER_MISSING)
		tree &= ~UINT64_C(0xff);
	for (int round = 0; round < 300; round++) {
		uint64_t at[8], before[8];

		for (int i = 0; i < 8; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			at[i] = i < 2   ? truth.thread.mm + random % 128 * 8
				: i < 4 ? truth.thread.task + random % 512 * 8
					: tree + random % 32 * 8;
			before[i] = peek(at[i]);
			forge(at[i], round % 3   ? random
				     : round % 2 ? peek(tree + random % 32 * 8)
						 : tree + random % 16);
		}
		now = boot_ns();
		clock_gettime(CLOCK_MONOTONIC, &begin);
		/* As another generation each time, so that it is looked at at once. */
		user_names_see_process(namer, (uint64_t)truth.thread.pid, (const char *)&random, 8);
		seen += see(&truth.thread, now, truth.address + (uint64_t)round);
		look();
		clock_gettime(CLOCK_MONOTONIC, &end);
		cr_assert_lt(end.tv_sec - begin.tv_sec, 5);
		for (int i = 7; i >= 0; i--)
			forge(at[i], before[i]);
	}
	cr_assert_gt(seen, 200);
	read_back();
	trace_close(&trace);
	/* And then it is as before. */
	named_count = 0;
	user_names_see_process(namer, (uint64_t)truth.thread.pid, "whole", 5);
	now = boot_ns();
	see(&truth.thread, now, truth.address);
	look();
	cr_assert_eq(named_count, 1);
	close_image();
}
