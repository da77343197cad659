/* What every command that reads traces shares: names of processes, which frames are the kernel's,
 * call trees, filters, and the order of time. */
#include "analysis/profile.h"

#include "base/container.h"
#include "trace/merge.h"
#include "tests/unit/trace_file.h"

static struct trace trace; /* too large for a stack */
static struct frames frames;
static struct call_tree tree;

static void open_file(struct file *file)
{
	struct error error = {0};

	put(file, file->words, file->used * 8);
	cr_assert_eq(trace_open(file->path, &trace, &error), GP_OK, "%s", error.text);
	cr_assert_eq(frames_init(&frames, NULL), GP_OK);
	cr_assert_eq(call_tree_init(&tree, NULL), GP_OK);
}

static void close_file(struct file *file)
{
	call_tree_deinit(&tree);
	frames_deinit(&frames);
	trace_close(&trace);
	close(file->fd);
}

static bool is_called(const struct trace_name *name, const char *text)
{
	return name && name->name_bytes == strlen(text) &&
	       !memcmp(name->name, text, name->name_bytes);
}

static const char *name_of(uint32_t frame)
{
	cr_assert_lt(frame, frames.count);
	return frames.entries[frame].name;
}

/* A task's sample in user mode at `address`. */
static void add_task(struct file *file, uint64_t vcpu, uint64_t time, uint64_t process,
		     uint64_t thread, const uint64_t *address)
{
	add_sample(file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
						      FXT_SAMPLE_THREAD,
					     .vcpu = vcpu,
					     .timestamp = time,
					     .process = process,
					     .thread = thread,
					     .mode = FXT_MODE_GUEST_USER,
					     .stack = address,
					     .depth = 1});
}

Test(profile, names_are_those_that_held_at_the_sample)
{
	static const uint64_t at[] = {0x400000};
	struct fxt_sample sample;
	struct file file;
	uint64_t ticks;

	begin(&file);
	add_process_name(&file, 7, "sh");
	add_thread_name(&file, 7, 8, "sh");
	add_task(&file, 0, 1, 7, 8, at);
	add_process_name(&file, 7, "sh"); /* says nothing new */
	add_process_name(&file, 7, "make");
	add_task(&file, 0, 2, 7, 8, at);
	add_task(&file, 0, 3, 9, 8, at);
	add_process_name(&file, 9, "late");
	open_file(&file);
	cr_assert_eq(trace.processes.count, 3);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	cr_assert(is_called(trace_process_name(&trace, 7), "sh"));
	cr_assert(is_called(trace_thread_name(&trace, 8), "sh"));
	cr_assert_eq(trace_thread_name(&trace, 8)->process, 7);
	cr_assert_null(trace_process_name(&trace, 8), "a thread is no process");
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	cr_assert(is_called(trace_process_name(&trace, 7), "make"));
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	cr_assert(is_called(trace_process_name(&trace, 9), "late"), "better than none");
	cr_assert_null(trace_process_name(&trace, 10));
	trace_rewind(&trace);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	cr_assert(is_called(trace_process_name(&trace, 7), "sh"), "again from the beginning");
	close_file(&file);
}

Test(profile, repeated_names_take_no_memory_and_changes_are_kept)
{
	static struct file file;
	const char *names[] = {"a", "b"};

	begin(&file);
	for (int i = 0; i < 700; i++)
		add_process_name(&file, 1, "same");
	for (int i = 0; i < 300; i++)
		add_process_name(&file, 2, names[i % 2]);
	open_file(&file);
	cr_assert_eq(trace.processes.count, 301);
	cr_assert_leq(trace.processes.capacity, 1024);
	cr_assert(is_called(trace_process_name(&trace, 2), "a"), "the first, at the beginning");
	close_file(&file);
}

/* Frames before the index are the kernel's, from it on the program's; there the address is exact.
 */
Test(profile, a_programs_frames_are_never_named_by_the_kernel)
{
	static const uint64_t stack[] = {KERNEL, KERNEL + 0x10, 0x1000, 0x1010, KERNEL + 1};
	struct fxt_sample sample;
	struct file file;
	uint64_t ticks;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "kernel");
	add_symbol(&file, FXT_SYMBOL_BOOT, 0, 0x100000, "boot");
	add_symbol(&file, FXT_SYMBOL_FILE, 0x1000, 0x10, "program");
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_KERNEL_FRAMES,
					      .timestamp = 1,
					      .mode = FXT_MODE_GUEST_KERNEL,
					      .stack = stack,
					      .depth = 5,
					      .kernel_frames = 2});
	open_file(&file);
	cr_assert(trace_next_sample(&trace, &sample, &ticks));
	for (size_t i = 0; i < 5; i++) {
		static const char *const names[] = {"kernel", "kernel", "program", "program",
						    "[user]"};
		uint32_t frame = frames_of_address(&frames, &trace, &sample, i);

		cr_assert_str_eq(name_of(frame), names[i], "frame %zu: %s", i, name_of(frame));
		cr_assert_eq(frames.entries[frame].kind, i < 2 ? FRAME_KERNEL : FRAME_USER);
		cr_assert_eq(trace_frame_address(&sample, i), stack[i] - (i == 1 || i > 2 ? 1 : 0));
	}
	/* The same addresses in the kernel's own frames. */
	sample.flags &= ~(uint64_t)FXT_SAMPLE_KERNEL_FRAMES;
	cr_assert_str_eq(name_of(frames_of_address(&frames, &trace, &sample, 4)), "kernel");
	sample.stack = (const uint64_t[]){0x3000, KERNEL + 0x500, UINT64_C(0xffffffffc0000000)};
	cr_assert_str_eq(name_of(frames_of_address(&frames, &trace, &sample, 0)), "boot");
	cr_assert_str_eq(name_of(frames_of_address(&frames, &trace, &sample, 1)),
			 "[kernel, no symbol]");
	cr_assert_str_eq(name_of(frames_of_address(&frames, &trace, &sample, 2)),
			 "[kernel module]");
	cr_assert(frames.entries[frames_of_address(&frames, &trace, &sample, 2)].is_unnamed);
	close_file(&file);
}

static uint32_t function(const char *name)
{
	return frames_intern(&frames, &(struct frame){.name = name,
						      .name_bytes = (uint32_t)strlen(name),
						      .kind = FRAME_USER});
}

static uint32_t find(const struct call_tree *in, const char *const *path, size_t depth)
{
	uint32_t node = CALL_TREE_ROOT;

	for (size_t i = 0; i < depth; i++) {
		uint32_t child = in->nodes[node].first_child;

		while (child && in->nodes[child].frame != function(path[i]))
			child = in->nodes[child].next_sibling;
		cr_assert(child, "no '%s' at depth %zu", path[i], i);
		node = child;
	}
	return node;
}

#define PATH(...) \
	(const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

static void add_path(const char *const *path, size_t depth, uint64_t ticks)
{
	uint32_t numbers[16];

	for (size_t i = 0; i < depth; i++)
		numbers[i] = function(path[i]);
	call_tree_add(&tree, numbers, depth, ticks);
}

Test(profile, a_tree_adds_up_and_recursion_counts_once)
{
	struct call_tree reversed;
	struct call_tree_sum sums[8] = {{0}};

	cr_assert_eq(frames_init(&frames, NULL), GP_OK);
	cr_assert_eq(call_tree_init(&tree, NULL), GP_OK);
	add_path(PATH("main", "f", "g"), 2);
	add_path(PATH("main", "f"), 3);
	add_path(PATH("main", "f", "f", "g"), 5);
	add_path(PATH("main", "f", "g"), 7);
	cr_assert_eq(call_tree_finish(&tree, NULL), GP_OK);
	cr_assert_eq(call_tree_sort(&tree, NULL), GP_OK);
	cr_assert_eq(tree.nodes[CALL_TREE_ROOT].total, 17);
	cr_assert_eq(tree.nodes[find(&tree, PATH("main"))].total, 17);
	cr_assert_eq(tree.nodes[find(&tree, PATH("main"))].self, 0);
	cr_assert_eq(tree.nodes[find(&tree, PATH("main", "f"))].self, 3);
	cr_assert_eq(tree.nodes[find(&tree, PATH("main", "f", "g"))].self, 9);
	cr_assert_eq(tree.nodes[find(&tree, PATH("main", "f", "f"))].total, 5);
	/* Greatest first. */
	cr_assert_eq(tree.nodes[find(&tree, PATH("main", "f"))].first_child,
		     find(&tree, PATH("main", "f", "g")));
	cr_assert_eq(call_tree_add_up(&tree, sums, ARRAY_SIZE(sums), NULL), GP_OK);
	cr_assert_eq(sums[function("main")].total, 17);
	cr_assert_eq(sums[function("f")].total, 17);
	cr_assert_eq(sums[function("f")].self, 3);
	cr_assert_eq(sums[function("g")].total, 14);
	cr_assert_eq(call_tree_reverse(&tree, &reversed, NULL), GP_OK);
	cr_assert_eq(reversed.nodes[CALL_TREE_ROOT].total, 17);
	cr_assert_eq(reversed.nodes[find(&reversed, PATH("g"))].total, 14);
	cr_assert_eq(reversed.nodes[find(&reversed, PATH("g", "f"))].total, 14);
	cr_assert_eq(reversed.nodes[find(&reversed, PATH("g", "f", "main"))].self, 9);
	cr_assert_eq(reversed.nodes[find(&reversed, PATH("g", "f", "f", "main"))].self, 5);
	call_tree_deinit(&reversed);
	call_tree_deinit(&tree);
	frames_deinit(&frames);
}

/* As many stacks as make the tables grow many times; each is found again. */
Test(profile, a_tree_grows_with_distinct_stacks_only)
{
	enum { STACKS = 20000 };
	uint32_t path[3];

	cr_assert_eq(call_tree_init(&tree, NULL), GP_OK);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < STACKS; i++) {
			path[0] = i % 7;
			path[1] = i % 1000;
			path[2] = i;
			call_tree_add(&tree, path, 3, 1 + i % 2);
		}
		cr_assert_eq(tree.count, 1 + 7 + 7000 + STACKS);
	}
	cr_assert_eq(call_tree_finish(&tree, NULL), GP_OK);
	cr_assert_eq(tree.nodes[CALL_TREE_ROOT].total, 3 * (STACKS + STACKS / 2));
	for (size_t i = 1; i < tree.count; i++)
		cr_assert_lt(tree.nodes[i].parent, i);
	call_tree_deinit(&tree);
}

static void three_tasks(struct file *file)
{
	static const uint64_t user[] = {0x400000}, kernel[] = {KERNEL + 2, KERNEL + 0x101};

	begin(file);
	add_symbol(file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "leaf");
	add_symbol(file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, "caller");
	add_symbol(file, FXT_SYMBOL_FILE, 0x400000, 0x100, "work");
	add_process_name(file, 10, "one");
	add_process_name(file, 20, "two");
	add_thread_name(file, 20, 21, "helper");
	add_stack(file, 0, 1000, kernel, 2); /* of no process */
	add_task(file, 0, 1000000, 10, 10, user);
	add_task(file, 1, 2000000, 20, 20, user);
	add_task(file, 1, 3001000, 20, 21, user);
	add_sample(file, (struct fxt_sample){.vcpu = 0,
					     .timestamp = 4000000,
					     .flags = FXT_SAMPLE_PROCESS,
					     .mode = FXT_MODE_HALTED});
}

static uint64_t read_filtered(const char *const *options, size_t count)
{
	struct filter filter = {0};
	struct profile_options profile = {.filter = &filter};
	struct profile_totals totals;
	struct error error = {0};

	for (size_t i = 0; i + 1 < count; i += 2)
		cr_assert_eq(filter_set(&filter, options[i], options[i + 1], &error), GP_OK, "%s",
			     error.text);
	cr_assert_eq(profile_read(&trace, &profile, &frames, &tree, &totals, &error), GP_OK, "%s",
		     error.text);
	cr_assert_eq(totals.ticks + totals.filtered, 5);
	filter_deinit(&filter);
	return totals.ticks;
}

Test(profile, filters_take_what_they_say)
{
	static struct file file;

	three_tasks(&file);
	open_file(&file);
	cr_assert_eq(read_filtered(NULL, 0), 5);
	cr_assert_eq(read_filtered(PATH("pid", "20")), 2);
	cr_assert_eq(read_filtered(PATH("pid", "10-20")), 3);
	cr_assert_eq(read_filtered(PATH("pid", "0")), 1, "idle, not those of no process");
	cr_assert_eq(read_filtered(PATH("pid", "10", "pid", "20")), 3, "either");
	cr_assert_eq(read_filtered(PATH("tid", "10,21")), 2);
	cr_assert_eq(read_filtered(PATH("comm", "two")), 2);
	cr_assert_eq(read_filtered(PATH("comm", "help*")), 1, "names of threads as well");
	cr_assert_eq(read_filtered(PATH("cpu", "1")), 2);
	cr_assert_eq(read_filtered(PATH("mode", "user")), 3);
	cr_assert_eq(read_filtered(PATH("mode", "kernel,halted")), 2);
	cr_assert_eq(read_filtered(PATH("symbol", "work")), 3);
	cr_assert_eq(read_filtered(PATH("symbol", "caller")), 1, "anywhere on the stack");
	cr_assert_eq(read_filtered(PATH("symbol", "work", "pid", "10")), 1, "both");
	/* Since the first sample, which is at 1 us; --to is not included. */
	cr_assert_eq(read_filtered(PATH("from", "3ms")), 2);
	cr_assert_eq(read_filtered(PATH("to", "3ms")), 3);
	cr_assert_eq(read_filtered(PATH("from", "0.000999", "to", "0.003001s")), 3);
	close_file(&file);
}

Test(profile, filters_refuse_what_they_do_not_understand)
{
	static const char *const bad[][2] = {
		{"pid", ""},       {"pid", "x"},
		{"pid", "1,"},     {"pid", "5-4"},
		{"pid", "-1"},     {"tid", "1 2"},
		{"cpu", "0x1"},    {"pid", "99999999999999999999"},
		{"comm", ""},      {"symbol", ""},
		{"mode", "usr"},   {"mode", ""},
		{"from", "soon"},  {"from", "-1"},
		{"from", "1e3"},   {"from", "0x10"},
		{"to", "0"},       {"to", "1 s"},
		{"to", "1h"},      {"from", "inf"},
		{"from", "nan"},   {"from", ""},
		{"nonsense", "1"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct filter filter = {0};
		struct error error = {0};

		cr_assert_neq(filter_set(&filter, bad[i][0], bad[i][1], &error), GP_OK, "--%s %s",
			      bad[i][0], bad[i][1]);
		cr_assert(strstr(error.text, bad[i][0]), "%s", error.text);
		cr_assert(filter_is_empty(&filter));
	}
}

Test(profile, times_have_units)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {{"1.5", 1500000000}, {"1.5s", 1500000000}, {"200ms", 200000000},
		    {"3us", 3000},       {"7ns", 7},           {"0", 0}};
	uint64_t ns;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		cr_assert(filter_parse_time(good[i].text, &ns), "%s", good[i].text);
		cr_assert_eq(ns, good[i].ns, "%s: %llu", good[i].text, (unsigned long long)ns);
	}
}

Test(profile, samples_stand_below_what_they_belong_to)
{
	struct profile_options options = {
		.owners = {OWNER_PROCESS, OWNER_THREAD}, .owner_count = 2, .idle = true};
	static struct file file;
	uint32_t node;

	three_tasks(&file);
	open_file(&file);
	cr_assert_eq(profile_read(&trace, &options, &frames, &tree, NULL, NULL), GP_OK);
	cr_assert_eq(tree.nodes[CALL_TREE_ROOT].total, 5);
	cr_assert_eq(call_tree_sort(&tree, NULL), GP_OK);
	node = tree.nodes[CALL_TREE_ROOT].first_child;
	cr_assert_str_eq(name_of(tree.nodes[node].frame), "two");
	cr_assert_eq(frames.entries[tree.nodes[node].frame].id, 20);
	cr_assert_eq(tree.nodes[node].total, 2);
	node = tree.nodes[node].first_child;
	cr_assert_eq(frames.entries[tree.nodes[node].frame].kind, FRAME_THREAD);
	cr_assert_eq(tree.nodes[node].total, 1);
	for (node = 1; node < tree.count; node++)
		if (frames.entries[tree.nodes[node].frame].kind == FRAME_MODE)
			break;
	cr_assert_lt(node, tree.count);
	cr_assert_str_eq(name_of(tree.nodes[node].frame), "halted");
	cr_assert_eq(tree.nodes[node].self, 1);
	close_file(&file);
}

Test(profile, merged_samples_are_in_order_of_time)
{
	static const uint64_t stack[] = {KERNEL};
	static const struct {
		uint64_t vcpu, time, ticks;
	} expected[] = {{2, 5, 1},  {0, 10, 1}, {2, 12, 2}, {0, 20, 1},
			{5, 21, 1}, {0, 30, 1}, {0, 30, 1}};
	struct merge_entry entry;
	struct fxt_sample sample;
	static struct file file;
	struct merge merge;
	uint64_t ticks;

	begin(&file);
	add_stack(&file, 0, 10, stack, 1);
	add_stack(&file, 0, 20, stack, 1);
	add_stack(&file, 0, 30, stack, 1);
	add_stack(&file, 0, 25, stack, 1); /* back in time: as if at 30 */
	add_stack(&file, 2, 5, stack, 1);
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_CONTINUATION,
					      .continuation = 4,
					      .vcpu = 2,
					      .timestamp = 11});
	add_process_name(&file, 1, "later");
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_COMPLETION | FXT_SAMPLE_STACK,
					      .completion = 4,
					      .vcpu = 2,
					      .timestamp = 12,
					      .stack = stack,
					      .depth = 1});
	add_stack(&file, 5, 21, stack, 1);
	open_file(&file);
	for (int pass = 0; pass < 2; pass++) {
		cr_assert_eq(merge_init(&merge, &trace, NULL), GP_OK);
		for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
			cr_assert(merge_next(&merge, &entry));
			cr_assert_null(entry.lost);
			cr_assert_eq(entry.sample.vcpu, expected[i].vcpu, "entry %zu", i);
			cr_assert_eq(entry.time_ns, expected[i].time, "entry %zu", i);
			cr_assert_eq(entry.ticks, expected[i].ticks, "entry %zu", i);
			cr_assert_eq(entry.sample.depth, 1);
		}
		cr_assert(!merge_next(&merge, &entry));
		merge_deinit(&merge);
		/* In between the other way of reading, which is not disturbed. */
		trace_rewind(&trace);
		for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
			cr_assert(trace_next_sample(&trace, &sample, &ticks));
		cr_assert(!trace_next_sample(&trace, &sample, &ticks));
	}
	close_file(&file);
}

Test(profile, lost_ticks_stand_where_they_were_lost)
{
	static const uint64_t stack[] = {KERNEL};
	struct fxt_argument arguments[] = {fxt_argument_u64("num_records", 12),
					   fxt_argument_u64("num_bytes", 480)};
	struct fxt_event event = {
		.type = FXT_EVENT_DURATION_COMPLETE,
		.timestamp = 15,
		.extra = 18,
		.thread = {.process = FXT_VCPU_PROCESS, .thread = fxt_vcpu_thread(3)},
		.category = fxt_text("kernel:meta"),
		.name = fxt_text("drop_stats"),
		.arguments = arguments,
		.argument_count = 2};
	struct filter filter = {0};
	struct merge_entry entry;
	static struct file file;
	struct merge merge;

	begin(&file);
	add_stack(&file, 3, 10, stack, 1);
	add_stack(&file, 3, 20, stack, 1);
	add_words(&file, fxt_encode_event(&event, next_word(&file), room(&file)));
	open_file(&file);
	cr_assert_eq(merge_init(&merge, &trace, NULL), GP_OK);
	cr_assert(merge_next(&merge, &entry) && !entry.lost);
	cr_assert(merge_next(&merge, &entry) && entry.lost);
	cr_assert_eq(entry.time_ns, 15);
	cr_assert_eq(entry.lost->end_ns, 18);
	cr_assert_eq(entry.lost->records, 12);
	cr_assert_eq(entry.lost->vcpu, 3);
	cr_assert(filter_takes_lost(&filter, &trace, entry.lost));
	cr_assert_eq(filter_set(&filter, "cpu", "2", NULL), GP_OK);
	cr_assert(!filter_takes_lost(&filter, &trace, entry.lost));
	cr_assert(merge_next(&merge, &entry) && !entry.lost);
	cr_assert(!merge_next(&merge, &entry));
	merge_deinit(&merge);
	close_file(&file);
}

static void add_program_symbol(struct file *file, uint64_t process, uint64_t valid_from,
			       const char *name)
{
	const struct fxt_process_symbols of = {
		.process = process, .address_space = 0x5000, .valid_from = valid_from};
	const struct fxt_symbol symbol = {.start = 0x400000,
					  .size = 0x100,
					  .kind = FXT_SYMBOL_USER,
					  .name = name,
					  .name_bytes = (uint32_t)strlen(name)};
	size_t taken;

	add_words(file,
		  fxt_process_symbols_encode(&of, &symbol, 1, next_word(file), room(file), &taken));
}

/* Every frame of every sample, looked up by itself: the same nodes with the same ticks. */
static void expect_tree_of_single_frames(void)
{
	uint64_t expected[256] = {0};
	size_t count = tree.count;
	struct fxt_sample sample;
	uint64_t ticks;

	cr_assert_leq(count, ARRAY_SIZE(expected));
	trace_rewind(&trace);
	while (trace_next_sample(&trace, &sample, &ticks)) {
		uint32_t path[8];

		for (size_t i = 0; i < sample.depth; i++)
			path[sample.depth - 1 - i] = frames_of_address(&frames, &trace, &sample, i);
		expected[call_tree_add(&tree, path, sample.depth, 0)] += ticks;
	}
	cr_assert_eq(tree.count, count, "a stack is missing");
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(tree.nodes[i].self, expected[i], "node %zu", i);
}

/* What the same addresses mean depends on four things, each of which has a few values here. */
enum { MEANINGS = 4 };
static const uint64_t meaning_values[MEANINGS] = {3, 3, 2, 3};

static void add_meaning(struct file *file, const uint64_t meaning[MEANINGS], uint64_t time)
{
	static const uint64_t stack[] = {0x400010, 0x400020, KERNEL + 0x20, 0x400030};
	static const uint64_t modes[] = {FXT_MODE_GUEST_USER, FXT_MODE_GUEST_KERNEL,
					 FXT_MODE_IN_VMM};

	add_sample(file, (struct fxt_sample){
				 .flags = FXT_SAMPLE_STACK | FXT_SAMPLE_ADDRESS_SPACE |
					  (meaning[1] ? FXT_SAMPLE_PROCESS : 0) |
					  (meaning[3] ? FXT_SAMPLE_KERNEL_FRAMES : 0),
				 .process = meaning[1], /* 1 has names of its own, 2 has none */
				 .address_space = 0x5000,
				 .mode = modes[meaning[0]],
				 .kernel_frames = meaning[3],
				 .stack = stack,
				 .depth = 3 + meaning[2],
				 .timestamp = time});
}

Test(profile, equal_addresses_of_different_meaning_are_apart)
{
	enum { SAMPLES = 3 * 3 * 2 * 3 * (2 + 2 + 1 + 2) * 2 };
	struct profile_options options = {0};
	uint64_t time = 0, meaning[MEANINGS];
	static struct file file;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "kernel");
	add_symbol(&file, FXT_SYMBOL_BOOT, 0x400000, 0x100, "boot");
	add_symbol(&file, FXT_SYMBOL_FILE, 0x400000, 0x100, "file");
	add_program_symbol(&file, 1, 0, "before");
	add_program_symbol(&file, 1, SAMPLES / 2, "after");
	/* Every meaning, and right behind it each that differs in one thing. */
	for (uint64_t number = 0; number < 3 * 3 * 2 * 3; number++)
		for (size_t changed = 0; changed < MEANINGS; changed++)
			for (uint64_t by = 1; by < meaning_values[changed]; by++) {
				uint64_t left = number;

				for (size_t i = 0; i < MEANINGS; i++) {
					meaning[i] = left % meaning_values[i];
					left /= meaning_values[i];
				}
				add_meaning(&file, meaning, ++time);
				meaning[changed] =
					(meaning[changed] + by) % meaning_values[changed];
				add_meaning(&file, meaning, ++time);
			}
	cr_assert_eq(time, SAMPLES);
	open_file(&file);
	cr_assert_eq(profile_read(&trace, &options, &frames, &tree, NULL, NULL), GP_OK);
	cr_assert_eq(tree.nodes[CALL_TREE_ROOT].total, SAMPLES);
	expect_tree_of_single_frames();
	close_file(&file);
}

Test(profile, stacks_of_one_frame_and_none_known_before)
{
	static const uint64_t leaf[] = {KERNEL}, both[] = {KERNEL, KERNEL + 0x101};
	struct profile_options options = {0};
	static struct file file;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "leaf");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, "caller");
	for (uint64_t i = 1; i < 10; i++)
		add_stack(&file, 0, i, i % 2 ? leaf : both, i % 2 ? 1 : 2);
	open_file(&file);
	cr_assert_eq(profile_read(&trace, &options, &frames, &tree, NULL, NULL), GP_OK);
	cr_assert_eq(tree.count, 1 + 1 + 2, "without owners stacks are below the root");
	expect_tree_of_single_frames();
	close_file(&file);
}
