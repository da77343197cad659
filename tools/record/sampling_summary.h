/* What the commands that sample say at their end. */
#ifndef TOOLS_RECORD_SAMPLING_SUMMARY_H
#define TOOLS_RECORD_SAMPLING_SUMMARY_H

#include "tools/record/sampling.h"

/* To standard error: how it ended, what became of the ticks, where the time went, and how to look
 * at it; and a line for everything that could not be found out. Reads the finished trace through
 * its descriptor and opens nothing, for a sandbox is closed by now. */
void sampling_print_summary(const struct sampling *sampling, const char *end,
			    const struct recorder_summary *summary);

/* The members of the line of JSON that all commands have, without braces. */
void sampling_print_json(const char *end, int code, const struct recorder_summary *summary);

#endif
