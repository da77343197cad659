/* Validates and iterates over the records of an FXT file in memory (mapped or read).
 *
 *     struct fxt_reader reader;
 *     struct fxt_record record;
 *
 *     if (fxt_reader_init(&reader, bytes, size, &error) == GP_OK)
 *             while (fxt_reader_next(&reader, &record))
 *                     switch (record.kind) ...
 *     look at reader.cut, reader.broken, reader.bad_records, reader.problems
 *     fxt_reader_deinit(&reader);
 *
 * The bytes are untrusted. Three kinds of faults:
 *
 *   cut      the last record is not complete, as in a file whose writer was killed. Iteration ends
 *            there; everything before it was given.
 *   broken   a record's length cannot be true: nothing from there on is trusted, iteration ends.
 *   bad      the length is sane, the content is not: counted, listed, skipped.
 *   unknown  a type of record or argument we do not read: counted, skipped.
 *   unresolved  an index into the string or thread table that nothing registered: counted, listed,
 *            and the record is given with an empty string or zero ids (the index stays).
 *
 * String table, thread table and ticks per second are kept per provider. Memory: about 260 KiB per
 * provider, at most FXT_READER_PROVIDERS_MAX of them, whatever the file says. One reader
 * belongs to one thread at a time.
 */
#ifndef FXT_READER_H
#define FXT_READER_H

#include "base/error.h"
#include "fxt/value.h"

#define FXT_READER_PROVIDERS_MAX 16
#define FXT_READER_PROBLEMS_MAX 16

enum fxt_kind {
	FXT_KIND_MAGIC,
	FXT_KIND_PROVIDER_INFO,
	FXT_KIND_PROVIDER_SECTION,
	FXT_KIND_PROVIDER_EVENT,
	FXT_KIND_INITIALIZATION,
	FXT_KIND_STRING,
	FXT_KIND_THREAD,
	FXT_KIND_EVENT,
	FXT_KIND_BLOB, /* see fxt/sample.h and fxt/symbol.h for what is inside */
	FXT_KIND_KERNEL_OBJECT,
	FXT_KIND_CONTEXT_SWITCH,
	FXT_KIND_WAKEUP,
	FXT_KIND_LOG,
	FXT_KIND_MODULE,
	FXT_KIND_MMAP,
	FXT_KIND_BACKTRACE,
};

/* One record. Everything it points to lies in the reader or in its buffer: valid until the next
 * call on the reader. */
struct fxt_record {
	enum fxt_kind kind;
	size_t offset;     /* of its header, bytes from the beginning of the file */
	size_t words;      /* its size */
	uint32_t provider; /* id of the provider it belongs to; 0 before any was named */
	union {
		struct fxt_provider_info provider_info;
		uint32_t section; /* provider id */
		struct {
			uint32_t id;
			uint8_t event; /* enum fxt_provider_event */
		} provider_event;
		uint64_t ticks_per_second;
		struct fxt_string_entry string;
		struct fxt_thread_entry thread;
		struct fxt_event event;
		struct fxt_blob blob;
		struct fxt_kernel_object object;
		struct fxt_context_switch context_switch;
		struct fxt_wakeup wakeup;
		struct fxt_log log;
		struct fxt_module module;
		struct fxt_mmap mmap;
		struct fxt_backtrace backtrace;
	};
};

struct fxt_problem {
	size_t offset;   /* of the record, bytes from the beginning of the file */
	const char *why; /* static text */
};

struct fxt_provider;

struct fxt_reader {
	/* For the caller to look at. */
	size_t offset; /* where the next record begins, or where iteration ended */
	bool cut;
	bool broken;
	uint64_t records; /* given */
	uint64_t bad_records;
	uint64_t unknown_records;
	uint64_t unknown_arguments;
	uint64_t unresolved;
	/* The first problems: bad and unresolved ones, and last the one that ended it. */
	struct fxt_problem problems[FXT_READER_PROBLEMS_MAX];
	size_t problem_count; /* <= FXT_READER_PROBLEMS_MAX, further ones are only counted above */

	/* Private. */
	const uint8_t *bytes;
	size_t size;
	struct fxt_provider *providers[FXT_READER_PROVIDERS_MAX];
	size_t provider_count;
	struct fxt_provider *provider; /* whose records are being read */
	struct fxt_argument arguments[FXT_ARGUMENTS_MAX];
};

/* `bytes` must be aligned to 8 bytes, and stay unchanged and mapped while the reader is used.
 * GP_ERR_IO_DATA_INTEGRITY: not an FXT file (fewer than 8 bytes of a right beginning count as cut);
 * GP_ERR_INVALID_ARGS: not aligned; GP_ERR_NO_MEMORY. */
gp_status_t fxt_reader_init(struct fxt_reader *reader, const void *bytes, size_t size,
			    struct error *error);
void fxt_reader_deinit(struct fxt_reader *reader);

/* The next record; false at the end, where offset, cut and broken say how it ended. `record` is
 * untouched on false. */
bool fxt_reader_next(struct fxt_reader *reader, struct fxt_record *record);

/* The file has grown and is now mapped here: goes on where fxt_reader_next() ended, an end that was
 * cut included. The same bytes must be in front; a smaller size is GP_ERR_INVALID_ARGS, another
 * beginning GP_ERR_IO_DATA_INTEGRITY. */
gp_status_t fxt_reader_grow(struct fxt_reader *reader, const void *bytes, size_t size,
			    struct error *error);

/* Nanoseconds of `ticks` for the provider whose records are being read; UINT64_MAX when they are
 * more than 64 bits. */
uint64_t fxt_reader_nanoseconds(const struct fxt_reader *reader, uint64_t ticks);

/* ticks * 10^9 / ticks_per_second, rounded down, without overflow on the way. A rate of 0 counts as
 * 10^9. */
uint64_t fxt_ticks_to_nanoseconds(uint64_t ticks, uint64_t ticks_per_second);

#endif
