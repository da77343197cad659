#include "analysis/page_data.h"

#include "base/cleanup.h"
#include "analysis/console_lines.h"

#include <stdlib.h>
#include <string.h>

/* What is needed while a trace is read. */
struct reading {
	struct page_data *data;
	struct page_file *file;
	struct trace *trace;
	uint32_t file_number;
	/* The last stack, root first, and the nodes along it: the next one begins alike. */
	uint64_t last_stack[FXT_SAMPLE_DEPTH_MAX];
	uint32_t last_nodes[FXT_SAMPLE_DEPTH_MAX];
	size_t last_depth;
	size_t last_boundary;
	uint64_t last_mode;
	uint64_t last_time[TRACE_VCPUS_MAX];
};

const char *page_print_name(const char *name, size_t bytes, char text[PAGE_NAME_MAX + 8])
{
	static const char digits[] = "0123456789abcdef";
	size_t length = 0;

	for (size_t i = 0; i < bytes; i++) {
		unsigned char byte = (unsigned char)name[i];

		if (length >= PAGE_NAME_MAX) {
			memcpy(text + length, "...", 3);
			length += 3;
			break;
		}
		if (byte >= 0x20 && byte < 0x7f) {
			text[length++] = (char)byte;
			continue;
		}
		text[length++] = '\\';
		text[length++] = 'x';
		text[length++] = digits[byte >> 4];
		text[length++] = digits[byte & 15];
	}
	text[length] = 0;
	return text;
}

static uint32_t add_frame(struct page_data *data, const char *name, size_t bytes)
{
	return frames_intern(&data->frames, &(struct frame){.name = name ? name : "",
							    .name_bytes = (uint32_t)bytes,
							    .kind = FRAME_GROUP});
}

static bool add_node(struct page_data *data, uint32_t parent, uint32_t frame, uint32_t *number)
{
	struct page_node key = {.parent = parent, .frame = frame};

	return hash_table_add(&data->nodes.table, &key, number);
}

gp_status_t page_data_create(bool with_times, struct page_data **out, struct error *error)
{
	struct page_data *data = calloc(1, sizeof(*data));
	uint32_t root;

	if (!data)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples");
	data->with_times = with_times;
	hash_table_init(&data->nodes.table, 8, sizeof(struct page_node));
	hash_table_init(&data->contexts.table, sizeof(struct page_context),
			sizeof(struct page_context));
	hash_table_init(&data->cells.table, 8, sizeof(struct page_cell));
	if (frames_init(&data->frames, error) ||
	    !add_node(data, UINT32_MAX, add_frame(data, "all", 3), &root)) {
		page_data_destroy(data);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples");
	}
	*out = data;
	return GP_OK;
}

void page_data_destroy(struct page_data *data)
{
	if (!data)
		return;
	frames_deinit(&data->frames);
	hash_table_deinit(&data->nodes.table);
	hash_table_deinit(&data->contexts.table);
	hash_table_deinit(&data->cells.table);
	free(data->times.items);
	free(data->drops.items);
	free(data->marks.items);
	free(data->order);
	free(data->cell_order);
	free(data);
}

static bool page_add_stack(struct reading *reading, const struct fxt_sample *sample, uint32_t *node)
{
	size_t depth = sample->depth, at = 0;
	/* Where the program's frames end, from the root, if the sample says. */
	size_t boundary =
		sample->flags & FXT_SAMPLE_KERNEL_FRAMES ? depth - sample->kernel_frames : SIZE_MAX;

	/* A leaf is looked up by another address than a caller: it is never taken over. */
	if (boundary == reading->last_boundary && sample->mode == reading->last_mode)
		while (at + 1 < depth && at + 1 < reading->last_depth &&
		       sample->stack[depth - 1 - at] == reading->last_stack[at])
			at++;
	*node = at ? reading->last_nodes[at - 1] : 0;
	for (; at < depth; at++) {
		uint32_t frame = frames_of_address(&reading->data->frames, reading->trace, sample,
						   depth - 1 - at);

		if (!add_node(reading->data, *node, frame, node))
			return false;
		reading->last_stack[at] = sample->stack[depth - 1 - at];
		reading->last_nodes[at] = *node;
	}
	reading->last_depth = depth;
	reading->last_boundary = boundary;
	reading->last_mode = sample->mode;
	return true;
}

static bool add_time(struct reading *reading, const struct fxt_sample *sample, uint32_t cell,
		     uint32_t vcpu, uint64_t ticks)
{
	struct page_data *data = reading->data;
	struct page_sample entry = {.time_ns = reading->last_time[vcpu],
				    .cell = cell,
				    .vcpu = vcpu,
				    .ticks = ticks > UINT32_MAX ? UINT32_MAX : (uint32_t)ticks,
				    .sequence = (uint32_t)data->times.count};

	if (sample->flags & FXT_SAMPLE_TIMESTAMP)
		entry.time_ns = reading->last_time[vcpu] = sample->timestamp;
	return vector_add(&data->times, entry);
}

static bool page_add_sample(struct reading *reading, const struct fxt_sample *sample,
			    uint64_t ticks)
{
	struct page_data *data = reading->data;
	struct frames *frames = &data->frames;
	const struct trace *trace = reading->trace;
	struct page_context context = {
		.file = reading->file_number,
		.vcpu = (uint32_t)(sample->vcpu % TRACE_VCPUS_MAX),
		.process = frames_of_owner(frames, trace, sample, OWNER_PROCESS),
		.thread = frames_of_owner(frames, trace, sample, OWNER_THREAD),
		.mode = sample->mode < FRAMES_MODES ? (uint32_t)sample->mode : 0};
	struct page_cell key = {0};
	bool added;
	uint32_t cell;

	if (sample_is_running(sample))
		added = page_add_stack(reading, sample, &key.node);
	else
		added = add_node(data, 0, frames_of_owner(frames, trace, sample, OWNER_MODE),
				 &key.node);
	if (!added || frames->failed ||
	    !hash_table_add(&data->contexts.table, &context, &key.context) ||
	    !hash_table_add(&data->cells.table, &key, &cell))
		return false;
	data->cells.items[cell].ticks += ticks;
	return !data->with_times || reading->file_number ||
	       add_time(reading, sample, cell, context.vcpu, ticks);
}

/* Half of the room goes to time: the first line of each of so many equal spans, whatever else is
 * printed then. The other half goes evenly to the rest. */
static size_t thin_out(struct console_line *lines, size_t count, size_t most)
{
	size_t spans = most / 2 ? most / 2 : 1, firsts = 0, others = 0, kept = 0;
	uint64_t begin = lines[0].time_ns, span = (lines[count - 1].time_ns - begin) / spans + 1;
	uint64_t last = UINT64_MAX;

	for (size_t i = 0; i < count; i++) {
		firsts += (lines[i].time_ns - begin) / span != last;
		last = (lines[i].time_ns - begin) / span;
	}
	last = UINT64_MAX;
	for (size_t i = 0; i < count; i++) {
		bool is_first = (lines[i].time_ns - begin) / span != last;
		size_t rest = count - firsts, room = most > firsts ? most - firsts : 0;

		last = (lines[i].time_ns - begin) / span;
		if (!is_first) {
			size_t share = (size_t)((double)others * (double)room / (double)rest);

			others++;
			if ((size_t)((double)others * (double)room / (double)rest) == share)
				continue;
		}
		lines[kept++] = lines[i];
	}
	return kept;
}

/* Leaves out the lines that show nothing. */
static void keep_visible(struct console_lines *lines)
{
	char text[PAGE_MARK_TEXT_MAX];
	size_t kept = 0;

	for (size_t i = 0; i < lines->count; i++)
		if (console_line_clean(&lines->items[i], text, sizeof(text)))
			lines->items[kept++] = lines->items[i];
	lines->count = kept;
}

bool page_marks_read(const struct trace *trace, const struct filter *filter, size_t most,
		     struct frames *frames, struct page_marks *marks)
{
	AUTO_FREE struct page_mark *entries = NULL;
	struct console_lines lines;
	size_t count, all;

	if (!console_lines_read(trace, filter, &lines))
		return false;
	keep_visible(&lines);
	all = lines.count;
	count = all > most ? thin_out(lines.items, all, most) : all;
	entries = calloc(count + 1, sizeof(*entries));
	for (size_t i = 0; entries && i < count; i++) {
		const struct console_line *line = &lines.items[i];
		char text[PAGE_MARK_TEXT_MAX];
		size_t size = console_line_clean(line, text, sizeof(text));
		struct frame frame = {
			.name = text, .name_bytes = (uint32_t)size, .kind = FRAME_GROUP};

		entries[i] = (struct page_mark){line->time_ns, frames_intern(frames, &frame)};
	}
	console_lines_deinit(&lines);
	if (!entries || frames->failed)
		return false;
	*marks = (struct page_marks){take_pointer(&entries), count, all};
	return true;
}

static bool add_drops(struct page_data *data, const struct trace *trace,
		      const struct filter *filter)
{
	for (size_t i = 0; i < trace->lost.count; i++)
		if ((!filter || filter_takes_lost(filter, trace, &trace->lost.items[i])) &&
		    !vector_add(&data->drops, trace->lost.items[i]))
			return false;
	return true;
}

gp_status_t page_data_add(struct page_data *data, struct trace *trace, const char *path,
			  struct filter *filter, struct error *error)
{
	struct page_file *file = &data->files[data->file_count];
	AUTO_FREE struct reading *reading = NULL;
	struct fxt_sample sample;
	uint64_t ticks;
	bool added = true;

	if (data->file_count == PAGE_FILES_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS, "at most %d traces can be compared",
				 PAGE_FILES_MAX);
	reading = calloc(1, sizeof(*reading));
	if (!reading)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples of %s", path);
	*reading = (struct reading){.data = data,
				    .file = file,
				    .trace = trace,
				    .file_number = (uint32_t)data->file_count};
	snprintf(file->path, sizeof(file->path), "%s", path);
	file->info = trace->info;
	trace_rewind(trace);
	while (added && trace_next_sample(trace, &sample, &ticks)) {
		bool taken = !filter || filter_takes(filter, trace, &data->frames, &sample);

		profile_count(&file->totals, &sample, ticks, taken);
		if (taken && ticks)
			added = page_add_sample(reading, &sample, ticks);
	}
	if (added && data->with_times && !data->file_count)
		added = page_marks_read(trace, filter, PAGE_MARKS_MAX, &data->frames,
					&data->marks) &&
			add_drops(data, trace, filter);
	trace_rewind(trace);
	if (!added || data->frames.failed)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples of %s", path);
	data->file_count++;
	return GP_OK;
}

/* Totals of all files: a node of the base alone must not look rare. */
static void sum_up(struct page_data *data)
{
	for (uint32_t i = 0; i < data->nodes.count; i++)
		data->nodes.items[i].total = 0;
	for (uint32_t i = 0; i < data->cells.count; i++)
		data->nodes.items[data->cells.items[i].node].total += data->cells.items[i].ticks;
	/* A parent was there before its children. */
	for (uint32_t i = (uint32_t)data->nodes.count; i-- > 1;)
		data->nodes.items[data->nodes.items[i].parent].total += data->nodes.items[i].total;
}

static size_t count_from(const struct page_data *data, uint64_t least)
{
	size_t count = 0;

	for (uint32_t i = 0; i < data->nodes.count; i++)
		count += data->nodes.items[i].total >= least;
	return count;
}

/* Cells of nodes with fewer ticks than `least` go to a node "[rare]" under their nearest ancestor
 * that has enough. */
static bool fold_rare(struct page_data *data, uint64_t least)
{
	size_t node_count = data->nodes.count, cell_count = data->cells.count;
	AUTO_FREE uint32_t *moved = calloc(cell_count + 1, sizeof(*moved));
	struct hash_table cells;
	uint32_t rare = add_frame(data, "[rare]", 6);
	bool done = moved && !data->frames.failed;

	hash_table_init(&cells, 8, sizeof(struct page_cell));
	for (uint32_t i = 0; done && i < cell_count; i++) {
		struct page_cell key = {.node = data->cells.items[i].node,
					.context = data->cells.items[i].context};
		uint32_t node = key.node;

		while (node && data->nodes.items[node].total < least)
			node = data->nodes.items[node].parent;
		done = (node == key.node || add_node(data, node, rare, &key.node)) &&
		       hash_table_add(&cells, &key, &moved[i]);
		if (done)
			((struct page_cell *)cells.entries)[moved[i]].ticks +=
				data->cells.items[i].ticks;
	}
	if (!done) {
		hash_table_deinit(&cells);
		return false;
	}
	hash_table_deinit(&data->cells.table);
	data->cells.table = cells;
	for (size_t i = 0; i < data->times.count; i++)
		data->times.items[i].cell = moved[data->times.items[i].cell];
	for (uint32_t i = 0; i < node_count; i++)
		data->rare_nodes += data->nodes.items[i].total < least;
	data->rare_ticks = least - 1;
	return true;
}

/* Links children and lists the nodes that have ticks, depth first. */
static bool put_in_order(struct page_data *data)
{
	uint32_t count = (uint32_t)data->nodes.count, node = 0;
	size_t used = 0;

	data->order = calloc(count, sizeof(*data->order));
	if (!data->order)
		return false;
	for (uint32_t i = count; i-- > 1;) {
		struct page_node *parent = &data->nodes.items[data->nodes.items[i].parent];

		if (!data->nodes.items[i].total)
			continue;
		data->nodes.items[i].next_sibling = parent->first_child;
		parent->first_child = i;
	}
	for (;;) {
		data->order[used++] = node;
		if (data->nodes.items[node].first_child) {
			node = data->nodes.items[node].first_child;
			continue;
		}
		while (node && !data->nodes.items[node].next_sibling)
			node = data->nodes.items[node].parent;
		if (!node)
			break;
		node = data->nodes.items[node].next_sibling;
	}
	return true;
}

struct placed {
	uint32_t place;
	uint32_t context;
	uint32_t cell;
};

static int compare_placed(const void *left, const void *right)
{
	const struct placed *a = left, *b = right;

	if (a->place != b->place)
		return a->place < b->place ? -1 : 1;
	return a->context < b->context ? -1 : a->context > b->context;
}

size_t page_data_nodes(const struct page_data *data)
{
	size_t count = 0;

	for (uint32_t i = 0; i < data->nodes.count; i++)
		count += !i || data->nodes.items[i].total;
	return count;
}

static bool order_cells(struct page_data *data)
{
	size_t count = data->cells.count, nodes = page_data_nodes(data);
	AUTO_FREE uint32_t *places = calloc(data->nodes.count, sizeof(*places));
	AUTO_FREE struct placed *placed = calloc(count + 1, sizeof(*placed));

	data->cell_order = calloc(count + 1, sizeof(*data->cell_order));
	if (!places || !placed || !data->cell_order)
		return false;
	for (size_t i = 0; i < nodes; i++)
		places[data->order[i]] = (uint32_t)i;
	for (uint32_t i = 0; i < count; i++)
		placed[i] = (struct placed){.place = places[data->cells.items[i].node],
					    .context = data->cells.items[i].context,
					    .cell = i};
	qsort(placed, count, sizeof(*placed), compare_placed);
	for (size_t i = 0; i < count; i++)
		data->cell_order[i] = placed[i].cell;
	return true;
}

static int compare_times(const void *left, const void *right)
{
	const struct page_sample *a = left, *b = right;

	if (a->vcpu != b->vcpu)
		return a->vcpu < b->vcpu ? -1 : 1;
	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

gp_status_t page_data_finish(struct page_data *data, size_t nodes_max, struct error *error)
{
	uint64_t least = 1;
	bool done = true;

	sum_up(data);
	while (count_from(data, least) > nodes_max && least < UINT64_MAX / 2)
		least *= 2;
	if (least > 1) {
		done = fold_rare(data, least);
		sum_up(data);
	}
	if (!done || !put_in_order(data) || !order_cells(data))
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to sort the call paths");
	vector_sort(&data->times, compare_times);
	return GP_OK;
}
