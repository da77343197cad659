/* Each system call on a session's way fails once, at its first, second ... nth time. What is
 * checked each time: the status is one that the call documents, the vCPUs go on, the next session
 * on the same target works, nothing is left behind, and the file can be read.
 *
 * The linker directs the library's calls to the functions named __wrap_ here (see tests/tests.mk).
 */
#include "tests/unit/fake_target.h"

#include "recording/recorder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define NTH_MAX 200 /* far beyond what a session needs: only a defect gets there */
#define ALWAYS UINT_MAX

enum call {
	CALL_CALLOC,
	CALL_MMAP,
	CALL_MLOCK,
	CALL_TIMER_CREATE,
	CALL_TIMER_SETTIME,
	CALL_SIGACTION,
	CALL_SYSCALL, /* perf_event_open, rt_tgsigqueueinfo */
	CALL_FCNTL,
	CALL_IOCTL,
	CALL_WRITE,
	CALL_FTRUNCATE,
	CALL_EVENTFD,
	CALL_PTHREAD_CREATE,
	CALLS,
};

static const char *const call_names[CALLS] = {
	"calloc", "mmap",  "mlock", "timer_create", "timer_settime", "sigaction",      "syscall",
	"fcntl",  "ioctl", "write", "ftruncate",    "eventfd",       "pthread_create",
};

static _Atomic unsigned calls_made[CALLS];
static _Atomic unsigned fail_at[CALLS]; /* 0: never; n: the nth; ALWAYS */
static _Atomic bool failed;             /* since it was last cleared */

/* Async-signal-safe: some of these are called in the tick's handler. */
static bool must_fail(enum call call)
{
	unsigned wanted = atomic_load(&fail_at[call]);
	unsigned made = atomic_fetch_add(&calls_made[call], 1) + 1;

	if (wanted != ALWAYS && made != wanted)
		return false;
	atomic_store(&failed, true);
	return true;
}

static void forget_faults(void)
{
	for (int i = 0; i < CALLS; i++) {
		atomic_store(&fail_at[i], 0);
		atomic_store(&calls_made[i], 0);
	}
}

#define WRAP(result, name, ...)            \
	result __real_##name(__VA_ARGS__); \
	result __wrap_##name(__VA_ARGS__); \
	result __wrap_##name(__VA_ARGS__)
#define FAIL_WITH(call, number, failure)  \
	do {                              \
		if (must_fail(call)) {    \
			errno = (number); \
			return failure;   \
		}                         \
	} while (0)

WRAP(void *, calloc, size_t count, size_t size)
{
	FAIL_WITH(CALL_CALLOC, ENOMEM, NULL);
	return __real_calloc(count, size);
}

WRAP(void *, mmap, void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	FAIL_WITH(CALL_MMAP, ENOMEM, MAP_FAILED);
	return __real_mmap(address, size, protection, flags, fd, offset);
}

WRAP(int, mlock, const void *address, size_t size)
{
	FAIL_WITH(CALL_MLOCK, ENOMEM, -1);
	return __real_mlock(address, size);
}

WRAP(int, timer_create, clockid_t clock, struct sigevent *event, timer_t *timer)
{
	FAIL_WITH(CALL_TIMER_CREATE, EAGAIN, -1);
	return __real_timer_create(clock, event, timer);
}

WRAP(int, timer_settime, timer_t timer, int flags, const struct itimerspec *new,
     struct itimerspec *old)
{
	FAIL_WITH(CALL_TIMER_SETTIME, EINVAL, -1);
	return __real_timer_settime(timer, flags, new, old);
}

WRAP(int, sigaction, int signal, const struct sigaction *new, struct sigaction *old)
{
	FAIL_WITH(CALL_SIGACTION, EINVAL, -1);
	return __real_sigaction(signal, new, old);
}

/* What perf_event_open and friends do here at all; see perf_works(). */
static _Atomic int open_errno = EMFILE;

WRAP(long, syscall, long number, ...)
{
	va_list list;
	long a[5]; /* the most that our calls have */

	va_start(list, number);
	for (int i = 0; i < 5; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	FAIL_WITH(CALL_SYSCALL, atomic_load(&open_errno), -1);
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4]);
}

WRAP(int, fcntl, int fd, int command, ...)
{
	va_list list;
	void *argument;

	va_start(list, command);
	argument = va_arg(list, void *);
	va_end(list);
	FAIL_WITH(CALL_FCNTL, EPERM, -1);
	return __real_fcntl(fd, command, argument);
}

WRAP(int, ioctl, int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	FAIL_WITH(CALL_IOCTL, ENOSPC, -1);
	return __real_ioctl(fd, request, argument);
}

/* The disk is full in the middle of a record: half of it, then nothing. */
static _Atomic bool disk_full;

WRAP(ssize_t, write, int fd, const void *bytes, size_t size)
{
	if (size == 8) /* an eventfd */
		return __real_write(fd, bytes, size);
	if (must_fail(CALL_WRITE)) {
		atomic_store(&disk_full, true);
		return __real_write(fd, bytes, size > 12 ? size / 2 | 1 : size);
	}
	if (atomic_load(&disk_full)) {
		errno = ENOSPC;
		return -1;
	}
	return __real_write(fd, bytes, size);
}

WRAP(int, ftruncate, int fd, off_t size)
{
	FAIL_WITH(CALL_FTRUNCATE, EIO, -1);
	return __real_ftruncate(fd, size);
}

WRAP(int, eventfd, unsigned value, int flags)
{
	FAIL_WITH(CALL_EVENTFD, EMFILE, -1);
	return __real_eventfd(value, flags);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
     void *argument)
{
	if (must_fail(CALL_PTHREAD_CREATE))
		return EAGAIN;
	return __real_pthread_create(thread, attributes, run, argument);
}

/* The target and what it holds. */

#define VCPUS 3

static struct fake_target fake;

static void open_target(void)
{
	fake_target_init(&fake, VCPUS);
}

static void close_target(void)
{
	forget_faults();
	fake_target_deinit(&fake);
}

TestSuite(faults, .init = open_target, .fini = close_target, .timeout = 120);

static unsigned count_lines(const char *path, const char *beginning)
{
	FILE *file = fopen(path, "re");
	char line[512];
	unsigned count = 0;

	cr_assert_not_null(file, "%s", path);
	while (fgets(line, sizeof(line), file))
		count += !strncmp(line, beginning, strlen(beginning));
	fclose(file);
	return count;
}

static unsigned count_timers(void)
{
	return count_lines("/proc/self/timers", "ID:");
}

static unsigned count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned count = 0;

	cr_assert_not_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void wait_for_stop(unsigned vcpu)
{
	uint64_t before = atomic_load(&fake.vcpus[vcpu].stops);

	for (unsigned i = 0; i < 5000 && atomic_load(&fake.vcpus[vcpu].stops) == before; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	cr_assert_gt(atomic_load(&fake.vcpus[vcpu].stops), before, "vCPU %u does not tick", vcpu);
}

static gp_sampler_config_t config_for(gp_tick_source_t source, uint32_t jitter)
{
	return (gp_sampler_config_t){.size = sizeof(gp_sampler_config_t),
				     .period_ns = 300000,
				     .max_depth = 8,
				     .ring_bytes = 65536,
				     .source = source,
				     .jitter_percent = jitter};
}

static bool is_one_of(gp_status_t status, const gp_status_t *allowed)
{
	for (; *allowed; allowed++)
		if (status == *allowed)
			return true;
	return false;
}

static const gp_status_t create_statuses[] = {GP_ERR_NO_MEMORY, GP_ERR_NO_RESOURCES, 0};
static const gp_status_t timer_statuses[] = {GP_ERR_NO_RESOURCES, 0};
static const gp_status_t perf_statuses[] = {GP_ERR_NO_RESOURCES, GP_ERR_ACCESS_DENIED,
					    GP_ERR_NOT_SUPPORTED, 0};

/* A session through its whole life, with whatever fails. Whether it ever ran. */
static bool live(const gp_sampler_config_t *config, const char *name)
{
	struct fake_counts counts = {0};
	gp_sampler_totals_t sum;
	gp_sampler_t *session = NULL;
	gp_status_t status = gp_sampler_create(&fake.target, 0, config, &session);
	const char *wrong;
	size_t size;

	if (status) {
		cr_assert(is_one_of(status, create_statuses), "%s: create gives %s", name,
			  gp_status_string(status));
		cr_assert_null(session, "%s: a session in spite of a failure", name);
		return false;
	}
	status = gp_sampler_start(session, 0);
	if (status) {
		cr_assert(is_one_of(status, config->source ? perf_statuses : timer_statuses),
			  "%s: start gives %s", name, gp_status_string(status));
		cr_assert_eq(gp_sampler_stop(session, 0), GP_ERR_BAD_STATE, "%s", name);
		/* Nothing fails any more: the very same session can be started. */
		forget_faults();
		status = gp_sampler_start(session, 0);
		cr_assert_eq(status, GP_OK, "%s: again: %s", name, gp_status_string(status));
	}
	if (config->source != GP_TICK_CPU_CLOCK) {
		for (unsigned i = 0; i < VCPUS; i++)
			wait_for_stop(i);
	}
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK, "%s", name);
	cr_assert(fake_totals_add_up(session, VCPUS, &sum), "%s: ticks vanish", name);
	status = gp_sampler_read(session, 0, NULL, 0, &size);
	cr_assert_eq(status, GP_OK, "%s: read gives %s", name, gp_status_string(status));
	forget_faults(); /* the reader of the records is not what is tested */
	wrong = fake_count_records(session, &counts);
	cr_assert_null(wrong, "%s: %s", name, wrong);
	cr_assert_eq(counts.full, sum.full, "%s", name);
	cr_assert_eq(counts.partial, sum.partial, "%s", name);
	gp_sampler_close(session);
	return true;
}

/* Lets `call` fail at its 1st, 2nd ... time until it is not called that often. */
static unsigned fail_each(enum call call, gp_tick_source_t source, uint32_t jitter)
{
	gp_sampler_config_t config = config_for(source, jitter);
	unsigned timers = count_timers(), descriptors = count_descriptors(), nth = 1;
	char name[64];

	for (;; nth++) {
		cr_assert_lt(nth, NTH_MAX, "%s is called without an end", call_names[call]);
		forget_faults();
		atomic_store(&fail_at[call], nth);
		snprintf(name, sizeof(name), "%s number %u", call_names[call], nth);
		atomic_store(&failed, false);
		live(&config, name);
		if (!atomic_load(&failed))
			break;
		forget_faults();
		cr_assert(live(&config, name), "%s: no session afterwards", name);
		cr_assert_eq(count_timers(), timers, "%s: timers are left", name);
		cr_assert_eq(count_descriptors(), descriptors, "%s: descriptors are left", name);
		/* A handler ticks; with jitter its calls go on as long as the session does. */
		if (call == CALL_TIMER_SETTIME && nth > 4 * VCPUS)
			break;
	}
	forget_faults();
	return nth - 1;
}

Test(faults, memory)
{
	cr_assert_geq(fail_each(CALL_CALLOC, GP_TICK_TIMER, 0), 2);
}

Test(faults, mappings)
{
	cr_assert_eq(fail_each(CALL_MMAP, GP_TICK_TIMER, 0), 1 + VCPUS);
}

/* A limit on locked memory is no reason not to profile. */
Test(faults, locking_memory)
{
	gp_sampler_config_t config = config_for(GP_TICK_TIMER, 0);

	cr_assert_eq(fail_each(CALL_MLOCK, GP_TICK_TIMER, 0), 1 + VCPUS);
	atomic_store(&fail_at[CALL_MLOCK], ALWAYS);
	cr_assert(live(&config, "no locked memory at all"));
}

Test(faults, timers)
{
	cr_assert_eq(fail_each(CALL_TIMER_CREATE, GP_TICK_TIMER, 0), VCPUS);
}

Test(faults, arming_timers)
{
	cr_assert_geq(fail_each(CALL_TIMER_SETTIME, GP_TICK_TIMER, 0), 2 * VCPUS);
}

Test(faults, arming_timers_with_jitter)
{
	cr_assert_geq(fail_each(CALL_TIMER_SETTIME, GP_TICK_TIMER, 50), 4 * VCPUS);
}

/* From some moment on no timer can be armed: the vCPUs stay silent, but stopping ends. */
Test(faults, a_session_whose_timers_are_dead_can_be_stopped)
{
	gp_sampler_config_t config = config_for(GP_TICK_TIMER, 50);
	gp_sampler_totals_t sum;
	gp_sampler_t *session;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	wait_for_stop(0);
	atomic_store(&fail_at[CALL_TIMER_SETTIME], ALWAYS);
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert(fake_totals_add_up(session, VCPUS, &sum));
	gp_sampler_close(session);
}

/* The default action of a tick's signal would end this process. */
Test(faults, signal_handlers)
{
	cr_assert_geq(fail_each(CALL_SIGACTION, GP_TICK_TIMER, 0), 1);
}

static void require_perf(void)
{
	gp_sampler_config_t config = config_for(GP_TICK_CPU_CLOCK, 0);
	gp_sampler_t *session;
	gp_status_t status;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	status = gp_sampler_start(session, 0);
	gp_sampler_close(session);
	if (status)
		cr_skip_test("perf_event_open is refused here: %s", gp_status_string(status));
}

Test(faults, perf_events)
{
	static const struct {
		int error;
		gp_status_t status;
	} cases[] = {
		{EMFILE, GP_ERR_NO_RESOURCES},      {ENOMEM, GP_ERR_NO_RESOURCES},
		{EACCES, GP_ERR_ACCESS_DENIED},     {EPERM, GP_ERR_ACCESS_DENIED},
		{ENOENT, GP_ERR_NOT_SUPPORTED},     {ENODEV, GP_ERR_NOT_SUPPORTED},
		{EOPNOTSUPP, GP_ERR_NOT_SUPPORTED}, {ENOSYS, GP_ERR_NOT_SUPPORTED},
	};
	gp_sampler_config_t config = config_for(GP_TICK_CPU_CLOCK, 0);
	gp_sampler_t *session;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		forget_faults();
		atomic_store(&open_errno, cases[i].error);
		atomic_store(&fail_at[CALL_SYSCALL], 1);
		cr_assert_eq(gp_sampler_start(session, 0), cases[i].status, "errno %d",
			     cases[i].error);
	}
	gp_sampler_close(session);
}

Test(faults, opening_perf_events)
{
	require_perf();
	cr_assert_geq(fail_each(CALL_SYSCALL, GP_TICK_CPU_CLOCK, 0), 2 * VCPUS);
}

Test(faults, perf_signals)
{
	require_perf();
	cr_assert_eq(fail_each(CALL_FCNTL, GP_TICK_CPU_CLOCK, 0), 3 * VCPUS);
}

Test(faults, perf_controls)
{
	require_perf();
	cr_assert_eq(fail_each(CALL_IOCTL, GP_TICK_CPU_CLOCK, 0), 3 * VCPUS);
}

/* Signal handlers of a process without a session yet: the handler of SIGIO too. */
Test(faults, perf_signal_handlers)
{
	gp_sampler_config_t config = config_for(GP_TICK_CPU_CLOCK, 0);
	gp_sampler_t *session;

	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	atomic_store(&fail_at[CALL_SIGACTION], ALWAYS);
	cr_assert_eq(gp_sampler_start(session, 0), GP_ERR_NO_RESOURCES);
	forget_faults();
	gp_sampler_close(session);
	require_perf();
	cr_assert_geq(fail_each(CALL_SIGACTION, GP_TICK_CPU_CLOCK, 0), 1);
}

/* Memory that a failed life forgets shows after many of them. */
Test(faults, nothing_is_left_of_many_failures)
{
	static const enum call calls[] = {CALL_MMAP, CALL_TIMER_CREATE, CALL_TIMER_SETTIME};
	gp_sampler_config_t config = config_for(GP_TICK_TIMER, 0);
	unsigned mappings = 0;

	for (unsigned round = 0; round < 60; round++) {
		gp_sampler_t *session = NULL;

		forget_faults();
		atomic_store(&fail_at[calls[round % 3]], VCPUS);
		if (!gp_sampler_create(&fake.target, 0, &config, &session)) {
			cr_assert_eq(gp_sampler_start(session, 0), GP_ERR_NO_RESOURCES);
			gp_sampler_close(session);
		}
		if (round == 10)
			mappings = count_lines("/proc/self/maps", "");
	}
	cr_assert_leq(count_lines("/proc/self/maps", ""), mappings + 1);
}

/* The recorder. */

static void check_file(int fd, const char *name, bool may_be_cut)
{
	off_t size = lseek(fd, 0, SEEK_END);
	struct fxt_reader reader;
	struct fxt_record record;
	void *bytes;

	if (size == 0)
		return; /* it failed before there was anything to say */
	bytes = malloc((size_t)size);
	cr_assert_eq(pread(fd, bytes, (size_t)size, 0), size);
	cr_assert_eq(fxt_reader_init(&reader, bytes, (size_t)size, NULL), GP_OK, "%s", name);
	while (fxt_reader_next(&reader, &record))
		;
	cr_assert(!reader.broken && !reader.bad_records && !reader.unresolved, "%s", name);
	cr_assert(may_be_cut || !reader.cut, "%s: cut in a record", name);
	fxt_reader_deinit(&reader);
	free(bytes);
}

static void record(const char *name, bool may_be_cut)
{
	gp_sampler_config_t sampling = config_for(GP_TICK_TIMER, 0);
	struct recorder_config config = {.target = &fake.target,
					 .fd = memfd_create("trace", MFD_CLOEXEC),
					 .about = {.period_ns = sampling.period_ns,
						   .tick_source = "timer",
						   .depth = sampling.max_depth}};
	struct recorder_summary summary = {0};
	struct recorder *recorder = NULL;
	struct error error = {0};
	gp_sampler_t *session = NULL;
	bool write_fails = atomic_load(&fail_at[CALL_WRITE]) != 0;
	gp_status_t status;

	cr_assert_geq(config.fd, 0);
	atomic_store(&disk_full, false);
	status = gp_sampler_create(&fake.target, 0, &sampling, &session);
	if (status) {
		cr_assert(is_one_of(status, create_statuses), "%s", name);
		close(config.fd);
		return;
	}
	config.session = session;
	status = recorder_start(&config, &recorder, &error);
	cr_assert_eq(status, error.status, "%s: %s", name, gp_status_string(status));
	if (status) {
		cr_assert_neq(error.text[0], 0, "%s fails and does not say why", name);
		cr_assert_null(recorder);
	} else {
		cr_assert_eq(gp_sampler_start(session, 0), GP_OK, "%s", name);
		for (unsigned i = 0; i < VCPUS; i++)
			wait_for_stop(i);
		cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
		recorder_finish(recorder, "a test", &summary);
		if (write_fails && atomic_load(&disk_full))
			cr_assert(summary.problem.status, "%s: a lost record is not told", name);
		else
			cr_assert_eq(summary.problem.status, GP_OK, "%s: %s", name,
				     summary.problem.text);
		cr_assert_eq(summary.totals.ticks,
			     summary.totals.full + summary.totals.partial + summary.totals.dropped);
	}
	gp_sampler_close(session);
	forget_faults();
	check_file(config.fd, name, may_be_cut);
	close(config.fd);
}

static unsigned fail_each_of_recorder(enum call call, bool may_be_cut)
{
	unsigned timers = count_timers(), descriptors = count_descriptors(), nth = 1;
	char name[64];

	for (;; nth++) {
		cr_assert_lt(nth, NTH_MAX, "%s is called without an end", call_names[call]);
		forget_faults();
		atomic_store(&fail_at[call], nth);
		if (may_be_cut)
			atomic_store(&fail_at[CALL_FTRUNCATE], ALWAYS);
		snprintf(name, sizeof(name), "%s number %u", call_names[call], nth);
		atomic_store(&failed, false);
		record(name, may_be_cut);
		if (!atomic_load(&failed))
			break;
		forget_faults();
		record(name, false);
		cr_assert_eq(count_timers(), timers, "%s: timers are left", name);
		cr_assert_eq(count_descriptors(), descriptors, "%s: descriptors are left", name);
	}
	forget_faults();
	return nth - 1;
}

Test(faults, a_recorder_without_memory)
{
	cr_assert_geq(fail_each_of_recorder(CALL_CALLOC, false), 5);
}

Test(faults, a_recorder_without_descriptors)
{
	cr_assert_eq(fail_each_of_recorder(CALL_EVENTFD, false), 2);
}

Test(faults, a_recorder_without_threads)
{
	cr_assert_eq(fail_each_of_recorder(CALL_PTHREAD_CREATE, false), 2);
}

Test(faults, a_full_disk_at_each_write)
{
	cr_assert_geq(fail_each_of_recorder(CALL_WRITE, false), 8);
}

Test(faults, a_full_disk_and_no_way_to_cut)
{
	cr_assert_geq(fail_each_of_recorder(CALL_WRITE, true), 8);
}
