#include "tools/top/source.h"

#include "base/clock.h"
#include "base/container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLLOW_MILLISECONDS 100
#define END_SECONDS 30
#define BLOCK_BYTES (256 * 1024)
/* Memory goes back to the host in pieces of this size. */
#define GIVE_BACK_BYTES (1 << 20)

struct top_source {
	struct live *live;
	int trace_fd;
	bool in_memory;
	off_t offset;     /* of the trace, read so far */
	off_t given_back; /* up to here */
	pid_t child;      /* 0: none, or it has been waited for */
	int console_fd;   /* what the recording prints; -1 when it is closed */
	int message_fd;
	int stop_fd;
	uint8_t *block;
	bool following;
	pthread_t follower;
	/* Guards `live`, `child`, `state` and `grown_ns`. The follower holds it while it reads a
	 * block, the display while it copies. No vCPU's thread knows of it. */
	pthread_mutex_t lock;
	struct top_state state;
	uint64_t grown_ns;
};

static void destroy(struct top_source *source)
{
	const int fds[] = {source->trace_fd, source->console_fd, source->message_fd,
			   source->stop_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	live_destroy(source->live);
	pthread_mutex_destroy(&source->lock);
	free(source->block);
	free(source);
}

static gp_status_t create(uint64_t window_ns, struct top_source **out, struct error *error)
{
	const struct live_config config = {.window_ns = window_ns, .bytes = LIVE_BYTES};
	struct top_source *source = calloc(1, sizeof(*source));
	gp_status_t status;

	if (!source)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a live view");
	source->trace_fd = source->console_fd = source->message_fd = -1;
	pthread_mutex_init(&source->lock, NULL);
	source->stop_fd = eventfd(0, EFD_CLOEXEC);
	source->block = malloc(BLOCK_BYTES);
	status = live_create(&config, &source->live, error);
	if (!status && (source->stop_fd < 0 || !source->block))
		status = error_set(error, GP_ERR_NO_RESOURCES,
				   "no memory or descriptors for a live view");
	if (status) {
		destroy(source);
		return status;
	}
	*out = source;
	return GP_OK;
}

gp_status_t top_source_open(const char *path, uint64_t window_ns, struct top_source **out,
			    struct error *error)
{
	struct top_source *source;
	gp_status_t status = create(window_ns, &source, error);
	struct stat file;

	if (status)
		return status;
	source->trace_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (source->trace_fd < 0)
		status = error_set_errno(error, errno, "cannot open the trace %s", path);
	else if (fstat(source->trace_fd, &file) || !S_ISREG(file.st_mode))
		status = error_set(error, GP_ERR_INVALID_ARGS, "the trace %s is not a regular file",
				   path);
	if (status) {
		destroy(source);
		return status;
	}
	*out = source;
	return GP_OK;
}

/* The recording's process. */

struct pipes {
	int console[2];
	int messages[2];
	int ready[2];
};

static void close_pipes(struct pipes *pipes)
{
	int *const ends[] = {pipes->console, pipes->messages, pipes->ready};

	for (size_t i = 0; i < ARRAY_SIZE(ends) * 2; i++) {
		int *fd = &ends[i / 2][i % 2];

		if (*fd >= 0)
			close(*fd);
		*fd = -1;
	}
}

static gp_status_t open_pipes(struct pipes *pipes, struct error *error)
{
	*pipes = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}};
	if (!pipe2(pipes->console, O_CLOEXEC) && !pipe2(pipes->messages, O_CLOEXEC) &&
	    !pipe2(pipes->ready, O_CLOEXEC) && !fcntl(pipes->console[0], F_SETFL, O_NONBLOCK) &&
	    !fcntl(pipes->messages[0], F_SETFL, O_NONBLOCK))
		return GP_OK;
	error_set_errno(error, errno, "cannot make pipes for the recording");
	close_pipes(pipes);
	return error->status;
}

/* In the new process; does not return. */
static void run_recorder(const struct top_recorder *recorder, const char *trace,
			 const struct pipes *pipes, pid_t display)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

	/* A display that is killed ends its guest: nobody else would. */
	if (nothing < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != display ||
	    dup2(nothing, STDIN_FILENO) < 0 || dup2(pipes->console[1], STDOUT_FILENO) < 0 ||
	    dup2(pipes->messages[1], STDERR_FILENO) < 0)
		_exit(EXIT_FAILURE);
	close(nothing);
	close(pipes->console[0]);
	close(pipes->console[1]);
	close(pipes->messages[0]);
	close(pipes->messages[1]);
	close(pipes->ready[0]);
	exit(recorder->run(recorder->context, trace, pipes->ready[1]));
}

static void reap(struct top_source *source, int options)
{
	int status;

	if (!source->child || waitpid(source->child, &status, options) != source->child)
		return;
	source->child = 0;
	source->state.has_ended = true;
	source->state.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Everything that is there; closes the descriptor at its end. */
static void read_lines(int *fd, struct top_source *source, struct terminal_lines *lines)
{
	char bytes[4096];
	ssize_t size;

	while (*fd >= 0) {
		size = read(*fd, bytes, sizeof(bytes));
		if (size < 0 && errno == EINTR)
			continue;
		if (size < 0)
			return; /* nothing more at the moment */
		if (!size) {
			close(*fd);
			*fd = -1;
			return;
		}
		pthread_mutex_lock(&source->lock);
		terminal_lines_add(lines, bytes, (size_t)size);
		pthread_mutex_unlock(&source->lock);
	}
}

/* Whether the trace is open, or the recording has ended before. What it prints meanwhile is taken:
 * it must not have to wait for us. */
static bool wait_until_ready(struct top_source *source, int ready_fd)
{
	char byte;

	for (;;) {
		struct pollfd events[] = {{.fd = ready_fd, .events = POLLIN},
					  {.fd = source->console_fd, .events = POLLIN},
					  {.fd = source->message_fd, .events = POLLIN}};

		if (poll(events, ARRAY_SIZE(events), -1) < 0 && errno != EINTR)
			return false;
		read_lines(&source->console_fd, source, &source->state.console);
		read_lines(&source->message_fd, source, &source->state.messages);
		if (events[0].revents)
			return read(ready_fd, &byte, 1) == 1;
	}
}

static gp_status_t open_memory(struct top_source *source, char *path, size_t size,
			       struct error *error)
{
	source->in_memory = true;
	source->trace_fd = memfd_create("guestprof trace", MFD_CLOEXEC);
	if (source->trace_fd < 0)
		return error_set_errno(error, errno, "no memory for a trace; -o FILE keeps it");
	snprintf(path, size, "/proc/self/fd/%d", source->trace_fd);
	return GP_OK;
}

gp_status_t top_source_record(const struct top_recorder *recorder, uint64_t window_ns,
			      struct top_state *state, struct top_source **out, struct error *error)
{
	struct top_source *source;
	struct pipes pipes;
	char memory[64];
	const char *trace = recorder->trace ? recorder->trace : memory;
	gp_status_t status = create(window_ns, &source, error);
	pid_t display = getpid();
	bool ready;

	if (status)
		return status;
	if (!recorder->trace)
		status = open_memory(source, memory, sizeof(memory), error);
	if (!status)
		status = open_pipes(&pipes, error);
	if (status) {
		destroy(source);
		return status;
	}
	fflush(NULL);
	source->child = fork();
	if (source->child < 0) {
		error_set_errno(error, errno, "cannot start the recording");
		close_pipes(&pipes);
		destroy(source);
		return error->status;
	}
	if (!source->child)
		run_recorder(recorder, trace, &pipes, display);
	source->state.is_recording = true;
	source->console_fd = pipes.console[0];
	source->message_fd = pipes.messages[0];
	pipes.console[0] = pipes.messages[0] = -1;
	close(pipes.ready[1]);
	pipes.ready[1] = -1;
	ready = wait_until_ready(source, pipes.ready[0]);
	close_pipes(&pipes);
	if (ready && recorder->trace) {
		source->trace_fd = open(trace, O_RDONLY | O_CLOEXEC);
		if (source->trace_fd < 0) {
			error_set_errno(error, errno, "cannot read the trace %s", trace);
			top_source_close(source, state);
			return error->status;
		}
	}
	if (ready) {
		*out = source;
		return GP_OK;
	}
	top_source_close(source, state);
	*out = NULL;
	return GP_OK;
}

/* The following thread. */

static void give_back(struct top_source *source)
{
	off_t to = source->offset / GIVE_BACK_BYTES * GIVE_BACK_BYTES;

	/* Where the system cannot, the trace merely stays. */
	if (source->in_memory && to > source->given_back &&
	    !fallocate(source->trace_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		       source->given_back, to - source->given_back))
		source->given_back = to;
}

/* A trace that became shorter is another one. */
static void check_size(struct top_source *source)
{
	struct stat file;

	if (!fstat(source->trace_fd, &file) && file.st_size < source->offset &&
	    !source->state.problem.status) {
		pthread_mutex_lock(&source->lock);
		error_set(
			&source->state.problem, GP_ERR_BAD_STATE,
			"the trace has become shorter: its writing failed, or it is written anew");
		pthread_mutex_unlock(&source->lock);
	}
}

static bool is_to_stop(const struct top_source *source)
{
	struct pollfd stop = {.fd = source->stop_fd, .events = POLLIN};

	return poll(&stop, 1, 0) > 0;
}

static void read_trace(struct top_source *source)
{
	while (!source->state.problem.status && !is_to_stop(source)) {
		ssize_t size = pread(source->trace_fd, source->block, BLOCK_BYTES, source->offset);

		if (size < 0 && errno == EINTR)
			continue;
		if (size <= 0)
			break;
		pthread_mutex_lock(&source->lock);
		live_feed(source->live, source->block, (size_t)size, &source->state.problem);
		source->grown_ns = monotonic_ns();
		pthread_mutex_unlock(&source->lock);
		source->offset += size;
		give_back(source);
	}
	check_size(source);
}

static void *follow(void *argument)
{
	struct top_source *source = argument;
	bool stopping = false;

	pthread_setname_np(pthread_self(), "follower");
	while (!stopping) {
		struct pollfd events[] = {{.fd = source->stop_fd, .events = POLLIN},
					  {.fd = source->console_fd, .events = POLLIN},
					  {.fd = source->message_fd, .events = POLLIN}};

		poll(events, ARRAY_SIZE(events), FOLLOW_MILLISECONDS);
		stopping = events[0].revents;
		read_lines(&source->console_fd, source, &source->state.console);
		read_lines(&source->message_fd, source, &source->state.messages);
		read_trace(source);
		pthread_mutex_lock(&source->lock);
		reap(source, WNOHANG);
		pthread_mutex_unlock(&source->lock);
	}
	return NULL;
}

gp_status_t top_source_follow(struct top_source *source, struct error *error)
{
	sigset_t all, old;
	int failed;

	source->grown_ns = monotonic_ns();
	/* Signals are the display's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&source->follower, NULL, follow, source);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed)
		return error_set_errno(error, failed, "cannot start the thread that follows");
	source->following = true;
	return GP_OK;
}

static void copy_state(const struct top_source *source, const struct live_counts *counts,
		       struct top_state *state)
{
	*state = source->state;
	if (!state->is_recording)
		state->has_ended = counts->ended;
	state->silent_ns = monotonic_ns() - source->grown_ns;
}

gp_status_t top_source_look(struct top_source *source, struct live_snapshot *snapshot,
			    struct top_state *state, struct error *error)
{
	gp_status_t status;

	pthread_mutex_lock(&source->lock);
	status = live_snapshot(source->live, snapshot, error);
	if (!status)
		copy_state(source, &snapshot->counts, state);
	pthread_mutex_unlock(&source->lock);
	return status;
}

/* Tells the recording to end, once; after END_SECONDS there is no more asking. */
static void end_recording(struct top_source *source)
{
	uint64_t deadline = monotonic_ns() + END_SECONDS * NS_PER_SECOND;

	reap(source, WNOHANG);
	source->state.was_told_to = source->child;
	if (source->child)
		kill(source->child, SIGTERM);
	while (source->child) {
		read_lines(&source->console_fd, source, &source->state.console);
		read_lines(&source->message_fd, source, &source->state.messages);
		reap(source, WNOHANG);
		if (source->child && monotonic_ns() > deadline) {
			kill(source->child, SIGKILL);
			reap(source, 0);
		}
		if (source->child)
			sleep_ns(20 * NS_PER_MILLISECOND);
	}
	read_lines(&source->console_fd, source, &source->state.console);
	read_lines(&source->message_fd, source, &source->state.messages);
}

void top_source_close(struct top_source *source, struct top_state *state)
{
	uint64_t one = 1;

	if (!source)
		return;
	if (source->following && write(source->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(source->follower, NULL);
	end_recording(source);
	*state = source->state;
	destroy(source);
}
