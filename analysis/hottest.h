/* Where the time went, in a line. */
#ifndef ANALYSIS_HOTTEST_H
#define ANALYSIS_HOTTEST_H

#include "trace/trace.h"

#include <stdio.h>

/* One pass over the trace and one line: the hottest functions, or the processes. No line when no
 * sample ran. */
gp_status_t hottest_print(FILE *out, struct trace *trace, bool processes, struct error *error);

#endif
