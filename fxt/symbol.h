/* Symbols that travel with the trace, so that the file explains itself anywhere.
 *
 * They are DATA blobs (blob type 1) named "guestprof.symbols" (FXT_STRING_SYMBOLS). A payload is
 * one or more entries, each a multiple of 8 bytes:
 *
 *     u64 start        address, in the address space that `kind` says
 *     u64 size         bytes; 0: not known, it reaches to the next symbol of that kind
 *     u32 kind         enum fxt_symbol_kind
 *     u32 name bytes   1..FXT_SYMBOL_NAME_BYTES_MAX
 *     name             padded with zeros to 8 bytes
 *
 * An entry never goes from one blob into the next. Entries come in no particular order.
 * Names are bytes from guest memory or from the user's files: untrusted, of any content. Whoever
 * prints one escapes it.
 */
#ifndef FXT_SYMBOL_H
#define FXT_SYMBOL_H

#include "base/cursor.h"
#include "fxt/value.h"

#define FXT_SYMBOL_NAME_BYTES_MAX 4096

enum fxt_symbol_kind {
	FXT_SYMBOL_KERNEL = 0, /* the guest kernel's own text */
	FXT_SYMBOL_MODULE = 1, /* a kernel module's text */
	FXT_SYMBOL_FILE = 2,   /* from an ELF file or System.map that the user gave */
	FXT_SYMBOL_BOOT = 3,   /* boot code, at physical addresses */
};

struct fxt_symbol {
	uint64_t start;
	uint64_t size; /* bytes, 0 unknown */
	uint32_t kind; /* enum fxt_symbol_kind, or one we do not know */
	uint32_t name_bytes;
	const char *name; /* not terminated */
};

/* Encodes one blob record with as many of `symbols`, from the first, as fit into it and into
 * `capacity` words. Returns its words and sets `taken`; 0 when not even the first fits or `count`
 * is 0, `taken` untouched. A name longer than FXT_SYMBOL_NAME_BYTES_MAX is cut, an empty one
 * becomes
 * "?". Call again with the rest until all are taken. Any thread. */
size_t fxt_symbols_encode(const struct fxt_symbol *symbols, size_t count, uint64_t *words,
			  size_t capacity, size_t *taken);

/* True for blobs of the symbol stream. */
bool fxt_blob_is_symbols(const struct fxt_blob *blob);

/* Decoding: struct cursor entries = cursor_over(blob->payload, blob->size), then call until
 * false: at the end, or (entries.failed) at an entry that does not fit in the blob; what came
 * before it is good. `symbol` is untouched on false; its name points into the blob. */
bool fxt_symbols_next(struct cursor *entries, struct fxt_symbol *symbol);

#endif
