/* The command line of guestprof record. */
#ifndef TOOLS_RECORD_RECORD_OPTIONS_H
#define TOOLS_RECORD_RECORD_OPTIONS_H

#include "tools/record/sampling_options.h"
#include "vmm/machine.h"

#include <stdbool.h>
#include <stdint.h>

struct record_options {
	struct machine_config machine;
	struct sampling_options sampling; /* period_ns 0: boot without sampling */
	uint64_t timeout_ns;
};

/* Returns -1 to go on, or the exit code (help was printed, or what is wrong). */
int record_options_parse(int argc, char **argv, struct record_options *options);

#endif
