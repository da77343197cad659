/* Code that travels with the trace: the bytes that the guest had in the functions its samples
 * stopped in. A kernel patches itself (alternatives, static keys, return thunks), so no file has
 * them.
 *
 * They are DATA blobs (blob type 1) named "guestprof.code". The name is inline: these blobs need no
 * preamble. Five words, then code:
 *
 *     u64 process        as in the samples; 0: the kernel's, or a guest's of which none is known
 *     u64 address space  as in fxt/symbol.h; 0 where process is
 *     u64 valid from     ns, likewise: whose code it is. 0 where process is
 *     u64 read at        ns: when the guest had these bytes
 *     u64 address        of the first byte, in the address space of the function's symbol
 *     bytes              to the payload's end, at least one
 *
 * A function may have several, one behind the other or with gaps, and the same bytes may be told
 * again, read at a later time: then the guest has changed them meanwhile. They are the guest's,
 * of any content.
 */
#ifndef FXT_CODE_H
#define FXT_CODE_H

#include "fxt/symbol.h"

/* Of one record, whole pages. */
#define FXT_CODE_BYTES_MAX ((size_t)28 << 10)
#define FXT_CODE_OVERHEAD_WORDS 8u
/* Where `valid from` stands in the record. */
#define FXT_CODE_VALID_FROM 5

struct fxt_code {
	struct fxt_process_symbols of;
	uint64_t read_at; /* ns */
	uint64_t address;
	const uint8_t *bytes;
	uint32_t size;
};

/* Encodes one record. Returns its words; 0: no bytes, more than FXT_CODE_BYTES_MAX, or too little
 * room. Any thread. */
size_t fxt_code_encode(const struct fxt_code *code, uint64_t *words, size_t capacity);

/* True for blobs of code. */
bool fxt_blob_is_code(const struct fxt_blob *blob);

/* False, `code` untouched: a blob without bytes, or whose addresses wrap around. `code->bytes` is
 * in the blob. */
bool fxt_code_decode(const struct fxt_blob *blob, struct fxt_code *code);

#endif
