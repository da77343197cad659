#include "export/protobuf.h"

#include <stdlib.h>
#include <string.h>

#define VARINT_BYTES_MAX 10
#define WIRE_VARINT 0
#define WIRE_BYTES 2

void protobuf_deinit(struct protobuf *message)
{
	free(message->bytes);
	*message = (struct protobuf){0};
}

void protobuf_clear(struct protobuf *message)
{
	message->size = 0;
}

static bool reserve(struct protobuf *message, size_t size)
{
	size_t capacity = message->capacity ? message->capacity : 256;
	uint8_t *bytes;

	if (message->failed)
		return false;
	if (size <= message->capacity - message->size)
		return true;
	while (capacity - message->size < size)
		capacity *= 2;
	bytes = realloc(message->bytes, capacity);
	if (!bytes) {
		message->failed = true;
		return false;
	}
	message->bytes = bytes;
	message->capacity = capacity;
	return true;
}

void protobuf_add_element(struct protobuf *message, uint64_t value)
{
	if (!reserve(message, VARINT_BYTES_MAX))
		return;
	for (; value >= 0x80; value >>= 7)
		message->bytes[message->size++] = (uint8_t)(value | 0x80);
	message->bytes[message->size++] = (uint8_t)value;
}

void protobuf_add_number(struct protobuf *message, unsigned field, uint64_t value)
{
	if (!value)
		return;
	protobuf_add_element(message, (uint64_t)field << 3 | WIRE_VARINT);
	protobuf_add_element(message, value);
}

void protobuf_add_bytes(struct protobuf *message, unsigned field, const void *bytes, size_t size)
{
	protobuf_add_element(message, (uint64_t)field << 3 | WIRE_BYTES);
	protobuf_add_element(message, size);
	if (!size || !reserve(message, size))
		return;
	memcpy(message->bytes + message->size, bytes, size);
	message->size += size;
}

void protobuf_add_message(struct protobuf *message, unsigned field, const struct protobuf *inner)
{
	if (inner->failed)
		message->failed = true;
	protobuf_add_bytes(message, field, inner->bytes, inner->size);
}
