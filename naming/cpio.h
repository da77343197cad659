/* cpio archives in the "newc" format, as a kernel takes them for its initial file system:
 * Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. Not libarchive: it and
 * the twelve libraries that come with it would be mapped in every guestprof that runs a guest.
 *
 * The reader takes archives one behind the other, in one pass over a stream. Any bytes may come:
 * every length is checked and all work is bounded by the stream's. */
#ifndef NAMING_CPIO_H
#define NAMING_CPIO_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

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

/* Writing: directories, regular files, devices. No links, all owned by root, all of the year 1970,
 * so that the same content gives the same bytes.
 *
 * Appends an entry to `to`, at a multiple of four bytes from the archive's beginning. `mode` as
 * stat(2) gives it, with the file's type. `device` (makedev(3)) is for character and block devices,
 * which have no bytes. GP_ERR_IO leaves half an entry behind. */
gp_status_t cpio_put(FILE *to, const char *name, mode_t mode, dev_t device, const void *bytes,
		     size_t size, struct error *error);

/* Ends the archive and flushes it. */
gp_status_t cpio_end(FILE *to, struct error *error);

#endif
