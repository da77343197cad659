/* What a record says, decoded: the values that the writer takes and the reader gives.
 *
 * One structure per kind of record, the same in both directions, so that writing what was read
 * gives the same bytes. Strings, arguments, payloads and program counters are borrowed:
 * they belong to what filled the structure in (for the reader: its buffer and itself).
 * Strings are bytes of a given length, not terminated; those that come from a guest or from a file
 * are untrusted: escape them in output.
 */
#ifndef FXT_VALUE_H
#define FXT_VALUE_H

#include "fxt/record.h"

#include <stdbool.h>
#include <string.h>

/* index != 0: an entry of the string table (the reader fills in the text as well; the writer
 * ignores it). index == 0: `length` bytes of text written inline, none for the empty string. */
struct fxt_string {
	const char *text;
	uint16_t length;
	uint16_t index;
};

/* index != 0: an entry of the thread table (the reader fills in both ids). */
struct fxt_thread_ref {
	uint64_t process;
	uint64_t thread;
	uint8_t index;
};

struct fxt_argument {
	struct fxt_string name;
	enum fxt_argument_type type;
	union {
		int32_t i32;
		uint32_t u32;
		int64_t i64;
		uint64_t u64; /* also pointer and koid */
		double f64;
		bool boolean;
		struct fxt_string string;
		struct {
			const void *bytes;
			uint32_t size;
		} blob;
	};
};

struct fxt_provider_info {
	uint32_t id;
	struct fxt_string name; /* always inline, at most FXT_NAME_BYTES_MAX */
};

struct fxt_string_entry {
	uint16_t index;
	struct fxt_string text;
};

struct fxt_thread_entry {
	uint8_t index;
	uint64_t process;
	uint64_t thread;
};

struct fxt_event {
	enum fxt_event_type type;
	uint64_t timestamp; /* ticks */
	struct fxt_thread_ref thread;
	struct fxt_string category;
	struct fxt_string name;
	const struct fxt_argument *arguments;
	size_t argument_count; /* <= FXT_ARGUMENTS_MAX */
	uint64_t extra; /* counter id, end ticks or correlation id; see fxt_event_has_extra() */
};

struct fxt_blob {
	struct fxt_string name;
	uint8_t type;        /* enum fxt_blob_type, or one we do not know */
	const void *payload; /* from the reader: aligned to 8 bytes */
	size_t size;         /* bytes, <= FXT_STRING_BYTES_MAX */
};

struct fxt_kernel_object {
	uint8_t type; /* enum fxt_object_type, or one we do not know */
	uint64_t koid;
	struct fxt_string name;
	const struct fxt_argument *arguments;
	size_t argument_count;
};

struct fxt_context_switch {
	uint16_t cpu;
	uint8_t outgoing_state; /* enum fxt_thread_state */
	uint64_t timestamp;
	uint64_t outgoing; /* thread koids */
	uint64_t incoming;
	const struct fxt_argument *arguments;
	size_t argument_count;
};

struct fxt_wakeup {
	uint16_t cpu;
	uint64_t timestamp;
	uint64_t thread;
	const struct fxt_argument *arguments;
	size_t argument_count;
};

struct fxt_log {
	uint64_t timestamp;
	struct fxt_thread_ref thread;
	struct fxt_string text; /* always inline */
};

struct fxt_module {
	uint16_t id;
	uint64_t timestamp;
	struct fxt_thread_ref thread; /* Fuchsia writes thread 0: a module belongs to a process */
	struct fxt_string name;       /* inline, at most FXT_NAME_BYTES_MAX */
	struct fxt_string build_id;   /* raw bytes, likewise */
};

struct fxt_mmap {
	uint16_t module;
	uint8_t flags; /* ELF p_flags: 1 execute, 2 write, 4 read */
	uint64_t timestamp;
	struct fxt_thread_ref thread;
	uint64_t start;
	uint64_t range; /* bytes */
	uint64_t vaddr; /* in the module's ELF file */
};

struct fxt_backtrace {
	uint64_t timestamp;
	struct fxt_thread_ref thread;
	const uint64_t *frames; /* program counters, leaf first */
	size_t count;           /* <= FXT_BACKTRACE_FRAMES_MAX */
};

/* True for the event types that end in one more word (fxt_event.extra). */
static inline bool fxt_event_has_extra(enum fxt_event_type type)
{
	return type == FXT_EVENT_COUNTER || type >= FXT_EVENT_DURATION_COMPLETE;
}

static inline struct fxt_string fxt_indexed(uint16_t index)
{
	return (struct fxt_string){.index = index};
}

/* Inline text of `length` bytes; what is longer than a record can say is cut. */
static inline struct fxt_string fxt_bytes(const void *text, size_t length)
{
	if (length > FXT_STRING_BYTES_MAX)
		length = FXT_STRING_BYTES_MAX;
	return (struct fxt_string){.text = text, .length = (uint16_t)length};
}

static inline struct fxt_string fxt_text(const char *text)
{
	return fxt_bytes(text, strlen(text));
}

static inline bool fxt_string_is(const struct fxt_string *string, const char *text)
{
	size_t length = strlen(text);

	return string->length == length &&
	       memcmp(string->text ? string->text : "", text, length) == 0;
}

#endif
