/* What `guestprof record` does once its command line has been read, for other subcommands that
 * record. */
#ifndef TOOLS_RECORD_RECORD_H
#define TOOLS_RECORD_RECORD_H

#include "tools/record/record_options.h"

/* Boots and samples a guest, prints what became of it, and returns the exit code. Once in a
 * process: takes over its signals and confines it. */
int record_run(const struct record_options *options);

#endif
