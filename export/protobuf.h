/* Protocol buffer messages, written field by field (protobuf.dev, "Encoding"). A message that
 * stands in another one is built in a buffer of its own first, because its size goes in front.
 *
 * For lack of memory `failed` is set, and the message is not to be used. One thread at a time.
 */
#ifndef EXPORT_PROTOBUF_H
#define EXPORT_PROTOBUF_H

#include "base/vector.h"

#include <stdio.h>

struct protobuf {
	VECTOR(uint8_t) bytes;
	bool failed;
};

void protobuf_deinit(struct protobuf *message);

/* Empties it and keeps its memory. */
void protobuf_clear(struct protobuf *message);

/* A field of a varint type: int64, uint64, bool, enum. 0 is left out, as it is the default. */
void protobuf_add_number(struct protobuf *message, unsigned field, uint64_t value);

/* A field of string, bytes or message type. */
void protobuf_add_bytes(struct protobuf *message, unsigned field, const void *bytes, size_t size);
void protobuf_add_message(struct protobuf *message, unsigned field, const struct protobuf *inner);

/* Writes what is in the message. Nothing after a failure. */
void protobuf_write(const struct protobuf *message, FILE *to);

/* A bare varint: an element of a packed field, which is added as a message. */
void protobuf_add_element(struct protobuf *message, uint64_t value);

#endif
