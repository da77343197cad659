/* A stream whose bytes are compressed into another one as a gzip file (RFC 1952), the same for the
 * same bytes. One thread at a time. */
#ifndef PROFILE_GZIP_H
#define PROFILE_GZIP_H

#include "base/error.h"

#include <stdio.h>

/* fclose() ends the gzip file and reports errors of either stream; `to` stays open. NULL and the
 * error: no memory. */
FILE *gzip_open(FILE *to, struct error *error);

#endif
