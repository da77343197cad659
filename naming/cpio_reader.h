/* Reads cpio archives in the "newc" format, one behind the other, as a kernel takes them for its
 * initial file system: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
 *
 * A stream is read once, from its beginning to its end; nothing is kept of it. Any bytes may come:
 * every length is checked and all work is bounded by the stream's. tools/lab_cpio.h writes such
 * archives. */
#ifndef NAMING_CPIO_READER_H
#define NAMING_CPIO_READER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpio_stream {
	/* Required. Up to `size` bytes; fewer only at the end. */
	size_t (*read)(struct cpio_stream *stream, void *buffer, size_t size);
};

struct cpio_reader {
	struct cpio_stream *stream;
	uint64_t offset; /* in the stream */
	uint64_t left;   /* of the entry's bytes */
};

struct cpio_entry {
	uint32_t mode; /* as stat(2) gives it */
	uint64_t size;
	char name[PATH_MAX]; /* without "/" and "./" in front; untrusted */
};

enum cpio_next {
	CPIO_ENTRY,
	CPIO_END,   /* of the stream */
	CPIO_OTHER, /* what comes at `offset` is no archive; a compressed one, perhaps */
	CPIO_BROKEN,
};

void cpio_reader_init(struct cpio_reader *reader, struct cpio_stream *stream);

/* The next entry; what is left of the one before is skipped. `entry` only with CPIO_ENTRY. After
 * anything else there is no more to read. */
enum cpio_next cpio_reader_next(struct cpio_reader *reader, struct cpio_entry *entry);

/* Up to `size` bytes of the entry, fewer at its end. */
size_t cpio_reader_read(struct cpio_reader *reader, void *buffer, size_t size);

#endif
