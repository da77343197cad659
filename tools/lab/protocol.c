#include "tools/lab/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define HEADER 8u
#define BUFFER_BYTES 4096u

static bool reserve(uint8_t **buffer, size_t *capacity, size_t wanted)
{
	size_t size = *capacity ? *capacity : BUFFER_BYTES;
	uint8_t *grown;

	if (wanted <= *capacity)
		return true;
	while (size < wanted)
		size *= 2;
	grown = realloc(*buffer, size);
	if (!grown)
		return false;
	*buffer = grown;
	*capacity = size;
	return true;
}

/* The length that a frame's header gives; the header must be there. */
static uint32_t frame_length(const uint8_t *header)
{
	uint32_t length;

	memcpy(&length, header + 4, sizeof(length));
	return length;
}

bool lab_reader_fill(struct lab_reader *reader)
{
	size_t wanted = BUFFER_BYTES;
	ssize_t got;

	if (reader->ended)
		return false;
	if (reader->start) {
		memmove(reader->buffer, reader->buffer + reader->start,
			reader->used - reader->start);
		reader->used -= reader->start;
		reader->start = 0;
	}
	if (reader->used >= HEADER && frame_length(reader->buffer) <= LAB_FRAME_MAX &&
	    frame_length(reader->buffer) + HEADER > wanted)
		wanted = frame_length(reader->buffer) + HEADER;
	if (!reserve(&reader->buffer, &reader->capacity, wanted)) {
		reader->ended = true;
		return false;
	}
	if (reader->used == reader->capacity)
		return true;
	do {
		got = read(reader->fd, reader->buffer + reader->used,
			   reader->capacity - reader->used);
	} while (got < 0 && errno == EINTR);
	if (got > 0)
		reader->used += (size_t)got;
	else if (got == 0 || errno != EAGAIN)
		reader->ended = true;
	return !reader->ended;
}

bool lab_reader_next(struct lab_reader *reader, struct lab_frame *frame)
{
	uint8_t *header;
	size_t have = reader->used - reader->start;

	if (have < HEADER)
		return false;
	header = reader->buffer + reader->start;
	if (frame_length(header) > LAB_FRAME_MAX) {
		reader->ended = true;
		reader->used = reader->start = 0;
		return false;
	}
	if (have - HEADER < frame_length(header))
		return false;
	memcpy(&frame->kind, header, sizeof(frame->kind));
	frame->length = frame_length(header);
	frame->payload = header + HEADER;
	reader->start += HEADER + frame->length;
	return true;
}

void lab_reader_deinit(struct lab_reader *reader)
{
	free(reader->buffer);
	reader->buffer = NULL;
	reader->start = reader->used = reader->capacity = 0;
}

bool lab_writer_put(struct lab_writer *writer, enum lab_frame_kind kind, const void *payload,
		    size_t length)
{
	uint32_t header[2] = {(uint32_t)kind, (uint32_t)length};

	if (length > LAB_FRAME_MAX)
		return false;
	if (writer->sent) {
		memmove(writer->buffer, writer->buffer + writer->sent, writer->used - writer->sent);
		writer->used -= writer->sent;
		writer->sent = 0;
	}
	if (!reserve(&writer->buffer, &writer->capacity, writer->used + HEADER + length))
		return false;
	memcpy(writer->buffer + writer->used, header, HEADER);
	if (length)
		memcpy(writer->buffer + writer->used + HEADER, payload, length);
	writer->used += HEADER + length;
	return true;
}

bool lab_writer_flush(struct lab_writer *writer)
{
	while (lab_writer_pending(writer)) {
		ssize_t put = write(writer->fd, writer->buffer + writer->sent,
				    writer->used - writer->sent);

		if (put > 0)
			writer->sent += (size_t)put;
		else if (put < 0 && errno == EAGAIN)
			return true;
		else if (put == 0 || errno != EINTR)
			return false;
	}
	writer->sent = writer->used = 0;
	return true;
}

void lab_writer_deinit(struct lab_writer *writer)
{
	free(writer->buffer);
	writer->buffer = NULL;
	writer->sent = writer->used = writer->capacity = 0;
}
