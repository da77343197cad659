/* A file's bytes as far as they can be had: from a guest's page cache, from the memory of a process
 * that maps the file, from a buffer, or from a copy elsewhere.
 */
#ifndef GUEST_INTROSPECTION_ELF_FILE_SOURCE_H
#define GUEST_INTROSPECTION_ELF_FILE_SOURCE_H

#include "base/container.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct file_source {
	/* Required. Copies up to `size` bytes from `offset` on and returns how many: fewer, or 0,
	 * where the file ends or the next byte cannot be had. Any offset may be asked for. */
	size_t (*read)(const struct file_source *source, uint64_t offset, void *buffer,
		       size_t size);
};

static inline size_t file_source_read(const struct file_source *source, uint64_t offset,
				      void *buffer, size_t size)
{
	return source->read(source, offset, buffer, size);
}

/* A whole file in a buffer. Not copied: the bytes must stay. */
struct file_buffer {
	struct file_source source;
	const uint8_t *bytes;
	size_t size;
};

static inline size_t file_buffer_read(const struct file_source *source, uint64_t offset,
				      void *buffer, size_t size)
{
	const struct file_buffer *self =
		container_of((struct file_source *)(uintptr_t)source, struct file_buffer, source);

	if (offset >= self->size)
		return 0;
	if (size > self->size - offset)
		size = (size_t)(self->size - offset);
	memcpy(buffer, self->bytes + offset, size);
	return size;
}

static inline struct file_buffer file_buffer_over(const void *bytes, size_t size)
{
	return (struct file_buffer){
		.source = {.read = file_buffer_read}, .bytes = bytes, .size = size};
}

/* Two sources of one file: what the first does not have is asked of the second, page by page. */
struct file_layers {
	struct file_source source;
	const struct file_source *first;
	const struct file_source *second;
};

static inline size_t file_layers_read(const struct file_source *source, uint64_t offset,
				      void *buffer, size_t size)
{
	const struct file_layers *self =
		container_of((struct file_source *)(uintptr_t)source, struct file_layers, source);
	size_t done = 0;

	while (done < size) {
		size_t step = self->first->read(self->first, offset + done, (char *)buffer + done,
						size - done);

		if (step == 0) {
			size_t room = 4096 - (size_t)((offset + done) & 4095);

			step = self->second->read(self->second, offset + done,
						  (char *)buffer + done,
						  size - done < room ? size - done : room);
		}
		if (step == 0)
			break;
		done += step;
	}
	return done;
}

static inline struct file_layers file_layers_of(const struct file_source *first,
						const struct file_source *second)
{
	return (struct file_layers){
		.source = {.read = file_layers_read}, .first = first, .second = second};
}

#endif
