/* A trace followed while it grows: what is kept, what goes, and what a display is told. */
#include "analysis/live_view.h"
#include "tests/unit/trace_file.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define SECOND UINT64_C(1000000000)

static struct live *make_live(void)
{
	struct error error = {0};
	struct live *live;

	cr_assert_eq(live_create(NULL, &live, &error), GP_OK, "%s", error.text);
	return live;
}

/* Feeds what is in the file, and empties it. */
static void feed(struct live *live, struct file *file)
{
	struct error error = {0};

	cr_assert_eq(live_feed(live, file->words, file->used * 8, &error), GP_OK, "%s", error.text);
	file->used = 0;
}

static void view_of(struct live *live, struct live_snapshot *snapshot, struct filter *filter,
		    struct live_view *view)
{
	struct error error = {0};

	cr_assert_eq(live_snapshot(live, snapshot, &error), GP_OK, "%s", error.text);
	cr_assert_eq(live_view_init(view, snapshot, filter, &error), GP_OK, "%s", error.text);
}

static const struct table_row *row_of(const struct live_view *view, const char *name)
{
	for (size_t i = 0; i < view->functions.count; i++)
		if (!strcmp(view->frames.entries[view->functions.rows[i].frame].name, name))
			return &view->functions.rows[i];
	return NULL;
}

static uint64_t self_of(const struct live_view *view, const char *name)
{
	const struct table_row *row = row_of(view, name);

	return row ? row->self : 0;
}

/* A sample of a process in the kernel. */
static void add_task(struct file *file, uint64_t vcpu, uint64_t time, uint64_t process,
		     uint64_t thread, const uint64_t *stack, size_t depth)
{
	add_sample(file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
						      FXT_SAMPLE_THREAD,
					     .process = process,
					     .thread = thread,
					     .timestamp = time,
					     .vcpu = vcpu,
					     .mode = FXT_MODE_GUEST_KERNEL,
					     .stack = stack,
					     .depth = depth});
}

Test(live, nothing_yet_is_an_empty_view)
{
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(view.functions.count, 0);
	cr_assert_eq(view.thread_count, 0);
	cr_assert_eq(view.vcpu_count, 0);
	cr_assert_eq(view.rates.ticks_per_second, 0);
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

/* Ten samples a second for a minute, of another function from second 30 on. */
Test(live, only_the_last_seconds_count)
{
	static struct file file;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "early");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, "late");
	for (uint64_t i = 1; i <= 600; i++) {
		uint64_t address = i <= 300 ? KERNEL : KERNEL + 0x100;

		add_stack(&file, 0, i * SECOND / 10, &address, 1);
		feed(live, &file);
		if (i == 330) {
			view_of(live, &snapshot, NULL, &view);
			cr_assert_eq(self_of(&view, "early"), 21); /* of second 28 to 30 */
			cr_assert_eq(self_of(&view, "late"), 30);
			live_view_deinit(&view);
		}
	}
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(self_of(&view, "early"), 0);
	cr_assert_eq(self_of(&view, "late"), 51);
	cr_assert_eq(snapshot.counts.stacks, 600, "counted since the beginning");
	cr_assert_float_eq(view.rates.seconds, 5.0, 1e-6);
	cr_assert_float_eq(view.rates.ticks_per_second, 51 / 5.0, 1e-6);
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

Test(live, a_name_that_comes_after_its_samples_names_them)
{
	static struct file file;
	static const uint64_t address = KERNEL + 8;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	begin(&file);
	add_stack(&file, 0, SECOND, &address, 1);
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(self_of(&view, "[kernel, no symbol]"), 1);
	cr_assert_eq(view.totals.unnamed, 1);
	live_view_deinit(&view);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "named");
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(self_of(&view, "named"), 1);
	cr_assert_eq(view.totals.unnamed, 0);
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

/* Names, strings and what the session is are told once, at the beginning. */
Test(live, what_was_told_once_is_known_an_hour_later)
{
	static struct file file;
	static const uint64_t address = KERNEL + 8;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	begin(&file);
	add_metadata(&file, FXT_SESSION,
		     (struct fxt_argument[]){fxt_argument_u64(FXT_SESSION_PERIOD, 250000),
					     fxt_argument_text(FXT_SESSION_KERNEL, "vmlinuz")},
		     2);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "named");
	add_process_name(&file, 7, "worker");
	add_process_name(&file, 7, "server");
	add_thread_name(&file, 7, 9, "thread");
	for (uint64_t second = 1; second <= 3600; second++) {
		add_task(&file, 0, second * SECOND, 7, 9, &address, 1);
		feed(live, &file);
	}
	view_of(live, &snapshot, NULL, &view);
	cr_assert_lt(snapshot.size, 4096, "%zu bytes", snapshot.size);
	cr_assert_eq(self_of(&view, "named"), 6);
	cr_assert_eq(view.trace->info.period_ns, 250000);
	cr_assert_str_eq(view.trace->info.kernel, "vmlinuz");
	cr_assert_eq(view.thread_count, 1);
	cr_assert_eq(view.threads[0].ticks, 6);
	cr_assert_str_eq(view.frames.entries[view.threads[0].process].name, "server");
	cr_assert_str_eq(view.frames.entries[view.threads[0].thread].name, "thread");
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

Test(live, bytes_may_be_cut_anywhere)
{
	static struct file file;
	static const uint64_t stack[] = {KERNEL, KERNEL + 0x101};
	struct live *live = make_live(), *whole = make_live();
	struct live_snapshot snapshot = {0}, expected = {0};
	struct error error = {0};

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "leaf");
	add_process_name(&file, 7, "worker");
	for (uint64_t i = 1; i <= 20; i++)
		add_task(&file, i % 2, i * SECOND, 7, 7, stack, 2);
	for (size_t i = 0; i < file.used * 8; i++)
		cr_assert_eq(live_feed(live, (char *)file.words + i, 1, &error), GP_OK);
	feed(whole, &file);
	live_snapshot(live, &snapshot, &error);
	live_snapshot(whole, &expected, &error);
	cr_assert_eq(snapshot.counts.stacks, 20);
	cr_assert_eq(snapshot.counts.bytes, expected.counts.bytes);
	cr_assert_eq(snapshot.counts.newest_ns, expected.counts.newest_ns);
	/* A record that is not whole is not in the snapshot. */
	cr_assert_eq(snapshot.size % 8, 0);
	live_snapshot_deinit(&snapshot);
	live_snapshot_deinit(&expected);
	live_destroy(live);
	live_destroy(whole);
}

Test(live, vcpus_by_mode_weights_and_drops)
{
	static struct file file;
	static const uint64_t address = KERNEL;
	struct fxt_sample partial = {.flags = FXT_SAMPLE_CONTINUATION,
				     .continuation = 5,
				     .timestamp = SECOND,
				     .vcpu = 1};
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	begin(&file);
	add_stack(&file, 0, SECOND, &address, 1);
	add_sample(&file, (struct fxt_sample){.timestamp = 2 * SECOND, .mode = FXT_MODE_HALTED});
	add_sample(&file, partial);
	add_sample(&file, partial);
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_COMPLETION | FXT_SAMPLE_STACK,
					      .completion = 5,
					      .timestamp = 3 * SECOND,
					      .vcpu = 1,
					      .mode = FXT_MODE_GUEST_USER,
					      .stack = &address,
					      .depth = 1});
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(view.vcpu_count, 2);
	cr_assert_eq(view.vcpus[0].vcpu, 0);
	cr_assert_eq(view.vcpus[0].modes[FXT_MODE_HALTED], 1);
	cr_assert_eq(view.vcpus[0].modes[FXT_MODE_GUEST_KERNEL], 1);
	cr_assert_eq(view.vcpus[1].modes[FXT_MODE_GUEST_USER], 3, "with its partial samples");
	cr_assert_eq(view.all.ticks, 5);
	cr_assert_eq(view.totals.running, 4);
	cr_assert_float_eq(view.rates.ticks_per_second, 5 / 2.0, 1e-6);
	cr_assert_eq(snapshot.counts.stacks, 3);
	cr_assert_eq(snapshot.counts.partials, 2);
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

static void add_drops(struct file *file, uint64_t time, uint32_t records)
{
	const struct fxt_argument arguments[] = {
		{.name = fxt_text("num_records"), .type = FXT_ARGUMENT_U32, .u32 = records},
		{.name = fxt_text("num_bytes"), .type = FXT_ARGUMENT_U32, .u32 = records * 80},
	};
	/* By index, as a ring writes it: the strings must still be there. */
	const struct fxt_event event = {
		.type = FXT_EVENT_DURATION_COMPLETE,
		.timestamp = time,
		.extra = time + 1,
		.thread = {.process = FXT_VCPU_PROCESS, .thread = fxt_vcpu_thread(0)},
		.category = {.index = FXT_STRING_KERNEL_META},
		.name = {.index = FXT_STRING_DROP_STATS},
		.arguments = arguments,
		.argument_count = 2};

	add_words(file, fxt_encode_event(&event, next_word(file), room(file)));
}

Test(live, drops_have_a_rate_and_a_sum)
{
	static struct file file;
	static const uint64_t address = KERNEL;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	begin(&file);
	for (uint64_t second = 1; second <= 20; second++) {
		add_drops(&file, second * SECOND, 10);
		add_stack(&file, 0, second * SECOND, &address, 1);
		feed(live, &file);
	}
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(snapshot.counts.dropped, 200);
	cr_assert_eq(view.rates.dropped, 60);
	cr_assert_float_eq(view.rates.dropped_per_second, 12, 1e-6);
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

Test(live, a_filter_takes_processes_and_leaves_the_vcpus)
{
	static struct file file;
	static const uint64_t stacks[] = {KERNEL, KERNEL + 0x100};
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct filter filter = {0};
	struct error error = {0};
	struct live_view view;

	begin(&file);
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "one");
	add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, "two");
	add_process_name(&file, 1, "make");
	add_process_name(&file, 2, "cc1");
	add_task(&file, 0, SECOND, 1, 1, &stacks[0], 1);
	add_task(&file, 0, 2 * SECOND, 2, 2, &stacks[1], 1);
	add_task(&file, 0, 3 * SECOND, 2, 3, &stacks[1], 1);
	feed(live, &file);
	cr_assert_eq(filter_set(&filter, "comm", "*c*", &error), GP_OK);
	view_of(live, &snapshot, &filter, &view);
	cr_assert_eq(view.functions.count, 1);
	cr_assert_eq(self_of(&view, "two"), 2);
	cr_assert_eq(view.thread_count, 2);
	cr_assert_eq(view.all.ticks, 3);
	cr_assert_eq(view.totals.filtered, 1);
	live_view_deinit(&view);
	filter_deinit(&filter);
	/* The same filter for a second view: frames have other numbers there. */
	cr_assert_eq(filter_set(&filter, "symbol", "*wo*", &error), GP_OK);
	for (int i = 0; i < 2; i++) {
		view_of(live, &snapshot, &filter, &view);
		cr_assert_eq(view.functions.count, 1);
		cr_assert_eq(self_of(&view, "two"), 2);
		live_view_deinit(&view);
	}
	filter_deinit(&filter);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

/* The children of the function's node, by name. */
static uint64_t below(const struct live_view *view, const struct call_tree *tree, const char *name)
{
	uint32_t top = tree->nodes[CALL_TREE_ROOT].first_child;

	for (uint32_t node = tree->nodes[top].first_child; node;
	     node = tree->nodes[node].next_sibling)
		if (!strcmp(view->frames.entries[tree->nodes[node].frame].name, name))
			return tree->nodes[node].total;
	return 0;
}

Test(live, callers_and_callees_of_a_function)
{
	static struct file file;
	enum { LEAF, HASH, SORT, MAIN, OTHER, FUNCTIONS };
	static const char *const names[] = {"leaf", "hash", "sort", "main", "other"};
#define AT(function) (KERNEL + (function)*0x100 + 8)
	/* hash is recursive; leaf first */
	static const uint64_t first[] = {AT(LEAF), AT(HASH), AT(HASH), AT(MAIN)},
			      second[] = {AT(HASH), AT(SORT), AT(MAIN)},
			      third[] = {AT(OTHER), AT(MAIN)};
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct error error = {0};
	struct live_view view;
	struct call_tree tree;
	uint32_t hash;

	begin(&file);
	for (uint64_t i = 0; i < FUNCTIONS; i++)
		add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + i * 0x100, 0x100, names[i]);
	add_stack(&file, 0, 1, first, 4);
	add_stack(&file, 0, 2, first, 4);
	add_stack(&file, 0, 3, second, 3);
	add_stack(&file, 0, 4, third, 2);
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(row_of(&view, "hash")->total, 3, "a recursion counts once");
	cr_assert_eq(row_of(&view, "hash")->self, 1);
	hash = row_of(&view, "hash")->frame;

	cr_assert_eq(live_view_function(&view, hash, LIVE_CALLERS, &tree, &error), GP_OK);
	cr_assert_eq(tree.nodes[1].frame, hash);
	cr_assert_eq(tree.nodes[1].total, 3);
	cr_assert_eq(below(&view, &tree, "hash"), 2);
	cr_assert_eq(below(&view, &tree, "sort"), 1);
	cr_assert_eq(below(&view, &tree, "leaf"), 0);
	call_tree_deinit(&tree);

	cr_assert_eq(live_view_function(&view, hash, LIVE_CALLEES, &tree, &error), GP_OK);
	cr_assert_eq(tree.nodes[1].total, 3);
	cr_assert_eq(tree.nodes[1].self, 1);
	cr_assert_eq(below(&view, &tree, "hash"), 2);
	cr_assert_eq(below(&view, &tree, "main"), 0);
	call_tree_deinit(&tree);

	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

/* More than a million stacks, hardly two alike, at a rate that fills the memory long before the
 * window is over: nothing grows. */
Test(live, distinct_stacks_take_no_more_memory, .timeout = 120)
{
	enum { ROUNDS = 8000, DEPTH = 8, FUNCTIONS = 4096 };
	static struct file file;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	uint64_t time = SECOND, random = 1;
	size_t nodes[2] = {0};
	struct live_view view;

	begin(&file);
	for (uint64_t i = 0; i < FUNCTIONS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "function_%u", (unsigned)i);
		add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + i * 16, 16, name);
		if (room(&file) < 100)
			feed(live, &file);
	}
	for (int round = 1; round <= ROUNDS; round++) {
		while (room(&file) > FXT_SAMPLE_WORDS(DEPTH)) {
			uint64_t stack[DEPTH];

			for (int at = 0; at < DEPTH; at++) {
				random = random * UINT64_C(6364136223846793005) + 1;
				stack[at] = KERNEL + (random >> 52) * 16 + 1;
			}
			add_stack(&file, 0, time += 1000, stack, DEPTH);
		}
		feed(live, &file);
		if (round % (ROUNDS / 2))
			continue;
		view_of(live, &snapshot, NULL, &view);
		cr_assert_leq(snapshot.capacity, LIVE_BYTES);
		cr_assert_eq(view.totals.unnamed, 0, "names told once are kept");
		nodes[round / (ROUNDS / 2) - 1] = view.tree.count;
		live_view_deinit(&view);
	}
	cr_assert_gt(snapshot.counts.stacks, 1000000);
	cr_assert_gt(nodes[0], 10000, "the newest are there");
	cr_assert_lt(nodes[0], LIVE_BYTES / 8);
	cr_assert_lt(nodes[1], LIVE_BYTES / 8);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

static void add_program(struct file *file, uint64_t process, uint64_t from, const char *name)
{
	const struct fxt_process_symbols of = {process, process << 12, from};
	const struct fxt_symbol symbol = {.start = 0x1000,
					  .size = 0x100,
					  .kind = FXT_SYMBOL_USER,
					  .name = name,
					  .name_bytes = (uint32_t)strlen(name)};
	size_t taken;

	add_words(file,
		  fxt_process_symbols_encode(&of, &symbol, 1, next_word(file), room(file), &taken));
}

static void add_user(struct file *file, uint64_t time, uint64_t process)
{
	static const uint64_t address = 0x1008;

	add_sample(file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS |
						      FXT_SAMPLE_ADDRESS_SPACE,
					     .process = process,
					     .address_space = process << 12,
					     .timestamp = time,
					     .mode = FXT_MODE_GUEST_USER,
					     .stack = &address,
					     .depth = 1});
}

/* 300,000 processes that each live for one sample, and one that lives on. */
Test(live, processes_that_come_and_go_do_not_cost_the_others_their_names, .timeout = 120)
{
	static struct file file;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	uint64_t time = SECOND;
	struct live_view view;

	begin(&file);
	add_process_name(&file, 1, "server");
	add_program(&file, 1, 0, "serve");
	for (uint64_t process = 2; process < 300000; process++) {
		char name[32];

		snprintf(name, sizeof(name), "short-%llu", (unsigned long long)process);
		add_process_name(&file, process, name);
		add_program(&file, process, 0, name);
		add_user(&file, time += SECOND / 1000, process);
		if (process % 1000 == 0)
			add_user(&file, time, 1);
		if (process % 20 == 0)
			feed(live, &file);
	}
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert_eq(self_of(&view, "serve"), 5);
	cr_assert_eq(self_of(&view, "short-299999"), 1);
	cr_assert_eq(view.totals.unnamed, 0);
	cr_assert_lt(snapshot.size, LIVE_BYTES / 2, "%zu bytes", snapshot.size);
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

/* More strings and names than there is room for, without a sample among them. */
Test(live, a_file_of_names_only_does_not_grow, .timeout = 120)
{
	static struct file file;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct error error = {0};

	begin(&file);
	for (uint64_t i = 0; i < 400000; i++) {
		static char text[200];
		const struct fxt_string_entry entry = {
			.index = (uint16_t)(i % FXT_STRING_INDEX_MAX + 1),
			.text = {.text = text, .length = sizeof(text)}};

		add_words(&file, fxt_encode_string(&entry, next_word(&file), room(&file)));
		add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + i * 16, 16, "function");
		add_program(&file, i, 0, "program");
		if (room(&file) < 200)
			feed(live, &file);
	}
	cr_assert_eq(live_snapshot(live, &snapshot, &error), GP_OK);
	cr_assert_leq(snapshot.size, LIVE_BYTES);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

Test(live, the_end_is_told)
{
	static struct file file;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct live_view view;

	begin(&file);
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert(!snapshot.counts.ended);
	live_view_deinit(&view);
	add_metadata(
		&file, FXT_SESSION_END,
		(struct fxt_argument[]){fxt_argument_text(FXT_SESSION_END_REASON, "powered off")},
		1);
	feed(live, &file);
	view_of(live, &snapshot, NULL, &view);
	cr_assert(snapshot.counts.ended);
	cr_assert_str_eq(view.trace->info.end_reason, "powered off");
	live_view_deinit(&view);
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}

Test(live, what_is_no_trace_or_damaged_is_told_and_stays_so)
{
	static const char text[] = "this is a text file";
	static const uint64_t address = KERNEL;
	static struct file file;
	struct live *live = make_live();
	struct live_snapshot snapshot = {0};
	struct error error = {0};
	size_t good;

	cr_assert_eq(live_feed(live, text, sizeof(text), &error), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_str_not_empty(error.text);
	live_destroy(live);

	live = make_live();
	begin(&file);
	add_stack(&file, 0, SECOND, &address, 1);
	good = file.used * 8;
	feed(live, &file);
	file.words[0] = 0x4; /* an event of no words */
	file.used = 1;
	error = (struct error){0};
	cr_assert_eq(live_feed(live, file.words, 8, &error), GP_ERR_IO_DATA_INTEGRITY);
	snprintf(file.path, sizeof(file.path), "byte %zu ", good);
	cr_assert(strstr(error.text, file.path), "%s", error.text);
	error = (struct error){0};
	cr_assert_eq(live_feed(live, file.words, 8, &error), GP_ERR_IO_DATA_INTEGRITY);
	cr_assert_str_not_empty(error.text);
	cr_assert_eq(live_snapshot(live, &snapshot, &error), GP_OK);
	cr_assert_eq(snapshot.size, good, "what came before can be looked at");
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
}
