/* Encoders, one per kind of record.
 *
 * Each encodes one whole record into `words` and returns its size in words, or 0 when it does
 * not fit into `capacity` words or into what the format can say (4,095 words, 15 arguments,
 * a name's length, an index). After 0 the contents of `words` are unspecified, and
 * nothing outside [words, words + capacity) is ever written. A record of zero words and a large
 * record (type 15) are never produced: Perfetto stops at the one and misreads what follows
 * the other.
 *
 * Nothing here allocates, locks, or keeps state: any thread, also with a vCPU stopped.
 * Source: "Fuchsia trace format"; see fxt/record.h.
 */
#ifndef FXT_WRITER_H
#define FXT_WRITER_H

#include "fxt/value.h"

/* The most words fxt_write_preamble() needs. */
#define FXT_PREAMBLE_WORDS 48
#define FXT_PROVIDER_ID 1
#define FXT_PROVIDER_NAME "guestprof"
#define FXT_TICKS_PER_SECOND 1000000000ull

/* What every file of ours begins with: magic, provider "guestprof", 1 tick = 1 ns, and the string
 * table of enum fxt_string_index. */
size_t fxt_write_preamble(uint64_t *words, size_t capacity);

size_t fxt_encode_magic(uint64_t *words, size_t capacity);
size_t fxt_encode_provider_info(const struct fxt_provider_info *info, uint64_t *words,
				size_t capacity);
size_t fxt_encode_provider_section(uint32_t id, uint64_t *words, size_t capacity);
/* event: 4 bits, enum fxt_provider_event */
size_t fxt_encode_provider_event(uint32_t id, uint8_t event, uint64_t *words, size_t capacity);
size_t fxt_encode_initialization(uint64_t ticks_per_second, uint64_t *words, size_t capacity);
/* index: 1..FXT_STRING_INDEX_MAX */
size_t fxt_encode_string(const struct fxt_string_entry *entry, uint64_t *words, size_t capacity);
/* index: 1..FXT_THREAD_INDEX_MAX */
size_t fxt_encode_thread(const struct fxt_thread_entry *entry, uint64_t *words, size_t capacity);
size_t fxt_encode_event(const struct fxt_event *event, uint64_t *words, size_t capacity);
size_t fxt_encode_blob(const struct fxt_blob *blob, uint64_t *words, size_t capacity);
size_t fxt_encode_kernel_object(const struct fxt_kernel_object *object, uint64_t *words,
				size_t capacity);
size_t fxt_encode_context_switch(const struct fxt_context_switch *event, uint64_t *words,
				 size_t capacity);
size_t fxt_encode_wakeup(const struct fxt_wakeup *event, uint64_t *words, size_t capacity);
size_t fxt_encode_log(const struct fxt_log *log, uint64_t *words, size_t capacity);
size_t fxt_encode_module(const struct fxt_module *module, uint64_t *words, size_t capacity);
size_t fxt_encode_mmap(const struct fxt_mmap *mapping, uint64_t *words, size_t capacity);
size_t fxt_encode_backtrace(const struct fxt_backtrace *backtrace, uint64_t *words,
			    size_t capacity);

/* The name of a process, and of a thread together with the process it belongs to (Fuchsia's
 * convention, an argument "process"; needs the preamble). */
size_t fxt_encode_process_name(uint64_t process, struct fxt_string name, uint64_t *words,
			       size_t capacity);
size_t fxt_encode_thread_name(uint64_t process, uint64_t thread, struct fxt_string name,
			      uint64_t *words, size_t capacity);

#endif
