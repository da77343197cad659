/* The data of the HTML pages: what is folded to what, and that nothing of a trace gets out of the
 * place where it is put. */
#include "export/flame_svg.h"
#include "export/page_json.h"
#include "analysis/page_data.h"
#include "tests/unit/trace_file.h"

#include <stdlib.h>

static const char evil[] = "</script><img src=x onerror=alert('1')>&\"\\\xe2\x80\xa8\x01";

struct written {
	char *text;
	size_t size;
};

static struct page_data *fold(struct file *file, bool with_times, size_t nodes_max,
			      struct filter *filter)
{
	struct page_data *data = NULL;
	struct error error = {0};

	open_trace(file);
	cr_assert_eq(page_data_create(with_times, &data, &error), GP_OK, "%s", error.text);
	cr_assert_eq(page_data_add(data, &trace, "t.fxt", filter, &error), GP_OK, "%s", error.text);
	cr_assert_eq(page_data_finish(data, nodes_max, &error), GP_OK, "%s", error.text);
	return data;
}

static struct written write_json(const struct page_data *data)
{
	struct written written = {0};
	FILE *to = open_memstream(&written.text, &written.size);
	struct error error = {0};

	cr_assert_eq(page_data_write(data, to, &error), GP_OK, "%s", error.text);
	fclose(to);
	return written;
}

static struct written write_svg(const struct page_data *data, struct flame_svg_options options)
{
	struct written written = {0};
	FILE *to = open_memstream(&written.text, &written.size);
	struct error error = {0};

	cr_assert_eq(flame_svg_write(data, &options, to, &error), GP_OK, "%s", error.text);
	fclose(to);
	return written;
}

static bool has(const struct written *written, const char *text)
{
	return strstr(written->text, text) != NULL;
}

static void finish(struct file *file, struct page_data *data)
{
	page_data_destroy(data);
	end(file);
}

/* Three functions of the kernel, one of which has a name that wants out. */
static void add_symbols(struct file *file)
{
	add_symbol(file, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "outer");
	add_symbol(file, FXT_SYMBOL_KERNEL, KERNEL + 0x100, 0x100, evil);
	add_symbol(file, FXT_SYMBOL_KERNEL, KERNEL + 0x200, 0x100, "inner");
}

static const struct page_node *node_of(const struct page_data *data, const char *name)
{
	const struct page_node *nodes = data->nodes.items;

	for (size_t i = 0; i < page_data_nodes(data); i++) {
		const struct page_node *node = &nodes[data->order[i]];

		if (!strcmp(data->frames.entries[node->frame].name, name))
			return node;
	}
	return NULL;
}

static void add_line(struct file *file, uint64_t time, const char *text)
{
	struct fxt_log line = {.timestamp = time,
			       .thread = {FXT_VCPU_PROCESS, FXT_VCPU_PROCESS, 0},
			       .text = fxt_text(text)};

	add_words(file, fxt_encode_log(&line, next_word(file), room(file)));
}

static const char *mark_text(const struct page_data *data, size_t mark)
{
	static char text[PAGE_NAME_MAX + 8];
	const struct frame *frame = &data->frames.entries[data->marks.items[mark].frame];

	return page_print_name(frame->name, frame->name_bytes, text);
}

Test(page_data, console_lines_are_marks_by_time_without_control_characters)
{
	static const uint64_t stack[] = {KERNEL + 0x10};
	char longest[401];
	struct page_data *data;
	struct written json;
	struct file file;

	memset(longest, 'x', 400);
	longest[400] = 0;
	begin(&file);
	add_stack(&file, 0, 100, stack, 1);
	add_stack(&file, 0, 1100, stack, 1);
	add_line(&file, 500, "second \033[0;32mOK\033[0m\tdone\r");
	add_line(&file, 200, evil);
	add_line(&file, 600, "\033[2J\033");
	add_line(&file, 9000, longest);
	data = fold(&file, true, PAGE_NODES_MAX, NULL);
	cr_assert_eq(data->marks.count, 3, "one has nothing to see");
	cr_assert_eq(data->marks.all, 3);
	cr_assert_eq(data->marks.items[0].time_ns, 200);
	cr_assert_str_eq(mark_text(data, 1), "second OK done");
	cr_assert_eq(strlen(mark_text(data, 2)), PAGE_MARK_TEXT_MAX);
	cr_assert(strstr(mark_text(data, 2), "x..."));
	json = write_json(data);
	cr_assert(has(&json, "\"markCount\":3,\"marks\":[[100,"));
	cr_assert(has(&json, ",[1000,"), "the last words are at the edge");
	cr_assert(!has(&json, "<") && !has(&json, ">") && !has(&json, "&"));
	free(json.text);
	finish(&file, data);
}

Test(page_data, marks_are_those_of_the_chosen_range)
{
	static const uint64_t stack[] = {KERNEL + 0x10};
	struct filter filter = {.from_ns = 100, .to_ns = 300};
	struct page_data *data;
	struct file file;

	begin(&file);
	add_stack(&file, 0, 1000, stack, 1);
	add_stack(&file, 0, 1250, stack, 1);
	add_line(&file, 1099, "before");
	add_line(&file, 1100, "first");
	add_line(&file, 1299, "last");
	add_line(&file, 1300, "behind");
	data = fold(&file, true, PAGE_NODES_MAX, &filter);
	cr_assert_eq(data->marks.count, 2);
	cr_assert_str_eq(mark_text(data, 0), "first");
	cr_assert_str_eq(mark_text(data, 1), "last");
	finish(&file, data);
}

/* A burst of lines must not cost the quiet time its few. */
Test(page_data, too_many_marks_are_thinned_out_evenly)
{
	enum { BURST = 200, QUIET = 8, MOST = 40 };
	struct page_marks marks;
	struct frames frames;
	struct file file;
	size_t quiet = 0;

	begin(&file);
	for (uint64_t i = 0; i < BURST; i++)
		add_line(&file, 1000 + i, "burst");
	for (uint64_t i = 0; i < QUIET; i++)
		add_line(&file, 2000 + i * 1000, "quiet");
	open_trace(&file);
	cr_assert_eq(frames_init(&frames, NULL), GP_OK);
	cr_assert(page_marks_read(&trace, NULL, MOST, &frames, &marks));
	cr_assert_eq(marks.all, BURST + QUIET);
	cr_assert_leq(marks.count, MOST);
	cr_assert_geq(marks.count, MOST - 2, "%zu", marks.count);
	for (size_t i = 0; i < marks.count; i++) {
		quiet += marks.items[i].time_ns >= 2000;
		cr_assert(!i || marks.items[i].time_ns >= marks.items[i - 1].time_ns);
	}
	cr_assert_eq(quiet, QUIET);
	free(marks.items);
	cr_assert(page_marks_read(&trace, NULL, 1, &frames, &marks));
	cr_assert_leq(marks.count, 1);
	free(marks.items);
	frames_deinit(&frames);
	end(&file);
}

Test(page_data, folds_equal_stacks_and_adds_up_their_ticks)
{
	static const uint64_t deep[] = {KERNEL + 0x210, KERNEL + 0x10}, flat[] = {KERNEL + 0x20};
	struct page_data *data;
	struct file file;

	begin(&file);
	add_symbols(&file);
	for (uint64_t i = 1; i <= 5; i++)
		add_stack(&file, 0, i, deep, 2);
	add_stack(&file, 1, 3, flat, 1);
	data = fold(&file, false, PAGE_NODES_MAX, NULL);
	cr_assert_eq(page_data_nodes(data), 3, "root, outer, inner below it");
	cr_assert_eq(node_of(data, "outer")->total, 6);
	cr_assert_eq(node_of(data, "inner")->total, 5);
	cr_assert_eq(data->cells.count, 2);
	cr_assert_eq(data->files[0].totals.running, 6);
	cr_assert_eq(data->times.count, 0, "times were not asked for");
	finish(&file, data);
}

Test(page_data, a_node_stands_before_its_children_and_its_subtree_in_one_piece)
{
	struct page_data *data;
	const struct page_node *nodes;
	struct file file;

	begin(&file);
	for (uint64_t i = 0; i < 40; i++) {
		uint64_t stack[] = {KERNEL + i % 7 * 0x100, KERNEL + i % 3 * 0x100,
				    KERNEL + i % 2 * 0x100};

		if (i < 7)
			add_symbol(&file, FXT_SYMBOL_KERNEL, stack[0], 0x100,
				   (char[]){(char)('a' + i), 0});
		stack[0] += 0x10;
		stack[1] += 0x10;
		stack[2] += 0x10;
		add_stack(&file, 0, i + 1, stack, 1 + i % 3);
	}
	data = fold(&file, false, PAGE_NODES_MAX, NULL);
	nodes = data->nodes.items;
	for (size_t i = 1; i < page_data_nodes(data); i++) {
		uint32_t at = data->order[i - 1];

		/* The parent is the node before, or one that the node before is below. */
		while (at && at != nodes[data->order[i]].parent)
			at = nodes[at].parent;
		cr_assert_eq(at, nodes[data->order[i]].parent, "place %zu", i);
	}
	finish(&file, data);
}

Test(page_data, nothing_of_a_name_gets_out_of_a_script_element)
{
	static const uint64_t stack[] = {KERNEL + 0x110};
	struct page_data *data;
	struct written json;
	struct file file;

	begin(&file);
	add_symbols(&file);
	add_process_name(&file, 7, evil);
	add_metadata(&file, FXT_GUEST,
		     (struct fxt_argument[]){fxt_argument_text(FXT_GUEST_BANNER, evil)}, 1);
	add_sample(&file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK | FXT_SAMPLE_PROCESS,
					      .process = 7,
					      .timestamp = 1,
					      .mode = FXT_MODE_GUEST_KERNEL,
					      .stack = stack,
					      .depth = 1});
	data = fold(&file, true, PAGE_NODES_MAX, NULL);
	json = write_json(data);
	for (size_t i = 0; i < json.size; i++)
		cr_assert(json.text[i] == '\n' || (json.text[i] >= 0x20 && json.text[i] < 0x7f &&
						   !strchr("<>&'", json.text[i])),
			  "byte %zu is %#x", i, (unsigned char)json.text[i]);
	cr_assert(has(&json, "\\u003c/script\\u003e\\u003cimg"));
	cr_assert(has(&json, "\\\"\\\\\\\\xe2\\\\x80\\\\xa8\\\\x01"), "%s", json.text);
	free(json.text);
	finish(&file, data);
}

Test(page_data, a_picture_shows_names_as_text)
{
	static const uint64_t stack[] = {KERNEL + 0x110, KERNEL + 0x10};
	struct written down, up;
	struct page_data *data;
	struct file file;

	begin(&file);
	add_symbols(&file);
	add_metadata(&file, FXT_GUEST,
		     (struct fxt_argument[]){fxt_argument_text(FXT_GUEST_BANNER, evil)}, 1);
	add_stack(&file, 0, 1, stack, 2);
	add_sample(&file, (struct fxt_sample){.timestamp = 2, .mode = FXT_MODE_HALTED});
	data = fold(&file, false, PAGE_NODES_MAX, NULL);
	down = write_svg(data, (struct flame_svg_options){0});
	up = write_svg(data, (struct flame_svg_options){.callers = true, .idle = true});
	cr_assert(!has(&down, "<img") && !has(&down, "<script") && !has(&up, "<img"));
	cr_assert(has(&down,
		      "&lt;/script&gt;&lt;img src=x onerror=alert(&#39;1&#39;)&gt;&amp;&quot;"));
	cr_assert(!has(&down, "halted") && has(&up, "halted"), "idle only if asked for");
	cr_assert(strstr(down.text, "<title>outer") < strstr(down.text, "<title>&lt;/script"));
	cr_assert(strstr(up.text, "<title>outer") > strstr(up.text, "<title>&lt;/script"),
		  "the leaf comes first among callers");
	free(down.text);
	free(up.text);
	finish(&file, data);
}

Test(page_data, an_empty_trace_gives_an_empty_page)
{
	struct page_data *data;
	struct written json, svg;
	struct file file;

	begin(&file);
	data = fold(&file, true, PAGE_NODES_MAX, NULL);
	json = write_json(data);
	svg = write_svg(data, (struct flame_svg_options){0});
	cr_assert(has(&json, "\"nodeCount\":1,"));
	cr_assert(has(&json, "\"lanes\":[]"));
	cr_assert(has(&json, "\"complete\":false"));
	cr_assert(has(&svg, "</svg>"));
	free(json.text);
	free(svg.text);
	finish(&file, data);
}

Test(page_data, a_cut_trace_is_shown_and_said_to_be_cut)
{
	static const uint64_t stack[] = {KERNEL};
	struct page_data *data = NULL;
	struct error error = {0};
	struct written json;
	struct file file;

	begin(&file);
	add_stack(&file, 0, 1, stack, 1);
	add_stack(&file, 0, 2, stack, 1);
	put(&file, file.words, file.used * 8 - 16);
	cr_assert_eq(trace_open(file.path, &trace, &error), GP_OK, "%s", error.text);
	cr_assert_eq(page_data_create(true, &data, &error), GP_OK);
	cr_assert_eq(page_data_add(data, &trace, "t.fxt", NULL, &error), GP_OK);
	cr_assert_eq(page_data_finish(data, PAGE_NODES_MAX, &error), GP_OK);
	json = write_json(data);
	cr_assert(has(&json, "\"cut\":true") && has(&json, "\"running\":1,"), "%s", json.text);
	free(json.text);
	finish(&file, data);
}

Test(page_data, rare_paths_are_folded_and_no_tick_is_lost)
{
	struct page_data *data;
	uint64_t ticks = 0;
	struct file file;

	begin(&file);
	for (uint64_t i = 0; i < 30; i++)
		add_symbol(&file, FXT_SYMBOL_KERNEL, KERNEL + i * 0x100, 0x100,
			   (char[]){'f', (char)('A' + i), 0});
	for (uint64_t i = 0; i < 60; i++) {
		uint64_t stack[] = {KERNEL + (i < 40 ? 0 : i % 20 + 5) * 0x100 + 0x10,
				    KERNEL + 0x110};

		add_stack(&file, 0, i + 1, stack, 2);
	}
	data = fold(&file, true, 10, NULL);
	cr_assert_leq(page_data_nodes(data), 10);
	cr_assert_eq(data->rare_nodes, 20);
	cr_assert_eq(node_of(data, "fA")->total, 40);
	cr_assert_eq(node_of(data, "[rare]")->total, 20);
	cr_assert_eq(node_of(data, "fB")->total, 60, "its total stays");
	for (size_t i = 0; i < data->times.count; i++) {
		const struct page_sample *samples = data->times.items;

		cr_assert_lt(samples[i].cell, data->cells.count);
		ticks += samples[i].ticks;
	}
	cr_assert_eq(ticks, 60);
	finish(&file, data);
}

Test(page_data, lanes_do_not_go_back_though_the_file_does)
{
	static const uint64_t stack[] = {KERNEL};
	static const uint64_t times[] = {50, 10, 40, 10, 30, 20};
	const struct page_sample *samples;
	struct page_data *data;
	struct file file;

	begin(&file);
	for (size_t i = 0; i < 6; i++)
		add_stack(&file, 1 - i % 2, times[i], stack, 1);
	data = fold(&file, true, PAGE_NODES_MAX, NULL);
	samples = data->times.items;
	cr_assert_eq(data->times.count, 6);
	for (size_t i = 1; i < 6; i++)
		cr_assert(samples[i].vcpu > samples[i - 1].vcpu ||
			  (samples[i].vcpu == samples[i - 1].vcpu &&
			   samples[i].time_ns >= samples[i - 1].time_ns));
	finish(&file, data);
}

Test(page_data, a_filter_leaves_samples_out)
{
	static const uint64_t stack[] = {KERNEL};
	struct filter filter = {0};
	struct error error = {0};
	struct page_data *data;
	struct file file;

	begin(&file);
	for (uint64_t i = 1; i <= 9; i++)
		add_stack(&file, i % 3, i, stack, 1);
	cr_assert_eq(filter_set(&filter, "cpu", "1", &error), GP_OK, "%s", error.text);
	data = fold(&file, true, PAGE_NODES_MAX, &filter);
	cr_assert_eq(data->files[0].totals.running, 3);
	cr_assert_eq(data->files[0].totals.filtered, 6);
	cr_assert_eq(data->times.count, 3);
	filter_deinit(&filter);
	finish(&file, data);
}

Test(page_data, two_traces_share_paths_and_a_third_is_refused)
{
	static const uint64_t stack[] = {KERNEL + 0x10};
	const struct page_context *contexts;
	struct page_data *data = NULL;
	struct error error = {0};
	struct file file;

	begin(&file);
	add_symbols(&file);
	add_stack(&file, 0, 1, stack, 1);
	open_trace(&file);
	cr_assert_eq(page_data_create(false, &data, &error), GP_OK);
	cr_assert_eq(page_data_add(data, &trace, "new", NULL, &error), GP_OK);
	cr_assert_eq(page_data_add(data, &trace, "old", NULL, &error), GP_OK);
	cr_assert_eq(page_data_add(data, &trace, "more", NULL, &error), GP_ERR_INVALID_ARGS);
	cr_assert_eq(page_data_finish(data, PAGE_NODES_MAX, &error), GP_OK);
	contexts = data->contexts.items;
	cr_assert_eq(page_data_nodes(data), 2, "the root and one function for both");
	cr_assert_eq(data->contexts.count, 2);
	cr_assert(contexts[0].file == 0 && contexts[1].file == 1);
	finish(&file, data);
}

Test(page_data, long_names_are_cut)
{
	char name[4000], text[PAGE_NAME_MAX + 8];

	memset(name, 1, sizeof(name));
	page_print_name(name, sizeof(name), text);
	cr_assert_leq(strlen(text), PAGE_NAME_MAX + 7);
	cr_assert_str_eq(text + strlen(text) - 3, "...");
}

Test(page_data, a_picture_of_two_traces_has_the_colour_of_the_change)
{
	static const uint64_t grown[] = {KERNEL + 0x10}, shrunk[] = {KERNEL + 0x210},
			      gone[] = {KERNEL + 0x310};
	struct file now, base;
	struct page_data *data;
	struct error error = {0};
	struct written svg;

	begin(&now);
	begin(&base);
	add_symbols(&now);
	add_symbols(&base);
	add_symbol(&base, FXT_SYMBOL_KERNEL, KERNEL + 0x300, 0x100, "gone");
	for (uint64_t i = 1; i <= 8; i++) {
		add_stack(&now, 0, i, i <= 6 ? grown : shrunk, 1);
		add_stack(&base, 0, i, i <= 2 ? grown : i <= 7 ? shrunk : gone, 1);
	}
	data = fold(&now, false, PAGE_NODES_MAX, NULL);
	page_data_destroy(data);
	cr_assert_eq(page_data_create(false, &data, &error), GP_OK);
	cr_assert_eq(page_data_add(data, &trace, "now.fxt", NULL, &error), GP_OK);
	end(&now);
	open_trace(&base);
	cr_assert_eq(page_data_add(data, &trace, "<base>.fxt", NULL, &error), GP_OK);
	cr_assert_eq(page_data_finish(data, PAGE_NODES_MAX, &error), GP_OK);
	svg = write_svg(data, (struct flame_svg_options){0});
	cr_assert(has(&svg, "<title>outer\ntotal 6 ticks, 75.00 %\nends here: 6 ticks, 75.00 %\n"
			    "before: 2 ticks, 25.00 %</title><rect class=\"m4\""));
	cr_assert(has(&svg, "before: 5 ticks, 62.50 %</title><rect class=\"l4\""));
	cr_assert(has(&svg, "before: 8 ticks, 100.00 %</title><rect class=\"m0\""));
	cr_assert(has(&svg, "than in &lt;base&gt;.fxt, blue: less"));
	cr_assert(!has(&svg, "gone"), "the base alone has it");
	free(svg.text);
	finish(&base, data);
}

/* As `flamegraph --diff` has them. */
Test(page_data, the_names_of_one_trace_are_not_given_to_the_next_in_its_place)
{
	static const uint64_t stack[] = {KERNEL + 0x10};
	struct page_data *data;
	struct error error = {0};
	struct file now, base;

	begin(&now);
	begin(&base);
	add_symbol(&now, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "new_name");
	add_symbol(&base, FXT_SYMBOL_KERNEL, KERNEL, 0x100, "old_name");
	add_stack(&now, 0, 1, stack, 1);
	add_stack(&base, 0, 1, stack, 1);
	cr_assert_eq(page_data_create(false, &data, &error), GP_OK);
	open_trace(&now);
	cr_assert_eq(page_data_add(data, &trace, "now.fxt", NULL, &error), GP_OK);
	end(&now);
	open_trace(&base);
	cr_assert_eq(page_data_add(data, &trace, "base.fxt", NULL, &error), GP_OK);
	cr_assert_eq(page_data_finish(data, PAGE_NODES_MAX, &error), GP_OK);
	cr_assert_not_null(node_of(data, "new_name"));
	cr_assert_not_null(node_of(data, "old_name"));
	finish(&base, data);
}
