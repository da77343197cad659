/* A session with its trace: what every command that samples does in the same way, whatever process
 * has the vCPUs. The caller makes the target, waits, and ends. */
#ifndef TOOLS_RECORD_SAMPLING_H
#define TOOLS_RECORD_SAMPLING_H

#include "base/error.h"
#include "naming/program_files.h"
#include "recording/recorder.h"
#include "tools/record/sampling_options.h"
#include "recording/symbol_files.h"
#include "vmm/machine.h"

#include <guestprof/sampler.h>

struct sampling {
	const char *command; /* "guestprof record": for messages */
	const struct sampling_options *options;
	gp_sampler_t *session;
	struct recorder *recorder;
	struct symbol_files symbols;
	struct symbol_table kernel_file; /* of the kernel that is booted */
	bool has_kernel_file;
	struct program_files *programs; /* NULL without sampling */
	int output_fd;
};

/* Opens the symbol files and starts the helper that finds copies of the guest's programs, in
 * `machine`'s initrd and disks, too, if that is not NULL; the trace is not touched yet. Before any
 * thread. Use sampling_deinit() also when it fails. */
gp_status_t sampling_init(struct sampling *sampling, const char *command,
			  const struct machine_config *machine,
			  const struct sampling_options *options, struct error *error);
/* Takes the symbols of the kernel at `path`, if it has any. Before any thread. */
gp_status_t sampling_use_kernel(struct sampling *sampling, const char *path, struct error *error);
/* What was not finished is, with `end_reason` "not started". */
void sampling_deinit(struct sampling *sampling);

/* Whether the trace is written compressed: its name ends as gzip would have it. */
bool sampling_is_compressed(const struct sampling_options *options);

/* Opens and empties the trace; it can be read, too. */
gp_status_t sampling_open_output(struct sampling *sampling, struct error *error);

/* Starts session and recorder. `config` has what is not in the options: the target and what the
 * file says about it. */
gp_status_t sampling_start(struct sampling *sampling, struct recorder_config *config,
			   struct error *error);

/* Stops and completes the trace. `summary` stays zero when nothing was started. */
void sampling_finish(struct sampling *sampling, const char *end_reason,
		     struct recorder_summary *summary);

#endif
