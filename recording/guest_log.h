/* Lines that a guest printed on its console, on their way into the trace as FXT log records.
 *
 * A vCPU's thread puts a line in, the recorder's reader takes it out. The guest decides how much it
 * prints, so all is bounded: a line's length, the lines that wait for the reader, and what one
 * session may hold. What has no room is counted, and the reader is told the count to write it down.
 */
#ifndef RECORDING_GUEST_LOG_H
#define RECORDING_GUEST_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_LOG_TEXT_MAX 512             /* bytes of a line; the rest is cut off */
#define GUEST_LOG_WAITING_WORDS 8192       /* 64 KiB: some thousand lines in one reader's turn */
#define GUEST_LOG_SESSION_WORDS (2u << 20) /* 16 MiB of records, in all */

struct guest_log_totals {
	uint64_t lines; /* taken, those that were cut too */
	uint64_t cut;   /* of them: longer than GUEST_LOG_TEXT_MAX */
	uint64_t lost;  /* no room: not in the trace */
};

struct guest_log {
	pthread_mutex_t lock;
	uint64_t *words; /* whole records */
	size_t used;
	size_t all; /* words taken in this session */
	struct guest_log_totals totals;
};

/* False: no memory. */
bool guest_log_init(struct guest_log *log);
void guest_log_deinit(struct guest_log *log);

/* `text` as the guest printed it, without its line end; `boot_ns` by CLOCK_BOOTTIME. Lines without
 * a visible character are passed over and not counted. Any thread; allocates nothing, and waits for
 * a copy of 64 KiB at most. */
void guest_log_put(struct guest_log *log, uint64_t boot_ns, const char *text, size_t size);

/* Moves all records to `words`, room for GUEST_LOG_WAITING_WORDS, and returns how many words they
 * are. `totals` are those at this moment. Any thread. */
size_t guest_log_take(struct guest_log *log, uint64_t *words, struct guest_log_totals *totals);

#endif
