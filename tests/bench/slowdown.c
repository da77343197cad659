/* How much slower a guest of ours gets on while it is sampled, on whatever /dev/kvm there is.
 *
 * Beside sampling: bare kicks (a timer, its signal, KVM_RUN's return and re-entry, no sample), and
 * the timer and signal alone, which interrupt a loop that is no guest. What those two cost is the
 * host's; what sampling costs on top of bare kicks is ours. BENCH_WINDOWS (60) windows of 60 ms
 * each.
 */
#include "sampler/target.h"
#include "tests/bench/progress.h"

#include "base/error.h"
#include "vmm/machine.h"

#include <guestprof/sampler.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KICK_SIGNAL (SIGRTMIN + 5)
#define READ_BYTES (16u << 20)

enum { WINDOW_MS = 60, WAYS_MAX = 8 };

struct bench {
	struct machine *machine;
	struct sampler_target *target;
	gp_sampler_t *session;
	uint8_t *buffer;
	timer_t timer;
	int event;
	uint64_t began_ns;
	const struct progress_way *ways; /* what `counts` are of */
	struct counts {
		double asked; /* ticks, by the time that passed */
		gp_sampler_totals_t totals;
	} counts[WAYS_MAX];
};

static struct sampler_target *kicked_target;
static struct guest_memory loop_memory;
static volatile uint64_t loop_count;
static _Atomic pid_t loop_thread;

/* Sampling. */

static bool begin_sampling(const struct progress_way *way, void *context)
{
	struct bench *bench = context;
	gp_sampler_config_t config = {
		.size = sizeof(config), .period_ns = way->period_ns, .max_depth = 64};

	if (gp_sampler_create(bench->target, 0, &config, &bench->session))
		return false;
	bench->began_ns = progress_ns(CLOCK_MONOTONIC);
	return !gp_sampler_start(bench->session, 0);
}

static void end_sampling(const struct progress_way *way, void *context)
{
	struct bench *bench = context;
	struct counts *counts = &bench->counts[way - bench->ways];
	gp_sampler_totals_t totals = {0};
	size_t size;

	gp_sampler_stop(bench->session, 0);
	counts->asked +=
		(double)(progress_ns(CLOCK_MONOTONIC) - bench->began_ns) / (double)way->period_ns;
	gp_sampler_read(bench->session, 0, bench->buffer, READ_BYTES, &size);
	gp_sampler_totals(bench->session, 0, &totals);
	counts->totals.ticks += totals.ticks;
	counts->totals.full += totals.full;
	counts->totals.partial += totals.partial;
	counts->totals.dropped += totals.dropped;
	gp_sampler_close(bench->session);
	bench->session = NULL;
}

/* Kicks, and signals, without samples. */

static void handle(int signal)
{
	(void)signal;
	if (kicked_target)
		kicked_target->ops->kick(kicked_target, 0);
}

static bool start_timer(struct bench *bench, pid_t thread, uint64_t period)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = KICK_SIGNAL};
	struct itimerspec interval = {.it_value.tv_nsec = (long)period,
				      .it_interval.tv_nsec = (long)period};

	event._sigev_un._tid = thread;
	return !sigaction(KICK_SIGNAL, &action, NULL) &&
	       !timer_create(CLOCK_MONOTONIC, &event, &bench->timer) &&
	       !timer_settime(bench->timer, 0, &interval, NULL);
}

static bool begin_kicks(const struct progress_way *way, void *context)
{
	struct bench *bench = context;

	kicked_target = bench->target;
	return start_timer(bench, bench->target->ops->tick_thread(bench->target, 0),
			   way->period_ns);
}

static bool begin_signals(const struct progress_way *way, void *context)
{
	struct bench *bench = context;

	kicked_target = NULL;
	return start_timer(bench, atomic_load(&loop_thread), way->period_ns);
}

/* Interrupts alone: a software event that counts in the kernel and tells nobody. */
static bool begin_interrupts(const struct progress_way *way, void *context)
{
	struct bench *bench = context;
	struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE,
					     .size = sizeof(attributes),
					     .config = PERF_COUNT_SW_CPU_CLOCK,
					     .sample_period = way->period_ns,
					     .exclude_hv = 1};

	bench->event = (int)syscall(SYS_perf_event_open, &attributes, atomic_load(&loop_thread), -1,
				    -1, PERF_FLAG_FD_CLOEXEC);
	return bench->event >= 0;
}

static void end_interrupts(const struct progress_way *way, void *context)
{
	struct bench *bench = context;

	(void)way;
	close(bench->event);
}

static void end_timer(const struct progress_way *way, void *context)
{
	struct bench *bench = context;

	(void)way;
	timer_delete(bench->timer);
}

/* A loop that is no guest, read as if it were one. */

static bool read_loop(const struct guest_memory *memory, gpa_t address, void *buffer, size_t size)
{
	uint64_t count = loop_count;

	(void)memory;
	(void)address;
	memcpy(buffer, &count, size);
	return true;
}

static void *run_loop(void *argument)
{
	(void)argument;
	atomic_store(&loop_thread, gettid());
	for (;;)
		loop_count++;
	return NULL;
}

static void *run_machine(void *argument)
{
	struct machine_limits limits = {.timeout_ns = UINT64_C(600000000000)};

	machine_run(argument, &limits, NULL);
	return NULL;
}

static void measure_guest(struct bench *bench, unsigned windows)
{
	static const struct progress_way ways[] = {
		{"1 kHz", "", begin_sampling, end_sampling, 1000000},
		{"4 kHz", "<= 1.02", begin_sampling, end_sampling, 250000},
		{"4 kHz, bare kicks", "", begin_kicks, end_timer, 250000},
		{"16 kHz", "<= 1.08", begin_sampling, end_sampling, 62500},
		{"16 kHz, bare kicks", "", begin_kicks, end_timer, 62500},
	};
	enum { WAYS = sizeof(ways) / sizeof(ways[0]) };
	static struct progress_result results[WAYS];
	struct progress_guest guest = {
		.memory = bench->target->ops->memory(bench->target),
		.cpu = progress_thread_clock(bench->target->ops->tick_thread(bench->target, 0))};

	bench->ways = ways;
	if (!progress_measure(&guest, ways, WAYS, bench, windows, WINDOW_MS, results)) {
		puts("not measured: no session, no timer, or the guest does not count");
		return;
	}
	printf("a guest of ours, stacks of 16 frames, %u windows of %d ms each\n", windows,
	       WINDOW_MS);
	progress_print(ways, WAYS, results);
	printf("sampling / bare kicks: 4 kHz %.4f, 16 kHz %.4f\n",
	       progress_quantile(results[1].slowdown, results[1].count, 50) /
		       progress_quantile(results[2].slowdown, results[2].count, 50),
	       progress_quantile(results[3].slowdown, results[3].count, 50) /
		       progress_quantile(results[4].slowdown, results[4].count, 50));
	for (unsigned i = 0; i < WAYS; i++) {
		const gp_sampler_totals_t *totals = &bench->counts[i].totals;

		if (ways[i].begin == begin_sampling)
			printf("%-22s %.0f ticks asked, %llu ticks = %llu stacks + %llu partial + "
			       "%llu dropped\n",
			       ways[i].name, bench->counts[i].asked,
			       (unsigned long long)totals->ticks, (unsigned long long)totals->full,
			       (unsigned long long)totals->partial,
			       (unsigned long long)totals->dropped);
	}
}

static void measure_loop(struct bench *bench, unsigned windows)
{
	static const struct progress_way ways[] = {
		{"4 kHz", "", begin_signals, end_timer, 250000},
		{"4 kHz, no signal", "", begin_interrupts, end_interrupts, 250000},
		{"16 kHz", "", begin_signals, end_timer, 62500},
		{"16 kHz, no signal", "", begin_interrupts, end_interrupts, 62500},
	};
	enum { WAYS = sizeof(ways) / sizeof(ways[0]) };
	static struct progress_result results[WAYS];
	struct progress_guest loop = {.memory = &loop_memory};
	pthread_t thread;

	loop_memory.read = read_loop;
	if (pthread_create(&thread, NULL, run_loop, NULL)) {
		puts("not measured: no thread");
		return;
	}
	while (!atomic_load(&loop_thread))
		usleep(100);
	loop.cpu = progress_thread_clock(atomic_load(&loop_thread));
	printf("\ntimer and signal alone, on a plain loop without a guest; and the interrupt "
	       "alone\n");
	if (progress_measure(&loop, ways, WAYS, bench, windows, WINDOW_MS, results))
		progress_print(ways, WAYS, results);
	else
		puts("not measured: no timer or no perf events");
}

int main(void)
{
	static char guest_path[512];
	const char *text = getenv("BENCH_WINDOWS");
	unsigned windows = text ? (unsigned)strtoul(text, NULL, 10) : 60;
	struct machine_config config = {.kernel = guest_path,
					.command_line = "run=count depth=13",
					.vcpus = 1,
					.memory = 16 << 20,
					.console_input_fd = -1,
					.console_output_fd = -1};
	struct bench bench = {.buffer = malloc(READ_BYTES)};
	ssize_t length = readlink("/proc/self/exe", guest_path, sizeof(guest_path) - 32);
	struct error error = {0};
	pthread_t thread;

	if (length < 0 || !bench.buffer)
		return 1;
	if (!windows || windows > PROGRESS_WINDOWS_MAX)
		windows = 60;
	memset(bench.buffer, 0, READ_BYTES);
	guest_path[length] = 0;
	for (int up = 0; up < 2; up++)
		*strrchr(guest_path, '/') = 0;
	strcat(guest_path, "/guests/long4");
	if (machine_create(&config, &bench.machine, NULL, &error) ||
	    machine_start(bench.machine, &error)) {
		printf("not measured: %s\n", error.text);
		return 0;
	}
	bench.target = machine_target(bench.machine);
	if (pthread_create(&thread, NULL, run_machine, bench.machine)) {
		puts("not measured: no thread");
		return 0;
	}
	usleep(200000);
	measure_guest(&bench, windows);
	machine_request_end(bench.machine, GUEST_SIGNALLED);
	pthread_join(thread, NULL);
	machine_destroy(bench.machine);
	measure_loop(&bench, windows);
	free(bench.buffer);
	return 0;
}
