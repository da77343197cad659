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
 * Programs' addresses mean something in one process at one time only. Their symbols are DATA blobs
 * named "guestprof.process_symbols" (FXT_STRING_PROCESS_SYMBOLS). In front of the entries, which
 * have the same form and may be missing, stand three words:
 *
 *     u64 process        as in the samples
 *     u64 address space  physical address of the root page table; bit 0 set: the guest isolates
 *                        page tables, so that samples may have bit 12 set in addition
 *     u64 valid from     ns
 *
 * A sample's user frames have the names of that process and address space with the latest `valid
 * from` that is not after the sample's time, and no other: a later `valid from` ends all names of
 * the earlier one. A blob without entries says just that. Several blobs with the same three words
 * add up.
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
	FXT_SYMBOL_USER = 4,   /* a function of a process's program, its libraries or the vDSO */
	/* What a process has mapped there: "[libc.so.6]", "[vdso]", "[jit]", "[anonymous]"; for
	 * addresses that no function is known for. */
	FXT_SYMBOL_MAPPING = 5,
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

/* Whose symbols, and since when. */
struct fxt_process_symbols {
	uint64_t process;
	uint64_t address_space; /* with FXT_ADDRESS_SPACE_ISOLATED or without */
	uint64_t valid_from;    /* ns */
};
#define FXT_ADDRESS_SPACE_ISOLATED 1ull
/* Where `valid from` stands in the record. */
#define FXT_PROCESS_SYMBOLS_VALID_FROM 3

/* As fxt_symbols_encode(), for a process. `count` 0 makes a blob without entries. */
size_t fxt_process_symbols_encode(const struct fxt_process_symbols *process,
				  const struct fxt_symbol *symbols, size_t count, uint64_t *words,
				  size_t capacity, size_t *taken);

bool fxt_blob_is_process_symbols(const struct fxt_blob *blob);

/* Decodes the three words of such a blob and leaves `entries` at the first entry, for
 * fxt_symbols_next(). False: they are not there; both are untouched. */
bool fxt_process_symbols_decode(const struct fxt_blob *blob, struct fxt_process_symbols *process,
				struct cursor *entries);

/* True for blobs of the symbol stream. */
bool fxt_blob_is_symbols(const struct fxt_blob *blob);

/* Decoding: struct cursor entries = cursor_over(blob->payload, blob->size), then call until
 * false: at the end, or (entries.failed) at an entry that does not fit in the blob; what came
 * before it is good. `symbol` is untouched on false; its name points into the blob. */
bool fxt_symbols_next(struct cursor *entries, struct fxt_symbol *symbol);

#endif
