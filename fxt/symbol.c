#include "fxt/symbol.h"

#define ENTRY_WORDS 3 /* without the name */
#define PROCESS_WORDS 3

/* Encodes entries from words[used] on. Returns the words used then. */
static size_t encode_entries(const struct fxt_symbol *symbols, size_t count, uint64_t *words,
			     size_t used, size_t capacity, size_t *taken)
{
	size_t done = 0;

	if (capacity > FXT_RECORD_WORDS_MAX)
		capacity = FXT_RECORD_WORDS_MAX;
	for (; done < count; done++) {
		const struct fxt_symbol *symbol = &symbols[done];
		const char *name = symbol->name_bytes != 0 ? symbol->name : "?";
		size_t name_bytes = symbol->name_bytes != 0 ? symbol->name_bytes : 1;
		size_t name_words;

		if (name_bytes > FXT_SYMBOL_NAME_BYTES_MAX)
			name_bytes = FXT_SYMBOL_NAME_BYTES_MAX;
		name_words = fxt_words(name_bytes);
		if (used > capacity || ENTRY_WORDS + name_words > capacity - used)
			break;
		words[used] = symbol->start;
		words[used + 1] = symbol->size;
		words[used + 2] = symbol->kind | (uint64_t)name_bytes << 32;
		words[used + ENTRY_WORDS + name_words - 1] = 0;
		memcpy(words + used + ENTRY_WORDS, name, name_bytes);
		used += ENTRY_WORDS + name_words;
	}
	*taken = done;
	return used;
}

size_t fxt_symbols_encode(const struct fxt_symbol *symbols, size_t count, uint64_t *words,
			  size_t capacity, size_t *taken)
{
	size_t done, used = encode_entries(symbols, count, words, 1, capacity, &done);

	if (done == 0)
		return 0;
	words[0] = fxt_blob_header(FXT_STRING_SYMBOLS, FXT_BLOB_DATA, used);
	*taken = done;
	return used;
}

size_t fxt_process_symbols_encode(const struct fxt_process_symbols *process,
				  const struct fxt_symbol *symbols, size_t count, uint64_t *words,
				  size_t capacity, size_t *taken)
{
	size_t done,
		used = encode_entries(symbols, count, words, 1 + PROCESS_WORDS, capacity, &done);

	if (capacity < 1 + PROCESS_WORDS || (count && !done))
		return 0;
	words[0] = fxt_blob_header(FXT_STRING_PROCESS_SYMBOLS, FXT_BLOB_DATA, used);
	words[1] = process->process;
	words[2] = process->address_space;
	words[FXT_PROCESS_SYMBOLS_VALID_FROM] = process->valid_from;
	*taken = done;
	return used;
}

_Static_assert((FXT_RECORD_WORDS_MAX - 1) * 8 <= FXT_STRING_BYTES_MAX,
	       "a full record's payload can be said in its header");

bool fxt_blob_is_symbols(const struct fxt_blob *blob)
{
	return blob->type == FXT_BLOB_DATA && fxt_string_is(&blob->name, "guestprof.symbols");
}

bool fxt_blob_is_process_symbols(const struct fxt_blob *blob)
{
	return blob->type == FXT_BLOB_DATA &&
	       fxt_string_is(&blob->name, "guestprof.process_symbols");
}

bool fxt_process_symbols_decode(const struct fxt_blob *blob, struct fxt_process_symbols *process,
				struct cursor *entries)
{
	struct cursor payload = cursor_over(blob->payload, blob->size);
	struct fxt_process_symbols result;

	result.process = cursor_u64(&payload);
	result.address_space = cursor_u64(&payload);
	result.valid_from = cursor_u64(&payload);
	if (payload.failed)
		return false;
	*process = result;
	*entries = payload;
	return true;
}

bool fxt_symbols_next(struct cursor *entries, struct fxt_symbol *symbol)
{
	struct fxt_symbol result;

	if (entries->failed || cursor_left(entries) == 0)
		return false;
	result.start = cursor_u64(entries);
	result.size = cursor_u64(entries);
	result.kind = cursor_u32(entries);
	result.name_bytes = cursor_u32(entries);
	if (result.name_bytes == 0 || result.name_bytes > FXT_SYMBOL_NAME_BYTES_MAX)
		entries->failed = true;
	result.name = cursor_bytes(entries, result.name_bytes);
	cursor_skip(entries, fxt_words(result.name_bytes) * 8 - result.name_bytes);
	if (entries->failed)
		return false;
	*symbol = result;
	return true;
}
