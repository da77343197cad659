/* Records a session into a file that explains itself: reads the session's rings while the guest
 * runs, and adds what is needed to understand the samples later on another machine: session
 * metadata and the names of the addresses sampled.
 *
 * Everything is written as soon as it is known, in whole records, so that the file is readable up
 * to the cut whatever ends this process. A second thread learns meanwhile what the guest's kernel
 * is (guest-introspection/linux/linux_guest.h), so that samples say which task they are of; only
 * names of sampled addresses go into the file.
 */
#ifndef RECORDING_RECORDER_H
#define RECORDING_RECORDER_H

#include "base/error.h"
#include "guest-introspection/elf/file_copies.h"
#include "naming/namer.h"
#include "recording/guest_log.h"
#include "recording/record_watch.h"
#include "recording/trace_metadata.h"
#include "sampler/target.h"

#include <guestprof/sampler.h>
#include <stdbool.h>
#include <stdint.h>

struct recorder_config {
	struct sampler_target *target;
	gp_sampler_t *session; /* created; started and stopped by the caller */
	int fd;                /* the file, empty; stays the caller's */
	bool compress;         /* by gzip; what a killed recorder leaves is then a second older */

	struct trace_session about;
	struct namer_config names; /* but for the guest, which is the target's */

	/* Where copies of the guest's programs are; NULL: nowhere. Asked by the learner thread, and
	 * at the end by the one that ends the recorder. Borrowed. */
	struct file_copies *copies;

	/* Optional: first thing on the reader and on the learner thread, to confine them. */
	gp_status_t (*on_thread_start)(void *context, struct error *error);
	void *context;
};

struct recorder_summary {
	gp_sampler_totals_t totals; /* of all vCPUs */
	uint64_t addresses;         /* different ones sampled */
	uint64_t unnamed;           /* of them: without a name */
	uint64_t file_bytes;
	struct guest_log_totals console;
	bool kernel_found;
	bool symbols_found;
	char banner[256];     /* the guest kernel's, empty when not found */
	bool panicked;        /* the guest kernel says so itself */
	struct error problem; /* status GP_OK: none. The first failed write, or the like */
	bool tasks_found;
	/* Why something is missing; GP_OK: nothing is. */
	struct error no_names;    /* kernel symbols */
	struct error no_tasks;    /* processes and threads */
	struct error no_programs; /* functions of user programs */
	struct error no_stacks;   /* stacks of a kernel without frame pointers */
};

struct recorder;

/* Writes the head of the file and starts the reader thread. */
gp_status_t recorder_start(const struct recorder_config *config, struct recorder **out,
			   struct error *error);

/* A line of the guest's console, for the trace: see guest_log_put(). Any thread, until
 * recorder_finish(). */
void recorder_note_line(struct recorder *recorder, uint64_t boot_ns, const char *text, size_t size);

/* How many full samples of each mode have been written so far. Any thread, until
 * recorder_finish(). */
void recorder_modes(const struct recorder *recorder, uint64_t modes[RECORD_MODES]);

/* After the session was stopped: ends the reader thread, writes the rest and `end_reason`. The
 * guest's memory must still be there. Frees the recorder. A failed write is in
 * `summary->problem`. */
void recorder_finish(struct recorder *recorder, const char *end_reason,
		     struct recorder_summary *summary);

#endif
