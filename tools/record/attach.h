/* What `guestprof attach` does once its command line has been read, for other subcommands that
 * attach. */
#ifndef TOOLS_RECORD_ATTACH_H
#define TOOLS_RECORD_ATTACH_H

#include "tools/record/attach_options.h"

/* Attaches, samples, prints what became of it, and returns the exit code. Once in a process: takes
 * over its signals. */
int attach_run(const struct attach_options *options);

#endif
