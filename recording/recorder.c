#include "recording/recorder.h"

#include "base/clock.h"
#include "base/container.h"
#include "sampler/session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How long the two threads sleep. A new program or module is often followed by others, and some
 * live for milliseconds only: for a while after the last one the threads sleep less. Not less than
 * this: a wake-up that takes a CPU from a vCPU costs a tenth of a millisecond and more in the lab.
 * The reader wakes the learner. */
#define QUIET_MILLISECONDS 20
#define READER_BUSY_MILLISECONDS 3
#define LEARNER_BUSY_MILLISECONDS 10
#define BUSY_NS (100 * NS_PER_MILLISECOND)
/* Looks at user programs at the end. */
#define LAST_LOOKS 16
/* For a copy of a file that is still being looked for. */
#define LAST_PATIENCE_MILLISECONDS 2000
/* New addresses become rare; a killed recorder leaves so much of them without names. */
#define NAME_INTERVAL_NS NS_PER_SECOND

struct recorder {
	struct recorder_config config;
	unsigned vcpu_count;
	pthread_t reader;
	pthread_t learner; /* learns what the guest's kernel is; the reader must not wait for it */
	int stop_fd;
	int look_fd;                 /* the reader has seen something new: look at it at once */
	_Atomic uint64_t busy_until; /* either thread has; of the samples' clock */

	uint8_t *buffer;
	size_t buffer_size;

	struct record_watch watch;
	struct guest_log log;
	uint64_t *log_words; /* taken from the log */
	uint64_t lost_written;

	struct trace_output output; /* its problem is the recorder's */

	struct linux_guest *guest;
	struct namer namer;
	struct user_names *programs;
	struct leaf_code *leaves;
	uint64_t next_names;
	struct error learner_problem;
};

/* The file. */

static void write_words(void *context, const uint64_t *words, size_t count)
{
	struct recorder *recorder = context;

	trace_output_words(&recorder->output, words, count);
}

/* The count of lost lines is written with the lines around them, so that a recorder that is killed
 * leaves it in the file. */
static void write_log(struct recorder *recorder, struct guest_log_totals *totals)
{
	write_words(recorder, recorder->log_words,
		    guest_log_take(&recorder->log, recorder->log_words, totals));
	if (totals->lost == recorder->lost_written)
		return;
	recorder->lost_written = totals->lost;
	trace_metadata_console(&recorder->output, totals);
}

static void write_symbols(void *context, const struct fxt_symbol *symbols, size_t count)
{
	struct recorder *recorder = context;
	uint64_t words[FXT_RECORD_WORDS_MAX];
	size_t done = 0, taken;

	while (done < count) {
		size_t used = fxt_symbols_encode(symbols + done, count - done, words,
						 ARRAY_SIZE(words), &taken);

		if (!used)
			return;
		write_words(recorder, words, used);
		done += taken;
	}
}

static void note_named(void *context, uint64_t address)
{
	struct recorder *recorder = context;

	namer_see_named(&recorder->namer, address);
}

static void write_programs(struct recorder *recorder)
{
	const struct user_names_output output = {
		.write = write_words, .named = note_named, .context = recorder};

	user_names_write(recorder->programs, &output);
}

static void note_news(struct recorder *recorder)
{
	atomic_store_explicit(&recorder->busy_until, boot_ns() + BUSY_NS, memory_order_relaxed);
}

/* How long a thread sleeps that has just been busy for `spent`: at most half of a CPU goes to
 * looking out for what is new. */
static int pace(const struct recorder *recorder, uint64_t busy, uint64_t spent)
{
	uint64_t busy_until = atomic_load_explicit(&recorder->busy_until, memory_order_relaxed);
	uint64_t rest = spent / NS_PER_MILLISECOND > busy ? spent / NS_PER_MILLISECOND : busy;

	return boot_ns() < busy_until && rest < QUIET_MILLISECONDS ? (int)rest : QUIET_MILLISECONDS;
}

/* The reader thread. */

static void raise_event(int fd)
{
	uint64_t one = 1;

	/* Full, it is raised already. */
	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

static gp_status_t drain(struct recorder *recorder)
{
	const uint64_t *words;
	size_t actual;
	gp_status_t status = gp_sampler_read(recorder->config.session, 0, recorder->buffer,
					     recorder->buffer_size, &actual);

	if (status == GP_ERR_INVALID_ARGS) {
		/* Half as much again: more comes while we ask. */
		size_t size = (actual + actual / 2 + 4095) & ~(size_t)4095;
		uint8_t *larger = realloc(recorder->buffer, size);

		if (!larger)
			return GP_ERR_NO_MEMORY; /* the rings keep it, or count its loss */
		recorder->buffer = larger;
		recorder->buffer_size = size;
		status = gp_sampler_read(recorder->config.session, 0, recorder->buffer,
					 recorder->buffer_size, &actual);
	}
	if (status || !actual)
		return status;
	trace_output_write(&recorder->output, recorder->buffer, actual);
	words = (const uint64_t *)(const void *)recorder->buffer;
	if (record_watch_see(&recorder->watch, words, actual / 8)) {
		note_news(recorder);
		raise_event(recorder->look_fd);
	}
	return GP_OK;
}

/* Returns whether the recorder is to stop. `for_news`: something new ends the wait, too. */
static bool wait_for_stop(const struct recorder *recorder, int milliseconds, bool for_news)
{
	struct pollfd events[] = {{.fd = recorder->stop_fd, .events = POLLIN},
				  {.fd = recorder->look_fd, .events = POLLIN}};
	uint64_t count;

	if (poll(events, for_news ? 2 : 1, milliseconds) <= 0)
		return false;
	/* It does not block. */
	if (events[1].revents && read(recorder->look_fd, &count, sizeof(count)) < 0)
		return events[0].revents;
	return events[0].revents;
}

static bool start_thread(struct recorder *recorder, const char *name, struct error *problem)
{
	pthread_setname_np(pthread_self(), name);
	return !recorder->config.on_thread_start ||
	       !recorder->config.on_thread_start(recorder->config.context, problem);
}

static void *reader_main(void *argument)
{
	struct recorder *recorder = argument;
	struct guest_log_totals console;
	uint64_t spent = 0;
	bool stopping = false;

	if (!start_thread(recorder, "reader", &recorder->output.problem))
		return NULL;
	while (!stopping) {
		uint64_t before;

		stopping = wait_for_stop(recorder, pace(recorder, READER_BUSY_MILLISECONDS, spent),
					 false);
		before = boot_ns();
		drain(recorder);
		write_log(recorder, &console);
		write_programs(recorder);
		leaf_code_copy(recorder->leaves, boot_ns() >= recorder->next_names);
		if (boot_ns() >= recorder->next_names) {
			namer_name(&recorder->namer, write_symbols, recorder);
			trace_output_flush(&recorder->output);
			recorder->next_names = boot_ns() + NAME_INTERVAL_NS;
		}
		spent = boot_ns() - before;
	}
	return NULL;
}

static void *learner_main(void *argument)
{
	struct recorder *recorder = argument;
	uint64_t next_look = 0, spent = 0;
	unsigned learned = 0;

	if (!start_thread(recorder, "learner", &recorder->learner_problem))
		return NULL;
	while (!wait_for_stop(recorder, pace(recorder, LEARNER_BUSY_MILLISECONDS, spent), true)) {
		uint64_t before = boot_ns(), after;

		session_learn(recorder->config.session, recorder->guest, NULL);
		if (learned != atomic_load(&recorder->guest->published)) {
			learned = atomic_load(&recorder->guest->published);
			note_news(recorder);
		}
		after = boot_ns();
		spent = after - before;
		if (after >= next_look) {
			user_names_look(recorder->programs);
			before = after;
			after = boot_ns();
			/* At most half of the time, whatever the guest has laid out for us. */
			next_look = after + (after - before);
		}
	}
	return NULL;
}

/* After both threads: what they left, and all names that can be had. */
static void write_rest(struct recorder *recorder)
{
	gp_status_t status = recorder->output.problem.status ? GP_OK : drain(recorder);
	struct code_totals user;
	struct code_totals kernel;

	/* The last chance: the guest's memory is still there. */
	session_learn_names(recorder->config.session, recorder->guest);
	trace_metadata_guest(&recorder->output, recorder->guest);
	trace_metadata_modules(&recorder->output, recorder->guest, &recorder->namer);
	if (recorder->config.copies)
		recorder->config.copies->patience_ms = LAST_PATIENCE_MILLISECONDS;
	user_names_skip_waits(recorder->programs);
	for (int i = 0; i < LAST_LOOKS && user_names_look(recorder->programs); i++)
		write_programs(recorder);
	write_programs(recorder);
	/* Code may name what it calls. */
	leaf_code_finish(recorder->leaves, &kernel);
	user = user_names_code_totals(recorder->programs);
	trace_metadata_code(&recorder->output, &kernel, &user);
	namer_name(&recorder->namer, write_symbols, recorder);
	/* Then the file must not say that it is complete. */
	if (status && !recorder->output.problem.status)
		error_set(&recorder->output.problem, status,
			  "the trace ends early: its last records could not be read (%s)",
			  gp_status_string(status));
	if (!recorder->output.problem.status)
		recorder->output.problem = recorder->learner_problem;
}

/* Ends the reader, and the learner with it. */
static void stop_reader(struct recorder *recorder)
{
	uint64_t one = 1;

	if (write(recorder->stop_fd, &one, sizeof(one)) < 0)
		error_set_errno(&recorder->output.problem, errno, "cannot wake the reader thread");
	pthread_join(recorder->reader, NULL);
}

static void destroy(struct recorder *recorder)
{
	if (recorder->guest && recorder->config.copies)
		linux_guest_use_copies(recorder->guest, NULL);
	if (recorder->stop_fd >= 0)
		close(recorder->stop_fd);
	if (recorder->look_fd >= 0)
		close(recorder->look_fd);
	leaf_code_destroy(recorder->leaves);
	user_names_destroy(recorder->programs);
	namer_deinit(&recorder->namer);
	guest_log_deinit(&recorder->log);
	free(recorder->log_words);
	trace_output_deinit(&recorder->output);
	free(recorder->buffer);
	free(recorder);
}

gp_status_t recorder_start(const struct recorder_config *config, struct recorder **out,
			   struct error *error)
{
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	enum { FIRST_BUFFER = 1 << 20 };
	struct namer_config names = config->names;
	gp_status_t status;
	sigset_t all, old;
	int failed;

	if (!recorder)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a recorder");
	recorder->config = *config;
	recorder->stop_fd = eventfd(0, EFD_CLOEXEC);
	recorder->look_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	recorder->vcpu_count = config->target->ops->vcpu_count(config->target);
	recorder->buffer_size = FIRST_BUFFER;
	recorder->buffer = malloc(recorder->buffer_size);
	recorder->log_words = malloc(GUEST_LOG_WAITING_WORDS * sizeof(*recorder->log_words));
	names.guest = sampler_target_guest(config->target);
	recorder->programs = names.guest ? user_names_create(names.guest) : NULL;
	recorder->leaves =
		names.guest ? leaf_code_create(&recorder->namer, names.guest->programs.memory,
					       write_words, recorder)
			    : NULL;
	namer_init(&recorder->namer, &names);
	recorder->guest = names.guest;
	recorder->watch = (struct record_watch){.namer = &recorder->namer,
						.leaves = recorder->leaves,
						.programs = recorder->programs};
	if (!guest_log_init(&recorder->log) || !recorder->log_words || !recorder->guest ||
	    !recorder->buffer || !recorder->programs || !recorder->leaves) {
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory for a recorder");
		goto failed;
	}
	if (recorder->stop_fd < 0 || recorder->look_fd < 0) {
		status = error_set(error, GP_ERR_NO_RESOURCES,
				   "no descriptor for a recorder (ulimit -n)");
		goto failed;
	}
	status = trace_output_init(&recorder->output, config->fd, config->compress, error);
	if (status)
		goto failed;
	/* The session's first records make the file a trace: they must come before ours. */
	status = drain(recorder);
	if (status) {
		error_set(error, status, "cannot read the session: %s", gp_status_string(status));
		goto failed;
	}
	if (config->copies)
		linux_guest_use_copies(recorder->guest, config->copies);
	trace_metadata_session(&recorder->output, &config->about, recorder->vcpu_count);
	trace_output_flush(&recorder->output);
	if (recorder->output.problem.status) {
		status = error_set(error, recorder->output.problem.status, "%s",
				   recorder->output.problem.text);
		goto failed;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&recorder->reader, NULL, reader_main, recorder);
	if (!failed) {
		failed = pthread_create(&recorder->learner, NULL, learner_main, recorder);
		if (failed)
			stop_reader(recorder);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed) {
		status = error_set_errno(error, failed, "cannot start the recorder's threads");
		goto failed;
	}
	*out = recorder;
	return GP_OK;
failed:
	destroy(recorder);
	return status;
}

void recorder_note_line(struct recorder *recorder, uint64_t boot_ns, const char *text, size_t size)
{
	guest_log_put(&recorder->log, boot_ns, text, size);
}

void recorder_modes(const struct recorder *recorder, uint64_t modes[RECORD_MODES])
{
	for (size_t i = 0; i < RECORD_MODES; i++)
		modes[i] = atomic_load_explicit(&recorder->watch.modes[i], memory_order_relaxed);
}

void recorder_finish(struct recorder *recorder, const char *end_reason,
		     struct recorder_summary *out)
{
	struct recorder_summary summary = {0};
	struct linux_guest *guest = recorder->guest;

	stop_reader(recorder);
	pthread_join(recorder->learner, NULL);
	write_rest(recorder);
	write_log(recorder, &summary.console);
	if (summary.console.lines || summary.console.lost)
		trace_metadata_console(&recorder->output, &summary.console);
	summary.panicked = linux_guest_panicked(guest);
	trace_metadata_totals(&recorder->output, recorder->config.session, recorder->vcpu_count,
			      summary.panicked ? "guest panic" : end_reason, &summary.totals);
	trace_output_end(&recorder->output);
	summary.file_bytes = recorder->output.offset;
	linux_guest_lock(guest);
	summary.kernel_found = !guest->missing.kernel.status;
	summary.symbols_found = !guest->missing.symbols.status;
	summary.tasks_found = !guest->missing.tasks.status;
	memcpy(summary.banner, guest->kernel.banner, sizeof(summary.banner));
	summary.no_names = guest->missing.symbols;
	summary.no_tasks = guest->missing.tasks;
	summary.no_stacks = guest->missing.stacks;
	summary.no_programs = guest->missing.programs;
	linux_guest_unlock(guest);
	summary.problem = recorder->output.problem;
	namer_count(&recorder->namer, &summary.addresses, &summary.unnamed);
	destroy(recorder);
	*out = summary;
}
