/* What sampling costs the guest, on whatever /dev/kvm there is: the time of one and the same guest
 * work with sampling at several rates, interleaved, and how much of what was asked came. The guest
 * is tests/guests/long4. Medians; ratios within one run; no verdict. */
#include "base/error.h"
#include "vmm/machine.h"

#include <guestprof/sampler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RATES = 4, ROUNDS = 3 };
static const uint64_t rates[RATES] = {0, 1000, 4000, 16000};

struct result {
	double nanoseconds; /* CPU time of the whole run, guest loop included */
	double asked;       /* ticks in the time it took */
	gp_sampler_totals_t totals;
};

/* CPU time of all our threads, the vCPU's in the guest included: others on the host do not count.
 */
static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static bool measure(const char *guest, uint64_t rate, struct result *result)
{
	struct machine_config config = {.kernel = guest,
					.command_line = "run=tree rounds=50",
					.vcpus = 1,
					.memory = 16 << 20,
					.console_input_fd = -1,
					.console_output_fd = -1};
	gp_sampler_config_t sampling = {.size = sizeof(sampling),
					.period_ns = rate ? 1000000000 / rate : 1000000,
					.max_depth = 64};
	struct machine_limits limits = {.timeout_ns = 60000000000};
	struct machine *machine;
	gp_sampler_t *session = NULL;
	struct error error = {0};
	enum machine_end end;
	struct timespec before, after;
	double start;

	if (machine_create(&config, &machine, &error) || machine_start(machine, &error)) {
		printf("skipped: %s\n", error.text);
		return false;
	}
	if (rate && (gp_sampler_create(machine_target(machine), 0, &sampling, &session) ||
		     gp_sampler_start(session, 0))) {
		printf("skipped: no sampler session\n");
		machine_destroy(machine);
		return false;
	}
	clock_gettime(CLOCK_MONOTONIC, &before);
	start = cpu_ns();
	end = machine_run(machine, &limits, &error);
	result->nanoseconds = cpu_ns() - start;
	clock_gettime(CLOCK_MONOTONIC, &after);
	result->asked = rate ? ((double)(after.tv_sec - before.tv_sec) * 1e9 +
				(double)(after.tv_nsec - before.tv_nsec)) /
					1e9 * (double)rate
			     : 0;
	if (session) {
		gp_sampler_stop(session, 0);
		gp_sampler_totals(session, 0, &result->totals);
		gp_sampler_close(session);
	}
	machine_destroy(machine);
	if (end != MACHINE_POWERED_OFF)
		printf("skipped: the guest ended by: %s\n", machine_end_string(end));
	return end == MACHINE_POWERED_OFF;
}

static int compare(const void *left, const void *right)
{
	const struct result *a = left, *b = right;

	return a->nanoseconds < b->nanoseconds ? -1 : a->nanoseconds > b->nanoseconds;
}

int main(void)
{
	static struct result results[RATES][ROUNDS];
	char guest[512];
	ssize_t length = readlink("/proc/self/exe", guest, sizeof(guest) - 32);

	if (length < 0)
		return 1;
	guest[length] = 0;
	for (int up = 0; up < 2; up++)
		*strrchr(guest, '/') = 0;
	strcat(guest, "/guests/long4");
	for (int round = 0; round < ROUNDS; round++)
		for (int rate = 0; rate < RATES; rate++)
			if (!measure(guest, rates[rate], &results[rate][round]))
				return 0;
	for (int rate = 0; rate < RATES; rate++)
		qsort(results[rate], ROUNDS, sizeof(results[rate][0]), compare);
	printf("%10s  %12s  %10s  %10s  %10s  %10s  %10s\n", "Hz", "CPU, ms", "slowdown", "asked",
	       "ticks", "stacks", "dropped");
	for (int rate = 0; rate < RATES; rate++) {
		const struct result *median = &results[rate][ROUNDS / 2];

		printf("%10llu  %12.2f  %10.4f  %10.0f  %10llu  %10llu  %10llu\n",
		       (unsigned long long)rates[rate], median->nanoseconds / 1e6,
		       median->nanoseconds / results[0][ROUNDS / 2].nanoseconds, median->asked,
		       (unsigned long long)median->totals.ticks,
		       (unsigned long long)median->totals.full,
		       (unsigned long long)median->totals.dropped);
	}
	return 0;
}
