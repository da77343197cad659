#include "trace/live.h"

#include "fxt/metadata.h"
#include "fxt/reader.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "base/hash_table.h"

#include <stdlib.h>
#include <string.h>

/* What comes before the window and stays because something in the window, or later, needs it.
 * Each has its part of the memory; the rest is room for what comes. */
enum part {
	PART_HEAD,    /* what the format and the session are: seven records at most */
	PART_STRINGS, /* and threads: what others refer to by index */
	PART_SYMBOLS, /* of the kernel and of files */
	PART_TASKS,   /* names of processes and threads, symbols of programs */
	PARTS,
	PART_NONE = PARTS,
};
static const size_t sixteenths[PARTS] = {[PART_STRINGS] = 1, [PART_SYMBOLS] = 3, [PART_TASKS] = 3};
#define SAMPLE_SIXTEENTHS 4

/* A record before the window that may be kept. */
struct piece {
	uint64_t process; /* of PART_TASKS */
	size_t offset;
	uint32_t bytes;
	uint8_t part;
	bool keep;
};

/* What a record is about: a later one about the same takes its place. (A string whose index is set
 * anew takes its old text with it, also for records before that are kept; guestprof never does.) */
struct subject {
	uint64_t kind; /* enum fxt_kind, and a small number from bit 8 up */
	uint64_t id;
	uint64_t piece; /* the latest; not part of the key */
};

struct live {
	struct live_config config;
	struct live_counts counts;
	uint8_t *bytes; /* config.bytes of them */
	size_t used;    /* the last record may be there in part */
	struct fxt_reader reader;
	bool reading;
	uint64_t swept_ns; /* newest sample at the last sweep */
	struct error problem;
};

/* While old records are swept out. */
struct sweep {
	struct piece *pieces;
	size_t count;
	size_t capacity;
	struct hash_table subjects;  /* struct subject */
	struct hash_table processes; /* with samples in the window */
	size_t cut;                  /* from this byte on everything is kept */
	bool in_window;
};

gp_status_t live_create(const struct live_config *config, struct live **out, struct error *error)
{
	struct live *live;

	if (config && (config->bytes < LIVE_BYTES_MIN || !config->window_ns))
		return error_set(error, GP_ERR_INVALID_ARGS, "a live view of no size");
	live = calloc(1, sizeof(*live));
	if (!live)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a live view");
	live->config =
		config ? *config
		       : (struct live_config){.window_ns = LIVE_WINDOW_NS, .bytes = LIVE_BYTES};
	live->bytes = calloc(1, live->config.bytes); /* given by the host as it is touched */
	if (!live->bytes || fxt_reader_init(&live->reader, live->bytes, 0, NULL)) {
		live_destroy(live);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a live view");
	}
	live->reading = true;
	*out = live;
	return GP_OK;
}

void live_destroy(struct live *live)
{
	if (!live)
		return;
	if (live->reading)
		fxt_reader_deinit(&live->reader);
	free(live->bytes);
	free(live);
}

static bool is_sample(const struct fxt_record *record, struct fxt_sample *sample)
{
	return record->kind == FXT_KIND_BLOB && fxt_blob_is_sample(&record->blob) &&
	       !fxt_sample_decode(&record->blob, sample) && (sample->flags & FXT_SAMPLE_TIMESTAMP);
}

static void count(struct live_counts *counts, const struct fxt_record *record)
{
	struct fxt_sample sample;
	struct fxt_drops drops;

	if (is_sample(record, &sample)) {
		if (sample.flags & FXT_SAMPLE_CONTINUATION)
			counts->partials++;
		else
			counts->stacks++;
		if (!counts->first_ns || sample.timestamp < counts->first_ns)
			counts->first_ns = sample.timestamp;
		if (sample.timestamp > counts->newest_ns)
			counts->newest_ns = sample.timestamp;
	} else if (record->kind == FXT_KIND_EVENT) {
		if (fxt_event_is_drops(&record->event, &drops))
			counts->dropped += drops.records;
		else if (fxt_metadata_is(&record->event, FXT_SESSION_END))
			counts->ended = true;
	}
}

/* Metadata of which the latest counts. */
static uint64_t metadata_number(const struct fxt_event *event)
{
	static const char *const names[] = {FXT_SESSION, FXT_GUEST, FXT_SESSION_END};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (fxt_metadata_is(event, names[i]))
			return i + 1;
	return 0;
}

/* What a record is good for once its time is over. `subject->kind` 0: it adds to earlier ones. */
static enum part part_of(const struct fxt_record *record, uint64_t *process,
			 struct subject *subject)
{
	struct fxt_process_symbols of;
	struct cursor entries;

	*subject = (struct subject){.kind = (uint64_t)record->kind + 1};
	*process = 0;
	switch (record->kind) {
	case FXT_KIND_MAGIC:
	case FXT_KIND_PROVIDER_INFO:
	case FXT_KIND_PROVIDER_SECTION:
	case FXT_KIND_INITIALIZATION:
		return PART_HEAD;
	case FXT_KIND_STRING:
		subject->id = record->string.index;
		return PART_STRINGS;
	case FXT_KIND_THREAD:
		subject->id = record->thread.index;
		return PART_STRINGS;
	case FXT_KIND_EVENT:
		subject->id = metadata_number(&record->event);
		return subject->id ? PART_HEAD : PART_NONE;
	case FXT_KIND_KERNEL_OBJECT:
		subject->kind |= (uint64_t)record->object.type << 8;
		subject->id = *process = record->object.koid;
		if (record->object.type == FXT_OBJECT_PROCESS)
			return PART_TASKS;
		for (size_t i = 0; i < record->object.argument_count; i++)
			if (record->object.arguments[i].type == FXT_ARGUMENT_KOID)
				*process = record->object.arguments[i].u64;
		return record->object.type == FXT_OBJECT_THREAD ? PART_TASKS : PART_NONE;
	case FXT_KIND_BLOB:
		subject->kind = 0;
		if (fxt_blob_is_symbols(&record->blob))
			return PART_SYMBOLS;
		if (!fxt_blob_is_process_symbols(&record->blob) ||
		    !fxt_process_symbols_decode(&record->blob, &of, &entries))
			return PART_NONE;
		*process = of.process;
		return PART_TASKS;
	default:
		return PART_NONE;
	}
}

static bool add_piece(struct sweep *sweep, const struct fxt_record *record)
{
	struct subject subject;
	uint64_t process;
	enum part part = part_of(record, &process, &subject);
	uint32_t number;

	if (part == PART_NONE)
		return true;
	if (sweep->count == sweep->capacity) {
		size_t capacity = sweep->capacity ? sweep->capacity * 2 : 1024;
		struct piece *pieces = realloc(sweep->pieces, capacity * sizeof(*pieces));

		if (!pieces)
			return false;
		sweep->pieces = pieces;
		sweep->capacity = capacity;
	}
	if (subject.kind) {
		size_t before = sweep->subjects.count;
		struct subject *known;

		if (!hash_table_add(&sweep->subjects, &subject, &number))
			return false;
		known = (struct subject *)sweep->subjects.entries + number;
		if (sweep->subjects.count == before)
			sweep->pieces[known->piece].keep = false;
		known->piece = sweep->count;
	}
	sweep->pieces[sweep->count++] =
		(struct piece){.process = process,
			       .offset = record->offset,
			       .bytes = (uint32_t)(record->words * sizeof(uint64_t)),
			       .part = (uint8_t)part,
			       .keep = true};
	return true;
}

/* Finds where the window begins, what of the records before it may be kept, and the processes that
 * have samples in it. */
static bool look_through(const struct live *live, struct sweep *sweep)
{
	size_t most = live->config.bytes / 16 * SAMPLE_SIXTEENTHS;
	size_t byte_cut = live->reader.offset > most ? live->reader.offset - most : 0;
	uint64_t since = live->counts.newest_ns > live->config.window_ns
				 ? live->counts.newest_ns - live->config.window_ns
				 : 0;
	struct fxt_reader reader;
	struct fxt_record record;
	bool room = true;

	if (fxt_reader_init(&reader, live->bytes, live->reader.offset, NULL))
		return false;
	sweep->cut = live->reader.offset;
	while (room && fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;
		bool timed = is_sample(&record, &sample);
		uint32_t number;

		if (timed && !sweep->in_window && record.offset >= byte_cut &&
		    sample.timestamp >= since) {
			sweep->in_window = true;
			sweep->cut = record.offset;
		}
		if (!sweep->in_window)
			room = add_piece(sweep, &record);
		else if (timed && (sample.flags & FXT_SAMPLE_PROCESS))
			room = hash_table_add(&sweep->processes, &sample.process, &number);
	}
	fxt_reader_deinit(&reader);
	return room;
}

/* Drops the oldest pieces of the part, `dead_only` those of processes that are not alive, until
 * `excess` bytes are gone. Returns what is still too much. */
static size_t drop_oldest(struct sweep *sweep, enum part part, bool dead_only, size_t excess)
{
	size_t alive = sweep->processes.count;

	for (size_t i = 0; i < sweep->count && excess; i++) {
		struct piece *piece = &sweep->pieces[i];
		uint32_t number = 0;

		if (!piece->keep || piece->part != part)
			continue;
		/* Asking adds what was not there, behind all that are alive. */
		if (dead_only && (!hash_table_add(&sweep->processes, &piece->process, &number) ||
				  number < alive))
			continue;
		piece->keep = false;
		excess -= piece->bytes < excess ? piece->bytes : excess;
	}
	return excess;
}

static void keep_to_parts(const struct live *live, struct sweep *sweep)
{
	size_t bytes[PARTS] = {0};

	for (size_t i = 0; i < sweep->count; i++)
		if (sweep->pieces[i].keep)
			bytes[sweep->pieces[i].part] += sweep->pieces[i].bytes;
	for (int part = PART_HEAD + 1; part < PARTS; part++) {
		size_t most = live->config.bytes / 16 * sixteenths[part];
		size_t excess = bytes[part] > most ? bytes[part] - most : 0;

		if (part == PART_TASKS)
			excess = drop_oldest(sweep, part, true, excess);
		drop_oldest(sweep, part, false, excess);
	}
}

/* Reads again what is left, so that the reader's tables are those of the new places. */
static gp_status_t read_again(struct live *live, size_t whole)
{
	struct fxt_record record;

	fxt_reader_deinit(&live->reader);
	live->reading = fxt_reader_init(&live->reader, live->bytes, whole, NULL) == GP_OK;
	if (!live->reading)
		return error_set(&live->problem, GP_ERR_NO_MEMORY, "no memory for a live view");
	while (fxt_reader_next(&live->reader, &record))
		;
	return GP_OK;
}

static gp_status_t sweep_out(struct live *live)
{
	struct sweep sweep = {0};
	size_t whole = live->reader.offset, kept = 0, rest;
	bool room;

	hash_table_init(&sweep.subjects, offsetof(struct subject, piece), sizeof(struct subject));
	hash_table_init(&sweep.processes, sizeof(uint64_t), sizeof(uint64_t));
	room = look_through(live, &sweep);
	if (room) {
		keep_to_parts(live, &sweep);
		for (size_t i = 0; i < sweep.count; i++) {
			const struct piece *piece = &sweep.pieces[i];

			if (!piece->keep)
				continue;
			memmove(live->bytes + kept, live->bytes + piece->offset, piece->bytes);
			kept += piece->bytes;
		}
		rest = live->used - sweep.cut;
		memmove(live->bytes + kept, live->bytes + sweep.cut, rest);
		live->used = kept + rest;
		whole = kept + (whole - sweep.cut);
	}
	free(sweep.pieces);
	hash_table_deinit(&sweep.subjects);
	hash_table_deinit(&sweep.processes);
	if (!room)
		return error_set(&live->problem, GP_ERR_NO_MEMORY, "no memory for a live view");
	live->swept_ns = live->counts.newest_ns;
	return read_again(live, whole);
}

/* Where the byte at `offset` of what is kept was in the file. */
static unsigned long long place_in_file(const struct live *live, size_t offset)
{
	return live->counts.bytes - (live->used - offset);
}

/* The records that are whole now. */
static gp_status_t read_new(struct live *live)
{
	struct fxt_reader *reader = &live->reader;
	struct fxt_record record;
	gp_status_t status;

	status = fxt_reader_grow(reader, live->bytes, live->used, &live->problem);
	if (status)
		return status;
	while (fxt_reader_next(reader, &record))
		count(&live->counts, &record);
	if (reader->broken)
		return error_set(&live->problem, GP_ERR_IO_DATA_INTEGRITY,
				 "the trace is damaged from byte %llu on: %s",
				 place_in_file(live, reader->offset),
				 reader->problems[reader->problem_count - 1].why);
	/* String indices are each provider's own; a sweep takes them for one's. */
	if (reader->provider_count > 2)
		return error_set(&live->problem, GP_ERR_NOT_SUPPORTED,
				 "the trace has several providers: only guestprof's own traces can "
				 "be followed");
	if (!live->swept_ns)
		live->swept_ns = live->counts.first_ns;
	return GP_OK;
}

gp_status_t live_feed(struct live *live, const void *bytes, size_t size, struct error *error)
{
	gp_status_t status = live->problem.status;

	while (!status && size) {
		size_t room = live->config.bytes - live->used;
		size_t taken = size < room ? size : room;

		memcpy(live->bytes + live->used, bytes, taken);
		live->used += taken;
		live->counts.bytes += taken;
		bytes = (const char *)bytes + taken;
		size -= taken;
		status = read_new(live);
		if (!status && (live->used == live->config.bytes ||
				live->counts.newest_ns - live->swept_ns > live->config.window_ns))
			status = sweep_out(live);
	}
	if (status && error)
		*error = live->problem;
	return status;
}

gp_status_t live_snapshot(const struct live *live, struct live_snapshot *snapshot,
			  struct error *error)
{
	size_t size = live->reading ? live->reader.offset : 0;

	if (snapshot->capacity < size) {
		void *bytes = malloc(size);

		if (!bytes)
			return error_set(error, GP_ERR_NO_MEMORY, "no memory for a live view");
		free(snapshot->bytes);
		snapshot->bytes = bytes;
		snapshot->capacity = size;
	}
	if (size)
		memcpy(snapshot->bytes, live->bytes, size);
	snapshot->size = size;
	snapshot->window_ns = live->config.window_ns;
	snapshot->counts = live->counts;
	return GP_OK;
}

void live_snapshot_deinit(struct live_snapshot *snapshot)
{
	free(snapshot->bytes);
	*snapshot = (struct live_snapshot){0};
}
