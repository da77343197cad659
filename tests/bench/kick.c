/* What a stop costs (slowdown.c: what a guest loses), on whatever /dev/kvm there is, as ratios
 * within one run.
 *
 * stop     how long a vCPU stands still: from KVM_RUN's return to the next KVM_RUN, for a bare kick
 *          and for stacks of 4, 16 and 64 frames; and what a whole kick costs in CPU time (timer,
 *          signal, EINTR, re-entry) with and without a sample
 * ticks    two vCPUs at 4 kHz for BENCH_SECONDS (10): what became of the ticks, and whether the
 *          session's memory stays as it was after a second
 *
 * Rounds of the ways compared take turns; medians. CPU time is that of all our threads but the
 * reader, so that others on the host count for little; a stop's time is CLOCK_MONOTONIC, so that
 * they show in its tail. The guest is tests/guests/long4. The linker puts ioctl() below in front of
 * the C library's (--wrap, tests/tests.mk): the machine itself has no hook.
 */
#include "base/error.h"
#include "sampler/target.h"
#include "vmm/machine.h"

#include <errno.h>
#include <guestprof/sampler.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KICK_SIGNAL (SIGRTMIN + 5)
#define NS_PER_SECOND 1000000000ull
#define STOPS_MAX (1u << 20)
#define READ_BYTES (16u << 20)

/* Each measure ends after this long if it has its fewest rounds, so that a busy host does not make
 * it endless. */
#define BUDGET_NS (25 * NS_PER_SECOND)

enum { ROUNDS = 7, ROUNDS_MIN = 3, WAYS = 5 };

static char guest_path[512];

/* Stop times. */

static struct {
	_Atomic bool on;
	uint32_t ns[STOPS_MAX];
	size_t count;
} stops;
static __thread uint64_t interrupted_at;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;
	int result;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request != KVM_RUN || !atomic_load_explicit(&stops.on, memory_order_relaxed))
		return __real_ioctl(fd, request, argument);
	if (interrupted_at && stops.count < STOPS_MAX)
		stops.ns[stops.count++] = (uint32_t)(clock_ns(CLOCK_MONOTONIC) - interrupted_at);
	result = __real_ioctl(fd, request, argument);
	/* Only one vCPU runs while this is on. */
	interrupted_at = result < 0 && errno == EINTR ? clock_ns(CLOCK_MONOTONIC) : 0;
	return result;
}

/* A bare kick: a timer like the sampler's, whose handler only asks for the vCPU to stop. */

static struct sampler_target *kicked_target;
static _Atomic uint64_t bare_kicks;

static void handle_kick(int signal)
{
	(void)signal;
	atomic_fetch_add_explicit(&bare_kicks, 1, memory_order_relaxed);
	kicked_target->ops->kick(kicked_target, 0);
}

static bool start_kicks(struct sampler_target *target, uint64_t period, timer_t *timer)
{
	struct sigaction action = {.sa_handler = handle_kick, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = KICK_SIGNAL};
	struct itimerspec interval = {.it_value.tv_nsec = (long)period,
				      .it_interval.tv_nsec = (long)period};

	kicked_target = target;
	atomic_store(&bare_kicks, 0);
	event._sigev_un._tid = target->ops->tick_thread(target, 0);
	return !sigaction(KICK_SIGNAL, &action, NULL) &&
	       !timer_create(CLOCK_MONOTONIC, &event, timer) &&
	       !timer_settime(*timer, 0, &interval, NULL);
}

/* The reader of a session. */

struct reader {
	gp_sampler_t *session;
	pthread_t thread;
	_Atomic bool end;
	uint8_t *buffer;
	uint64_t bytes;
	uint64_t cpu_ns;
	bool failed;
};

static void *read_all(void *argument)
{
	struct reader *reader = argument;

	for (bool last = false;;) {
		size_t size = 0;

		last = atomic_load(&reader->end);
		if (gp_sampler_read(reader->session, 0, reader->buffer, READ_BYTES, &size))
			reader->failed = true;
		reader->bytes += size;
		if (last)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	reader->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

/* One guest, from its first instruction to its end. */

enum kind { NONE, BARE, SAMPLED };

struct way {
	const char *name;
	enum kind kind;
	uint64_t period_ns;
	uint32_t depth;
};

struct result {
	double cpu;   /* ns, without the reader */
	double wall;  /* ns */
	double kicks; /* bare kicks, or stops of the session */
	uint64_t bytes;
	gp_sampler_totals_t totals;
};

static bool skip(const char *why)
{
	printf("not measured: %s\n", why);
	return false;
}

static bool measure(const struct way *way, const char *command_line, struct result *result)
{
	static uint8_t *buffer;
	struct machine_config config = {.kernel = guest_path,
					.command_line = command_line,
					.vcpus = 1,
					.memory = 16 << 20,
					.console_input_fd = -1,
					.console_output_fd = -1};
	gp_sampler_config_t sampling = {
		.size = sizeof(sampling), .period_ns = way->period_ns, .max_depth = way->depth};
	struct machine_limits limits = {.timeout_ns = 60 * NS_PER_SECOND};
	struct reader reader = {0};
	struct machine *machine;
	struct error error = {0};
	enum guest_end end;
	timer_t timer;
	bool done = false;
	uint64_t cpu, wall;

	if (!buffer) {
		buffer = malloc(READ_BYTES);
		if (!buffer)
			return skip("no memory");
		memset(buffer, 0, READ_BYTES);
	}
	reader.buffer = buffer;
	if (machine_create(&config, &machine, NULL, &error))
		return skip(error.text);
	if (machine_start(machine, &error)) {
		skip(error.text);
		goto destroy;
	}
	if (way->kind == BARE && !start_kicks(machine_target(machine), way->period_ns, &timer)) {
		skip("no timer");
		goto destroy;
	}
	if (way->kind == SAMPLED) {
		if (gp_sampler_create(machine_target(machine), 0, &sampling, &reader.session) ||
		    gp_sampler_start(reader.session, 0) ||
		    pthread_create(&reader.thread, NULL, read_all, &reader)) {
			gp_sampler_close(reader.session);
			skip("no sampler session");
			goto destroy;
		}
	}
	cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	wall = clock_ns(CLOCK_MONOTONIC);
	end = machine_run(machine, &limits, &error);
	cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	wall = clock_ns(CLOCK_MONOTONIC) - wall;
	if (way->kind == SAMPLED) {
		atomic_store(&reader.end, true);
		pthread_join(reader.thread, NULL);
		gp_sampler_stop(reader.session, 0);
		gp_sampler_totals(reader.session, 0, &result->totals);
		gp_sampler_close(reader.session);
		result->kicks = (double)result->totals.full;
		result->bytes = reader.bytes;
	} else if (way->kind == BARE) {
		timer_delete(timer);
		result->kicks = (double)atomic_load(&bare_kicks);
	}
	result->cpu = (double)(cpu > reader.cpu_ns ? cpu - reader.cpu_ns : 0);
	result->wall = (double)wall;
	done = end == GUEST_POWERED_OFF;
	if (!done)
		skip(end == GUEST_ERROR ? error.text : guest_end_string(end));
destroy:
	machine_destroy(machine);
	return done;
}

static int compare_double(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return a < b ? -1 : a > b;
}

static double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare_double);
	return values[count / 2];
}

static int compare_stop(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return a < b ? -1 : a > b;
}

/* Whether round number `round` of a measure that began at `begin` is still to be made. */
static bool goes_on(int round, uint64_t begin)
{
	return round < ROUNDS_MIN ||
	       (round < ROUNDS && clock_ns(CLOCK_MONOTONIC) - begin < BUDGET_NS);
}

/* How many rounds of this guest take about `ms` of CPU time. 0: it does not run. */
static unsigned calibrate(const char *role, unsigned ms)
{
	const struct way none = {.kind = NONE};
	struct result result = {0};
	char command_line[128];
	unsigned rounds = 8;

	do {
		rounds *= 4;
		snprintf(command_line, sizeof(command_line), "%s rounds=%u", role, rounds);
		if (!measure(&none, command_line, &result))
			return 0;
	} while (result.cpu < 50e6 && rounds < 1u << 24);
	return (unsigned)(rounds * (ms * 1e6 / result.cpu)) + 1;
}

/* Stops and kicks. */

static void measure_stops(void)
{
	enum { PERIOD = 100000 };
	static const struct way ways[WAYS] = {{"no kicks", NONE, 0, 0},
					      {"bare kick", BARE, PERIOD, 0},
					      {"4 frames", SAMPLED, PERIOD, 4},
					      {"16 frames", SAMPLED, PERIOD, 16},
					      {"64 frames", SAMPLED, PERIOD, 64}};
	static uint32_t kept[WAYS][STOPS_MAX / 4];
	static size_t kept_count[WAYS];
	double cpu[WAYS][ROUNDS], kicks[WAYS][ROUNDS], cost[WAYS] = {0};
	const char role[] = "run=nested depth=70";
	unsigned rounds = calibrate(role, 500);
	uint64_t begin = clock_ns(CLOCK_MONOTONIC);
	int made = 0;
	double none;
	char command_line[128];

	if (!rounds)
		return;
	snprintf(command_line, sizeof(command_line), "%s rounds=%u", role, rounds);
	for (; goes_on(made, begin); made++) {
		for (int way = 0; way < WAYS; way++) {
			struct result result = {0};
			bool measured;

			stops.count = 0;
			atomic_store(&stops.on, ways[way].kind != NONE);
			measured = measure(&ways[way], command_line, &result);
			atomic_store(&stops.on, false);
			if (!measured)
				goto enough;
			cpu[way][made] = result.cpu;
			kicks[way][made] = result.kicks;
			for (size_t i = 0; i < stops.count && kept_count[way] < STOPS_MAX / 4; i++)
				kept[way][kept_count[way]++] = stops.ns[i];
		}
	}
enough:
	if (!made)
		return;
	for (int way = WAYS - 1; way > 0; way--) {
		double costs[ROUNDS];

		/* Against the same round's guest without kicks. */
		for (int round = 0; round < made; round++)
			costs[round] = kicks[way][round] > 0 ? (cpu[way][round] - cpu[0][round]) /
								       kicks[way][round]
							     : 0;
		cost[way] = median(costs, (size_t)made);
	}
	none = median(cpu[0], (size_t)made);
	printf("10 kHz, guest work of %.0f ms CPU time, %d rounds\n", none / 1e6, made);
	printf("%-12s %9s %12s %12s %14s %9s\n", "", "stops", "stop median", "stop p99",
	       "CPU per kick", "/ bare");
	for (int way = 1; way < WAYS; way++) {
		size_t count = kept_count[way];

		if (!count) {
			printf("%-12s not measured: no stop\n", ways[way].name);
			continue;
		}
		qsort(kept[way], count, sizeof(kept[way][0]), compare_stop);
		printf("%-12s %9zu %9.2f us %9.2f us %11.2f us %9.2f\n", ways[way].name, count,
		       kept[way][count / 2] / 1e3, kept[way][count * 99 / 100] / 1e3,
		       cost[way] / 1e3, cost[1] > 0 ? cost[way] / cost[1] : 0);
	}
	printf("goals: 16 frames: median <= 2 us, p99 <= 10 us, <= 1.3 bare kicks\n");
}

/* Two vCPUs for a while. */

static double resident_mib(void)
{
	unsigned long total, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file && fscanf(file, "%lu %lu", &total, &resident) != 2)
		resident = 0;
	if (file)
		fclose(file);
	return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

struct run {
	struct machine *machine;
	struct machine_limits limits;
	enum guest_end end;
	struct error error;
};

static void *run_machine(void *argument)
{
	struct run *run = argument;

	run->end = machine_run(run->machine, &run->limits, &run->error);
	return NULL;
}

static void measure_ticks(unsigned seconds)
{
	enum { VCPUS = 2, RATE = 4000 };
	struct machine_config config = {.kernel = guest_path,
					.command_line = "run=smp rounds=0 cpus=2",
					.vcpus = VCPUS,
					.memory = 16 << 20,
					.console_input_fd = -1,
					.console_output_fd = -1};
	gp_sampler_config_t sampling = {
		.size = sizeof(sampling), .period_ns = NS_PER_SECOND / RATE, .max_depth = 64};
	struct run run = {.limits = {.timeout_ns = (seconds + 60) * NS_PER_SECOND}};
	struct reader reader = {.buffer = malloc(READ_BYTES)};
	gp_sampler_totals_t sum = {0};
	uint64_t begin = 0, took;
	double early, late;
	pthread_t thread;
	bool running = false;

	printf("\n");
	if (!reader.buffer) {
		skip("no memory");
		return;
	}
	memset(reader.buffer, 0, READ_BYTES);
	if (machine_create(&config, &run.machine, NULL, &run.error)) {
		skip(run.error.text);
		free(reader.buffer);
		return;
	}
	if (machine_start(run.machine, &run.error)) {
		skip(run.error.text);
	} else if (gp_sampler_create(machine_target(run.machine), 0, &sampling, &reader.session) ||
		   gp_sampler_start(reader.session, 0)) {
		skip("no sampler session");
	} else {
		begin = clock_ns(CLOCK_MONOTONIC);
		running = !pthread_create(&reader.thread, NULL, read_all, &reader);
	}
	if (running && pthread_create(&thread, NULL, run_machine, &run)) {
		skip("no thread");
		atomic_store(&reader.end, true);
		pthread_join(reader.thread, NULL);
		running = false;
	}
	if (!running) {
		gp_sampler_close(reader.session);
		machine_destroy(run.machine);
		free(reader.buffer);
		return;
	}
	sleep(1);
	early = resident_mib();
	sleep(seconds - 1);
	late = resident_mib();
	gp_sampler_stop(reader.session, 0);
	took = clock_ns(CLOCK_MONOTONIC) - begin;
	machine_request_end(run.machine, GUEST_SIGNALLED);
	pthread_join(thread, NULL);
	atomic_store(&reader.end, true);
	pthread_join(reader.thread, NULL);
	for (unsigned i = 0; i < VCPUS; i++) {
		gp_sampler_totals_t totals;

		gp_sampler_totals(reader.session, i, &totals);
		printf("vCPU %u: %llu ticks = %llu full + %llu partial + %llu dropped\n", i,
		       (unsigned long long)totals.ticks, (unsigned long long)totals.full,
		       (unsigned long long)totals.partial, (unsigned long long)totals.dropped);
		sum.ticks += totals.ticks;
		sum.full += totals.full;
		sum.partial += totals.partial;
		sum.dropped += totals.dropped;
	}
	gp_sampler_close(reader.session);
	machine_destroy(run.machine);
	printf("%u vCPUs at %u Hz, %.1f s: %.4f of the ticks asked for came; %.2f %% became full "
	       "or partial records, %llu dropped (goal: 100 %%, 0)%s%s\n",
	       VCPUS, RATE, (double)took / 1e9,
	       (double)sum.ticks / ((double)took / 1e9 * RATE * VCPUS),
	       sum.ticks ? 100.0 * (double)(sum.full + sum.partial) / (double)sum.ticks : 0,
	       (unsigned long long)sum.dropped, reader.failed ? "; the reader FAILED" : "",
	       run.end == GUEST_SIGNALLED ? "" : "; the guest ended by itself");
	printf("resident after 1 s: %.2f MiB, after %u s: %.2f MiB (goal: equal)\n", early, seconds,
	       late);
	free(reader.buffer);
}

int main(void)
{
	const char *text = getenv("BENCH_SECONDS");
	unsigned seconds = text ? (unsigned)strtoul(text, NULL, 10) : 10;
	ssize_t length = readlink("/proc/self/exe", guest_path, sizeof(guest_path) - 32);

	if (length < 0)
		return 1;
	guest_path[length] = 0;
	for (int up = 0; up < 2; up++)
		*strrchr(guest_path, '/') = 0;
	strcat(guest_path, "/guests/long4");
	measure_stops();
	measure_ticks(seconds > 1 ? seconds : 2);
	return 0;
}
