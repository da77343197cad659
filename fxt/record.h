/* Constants and bit fields of the Fuchsia trace format (FXT), and this project's own.
 *
 * Everything is a 64-bit little-endian word; bit ranges are written [lsb..msb], inclusive, as
 * in the specification: fuchsia.dev, "Fuchsia trace format"
 * (docs/reference/tracing/trace-format.md). The profiler records (type 10) are in Fuchsia's
 * src/performance/lib/fxt only. What is ours is described in docs/trace-format.md.
 *
 * Pure functions and constants: usable from any thread and with a vCPU stopped.
 */
#ifndef FXT_RECORD_H
#define FXT_RECORD_H

#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are written as they are");

#define FXT_MAGIC 0x0016547846040010ull /* the first word of a file */
#define FXT_RECORD_WORDS_MAX 4095       /* [4..15] of a header */
#define FXT_STRING_BYTES_MAX 0x7fff     /* 15 bits, wherever a length is held */
#define FXT_ARGUMENTS_MAX 15            /* 4 bits */
#define FXT_STRING_INDEX_MAX 0x7fff
#define FXT_THREAD_INDEX_MAX 0xff
#define FXT_NAME_BYTES_MAX 0xff /* names of providers and modules, build ids */
#define FXT_BACKTRACE_FRAMES_MAX 0xff
#define FXT_STRING_REF_INLINE 0x8000u

enum fxt_record_type {
	FXT_TYPE_METADATA = 0,
	FXT_TYPE_INITIALIZATION = 1,
	FXT_TYPE_STRING = 2,
	FXT_TYPE_THREAD = 3,
	FXT_TYPE_EVENT = 4,
	FXT_TYPE_BLOB = 5,
	FXT_TYPE_USERSPACE_OBJECT = 6, /* read past, never written */
	FXT_TYPE_KERNEL_OBJECT = 7,
	FXT_TYPE_SCHEDULING = 8,
	FXT_TYPE_LOG = 9,
	FXT_TYPE_PROFILER = 10,
	FXT_TYPE_LARGE = 15, /* read past, never written: Perfetto misreads what follows one */
};

enum fxt_metadata_type {
	FXT_METADATA_PROVIDER_INFO = 1,
	FXT_METADATA_PROVIDER_SECTION = 2,
	FXT_METADATA_PROVIDER_EVENT = 3,
	FXT_METADATA_TRACE_INFO = 4,
};

enum fxt_provider_event {
	FXT_PROVIDER_BUFFER_FILLED = 0,
};

enum fxt_event_type {
	FXT_EVENT_INSTANT = 0,
	FXT_EVENT_COUNTER = 1,
	FXT_EVENT_DURATION_BEGIN = 2,
	FXT_EVENT_DURATION_END = 3,
	FXT_EVENT_DURATION_COMPLETE = 4,
	FXT_EVENT_ASYNC_BEGIN = 5,
	FXT_EVENT_ASYNC_INSTANT = 6,
	FXT_EVENT_ASYNC_END = 7,
	FXT_EVENT_FLOW_BEGIN = 8,
	FXT_EVENT_FLOW_STEP = 9,
	FXT_EVENT_FLOW_END = 10,
};

enum fxt_argument_type {
	FXT_ARGUMENT_NULL = 0,
	FXT_ARGUMENT_I32 = 1,
	FXT_ARGUMENT_U32 = 2,
	FXT_ARGUMENT_I64 = 3,
	FXT_ARGUMENT_U64 = 4,
	FXT_ARGUMENT_DOUBLE = 5,
	FXT_ARGUMENT_STRING = 6,
	FXT_ARGUMENT_POINTER = 7,
	FXT_ARGUMENT_KOID = 8,
	FXT_ARGUMENT_BOOL = 9,
	FXT_ARGUMENT_BLOB = 10,
};

enum fxt_blob_type {
	FXT_BLOB_DATA = 1,
	FXT_BLOB_LAST_BRANCH = 2,
	FXT_BLOB_PERFETTO = 3,
	FXT_BLOB_SAMPLE = 4, /* RFC-0274 names the record but no published code numbers it */
};

enum fxt_object_type {
	FXT_OBJECT_PROCESS = 1,
	FXT_OBJECT_THREAD = 2,
};

enum fxt_scheduling_type {
	FXT_SCHEDULING_CONTEXT_SWITCH = 1,
	FXT_SCHEDULING_WAKEUP = 2,
};

enum fxt_thread_state {
	FXT_THREAD_NEW = 0,
	FXT_THREAD_RUNNING = 1,
	FXT_THREAD_SUSPENDED = 2,
	FXT_THREAD_BLOCKED = 3,
	FXT_THREAD_DYING = 4,
	FXT_THREAD_DEAD = 5,
};

enum fxt_profiler_type {
	FXT_PROFILER_MODULE = 0,
	FXT_PROFILER_MMAP = 1,
	FXT_PROFILER_BACKTRACE = 2,
};

/* The string table that fxt_write_preamble() writes. Everything that encodes with these
 * indices (samples, drop records, metadata) needs the preamble in front of it. */
enum fxt_string_index {
	FXT_STRING_KERNEL_META = 1,     /* "kernel:meta" */
	FXT_STRING_DROP_STATS = 2,      /* "drop_stats" */
	FXT_STRING_NUM_RECORDS = 3,     /* "num_records" */
	FXT_STRING_NUM_BYTES = 4,       /* "num_bytes" */
	FXT_STRING_SAMPLE = 5,          /* "guestprof.sample", the stream of sample blobs */
	FXT_STRING_SYMBOLS = 6,         /* "guestprof.symbols", the stream of symbol blobs */
	FXT_STRING_GUESTPROF = 7,       /* "guestprof", the category of our metadata events */
	FXT_STRING_PROCESS = 8,         /* "process", the argument of thread objects */
	FXT_STRING_PROCESS_SYMBOLS = 9, /* "guestprof.process_symbols", names within a process */
	FXT_STRING_FIRST_FREE = 64,     /* from here on an index belongs to the one who writes it */
};

/* The thread that a vCPU's own events (drop records, totals) are attributed to: a process that no
 * Linux guest can have (pids end at 2^22, include/linux/threads.h), still within the 32 bits
 * that Perfetto keeps of a koid. */
#define FXT_VCPU_PROCESS 0x40000000ull

static inline uint64_t fxt_vcpu_thread(uint32_t vcpu)
{
	return FXT_VCPU_PROCESS + 1 + vcpu;
}

/* Bits [first..last] of `word`. */
static inline uint64_t fxt_bits(uint64_t word, unsigned first, unsigned last)
{
	return word >> first & (~0ull >> (63 - (last - first)));
}

/* A header without its size, which is known last: see fxt_header_with_size(). */
static inline uint64_t fxt_header(enum fxt_record_type type)
{
	return (uint64_t)type;
}

static inline uint64_t fxt_header_with_size(uint64_t header, size_t words)
{
	return header | (uint64_t)words << 4;
}

static inline enum fxt_record_type fxt_header_type(uint64_t header)
{
	return (enum fxt_record_type)(header & 0xf);
}

/* The size of the record in words, header included; 0 is never valid. A large record
 * (type 15) holds 32 bits of it. */
static inline uint64_t fxt_header_words(uint64_t header)
{
	return fxt_header_type(header) == FXT_TYPE_LARGE ? fxt_bits(header, 4, 35)
							 : fxt_bits(header, 4, 15);
}

/* The header of a blob of `words` words whose name is in the string table. */
static inline uint64_t fxt_blob_header(enum fxt_string_index name, enum fxt_blob_type type,
				       size_t words)
{
	return fxt_header_with_size(fxt_header(FXT_TYPE_BLOB), words) | (uint64_t)name << 16 |
	       (uint64_t)(words - 1) * 8 << 32 | (uint64_t)type << 48;
}

/* Words that `bytes` take when padded. Does not overflow for any size_t. */
static inline size_t fxt_words(size_t bytes)
{
	return bytes / 8 + (bytes % 8 != 0);
}

#endif
