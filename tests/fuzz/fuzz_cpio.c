/* An initial file system is whatever somebody gave: its entries lie within the stream, and reading
 * them ends. Input: how much of each entry is read, the archive. */
#include "base/container.h"
#include "naming/cpio.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct buffer_stream {
	struct cpio_stream stream;
	const uint8_t *bytes;
	size_t size;
};

static size_t read_buffer(struct cpio_stream *stream, void *buffer, size_t size)
{
	struct buffer_stream *self = container_of(stream, struct buffer_stream, stream);

	if (size > self->size)
		size = self->size;
	memcpy(buffer, self->bytes, size);
	self->bytes += size;
	self->size -= size;
	return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer_stream stream = {.stream = {.read = read_buffer}};
	struct cpio_reader reader;
	struct cpio_entry entry;
	enum cpio_next next;
	char content[256];
	size_t entries = 0;

	if (size < 1)
		return 0;
	stream.bytes = data + 1;
	stream.size = size - 1;
	cpio_reader_init(&reader, &stream.stream);
	while ((next = cpio_reader_next(&reader, &entry)) == CPIO_ENTRY) {
		if (strnlen(entry.name, sizeof(entry.name)) == sizeof(entry.name) ||
		    entry.name[0] == '/' || ++entries > size / 110)
			abort();
		if (cpio_reader_read(&reader, content, data[0]) > entry.size)
			abort();
	}
	if (reader.offset > size - 1 || (next == CPIO_END && stream.size))
		abort();
	return 0;
}
