/* A bounds-checked reader of untrusted bytes.
 *
 * Reading past the end yields zero and sets `failed`, which stays set: a parser may read a
 * whole header and look at `failed` once. Nothing is ever read outside [begin, end).
 * Integers are little-endian, as everything this project parses.
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
	const uint8_t *begin;
	size_t size;
	size_t offset; /* <= size */
	bool failed;
};

static inline struct cursor cursor_over(const void *bytes, size_t size)
{
	return (struct cursor){.begin = bytes, .size = size};
}

static inline size_t cursor_left(const struct cursor *cursor)
{
	return cursor->size - cursor->offset;
}

/* The next `size` bytes in place, or NULL (and failed) when there are fewer. */
static inline const void *cursor_bytes(struct cursor *cursor, size_t size)
{
	const void *bytes;

	if (cursor->failed || size > cursor_left(cursor)) {
		cursor->failed = true;
		return NULL;
	}
	bytes = cursor->begin + cursor->offset;
	cursor->offset += size;
	return bytes;
}

static inline bool cursor_skip(struct cursor *cursor, size_t size)
{
	return cursor_bytes(cursor, size) != NULL;
}

static inline bool cursor_seek(struct cursor *cursor, size_t offset)
{
	if (cursor->failed || offset > cursor->size) {
		cursor->failed = true;
		return false;
	}
	cursor->offset = offset;
	return true;
}

static inline bool cursor_copy(struct cursor *cursor, void *out, size_t size)
{
	const void *bytes = cursor_bytes(cursor, size);

	if (!bytes) {
		memset(out, 0, size);
		return false;
	}
	memcpy(out, bytes, size);
	return true;
}

static inline uint8_t cursor_u8(struct cursor *cursor)
{
	uint8_t value;

	cursor_copy(cursor, &value, sizeof(value));
	return value;
}

static inline uint16_t cursor_u16(struct cursor *cursor)
{
	uint16_t value;

	cursor_copy(cursor, &value, sizeof(value));
	return value;
}

static inline uint32_t cursor_u32(struct cursor *cursor)
{
	uint32_t value;

	cursor_copy(cursor, &value, sizeof(value));
	return value;
}

static inline uint64_t cursor_u64(struct cursor *cursor)
{
	uint64_t value;

	cursor_copy(cursor, &value, sizeof(value));
	return value;
}

#endif
