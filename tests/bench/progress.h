/* How fast a guest gets on, measured while it runs: what it counts (run=count of the tiny guests)
 * for each nanosecond of its vCPU thread's CPU time.
 *
 * Ways to run it are compared in short windows that take turns, each next to windows of the guest
 * left alone, many times over: the host's mood changes from second to second, by more than what is
 * looked for.
 */
#ifndef TESTS_BENCH_PROGRESS_H
#define TESTS_BENCH_PROGRESS_H

#include "guest-introspection/x86/guest_memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

#define PROGRESS_ADDRESS 0x1ff000 /* tests/guests/guest.h */
#define PROGRESS_WINDOWS_MAX 200

struct progress_guest {
	const struct guest_memory *memory;
	clockid_t cpu; /* of the threads that count */
};

/* The CPU time of one thread of any process (clock_getcpuclockid(3) has the number's form). */
static inline clockid_t progress_thread_clock(pid_t thread)
{
	return (clockid_t)((~(unsigned)thread << 3) | 4 | 2);
}

struct progress_way {
	const char *name;
	const char *goal;
	bool (*begin)(const struct progress_way *way, void *context);
	void (*end)(const struct progress_way *way, void *context);
	uint64_t period_ns;
};

struct progress_result {
	double slowdown[PROGRESS_WINDOWS_MAX]; /* in CPU time */
	double wall[PROGRESS_WINDOWS_MAX];
	unsigned count;
};

struct progress_speed {
	double cpu, wall; /* counted per ns */
};

static inline uint64_t progress_ns(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline uint64_t progress_count(const struct progress_guest *guest)
{
	uint64_t count = 0;

	guest_memory_read(guest->memory, gpa(PROGRESS_ADDRESS), &count, sizeof(count));
	return count;
}

static inline struct progress_speed progress_window(const struct progress_guest *guest,
						    unsigned milliseconds)
{
	struct timespec pause = {.tv_nsec = 5000000};
	uint64_t count, cpu, wall;

	/* What has just begun or ended is over. */
	nanosleep(&pause, NULL);
	count = progress_count(guest);
	cpu = progress_ns(guest->cpu);
	wall = progress_ns(CLOCK_MONOTONIC);
	pause.tv_nsec = (long)milliseconds * 1000000;
	nanosleep(&pause, NULL);
	cpu = progress_ns(guest->cpu) - cpu;
	wall = progress_ns(CLOCK_MONOTONIC) - wall;
	count = progress_count(guest) - count;
	return (struct progress_speed){.cpu = cpu ? (double)count / (double)cpu : 0,
				       .wall = wall ? (double)count / (double)wall : 0};
}

static inline int progress_compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static inline double progress_quantile(double *values, unsigned count, unsigned percent)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), progress_compare);
	return values[count * percent / 100 < count ? count * percent / 100 : count - 1];
}

/* False: a way could not begin, or the guest never counted. */
static inline bool progress_measure(const struct progress_guest *guest,
				    const struct progress_way *ways, unsigned way_count,
				    void *context, unsigned windows, unsigned milliseconds,
				    struct progress_result *results)
{
	struct timespec pause = {.tv_nsec = 10000000};

	for (unsigned i = 0; i < way_count; i++)
		results[i].count = 0;
	for (int waited = 0; !progress_count(guest) && waited < 1000; waited++)
		nanosleep(&pause, NULL);
	for (unsigned round = 0; round < windows && round < PROGRESS_WINDOWS_MAX; round++) {
		struct progress_speed before = progress_window(guest, milliseconds);

		for (unsigned i = 0; i < way_count; i++) {
			struct progress_speed during, after;

			if (!ways[i].begin(&ways[i], context))
				return false;
			during = progress_window(guest, milliseconds);
			ways[i].end(&ways[i], context);
			after = progress_window(guest, milliseconds);
			/* On a busy host a window may pass without a turn for the guest. */
			if (before.cpu > 0 && during.cpu > 0 && after.cpu > 0) {
				results[i].slowdown[results[i].count] =
					(before.cpu + after.cpu) / 2 / during.cpu;
				results[i].wall[results[i].count++] =
					(before.wall + after.wall) / 2 / during.wall;
			}
			before = after;
		}
	}
	for (unsigned i = 0; i < way_count; i++)
		if (!results[i].count)
			return false;
	return true;
}

static inline void progress_print(const struct progress_way *ways, unsigned way_count,
				  struct progress_result *results)
{
	printf("%-22s %9s %17s %9s  %s\n", "", "slowdown", "(quartiles)", "wall", "goal");
	for (unsigned i = 0; i < way_count; i++) {
		double low = progress_quantile(results[i].slowdown, results[i].count, 25);
		double high = progress_quantile(results[i].slowdown, results[i].count, 75);

		printf("%-22s %9.4f (%.4f..%.4f) %9.4f  %s\n", ways[i].name,
		       progress_quantile(results[i].slowdown, results[i].count, 50), low, high,
		       progress_quantile(results[i].wall, results[i].count, 50), ways[i].goal);
	}
}

#endif
