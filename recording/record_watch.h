/* Shows the records of a session, on their way to the file, to those who collect from them:
 * on the reader thread. */
#ifndef RECORDING_RECORD_WATCH_H
#define RECORDING_RECORD_WATCH_H

#include "naming/leaf_code.h"
#include "naming/namer.h"
#include "naming/user_names.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_MODES 6 /* enum fxt_sample_mode; others count as unknown */

struct record_watch {
	struct namer *namer;         /* sees samples */
	struct leaf_code *leaves;    /* sees samples */
	struct user_names *programs; /* sees samples and the names of processes */
	/* Full samples, for what is shown while the guest runs. Any thread reads. */
	_Atomic uint64_t modes[RECORD_MODES];
};

/* `count` words of records, up to the first that is cut. True: there was something new that may be
 * gone soon, a program or kernel code that nothing is known of: looking at once is worth while. */
bool record_watch_see(struct record_watch *watch, const uint64_t *words, size_t count);

#endif
