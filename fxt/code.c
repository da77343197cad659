#include "fxt/code.h"

#define NAME "guestprof.code"
#define NAME_BYTES (sizeof(NAME) - 1)
#define NAME_WORDS 2
#define FIXED_WORDS 5

_Static_assert(NAME_BYTES > 8 && NAME_BYTES <= NAME_WORDS * 8, "the name takes two words");
_Static_assert(FXT_CODE_OVERHEAD_WORDS == 1 + NAME_WORDS + FIXED_WORDS, "as the header says");
_Static_assert(FXT_CODE_OVERHEAD_WORDS + FXT_CODE_BYTES_MAX / 8 <= FXT_RECORD_WORDS_MAX,
	       "a record holds that much");
_Static_assert(FXT_CODE_VALID_FROM == 1 + NAME_WORDS + 2, "behind process and address space");

size_t fxt_code_encode(const struct fxt_code *code, uint64_t *words, size_t capacity)
{
	size_t used = FXT_CODE_OVERHEAD_WORDS + fxt_words(code->size);

	if (!code->size || code->size > FXT_CODE_BYTES_MAX || used > capacity)
		return 0;
	words[0] = fxt_header_with_size(fxt_header(FXT_TYPE_BLOB), used) |
		   (uint64_t)(FXT_STRING_REF_INLINE | NAME_BYTES) << 16 |
		   (uint64_t)(FIXED_WORDS * 8 + code->size) << 32 | (uint64_t)FXT_BLOB_DATA << 48;
	words[NAME_WORDS] = 0;
	memcpy(words + 1, NAME, NAME_BYTES);
	words[1 + NAME_WORDS] = code->of.process;
	words[2 + NAME_WORDS] = code->of.address_space;
	words[FXT_CODE_VALID_FROM] = code->of.valid_from;
	words[4 + NAME_WORDS] = code->read_at;
	words[5 + NAME_WORDS] = code->address;
	words[used - 1] = 0;
	memcpy(words + FXT_CODE_OVERHEAD_WORDS, code->bytes, code->size);
	return used;
}

bool fxt_blob_is_code(const struct fxt_blob *blob)
{
	return blob->type == FXT_BLOB_DATA && fxt_string_is(&blob->name, NAME);
}

bool fxt_code_decode(const struct fxt_blob *blob, struct fxt_code *code)
{
	struct cursor payload = cursor_over(blob->payload, blob->size);
	struct fxt_code result;

	result.of.process = cursor_u64(&payload);
	result.of.address_space = cursor_u64(&payload);
	result.of.valid_from = cursor_u64(&payload);
	result.read_at = cursor_u64(&payload);
	result.address = cursor_u64(&payload);
	result.size = (uint32_t)cursor_left(&payload);
	result.bytes = cursor_bytes(&payload, result.size);
	if (payload.failed || !result.size || result.size > UINT64_MAX - result.address)
		return false;
	*code = result;
	return true;
}
