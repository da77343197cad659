/* Reading and writing as a whole: what is interrupted, or done in part, goes on. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that were read: fewer than `size` at the end, or after an error (errno). */
size_t io_read(int fd, void *buffer, size_t size);
size_t io_read_at(int fd, uint64_t offset, void *buffer, size_t size);

/* False: errno. */
bool io_write(int fd, const void *bytes, size_t size);

/* The contents of a regular file of at most `most` bytes, to be freed. The error calls it `what`
 * ("the symbol file"). Does not wait for the other end of a FIFO. */
gp_status_t io_read_file(const char *what, const char *path, size_t most, void **bytes,
			 size_t *size, struct error *error);

/* Adds one to an eventfd, or leaves it full: whoever waits for it wakes in any case. Keeps errno;
 * for signal handlers, too. */
void io_signal(int fd);

/* Sends `size` bytes, at least one, with descriptors, over a socket of AF_UNIX. False: errno. */
bool io_send(int socket, const void *bytes, size_t size, const int *fds, size_t count);

/* Takes a message of exactly `size` bytes and its one descriptor; -1: it has none. False: there is
 * none of that size. */
bool io_receive(int socket, void *bytes, size_t size, int *fd);

/* Closes all descriptors from the fourth on, wherever they are, but these (-1: none). */
void io_close_all_but(const int *fds, size_t count);

/* FNV-1a, 64 bits: tells one content from another, no more than that. */
#define FNV_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t fnv_add(uint64_t hash, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

#endif
