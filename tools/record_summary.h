/* What guestprof record says at its end. Private to tools/record*.c. */
#ifndef TOOLS_RECORD_SUMMARY_H
#define TOOLS_RECORD_SUMMARY_H

#include "record_options.h"

#include "sampler/recorder.h"

/* To standard error: how it ended, what became of the ticks, where the time went, and how to look
 * at it; and a line for whatever could not be found out. `trace_fd`: the finished trace, readable;
 * -1: there is none. Opens nothing, for the sandbox is closed by now. */
void record_summary_print(const struct record_options *options, const char *end, int trace_fd,
			  const struct recorder_summary *summary);

/* One line to standard output. */
void record_summary_print_json(const char *end, int code, uint64_t console_dropped,
			       const struct recorder_summary *summary);

#endif
