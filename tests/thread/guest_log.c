/* Lines of two vCPUs and their reader, as a program of its own for ThreadSanitizer:
 *
 *     make SAN=thread build/thread/tests/thread/guest_log && build/thread/tests/thread/guest_log
 */
#include "recording/guest_log.h"

#include <stdatomic.h>
#include <stdio.h>

enum { WRITERS = 2, LINES = 100000 };

static struct guest_log guest_log;
static atomic_uint writing = WRITERS;

static void *write_lines(void *argument)
{
	(void)argument;
	for (uint64_t i = 0; i < LINES; i++)
		guest_log_put(&guest_log, i, "a line of the console", 21);
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

int main(void)
{
	static uint64_t words[GUEST_LOG_WAITING_WORDS];
	struct guest_log_totals totals;
	pthread_t writers[WRITERS];
	size_t taken = 0;
	bool last;

	if (!guest_log_init(&guest_log))
		return 1;
	for (int i = 0; i < WRITERS; i++)
		if (pthread_create(&writers[i], NULL, write_lines, NULL))
			return 1;
	do {
		last = !atomic_load(&writing);
		taken += guest_log_take(&guest_log, words, &totals);
	} while (!last);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	guest_log_deinit(&guest_log);
	/* Header, time, process, thread, and 21 bytes. */
	if (totals.lines + totals.lost != WRITERS * LINES || taken != totals.lines * 7) {
		fprintf(stderr, "guest_log: %zu words of %lu lines\n", taken,
			(unsigned long)totals.lines);
		return 1;
	}
	printf("guest_log: %lu lines arrived, %lu were counted as lost\n",
	       (unsigned long)totals.lines, (unsigned long)totals.lost);
	return 0;
}
