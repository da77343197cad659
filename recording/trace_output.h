/* The file that a recorder writes: whole records, as they are or compressed by gzip. One
 * thread at a time.
 *
 * A file that is cut, because its writer was killed or its disk is full, is good up to there: of
 * plain records the last whole one, of compressed ones what trace_output_flush() came after. The
 * first failure stands, and what is given afterwards is left out: it would be torn. */
#ifndef RECORDING_TRACE_OUTPUT_H
#define RECORDING_TRACE_OUTPUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_output {
	int fd;                             /* the caller's; a file at its beginning */
	uint64_t offset;                    /* bytes of the file that are good */
	uint64_t waiting;                   /* bytes given since the last flush */
	struct trace_output_stream *stream; /* NULL: not compressed */
	struct error problem;               /* why the file ends early; GP_OK: it does not */
};

/* Compression takes 330 KiB. GP_ERR_NO_MEMORY. */
gp_status_t trace_output_init(struct trace_output *output, int fd, bool compress,
			      struct error *error);

/* Allowed on a zeroed one. Does not end the file. */
void trace_output_deinit(struct trace_output *output);

/* Whole records of FXT. */
void trace_output_write(struct trace_output *output, const void *records, size_t size);

/* The same of so many words; none is nothing. */
static inline void trace_output_words(struct trace_output *output, const uint64_t *words,
				      size_t count)
{
	if (count)
		trace_output_write(output, words, count * sizeof(*words));
}

/* All that was given is in the file. What is compressed in small pieces becomes larger: once in a
 * while. */
void trace_output_flush(struct trace_output *output);

/* Nothing more comes. */
void trace_output_end(struct trace_output *output);

#endif
