#include "naming/code_copy.h"

#include <string.h>

#define PAGE_BYTES 4096u

static uint64_t hash_more(uint64_t hash, const void *bytes, size_t size)
{
	/* FNV-1a. */
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* The next run of pages that can be read, from `*at` on, as much as a record holds. Returns its
 * bytes; `*at` is behind them, and before them behind what cannot be read. */
static size_t next_run(struct code_copier *copier, uint64_t *at, uint64_t end)
{
	size_t size = 0;

	while (*at < end) {
		uint64_t left = PAGE_BYTES - *at % PAGE_BYTES;
		size_t step = (size_t)(left < end - *at ? left : end - *at);

		if (step > sizeof(copier->bytes) - size)
			break;
		if (copier->read(copier->context, *at, copier->bytes + size, step))
			size += step;
		else if (size)
			break;
		*at += step;
	}
	return size;
}

/* Calls and jumps with a distance of 32 bits, which all those between functions are: e8, e9, 0f 80
 * to 0f 8f. */
static void tell_targets(struct code_copier *copier, uint64_t start, size_t size)
{
	const uint8_t *bytes = copier->bytes;

	for (size_t i = 0; i + 5 <= size; i++) {
		bool found = bytes[i] == 0xe8 || bytes[i] == 0xe9 ||
			     (i > 0 && bytes[i - 1] == 0x0f && (bytes[i] & 0xf0) == 0x80);
		int32_t distance;

		if (!found)
			continue;
		memcpy(&distance, bytes + i + 1, sizeof(distance));
		copier->target(copier->context, start + i + 5 + (uint64_t)(int64_t)distance);
	}
}

static struct code_copied copy(struct code_copier *copier, const struct fxt_process_symbols *of,
			       uint64_t read_at, uint64_t start, uint64_t size,
			       uint64_t symbol_start, bool write)
{
	struct code_copied copied = {.hash = UINT64_C(0xcbf29ce484222325)};
	uint64_t at = start, end = start + size;

	for (;;) {
		size_t run = next_run(copier, &at, end);
		struct fxt_code code = {
			.of = *of,
			.read_at = read_at,
			.address = at - run - start + symbol_start,
			.bytes = copier->bytes,
			.size = (uint32_t)run,
		};
		size_t used;

		if (!run)
			return copied;
		copied.bytes += run;
		copied.hash = hash_more(copied.hash, &code.address, sizeof(code.address));
		copied.hash = hash_more(copied.hash, copier->bytes, run);
		if (!write)
			continue;
		used = fxt_code_encode(&code, copier->words,
				       sizeof(copier->words) / sizeof(copier->words[0]));
		if (run > copier->written_max - copier->written ||
		    !copier->write(copier->context, copier->words, used))
			return (struct code_copied){0};
		copier->written += run;
		if (copier->target)
			tell_targets(copier, at - run, run);
	}
}

struct code_copied code_copy(struct code_copier *copier, const struct fxt_process_symbols *of,
			     uint64_t read_at, uint64_t start, uint64_t size, uint64_t symbol_start,
			     uint64_t known_hash)
{
	if (size > CODE_FUNCTION_BYTES_MAX)
		size = CODE_FUNCTION_BYTES_MAX;
	if (size > UINT64_MAX - start)
		size = UINT64_MAX - start;
	if (known_hash) {
		struct code_copied now =
			copy(copier, of, read_at, start, size, symbol_start, false);

		if (!now.bytes || now.hash == known_hash)
			return now;
	}
	return copy(copier, of, read_at, start, size, symbol_start, true);
}
