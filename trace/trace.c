#include "trace/trace.h"

#include "base/address.h"
#include "base/cleanup.h"
#include "base/sorting.h"
#include "fxt/metadata.h"
#include "trace/gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Records, for one look at the clock. */
#define WATCH_STEPS 1024
/* The root of the page tables in CR3, and the bit that tells a program's from the kernel's where
 * they are isolated. */
#define PAGE_TABLES UINT64_C(0x000ffffffffff000)
#define USER_TABLES UINT64_C(0x1000)

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

static bool see_lost(struct trace *trace, const struct fxt_event *event,
		     const struct fxt_drops *drops)
{
	uint64_t vcpu = event->thread.thread - fxt_vcpu_thread(0);
	struct trace_lost lost = {
		.begin_ns = fxt_reader_nanoseconds(&trace->reader, event->timestamp),
		.end_ns = fxt_reader_nanoseconds(&trace->reader, event->extra),
		.records = drops->records,
		.bytes = drops->bytes,
		.vcpu = event->thread.process == FXT_VCPU_PROCESS && vcpu < UINT32_MAX
				? (uint32_t)vcpu
				: UINT32_MAX,
	};

	trace->info.dropped_records += drops->records;
	if (lost.end_ns < lost.begin_ns)
		lost.end_ns = lost.begin_ns;
	return vector_add(&trace->lost, lost);
}

static int compare_lost(const void *left, const void *right)
{
	const struct trace_lost *a = left, *b = right;
	int order = compare_u64(a->begin_ns, b->begin_ns);

	return order ? order : compare_u64(a->vcpu, b->vcpu);
}

static int compare_names(const void *left, const void *right)
{
	const struct trace_name *a = left, *b = right;
	int order = compare_u64(a->id, b->id);

	return order ? order : compare_u64(a->offset, b->offset);
}

/* Sorts, and leaves out what says the same again: a recorder repeats names. */
static void settle_names(struct trace_names *names)
{
	size_t kept = 0;

	vector_sort(names, compare_names);
	for (size_t i = 0; i < names->count; i++) {
		const struct trace_name *name = &names->items[i];
		const struct trace_name *last = kept ? &names->items[kept - 1] : NULL;

		if (last && last->id == name->id && last->process == name->process &&
		    last->name_bytes == name->name_bytes &&
		    !memcmp(last->name, name->name, name->name_bytes))
			continue;
		names->items[kept++] = *name;
	}
	names->count = kept;
}

static bool add_name(struct trace_names *names, const struct trace_name *name)
{
	/* Repetitions make room before more is asked for: memory grows with the names. */
	if (names->count && names->count == names->capacity) {
		settle_names(names);
		if (names->count >= names->capacity / 2 && !vector_reserve(names, names->capacity))
			return false;
	}
	return vector_add(names, *name);
}

static bool see_object(struct trace *trace, const struct fxt_kernel_object *object, size_t offset)
{
	struct trace_name name = {
		.id = object->koid,
		.offset = offset,
		.name = object->name.text ? object->name.text : "",
		.name_bytes = object->name.length,
	};

	if (object->type == FXT_OBJECT_PROCESS)
		return add_name(&trace->processes, &name);
	if (object->type != FXT_OBJECT_THREAD)
		return true;
	for (size_t i = 0; i < object->argument_count; i++)
		if (object->arguments[i].type == FXT_ARGUMENT_KOID &&
		    fxt_string_is(&object->arguments[i].name, "process"))
			name.process = object->arguments[i].u64;
	return add_name(&trace->threads, &name);
}

static bool see_event(struct trace *trace, const struct fxt_event *event)
{
	struct trace_info *info = &trace->info;
	struct fxt_drops drops;

	if (fxt_event_is_drops(event, &drops)) {
		return see_lost(trace, event, &drops);
	} else if (fxt_metadata_is(event, FXT_SESSION)) {
		copy_text(event, FXT_SESSION_VERSION, info->version);
		copy_text(event, FXT_SESSION_TICK_SOURCE, info->tick_source);
		copy_text(event, FXT_SESSION_KERNEL, info->kernel);
		copy_text(event, FXT_SESSION_COMMAND_LINE, info->command_line);
		copy_text(event, FXT_SESSION_SOURCE, info->source);
		fxt_argument_get_u64(event, FXT_SESSION_PERIOD, &info->period_ns);
		fxt_argument_get_u64(event, FXT_SESSION_DEPTH, &info->depth);
		fxt_argument_get_u64(event, FXT_SESSION_VCPUS, &info->vcpus);
		fxt_argument_get_u64(event, FXT_SESSION_MEMORY, &info->memory_bytes);
		fxt_argument_get_u64(event, FXT_SESSION_WALL_CLOCK, &info->wall_clock_ns);
		info->session_ns = fxt_reader_nanoseconds(&trace->reader, event->timestamp);
	} else if (fxt_metadata_is(event, FXT_GUEST)) {
		copy_text(event, FXT_GUEST_BANNER, info->banner);
		copy_text(event, FXT_GUEST_BUILD_ID, info->kernel_build_id);
		fxt_argument_get_u64(event, FXT_GUEST_TEXT_BASE, &info->kernel_text_base);
	} else if (fxt_metadata_is(event, FXT_CONSOLE)) {
		fxt_argument_get_u64(event, FXT_CONSOLE_CUT, &info->console_cut);
		fxt_argument_get_u64(event, FXT_CONSOLE_LOST, &info->console_lost);
	} else if (fxt_metadata_is(event, FXT_CODE)) {
		fxt_argument_get_u64(event, FXT_CODE_FUNCTIONS, &info->code_functions);
		fxt_argument_get_u64(event, FXT_CODE_LEFT_OUT, &info->code_left_out);
	} else if (fxt_metadata_is(event, FXT_SESSION_END)) {
		copy_text(event, FXT_SESSION_END_REASON, info->end_reason);
		info->complete = true;
	}
	return true;
}

static void see_sample(struct trace *trace, const struct fxt_sample *sample, size_t offset)
{
	struct trace_lane *lane = &trace->lanes[sample->vcpu % TRACE_VCPUS_MAX];
	struct trace_info *info = &trace->info;

	if (!lane->used)
		lane->first = offset;
	lane->used = true;
	/* A record without a time is no tick: it closes partial records and nothing else. */
	if (!(sample->flags & FXT_SAMPLE_TIMESTAMP))
		return;
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

void trace_tell(struct trace *trace, const char *what, uint64_t done, uint64_t all)
{
	if (!trace->watch || ++trace->watch_steps < WATCH_STEPS)
		return;
	trace->watch_steps = 0;
	trace->watch(what, done, all);
}

void trace_tell_end(const struct trace *trace, const char *what)
{
	if (trace->watch)
		trace->watch(what, trace->size, trace->size);
}

static gp_status_t trace_look_through(struct trace *trace, struct error *error)
{
	static _Atomic uint64_t opened;
	struct fxt_record record;
	gp_status_t status = fxt_reader_init(&trace->reader, trace->bytes, trace->size, error);

	if (status)
		return status;
	trace->serial = ++opened;
	trace->reading = true;
	while (fxt_reader_next(&trace->reader, &record)) {
		struct fxt_sample sample;
		bool room = true;

		trace_tell(trace, "looking through the trace", record.offset, trace->size);
		if (record.kind == FXT_KIND_EVENT)
			room = see_event(trace, &record.event);
		else if (record.kind == FXT_KIND_KERNEL_OBJECT)
			room = see_object(trace, &record.object, record.offset);
		else if (record.kind == FXT_KIND_LOG)
			trace->info.console_lines++;
		else if (record.kind == FXT_KIND_BLOB && fxt_blob_is_symbols(&record.blob))
			room = trace_symbols_see(trace->symbols, &record.blob);
		else if (record.kind == FXT_KIND_BLOB && fxt_blob_is_process_symbols(&record.blob))
			room = trace_programs_see(&trace->programs, &record.blob);
		else if (record.kind == FXT_KIND_BLOB && fxt_blob_is_sample(&record.blob) &&
			 !fxt_sample_decode(&record.blob, &sample))
			see_sample(trace, &sample, record.offset);
		else
			room = trace_code_see(&trace->code, &trace->reader, &record);
		if (!room)
			return error_set(error, GP_ERR_NO_MEMORY, "no memory for its names");
	}
	note_end(trace);
	trace_tell_end(trace, "looking through the trace");
	if (!trace_programs_settle(&trace->programs) || !trace_code_settle(&trace->code))
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for its programs' names");
	settle_names(&trace->processes);
	settle_names(&trace->threads);
	vector_sort(&trace->lost, compare_lost);
	trace_symbols_settle(trace->symbols);
	trace_rewind(trace);
	return GP_OK;
}

gp_status_t trace_open(const char *path, struct trace *trace, struct error *error)
{
	return trace_open_watched(path, NULL, trace, error);
}

gp_status_t trace_open_watched(const char *path, trace_watch *watch, struct trace *trace,
			       struct error *error)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_CLOSE int expanded = -1;
	gp_status_t status;
	struct stat file;

	memset(trace, 0, sizeof(*trace));
	trace->watch = watch;
	if (fd < 0)
		return error_set_errno(error, errno, "cannot open the trace %s", path);
	if (fstat(fd, &file) || !S_ISREG(file.st_mode))
		return error_set(error, GP_ERR_INVALID_ARGS, "the trace %s is not a regular file",
				 path);
	if (gzip_is_compressed(fd)) {
		status = gzip_expand(fd, &expanded, error);
		if (status) {
			if (error)
				error_prefix(error, "%s", path);
			return status;
		}
		if (fstat(expanded, &file))
			return error_set_errno(error, errno, "%s, decompressed", path);
	}
	if (!file.st_size)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "the trace %s is empty: its recording ended before it began",
				 path);
	trace->size = (size_t)file.st_size;
	trace->bytes =
		mmap(NULL, trace->size, PROT_READ, MAP_PRIVATE, expanded >= 0 ? expanded : fd, 0);
	if (trace->bytes == MAP_FAILED) {
		trace->bytes = NULL;
		return error_set_errno(error, errno, "cannot map the trace %s", path);
	}
	status = trace_look_through(trace, error);
	if (status) {
		if (error)
			error_prefix(error, "%s", path);
		trace_close(trace);
	}
	return status;
}

gp_status_t trace_open_bytes(const void *bytes, size_t size, struct trace *trace,
			     struct error *error)
{
	gp_status_t status;

	memset(trace, 0, sizeof(*trace));
	trace->bytes = (void *)(uintptr_t)bytes; /* read only, as the mapping of a file is */
	trace->size = size;
	trace->borrowed = true;
	status = trace_look_through(trace, error);
	if (status)
		trace_close(trace);
	return status;
}

void trace_close(struct trace *trace)
{
	if (trace->reading)
		fxt_reader_deinit(&trace->reader);
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++)
		free(trace->symbols[group].items);
	trace_programs_deinit(&trace->programs);
	trace_code_deinit(&trace->code);
	free(trace->processes.items);
	free(trace->threads.items);
	free(trace->lost.items);
	if (trace->bytes && !trace->borrowed)
		munmap(trace->bytes, trace->size);
	memset(trace, 0, sizeof(*trace));
}

void trace_rewind(struct trace *trace)
{
	if (trace->reading)
		fxt_reader_deinit(&trace->reader);
	for (size_t vcpu = 0; vcpu < TRACE_VCPUS_MAX; vcpu++)
		trace->lanes[vcpu].continuation = trace->lanes[vcpu].ticks = 0;
	trace->position = 0;
	/* It worked when the trace was opened; only memory can be missing now. */
	trace->reading = fxt_reader_init(&trace->reader, trace->bytes, trace->size, NULL) == GP_OK;
}

bool trace_weigh_sample(struct trace_lane *lane, const struct fxt_sample *sample, uint64_t *ticks)
{
	if (sample->flags & FXT_SAMPLE_CONTINUATION) {
		if (lane->continuation != sample->continuation)
			lane->ticks = 0;
		lane->continuation = sample->continuation;
		lane->ticks++;
		return false;
	}
	*ticks = sample->flags & FXT_SAMPLE_TIMESTAMP ? 1 : 0;
	if ((sample->flags & FXT_SAMPLE_COMPLETION) && lane->continuation == sample->completion) {
		*ticks += lane->ticks;
		lane->ticks = 0;
	}
	return true;
}

bool trace_next_sample(struct trace *trace, struct fxt_sample *sample, uint64_t *ticks)
{
	struct fxt_record record;

	while (trace->reading && fxt_reader_next(&trace->reader, &record)) {
		struct fxt_sample found;

		if (record.kind != FXT_KIND_BLOB || !fxt_blob_is_sample(&record.blob) ||
		    fxt_sample_decode(&record.blob, &found))
			continue;
		if (!trace_weigh_sample(&trace->lanes[found.vcpu % TRACE_VCPUS_MAX], &found, ticks))
			continue;
		trace->position = record.offset;
		trace_tell(trace, "reading its samples", record.offset, trace->size);
		*sample = found;
		return true;
	}
	trace_tell_end(trace, "reading its samples");
	return false;
}

static const struct trace_name *find_name(const struct trace_names *names, uint64_t id,
					  size_t offset)
{
	const struct trace_name wanted = {.id = id, .offset = offset};
	size_t count =
		count_up_to(names->items, names->count, sizeof(wanted), &wanted, compare_names);

	if (count > 0 && names->items[count - 1].id == id)
		return &names->items[count - 1];
	return count < names->count && names->items[count].id == id ? &names->items[count] : NULL;
}

const struct trace_name *trace_process_name(const struct trace *trace, uint64_t process)
{
	return find_name(&trace->processes, process, trace->position);
}

const struct trace_name *trace_thread_name(const struct trace *trace, uint64_t thread)
{
	return find_name(&trace->threads, thread, trace->position);
}

bool trace_frame_is_user(const struct fxt_sample *sample, size_t frame)
{
	if (sample->mode == FXT_MODE_GUEST_USER)
		return true;
	if (sample->flags & FXT_SAMPLE_KERNEL_FRAMES)
		return frame >= sample->kernel_frames;
	/* Work for the vCPU does not say whose code asked for it. A kernel that has tasks runs in
	 * its own half. */
	return sample->mode != FXT_MODE_GUEST_KERNEL && (sample->flags & FXT_SAMPLE_PROCESS) &&
	       sample->stack[frame] < GUEST_KERNEL_HALF;
}

uint64_t trace_frame_address(const struct fxt_sample *sample, size_t frame)
{
	/* Where a program entered the kernel is where it stands, not where it returns to. */
	bool exact = frame == 0 ||
		     ((sample->flags & FXT_SAMPLE_KERNEL_FRAMES) && frame == sample->kernel_frames);

	return sample->stack[frame] - (exact ? 0 : 1);
}

const struct trace_program *trace_program_of(const struct trace *trace,
					     const struct fxt_sample *sample)
{
	const uint64_t needed =
		FXT_SAMPLE_PROCESS | FXT_SAMPLE_ADDRESS_SPACE | FXT_SAMPLE_TIMESTAMP;
	struct fxt_process_symbols wanted = {.process = sample->process,
					     .address_space = sample->address_space & PAGE_TABLES,
					     .valid_from = sample->timestamp};
	const struct trace_program *program;

	if (!trace->programs.count || (sample->flags & needed) != needed)
		return NULL;
	program = trace_programs_find(&trace->programs, &wanted);
	if (program)
		return program;
	wanted.address_space = (wanted.address_space & ~USER_TABLES) | FXT_ADDRESS_SPACE_ISOLATED;
	return trace_programs_find(&trace->programs, &wanted);
}

const struct trace_symbol *trace_find_symbol(const struct trace *trace,
					     const struct fxt_sample *sample, size_t frame)
{
	uint64_t address = trace_frame_address(sample, frame);
	bool user = trace_frame_is_user(sample, frame);
	const struct trace_program *program = user ? trace_program_of(trace, sample) : NULL;
	const struct trace_symbol *symbol = NULL;

	if (program)
		symbol = trace_symbols_find(&program->functions, address);
	if (address >= GUEST_KERNEL_HALF && !user)
		symbol = trace_symbols_find(&trace->symbols[TRACE_SYMBOLS_KERNEL], address);
	if (!symbol)
		symbol = trace_symbols_find(&trace->symbols[TRACE_SYMBOLS_FILE], address);
	if (!symbol && !user && address < GUEST_KERNEL_HALF)
		symbol = trace_symbols_find(&trace->symbols[TRACE_SYMBOLS_BOOT], address);
	if (!symbol && program)
		symbol = trace_symbols_find(&program->mappings, address);
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
