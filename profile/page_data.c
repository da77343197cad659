#include "profile/page_data.h"

#include "base/address.h"
#include "base/cleanup.h"
#include "base/container.h"
#include "fxt/metadata.h"
#include "fxt/record.h"

#include <stdlib.h>
#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst: "module mapping space". */
#define MODULES_START UINT64_C(0xffffffffa0000000)
#define MODULES_END UINT64_C(0xffffffffff000000)
/* Longer names are cut: what a person reads is at the front. */
#define TEXT_MAX 1000
#define MARKS_MAX 5000
#define DROPS_MAX 20000
/* Addresses whose name is remembered. */
#define KNOWN_BITS 14

/* The key is the hash of a text and how many other texts have the same one. */
struct page_text {
	uint64_t hash;
	uint64_t others;
	size_t offset; /* in the pool */
};

struct known {
	uint64_t address;
	uint32_t name;
	bool used;
	bool inner;
	bool user;
	bool kernel_frame;
};

/* What is needed while a trace is read. */
struct reading {
	struct page_data *data;
	struct page_file *file;
	struct trace *trace;
	uint32_t file_number;
	struct known known[1 << KNOWN_BITS];
	/* The last stack, root first, and the nodes along it: the next one begins alike. */
	uint64_t last_stack[FXT_SAMPLE_DEPTH_MAX];
	uint32_t last_nodes[FXT_SAMPLE_DEPTH_MAX];
	size_t last_depth;
	size_t last_boundary;
	uint64_t last_mode;
	uint64_t last_time[TRACE_VCPUS_MAX];
};

static bool reserve(struct page_array *array, size_t more, size_t item_bytes)
{
	size_t capacity = array->capacity ? array->capacity : 64;
	void *items;

	if (more <= array->capacity - array->count)
		return true;
	while (capacity - array->count < more)
		capacity *= 2;
	items = realloc(array->items, capacity * item_bytes);
	if (!items)
		return false;
	array->items = items;
	array->capacity = capacity;
	return true;
}

static bool append(struct page_array *array, const void *item, size_t item_bytes)
{
	if (!reserve(array, 1, item_bytes))
		return false;
	memcpy((char *)array->items + array->count++ * item_bytes, item, item_bytes);
	return true;
}

static const struct page_text *text_entry(const struct page_data *data, uint32_t text)
{
	return (const struct page_text *)data->texts.entries + text;
}

const char *page_text(const struct page_data *data, uint32_t text)
{
	return (const char *)data->pool.items + text_entry(data, text)->offset;
}

static struct page_node *node_at(const struct page_data *data, uint32_t node)
{
	return (struct page_node *)data->nodes.entries + node;
}

static struct page_cell *cell_at(const struct page_data *data, uint32_t cell)
{
	return (struct page_cell *)data->cells.entries + cell;
}

const char *page_node_text(const struct page_data *data, uint32_t node)
{
	const struct page_name *names = data->names.entries;

	return page_text(data, names[node_at(data, node)->name].text);
}

/* Printable ASCII stays, any other byte becomes \xNN, as in the text report. */
static size_t make_printable(const char *bytes, size_t size, char text[TEXT_MAX + 8])
{
	static const char digits[] = "0123456789abcdef";
	size_t length = 0;

	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		if (length >= TEXT_MAX) {
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
	return length;
}

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash_text(const char *text, size_t length)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static bool add_text(struct page_data *data, const char *bytes, size_t size, uint32_t *number)
{
	char text[TEXT_MAX + 8];
	size_t length = make_printable(bytes, size, text);
	struct page_text key = {.hash = hash_text(text, length)};

	if (!reserve(&data->pool, length + 1, 1))
		return false;
	for (;;) {
		size_t before = data->texts.count;

		if (!intern_add(&data->texts, &key, number))
			return false;
		if (data->texts.count > before)
			break;
		if (!strcmp(page_text(data, *number), text))
			return true;
		key.others++; /* ends at one that was not there before */
	}
	((struct page_text *)data->texts.entries)[*number].offset = data->pool.count;
	memcpy((char *)data->pool.items + data->pool.count, text, length + 1);
	data->pool.count += length + 1;
	return true;
}

static bool add_name(struct page_data *data, const char *bytes, size_t size, enum page_kind kind,
		     uint32_t *number)
{
	struct page_name key = {.kind = kind};

	return add_text(data, bytes, size, &key.text) && intern_add(&data->names, &key, number);
}

static bool add_node(struct page_data *data, uint32_t parent, uint32_t name, uint32_t *number)
{
	struct page_node key = {.parent = parent, .name = name};

	return intern_add(&data->nodes, &key, number);
}

gp_status_t page_data_create(bool with_times, struct page_data **out, struct error *error)
{
	struct page_data *data = calloc(1, sizeof(*data));
	uint32_t name, root;

	if (!data)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples");
	data->with_times = with_times;
	intern_init(&data->texts, 16, sizeof(struct page_text));
	intern_init(&data->names, sizeof(struct page_name), sizeof(struct page_name));
	intern_init(&data->nodes, 8, sizeof(struct page_node));
	intern_init(&data->contexts, sizeof(struct page_context), sizeof(struct page_context));
	intern_init(&data->cells, 8, sizeof(struct page_cell));
	intern_init(&data->threads, 24, sizeof(struct page_thread));
	if (!add_name(data, "all", 3, PAGE_KIND_OTHER, &name) ||
	    !add_node(data, UINT32_MAX, name, &root)) {
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
	intern_deinit(&data->texts);
	intern_deinit(&data->names);
	intern_deinit(&data->nodes);
	intern_deinit(&data->contexts);
	intern_deinit(&data->cells);
	intern_deinit(&data->threads);
	free(data->pool.items);
	free(data->times.items);
	free(data->drops.items);
	free(data->marks.items);
	free(data->order);
	free(data->cell_order);
	free(data);
}

static bool is_kernel_frame(const struct fxt_sample *sample, size_t frame)
{
	if (sample->flags & FXT_SAMPLE_KERNEL_FRAMES)
		return frame < sample->kernel_frames;
	return sample->stack[frame] >= GUEST_KERNEL_HALF || sample->mode != FXT_MODE_GUEST_USER;
}

/* What is known of an address without a symbol. The words are those of the text report. */
static const char *unnamed(const struct fxt_sample *sample, size_t frame)
{
	uint64_t address = sample->stack[frame];

	if (address >= MODULES_START && address < MODULES_END)
		return "[kernel module]";
	if (address >= GUEST_KERNEL_HALF)
		return "[kernel, no symbol]";
	if (sample->mode == FXT_MODE_GUEST_USER || !is_kernel_frame(sample, frame))
		return "[user]";
	return "[early boot, no symbol]";
}

static bool frame_name(struct reading *reading, const struct fxt_sample *sample, size_t frame,
		       uint32_t *name)
{
	uint64_t address = sample->stack[frame];
	bool user = sample->mode == FXT_MODE_GUEST_USER;
	bool kernel_frame = is_kernel_frame(sample, frame);
	/* Fibonacci hashing: 2^64 / golden ratio. */
	struct known *known =
		&reading->known[address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS)];
	const struct trace_symbol *symbol;
	const char *text;
	size_t bytes;

	if (known->used && known->address == address && known->inner == (frame > 0) &&
	    known->user == user && known->kernel_frame == kernel_frame) {
		*name = known->name;
		return true;
	}
	symbol = trace_find_symbol(reading->trace, sample, frame);
	text = symbol ? symbol->name : unnamed(sample, frame);
	bytes = symbol ? symbol->name_bytes : strlen(text);
	if (!add_name(reading->data, text, bytes,
		      kernel_frame ? PAGE_KIND_KERNEL : PAGE_KIND_USER, name))
		return false;
	*known = (struct known){.address = address,
				.name = *name,
				.used = true,
				.inner = frame > 0,
				.user = user,
				.kernel_frame = kernel_frame};
	return true;
}

static bool add_idle(struct page_data *data, const char *text, uint32_t *node)
{
	uint32_t name;

	return add_name(data, text, strlen(text), PAGE_KIND_IDLE, &name) &&
	       add_node(data, 0, name, node);
}

static bool add_stack(struct reading *reading, const struct fxt_sample *sample, uint32_t *node)
{
	size_t depth = sample->depth, at = 0;
	/* Where the program's frames end, from the root, if the sample says. */
	size_t boundary = sample->flags & FXT_SAMPLE_KERNEL_FRAMES ? depth - sample->kernel_frames
								   : SIZE_MAX;

	/* A leaf is looked up by another address than a caller: it is never taken over. */
	if (boundary == reading->last_boundary && sample->mode == reading->last_mode)
		while (at + 1 < depth && at + 1 < reading->last_depth &&
		       sample->stack[depth - 1 - at] == reading->last_stack[at])
			at++;
	*node = at ? reading->last_nodes[at - 1] : 0;
	for (; at < depth; at++) {
		uint32_t name;

		if (!frame_name(reading, sample, depth - 1 - at, &name) ||
		    !add_node(reading->data, *node, name, node))
			return false;
		reading->last_stack[at] = sample->stack[depth - 1 - at];
		reading->last_nodes[at] = *node;
	}
	reading->last_depth = depth;
	reading->last_boundary = boundary;
	reading->last_mode = sample->mode;
	return true;
}

static bool add_thread(struct reading *reading, const struct fxt_sample *sample, uint32_t *number)
{
	struct page_thread key = {.process = sample->process,
				  .thread = sample->flags & FXT_SAMPLE_THREAD ? sample->thread
									      : sample->process,
				  .file = reading->file_number};
	struct page_data *data = reading->data;
	size_t before = data->threads.count;
	uint32_t process_name, thread_name;

	*number = PAGE_NO_THREAD;
	if (!(sample->flags & FXT_SAMPLE_PROCESS))
		return true;
	if (!intern_add(&data->threads, &key, number))
		return false;
	if (data->threads.count == before)
		return true;
	if (!add_text(data, "", 0, &process_name) || !add_text(data, "", 0, &thread_name))
		return false;
	((struct page_thread *)data->threads.entries)[*number].process_name = process_name;
	((struct page_thread *)data->threads.entries)[*number].thread_name = thread_name;
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
	return append(&data->times, &entry, sizeof(entry));
}

static bool add_sample(struct reading *reading, const struct fxt_sample *sample, uint64_t ticks)
{
	struct page_data *data = reading->data;
	struct page_file *file = reading->file;
	uint32_t node, cell;
	struct page_context context = {.file = reading->file_number,
				       .vcpu = (uint32_t)(sample->vcpu % TRACE_VCPUS_MAX),
				       .mode = sample->mode < PAGE_MODES ? (uint32_t)sample->mode
									 : 0};
	struct page_cell key = {0};
	bool added;

	file->ticks += ticks;
	file->modes[context.mode] += ticks;
	if (sample->mode == FXT_MODE_HALTED) {
		added = add_idle(data, "[halted]", &node);
	} else if (sample->mode == FXT_MODE_NOT_STARTED) {
		added = add_idle(data, "[not started]", &node);
	} else if (!sample->depth) {
		added = add_idle(data, "[no stack]", &node);
	} else {
		file->running += ticks;
		file->ends[sample->stack_end < PAGE_STACK_ENDS ? sample->stack_end : 0] += ticks;
		added = add_stack(reading, sample, &node);
	}
	if (!added || !add_thread(reading, sample, &context.thread))
		return false;
	key.node = node;
	if (!intern_add(&data->contexts, &context, &key.context) ||
	    !intern_add(&data->cells, &key, &cell))
		return false;
	cell_at(data, cell)->ticks += ticks;
	return !data->with_times || reading->file_number ||
	       add_time(reading, sample, cell, context.vcpu, ticks);
}

/* Drops and log lines, which a trace has apart from its samples. */
static bool add_events(struct page_data *data, const struct trace *trace)
{
	struct fxt_reader reader;
	struct fxt_record record;
	bool added = true;

	if (fxt_reader_init(&reader, trace->bytes, trace->size, NULL))
		return false;
	while (added && fxt_reader_next(&reader, &record)) {
		struct fxt_drops drops;

		if (record.kind == FXT_KIND_EVENT && data->drops.count < DROPS_MAX &&
		    fxt_event_is_drops(&record.event, &drops)) {
			struct page_drop drop = {
				.first_ns =
					fxt_reader_nanoseconds(&reader, record.event.timestamp),
				.last_ns = fxt_reader_nanoseconds(&reader, record.event.extra),
				.records = drops.records,
				.vcpu = record.event.thread.thread - fxt_vcpu_thread(0)};

			added = append(&data->drops, &drop, sizeof(drop));
		} else if (record.kind == FXT_KIND_LOG && data->marks.count < MARKS_MAX) {
			struct page_mark mark = {.time_ns = fxt_reader_nanoseconds(
							 &reader, record.log.timestamp)};

			added = add_text(data, record.log.text.text, record.log.text.length,
					 &mark.text) &&
				append(&data->marks, &mark, sizeof(mark));
		}
	}
	fxt_reader_deinit(&reader);
	return added;
}

gp_status_t page_data_add(struct page_data *data, struct trace *trace, const char *path,
			  struct error *error)
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
	while (added && trace_next_sample(trace, &sample, &ticks))
		if (ticks)
			added = add_sample(reading, &sample, ticks);
	if (added && data->with_times && !data->file_count)
		added = add_events(data, trace);
	trace_rewind(trace);
	if (!added)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the samples of %s", path);
	data->file_count++;
	return GP_OK;
}

/* Totals of all files: a node of the base alone must not look rare. */
static void sum_up(struct page_data *data)
{
	for (uint32_t i = 0; i < data->nodes.count; i++)
		node_at(data, i)->total = 0;
	for (uint32_t i = 0; i < data->cells.count; i++)
		node_at(data, cell_at(data, i)->node)->total += cell_at(data, i)->ticks;
	/* A parent was there before its children. */
	for (uint32_t i = (uint32_t)data->nodes.count; i-- > 1;)
		node_at(data, node_at(data, i)->parent)->total += node_at(data, i)->total;
}

static size_t count_from(const struct page_data *data, uint64_t least)
{
	size_t count = 0;

	for (uint32_t i = 0; i < data->nodes.count; i++)
		count += node_at(data, i)->total >= least;
	return count;
}

/* Cells of nodes with fewer ticks than `least` go to a node "[rare]" under their nearest ancestor
 * that has enough. */
static bool fold_rare(struct page_data *data, uint64_t least)
{
	size_t node_count = data->nodes.count, cell_count = data->cells.count;
	AUTO_FREE uint32_t *moved = calloc(cell_count + 1, sizeof(*moved));
	struct intern cells;
	uint32_t rare;
	bool done = moved && add_name(data, "[rare]", 6, PAGE_KIND_OTHER, &rare);

	intern_init(&cells, 8, sizeof(struct page_cell));
	for (uint32_t i = 0; done && i < cell_count; i++) {
		struct page_cell key = {.node = cell_at(data, i)->node,
					.context = cell_at(data, i)->context};
		uint32_t node = key.node;

		while (node && node_at(data, node)->total < least)
			node = node_at(data, node)->parent;
		done = (node == key.node || add_node(data, node, rare, &key.node)) &&
		       intern_add(&cells, &key, &moved[i]);
		if (done)
			((struct page_cell *)cells.entries)[moved[i]].ticks +=
				cell_at(data, i)->ticks;
	}
	if (!done) {
		intern_deinit(&cells);
		return false;
	}
	intern_deinit(&data->cells);
	data->cells = cells;
	for (size_t i = 0; i < data->times.count; i++) {
		struct page_sample *sample = (struct page_sample *)data->times.items + i;

		sample->cell = moved[sample->cell];
	}
	for (uint32_t i = 0; i < node_count; i++)
		data->rare_nodes += node_at(data, i)->total < least;
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
		struct page_node *parent = node_at(data, node_at(data, i)->parent);

		if (!node_at(data, i)->total)
			continue;
		node_at(data, i)->next_sibling = parent->first_child;
		parent->first_child = i;
	}
	for (;;) {
		data->order[used++] = node;
		if (node_at(data, node)->first_child) {
			node = node_at(data, node)->first_child;
			continue;
		}
		while (node && !node_at(data, node)->next_sibling)
			node = node_at(data, node)->parent;
		if (!node)
			break;
		node = node_at(data, node)->next_sibling;
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
		count += !i || node_at(data, i)->total;
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
		placed[i] = (struct placed){.place = places[cell_at(data, i)->node],
					    .context = cell_at(data, i)->context,
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
	if (data->times.count)
		qsort(data->times.items, data->times.count, sizeof(struct page_sample),
		      compare_times);
	return GP_OK;
}
