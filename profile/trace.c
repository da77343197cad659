#include "profile/trace.h"

#include "base/address.h"
#include "base/cleanup.h"
#include "fxt/metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where a symbol of unknown size ends if no other follows it. */
#define LONGEST_SYMBOL UINT64_C(0x100000)
#define ENCLOSING_SEARCH 256

static enum trace_symbol_group group_of(uint32_t kind)
{
	switch (kind) {
	case FXT_SYMBOL_FILE:
		return TRACE_SYMBOLS_FILE;
	case FXT_SYMBOL_BOOT:
		return TRACE_SYMBOLS_BOOT;
	default:
		return TRACE_SYMBOLS_KERNEL;
	}
}

static bool add_symbol(struct trace_symbols *symbols, const struct fxt_symbol *symbol)
{
	if (symbols->count == symbols->capacity) {
		size_t capacity = symbols->capacity ? symbols->capacity * 2 : 256;
		struct trace_symbol *entries =
			realloc(symbols->entries, capacity * sizeof(*entries));

		if (!entries)
			return false;
		symbols->entries = entries;
		symbols->capacity = capacity;
	}
	symbols->entries[symbols->count++] = (struct trace_symbol){
		.start = symbol->start,
		.end = symbol->size > UINT64_MAX - symbol->start ? UINT64_MAX
								 : symbol->start + symbol->size,
		.kind = symbol->kind,
		.name = symbol->name,
		.name_bytes = symbol->name_bytes,
	};
	return true;
}

static int compare_symbols(const void *left, const void *right)
{
	const struct trace_symbol *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	/* Among equals the smaller one is found last, so first: the more exact. */
	return a->end < b->end ? 1 : a->end > b->end ? -1 : 0;
}

static void sort_symbols(struct trace_symbols *symbols)
{
	if (symbols->count)
		qsort(symbols->entries, symbols->count, sizeof(*symbols->entries), compare_symbols);
	for (size_t i = 0; i < symbols->count; i++) {
		struct trace_symbol *symbol = &symbols->entries[i];

		if (symbol->end != symbol->start)
			continue;
		symbol->end = symbol->start + LONGEST_SYMBOL;
		if (i + 1 < symbols->count && symbols->entries[i + 1].start < symbol->end)
			symbol->end = symbols->entries[i + 1].start;
	}
}

static void copy_text(const struct fxt_event *event, const char *name, char out[TRACE_TEXT_MAX])
{
	struct fxt_string text;
	size_t length;

	if (!fxt_argument_get_text(event, name, &text))
		return;
	length = text.length < TRACE_TEXT_MAX - 1 ? text.length : TRACE_TEXT_MAX - 1;
	memcpy(out, text.text ? text.text : "", length);
	out[length] = 0;
}

static void see_event(struct trace *trace, const struct fxt_event *event)
{
	struct trace_info *info = &trace->info;
	struct fxt_drops drops;

	if (fxt_event_is_drops(event, &drops)) {
		info->dropped_records += drops.records;
	} else if (fxt_metadata_is(event, FXT_SESSION)) {
		copy_text(event, FXT_SESSION_VERSION, info->version);
		copy_text(event, FXT_SESSION_TICK_SOURCE, info->tick_source);
		copy_text(event, FXT_SESSION_KERNEL, info->kernel);
		copy_text(event, FXT_SESSION_COMMAND_LINE, info->command_line);
		fxt_argument_get_u64(event, FXT_SESSION_PERIOD, &info->period_ns);
		fxt_argument_get_u64(event, FXT_SESSION_DEPTH, &info->depth);
		fxt_argument_get_u64(event, FXT_SESSION_VCPUS, &info->vcpus);
		fxt_argument_get_u64(event, FXT_SESSION_MEMORY, &info->memory_bytes);
	} else if (fxt_metadata_is(event, FXT_GUEST)) {
		copy_text(event, FXT_GUEST_BANNER, info->banner);
	} else if (fxt_metadata_is(event, FXT_SESSION_END)) {
		copy_text(event, FXT_SESSION_END_REASON, info->end_reason);
		info->complete = true;
	}
}

static bool see_symbols(struct trace *trace, const struct fxt_blob *blob)
{
	struct cursor entries = cursor_over(blob->payload, blob->size);
	struct fxt_symbol symbol;

	while (fxt_symbols_next(&entries, &symbol))
		if (!add_symbol(&trace->symbols[group_of(symbol.kind)], &symbol))
			return false;
	return true;
}

static void see_sample(struct trace_info *info, const struct fxt_sample *sample)
{
	if (sample->flags & FXT_SAMPLE_CONTINUATION)
		info->partials++;
	else
		info->stacks++;
	if (!info->first_ns || sample->timestamp < info->first_ns)
		info->first_ns = sample->timestamp;
	if (sample->timestamp > info->last_ns)
		info->last_ns = sample->timestamp;
}

static void note_end(struct trace *trace)
{
	const struct fxt_reader *reader = &trace->reader;
	struct trace_info *info = &trace->info;

	info->cut = reader->cut;
	info->broken = reader->broken;
	info->bytes = trace->size;
	info->good_bytes = reader->offset;
	info->bad_records = reader->bad_records;
	if (reader->problem_count) {
		info->problem = reader->problems[reader->problem_count - 1].why;
		info->problem_offset = reader->problems[reader->problem_count - 1].offset;
	}
	info->complete = info->complete && !info->cut && !info->broken;
}

static gp_status_t look_through(struct trace *trace, struct error *error)
{
	struct fxt_record record;
	gp_status_t status = fxt_reader_init(&trace->reader, trace->bytes, trace->size, error);

	if (status)
		return status;
	trace->reading = true;
	while (fxt_reader_next(&trace->reader, &record)) {
		struct fxt_sample sample;

		if (record.kind == FXT_KIND_EVENT)
			see_event(trace, &record.event);
		else if (record.kind == FXT_KIND_BLOB && fxt_blob_is_symbols(&record.blob) &&
			 !see_symbols(trace, &record.blob))
			return error_set(error, GP_ERR_NO_MEMORY, "no memory for the symbols");
		else if (record.kind == FXT_KIND_BLOB && fxt_blob_is_sample(&record.blob) &&
			 !fxt_sample_decode(&record.blob, &sample))
			see_sample(&trace->info, &sample);
	}
	note_end(trace);
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++)
		sort_symbols(&trace->symbols[group]);
	trace_rewind(trace);
	return GP_OK;
}

gp_status_t trace_open(const char *path, struct trace *trace, struct error *error)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	gp_status_t status;
	struct stat file;

	memset(trace, 0, sizeof(*trace));
	if (fd < 0)
		return error_set_errno(error, errno, "cannot open the trace %s", path);
	if (fstat(fd, &file) || !S_ISREG(file.st_mode))
		return error_set(error, GP_ERR_INVALID_ARGS, "the trace %s is not a regular file",
				 path);
	if (!file.st_size)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "the trace %s is empty: its recording ended before it began",
				 path);
	trace->size = (size_t)file.st_size;
	trace->bytes = mmap(NULL, trace->size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (trace->bytes == MAP_FAILED) {
		trace->bytes = NULL;
		return error_set_errno(error, errno, "cannot map the trace %s", path);
	}
	status = look_through(trace, error);
	if (status) {
		if (error)
			error_prefix(error, "%s", path);
		trace_close(trace);
	}
	return status;
}

void trace_close(struct trace *trace)
{
	if (trace->reading)
		fxt_reader_deinit(&trace->reader);
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++)
		free(trace->symbols[group].entries);
	if (trace->bytes)
		munmap(trace->bytes, trace->size);
	memset(trace, 0, sizeof(*trace));
}

void trace_rewind(struct trace *trace)
{
	if (trace->reading)
		fxt_reader_deinit(&trace->reader);
	memset(trace->open, 0, sizeof(trace->open));
	/* It worked when the trace was opened; only memory can be missing now. */
	trace->reading = fxt_reader_init(&trace->reader, trace->bytes, trace->size, NULL) == GP_OK;
}

bool trace_next_sample(struct trace *trace, struct fxt_sample *sample, uint64_t *ticks)
{
	struct fxt_record record;

	while (trace->reading && fxt_reader_next(&trace->reader, &record)) {
		struct fxt_sample found;
		size_t vcpu;

		if (record.kind != FXT_KIND_BLOB || !fxt_blob_is_sample(&record.blob) ||
		    fxt_sample_decode(&record.blob, &found))
			continue;
		vcpu = found.vcpu % TRACE_VCPUS_MAX;
		if (found.flags & FXT_SAMPLE_CONTINUATION) {
			if (trace->open[vcpu].continuation != found.continuation)
				trace->open[vcpu].ticks = 0;
			trace->open[vcpu].continuation = found.continuation;
			trace->open[vcpu].ticks++;
			continue;
		}
		*ticks = 1;
		if ((found.flags & FXT_SAMPLE_COMPLETION) &&
		    trace->open[vcpu].continuation == found.completion) {
			*ticks += trace->open[vcpu].ticks;
			trace->open[vcpu].ticks = 0;
		}
		*sample = found;
		return true;
	}
	return false;
}

static const struct trace_symbol *find_in(const struct trace_symbols *symbols, uint64_t address)
{
	size_t low = 0, high = symbols->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->entries[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	/* A wide one, such as all of the startup code, may begin before a narrow one that ends
	 * too soon. */
	for (size_t i = low; i > 0 && low - i < ENCLOSING_SEARCH; i--)
		if (address < symbols->entries[i - 1].end)
			return &symbols->entries[i - 1];
	return NULL;
}

const struct trace_symbol *trace_find_symbol(const struct trace *trace,
					     const struct fxt_sample *sample, size_t frame)
{
	/* A return address is behind its call, which may be the function's last byte. */
	uint64_t address = sample->stack[frame] - (frame ? 1 : 0);
	bool kernel_mode = sample->mode != FXT_MODE_GUEST_USER;
	const struct trace_symbol *symbol = NULL;

	if (address >= GUEST_KERNEL_HALF)
		symbol = find_in(&trace->symbols[TRACE_SYMBOLS_KERNEL], address);
	if (!symbol)
		symbol = find_in(&trace->symbols[TRACE_SYMBOLS_FILE], address);
	if (!symbol && kernel_mode && address < GUEST_KERNEL_HALF)
		symbol = find_in(&trace->symbols[TRACE_SYMBOLS_BOOT], address);
	return symbol;
}

void trace_print_name(FILE *to, const char *name, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)name[i];

		if (byte < 0x20 || byte >= 0x7f)
			fprintf(to, "\\x%02x", byte);
		else
			fputc(byte, to);
	}
}
