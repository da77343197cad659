#include "profile/gzip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

#define CHUNK 65536
#define WINDOW_BITS_GZIP (15 + 16) /* zlib.h, deflateInit2(): 16 added writes a gzip header */
#define MEMORY_LEVEL 8             /* zlib's default */

struct gzip {
	FILE *to;
	z_stream stream;
	unsigned char out[CHUNK];
};

/* Compresses what is in the stream's input; false: `to` does not take it. */
static bool squeeze(struct gzip *gzip, int flush)
{
	do {
		size_t made;

		gzip->stream.next_out = gzip->out;
		gzip->stream.avail_out = CHUNK;
		if (deflate(&gzip->stream, flush) == Z_STREAM_ERROR)
			return false;
		made = CHUNK - gzip->stream.avail_out;
		if (fwrite(gzip->out, 1, made, gzip->to) != made)
			return false;
	} while (gzip->stream.avail_out == 0);
	return true;
}

static ssize_t write_bytes(void *cookie, const char *bytes, size_t size)
{
	struct gzip *gzip = cookie;

	if (size > CHUNK)
		size = CHUNK;
	gzip->stream.next_in = (unsigned char *)(uintptr_t)bytes;
	gzip->stream.avail_in = (unsigned)size;
	return squeeze(gzip, Z_NO_FLUSH) ? (ssize_t)size : 0;
}

static int close_stream(void *cookie)
{
	struct gzip *gzip = cookie;
	bool good;

	gzip->stream.avail_in = 0;
	good = squeeze(gzip, Z_FINISH);
	deflateEnd(&gzip->stream);
	free(gzip);
	return good ? 0 : EOF;
}

FILE *gzip_open(FILE *to, struct error *error)
{
	struct gzip *gzip = calloc(1, sizeof(*gzip));
	FILE *stream;

	if (gzip && deflateInit2(&gzip->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WINDOW_BITS_GZIP,
				 MEMORY_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK) {
		gzip->to = to;
		stream = fopencookie(
			gzip, "w",
			(cookie_io_functions_t){.write = write_bytes, .close = close_stream});
		if (stream)
			return stream;
		deflateEnd(&gzip->stream);
	}
	free(gzip);
	error_set(error, GP_ERR_NO_MEMORY, "no memory for compression");
	return NULL;
}
