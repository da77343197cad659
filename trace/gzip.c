#include "trace/gzip.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
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

bool gzip_is_compressed(int fd)
{
	unsigned char begin[2];

	return pread(fd, begin, sizeof(begin), 0) == sizeof(begin) && begin[0] == 0x1f &&
	       begin[1] == 0x8b;
}

static const char *temporary_folder(void)
{
	const char *folder = getenv("TMPDIR");

	return folder && *folder ? folder : "/tmp";
}

static bool write_all(int fd, const unsigned char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t written = write(fd, bytes, size);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return false;
		bytes += written;
		size -= (size_t)written;
	}
	return true;
}

/* More input; false: there is none. */
static bool fill(z_stream *stream, int fd, unsigned char in[static CHUNK])
{
	ssize_t size;

	do
		size = read(fd, in, CHUNK);
	while (size < 0 && errno == EINTR);
	stream->next_in = in;
	stream->avail_in = size > 0 ? (unsigned)size : 0;
	return size > 0;
}

static gp_status_t expand(z_stream *stream, int from, int to, struct error *error)
{
	AUTO_FREE unsigned char *in = malloc(CHUNK);
	AUTO_FREE unsigned char *out = malloc(CHUNK);
	bool more = false; /* than there was room for */
	int result = Z_OK;

	if (!in || !out)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for decompression");
	while (result == Z_OK || result == Z_BUF_ERROR) {
		if (stream->avail_in == 0 && !more && !fill(stream, from, in))
			break;
		stream->next_out = out;
		stream->avail_out = CHUNK;
		result = inflate(stream, Z_SYNC_FLUSH);
		more = stream->avail_out == 0;
		if (!write_all(to, out, CHUNK - stream->avail_out))
			return error_set_errno(error, errno,
					       "cannot decompress into %s (TMPDIR may say another)",
					       temporary_folder());
		/* One file may be several, one behind the other. */
		if (result == Z_STREAM_END && (stream->avail_in > 0 || fill(stream, from, in)))
			result = inflateReset(stream);
	}
	return GP_OK;
}

gp_status_t gzip_expand(int fd, int *out, struct error *error)
{
	AUTO_CLOSE int to = open(temporary_folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	z_stream stream = {0};
	gp_status_t status;

	if (to < 0)
		return error_set_errno(error, errno,
				       "cannot decompress into %s (TMPDIR may say another)",
				       temporary_folder());
	if (inflateInit2(&stream, WINDOW_BITS_GZIP) != Z_OK)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for decompression");
	status = expand(&stream, fd, to, error);
	inflateEnd(&stream);
	if (status == GP_OK)
		*out = take_fd(&to);
	return status;
}
