/* What a trace says besides its samples and names: of its session, of the guest, and sums
 * (fxt/metadata.h). For recorder.h, on the thread that writes the file. */
#ifndef RECORDING_TRACE_METADATA_H
#define RECORDING_TRACE_METADATA_H

#include "recording/guest_log.h"
#include "guest-introspection/linux/linux_guest.h"
#include "naming/leaf_code.h"
#include "naming/namer.h"
#include "recording/trace_output.h"

#include <guestprof/sampler.h>

/* What a trace says about its session. Texts may be NULL. */
struct trace_session {
	uint64_t period_ns;
	const char *tick_source;
	uint32_t depth;
	uint64_t memory_bytes;
	const char *kernel;
	const char *command_line;
	const char *source; /* whose vCPUs these are and how they are read; NULL: our own VMM's */
};

/* At the beginning: the session, and the names of its vCPUs. */
void trace_metadata_session(struct trace_output *output, const struct trace_session *session,
			    unsigned vcpu_count);

void trace_metadata_console(struct trace_output *output, const struct guest_log_totals *totals);

/* The guest's kernel, if it was found. */
void trace_metadata_guest(struct trace_output *output, const struct linux_guest *guest);

/* The kernel's modules that were sampled and are still there. */
void trace_metadata_modules(struct trace_output *output, const struct linux_guest *guest,
			    const struct namer *namer);

void trace_metadata_code(struct trace_output *output, const struct code_totals *kernel,
			 const struct code_totals *user);

/* The end: what became of each vCPU's ticks, and of all, which `sums`, zeroed before, is given,
 * too. After the session was stopped. */
void trace_metadata_totals(struct trace_output *output, const gp_sampler_t *session,
			   unsigned vcpu_count, const char *end_reason, gp_sampler_totals_t *sums);

#endif
