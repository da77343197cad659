/* Files compressed by gzip (RFC 1952). One thread at a time. */
#ifndef TRACE_GZIP_H
#define TRACE_GZIP_H

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>

/* A stream whose bytes are compressed into another one, the same for the same bytes. fclose() ends
 * the gzip file and reports errors of either stream; `to` stays open. NULL and the error: no
 * memory. */
FILE *gzip_open(FILE *to, struct error *error);

/* True when the file begins like one. Its position stays. */
bool gzip_is_compressed(int fd);

/* Decompresses all of the file into a new one that has no name and goes with its descriptor, in
 * $TMPDIR or /tmp: what is read at any offset needs its bytes, and memory would grow with them. Of
 * a file that is cut or damaged, what comes before that. Untrusted bytes become at most a thousand
 * times as many (deflate's limit). Errors: of the temporary file; GP_ERR_NO_MEMORY. */
gp_status_t gzip_expand(int fd, int *out, struct error *error);

#endif
