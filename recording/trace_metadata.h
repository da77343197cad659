/* What a trace says besides its samples and names: of its session, of the guest, and sums
 * (fxt/metadata.h). Private to sampler/: for recorder.h, on the thread that writes the file. */
#ifndef RECORDING_TRACE_METADATA_H
#define RECORDING_TRACE_METADATA_H

#include "recording/guest_log.h"
#include "guest-introspection/linux/linux_guest.h"
#include "naming/leaf_code.h"
#include "naming/namer.h"
#include "recording/recorder.h"
#include "recording/trace_output.h"
#include "naming/user_code.h"

/* At the beginning: the session, and the names of its vCPUs. */
void trace_metadata_session(struct trace_output *output, const struct recorder_config *config,
			    unsigned vcpu_count);

void trace_metadata_console(struct trace_output *output, const struct guest_log_totals *totals);

/* The guest's kernel, if it was found. */
void trace_metadata_guest(struct trace_output *output, const struct linux_guest *view);

/* The kernel's modules that were sampled and are still there. */
void trace_metadata_modules(struct trace_output *output, const struct linux_guest *view,
			    const struct namer *namer);

void trace_metadata_code(struct trace_output *output, const struct leaf_code_totals *kernel,
			 const struct user_code_totals *user);

/* The end: what became of each vCPU's ticks, and of all, which `sums`, zeroed before, is given,
 * too. After the session was stopped. */
void trace_metadata_totals(struct trace_output *output, const gp_sampler_t *session,
			   unsigned vcpu_count, const char *end_reason, gp_sampler_totals_t *sums);

#endif
