#include "export/protobuf.h"

#define VARINT_BYTES_MAX 10
#define WIRE_VARINT 0
#define WIRE_BYTES 2

void protobuf_deinit(struct protobuf *message)
{
	vector_deinit(&message->bytes);
	message->failed = false;
}

void protobuf_clear(struct protobuf *message)
{
	message->bytes.count = 0;
}

void protobuf_write(const struct protobuf *message, FILE *to)
{
	if (!message->failed && message->bytes.count)
		fwrite(message->bytes.items, 1, message->bytes.count, to);
}

static void protobuf_append(struct protobuf *message, const void *bytes, size_t size)
{
	message->failed |= !vector_append(&message->bytes, bytes, size);
}

void protobuf_add_element(struct protobuf *message, uint64_t value)
{
	uint8_t bytes[VARINT_BYTES_MAX];
	size_t count = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[count++] = (uint8_t)(value | 0x80);
	bytes[count++] = (uint8_t)value;
	protobuf_append(message, bytes, count);
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
	protobuf_append(message, bytes, size);
}

void protobuf_add_message(struct protobuf *message, unsigned field, const struct protobuf *inner)
{
	message->failed |= inner->failed;
	protobuf_add_bytes(message, field, inner->bytes.items, inner->bytes.count);
}
