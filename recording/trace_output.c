#include "recording/trace_output.h"

#include "fxt/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define CHUNK (64 << 10)
#define WINDOW_BITS_GZIP (15 + 16) /* zlib.h, deflateInit2(): 16 added writes a gzip header */
#define MEMORY_LEVEL 8             /* zlib's default */

struct trace_output_stream {
	z_stream deflate;
	uint64_t written; /* bytes behind `offset` that are in the file */
	unsigned char out[CHUNK];
};

gp_status_t trace_output_init(struct trace_output *output, int fd, bool compress,
			      struct error *error)
{
	struct trace_output_stream *stream = NULL;

	if (compress) {
		stream = calloc(1, sizeof(*stream));
		/* The fastest: stacks are mostly those that came before, which it finds as well. */
		if (!stream ||
		    deflateInit2(&stream->deflate, Z_BEST_SPEED, Z_DEFLATED, WINDOW_BITS_GZIP,
				 MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) {
			free(stream);
			return error_set(error, GP_ERR_NO_MEMORY, "no memory for compression");
		}
	}
	*output = (struct trace_output){.fd = fd, .stream = stream};
	return GP_OK;
}

void trace_output_deinit(struct trace_output *output)
{
	if (output->stream)
		deflateEnd(&output->stream->deflate);
	free(output->stream);
	output->stream = NULL;
}

/* How many of `size` bytes are whole records. */
static size_t whole_records(const uint64_t *words, size_t size)
{
	size_t at = 0;

	while (at < size / 8) {
		size_t record = fxt_header_words(words[at]);

		if (!record || record > size / 8 - at)
			break;
		at += record;
	}
	return at * 8;
}

/* Back to what is good, as far as the file allows. */
static void fail(struct trace_output *output, int failure)
{
	error_set_errno(&output->problem, failure,
			"the trace ends early: writing failed after %llu bytes",
			(unsigned long long)output->offset);
	if (!ftruncate(output->fd, (off_t)output->offset))
		lseek(output->fd, (off_t)output->offset, SEEK_SET);
}

/* Returns how many bytes were written; fewer than all: `failure` says why. */
static size_t write_bytes(int fd, const void *bytes, size_t size, int *failure)
{
	const char *from = bytes;
	size_t done = 0;

	while (done < size) {
		ssize_t written = write(fd, from + done, size - done);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) {
			*failure = written < 0 ? errno : ENOSPC;
			break;
		}
		done += (size_t)written;
	}
	return done;
}

static void write_plain(struct trace_output *output, const void *records, size_t size)
{
	int failure = 0;
	size_t done = write_bytes(output->fd, records, size, &failure);

	output->offset += done == size ? size : whole_records(records, done);
	if (failure)
		fail(output, failure);
}

/* Compresses what is given; `flush` is zlib's. */
static void squeeze(struct trace_output *output, const void *records, size_t size, int flush)
{
	struct trace_output_stream *stream = output->stream;
	z_stream *deflater = &stream->deflate;

	deflater->next_in = (unsigned char *)(uintptr_t)records;
	deflater->avail_in = (unsigned)size;
	do {
		size_t made;
		int failure = 0;

		deflater->next_out = stream->out;
		deflater->avail_out = CHUNK;
		deflate(deflater, flush); /* fails only when it is used wrongly */
		made = CHUNK - deflater->avail_out;
		if (write_bytes(output->fd, stream->out, made, &failure) != made) {
			fail(output, failure);
			return;
		}
		stream->written += made;
	} while (deflater->avail_out == 0);
	output->waiting += size;
	if (flush == Z_NO_FLUSH)
		return;
	output->offset += stream->written;
	stream->written = output->waiting = 0;
}

void trace_output_write(struct trace_output *output, const void *records, size_t size)
{
	const char *from = records;

	if (output->problem.status)
		return;
	if (!output->stream) {
		write_plain(output, records, size);
		return;
	}
	/* zlib counts in 32 bits. */
	while (size > 0 && !output->problem.status) {
		size_t piece = size < (1u << 30) ? size : 1u << 30;

		squeeze(output, from, piece, Z_NO_FLUSH);
		from += piece;
		size -= piece;
	}
}

void trace_output_flush(struct trace_output *output)
{
	if (output->stream && output->waiting && !output->problem.status)
		squeeze(output, NULL, 0, Z_SYNC_FLUSH);
}

void trace_output_end(struct trace_output *output)
{
	if (output->stream && !output->problem.status)
		squeeze(output, NULL, 0, Z_FINISH);
}
