#include "tools/top/source.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* How often a trace is looked at for new bytes, and how long it is read before keys are. */
#define FOLLOW_MILLISECONDS 100
#define READ_NS (50 * NS_PER_MILLISECOND)
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
	uint8_t *block;
	struct top_state state;
	uint64_t grown_ns;
};

static void destroy(struct top_source *source)
{
	const int fds[] = {source->trace_fd, source->console_fd, source->message_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	live_destroy(source->live);
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
	source->grown_ns = monotonic_ns();
	source->block = malloc(BLOCK_BYTES);
	status = live_create(&config, &source->live, error);
	if (!status && !source->block)
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory for a live view");
	if (status)
		destroy(source);
	else
		*out = source;
	return status;
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
	if (status)
		destroy(source);
	else
		*out = source;
	return status;
}

/* The recording's process. */

static gp_status_t open_pipe(int ends[2], struct error *error)
{
	if (!pipe2(ends, O_CLOEXEC) && !fcntl(ends[0], F_SETFL, O_NONBLOCK))
		return GP_OK;
	return error_set_errno(error, errno, "cannot make pipes for the recording");
}

/* In the new process; does not return. */
static _Noreturn void run_recorder(const struct top_recorder *recorder, const char *trace,
				   int console, int messages, int ready, pid_t display)
{
	AUTO_CLOSE int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

	/* The guest ends when the display is killed: nothing else would end it. */
	if (nothing < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != display ||
	    dup2(nothing, STDIN_FILENO) < 0 || dup2(console, STDOUT_FILENO) < 0 ||
	    dup2(messages, STDERR_FILENO) < 0)
		_exit(EXIT_FAILURE);
	close(console);
	close(messages);
	exit(recorder->run(recorder->context, trace, ready));
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
static void read_lines(int *fd, struct terminal_lines *lines)
{
	char bytes[4096];
	ssize_t size;

	while (*fd >= 0) {
		size = read(*fd, bytes, sizeof(bytes));
		if (size < 0 && errno == EINTR)
			continue;
		if (size < 0)
			return; /* nothing more at the moment */
		if (!size)
			close(take_fd(fd));
		terminal_lines_add(lines, bytes, (size_t)size);
	}
}

static void read_printed(struct top_source *source)
{
	read_lines(&source->console_fd, &source->state.console);
	read_lines(&source->message_fd, &source->state.messages);
}

/* Waits for `fd`, or something that the recording prints, which must not have to wait for us. */
static short wait_for(const struct top_source *source, int fd, int milliseconds)
{
	struct pollfd events[] = {{.fd = fd, .events = POLLIN},
				  {.fd = source->console_fd, .events = POLLIN},
				  {.fd = source->message_fd, .events = POLLIN}};

	return poll(events, ARRAY_SIZE(events), milliseconds) > 0 ? events[0].revents : 0;
}

/* Whether the trace is open, or the recording has ended before. */
static bool wait_until_ready(struct top_source *source, int ready_fd)
{
	char byte;

	while (!wait_for(source, ready_fd, -1))
		read_printed(source);
	read_printed(source);
	return read(ready_fd, &byte, 1) == 1;
}

/* The trace in memory, and a path by which the recording opens it. */
static gp_status_t open_memory(struct top_source *source, char *path, size_t size,
			       struct error *error)
{
	source->in_memory = true;
	source->trace_fd = memfd_create("guestprof trace", MFD_CLOEXEC);
	if (source->trace_fd < 0)
		return error_set_errno(error, errno,
				       "no memory for a trace; -o FILE writes it to disk");
	snprintf(path, size, "/proc/self/fd/%d", source->trace_fd);
	return GP_OK;
}

static gp_status_t start_recording(struct top_source *source, const struct top_recorder *recorder,
				   const char *trace, bool *ready, struct error *error)
{
	int console[2] = {-1, -1}, messages[2] = {-1, -1}, readiness[2] = {-1, -1};
	pid_t display = getpid();
	gp_status_t status = open_pipe(console, error);

	if (!status)
		status = open_pipe(messages, error);
	if (!status)
		status = open_pipe(readiness, error);
	AUTO_CLOSE int ready_fd = readiness[0];
	source->console_fd = console[0];
	source->message_fd = messages[0];
	if (!status) {
		fflush(NULL);
		source->child = fork();
		if (!source->child) {
			close(console[0]);
			close(messages[0]);
			close(readiness[0]);
			run_recorder(recorder, trace, console[1], messages[1], readiness[1],
				     display);
		}
		if (source->child < 0) {
			status = error_set_errno(error, errno, "cannot start the recording");
			source->child = 0;
		}
	}
	for (int *const *end = (int *const[]){console, messages, readiness, NULL}; *end; end++)
		if ((*end)[1] >= 0)
			close((*end)[1]);
	if (status)
		return status;
	source->state.is_recording = true;
	*ready = wait_until_ready(source, ready_fd);
	return GP_OK;
}

gp_status_t top_source_record(const struct top_recorder *recorder, uint64_t window_ns,
			      struct top_state *state, struct top_source **out, struct error *error)
{
	struct top_source *source;
	char memory[64];
	const char *trace = recorder->trace ? recorder->trace : memory;
	gp_status_t status = create(window_ns, &source, error);
	bool ready = false;

	*out = NULL;
	if (status)
		return status;
	if (!recorder->trace)
		status = open_memory(source, memory, sizeof(memory), error);
	if (!status)
		status = start_recording(source, recorder, trace, &ready, error);
	if (ready && recorder->trace) {
		source->trace_fd = open(trace, O_RDONLY | O_CLOEXEC);
		if (source->trace_fd < 0)
			status = error_set_errno(error, errno, "cannot read the trace %s", trace);
	}
	if (ready && !status)
		*out = source;
	else
		top_source_close(source, state);
	return status;
}

/* Following. */

static void give_back(struct top_source *source)
{
	off_t to = source->offset / GIVE_BACK_BYTES * GIVE_BACK_BYTES;

	/* Where the system cannot do that, the trace stays in memory. */
	if (source->in_memory && to > source->given_back &&
	    !fallocate(source->trace_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		       source->given_back, to - source->given_back))
		source->given_back = to;
}

/* A trace that became shorter is another one. */
static void check_size(struct top_source *source)
{
	struct error *problem = &source->state.problem;
	struct stat file;

	if (!fstat(source->trace_fd, &file) && file.st_size < source->offset && !problem->status)
		error_set(
			problem, GP_ERR_BAD_STATE,
			"the trace has become shorter: its writing failed, or it is written anew");
}

/* True: there is more. */
static bool read_trace(struct top_source *source)
{
	uint64_t end_ns = monotonic_ns() + READ_NS;

	while (!source->state.problem.status && monotonic_ns() < end_ns) {
		ssize_t size = pread(source->trace_fd, source->block, BLOCK_BYTES, source->offset);

		if (size < 0 && errno == EINTR)
			continue;
		if (size <= 0) {
			check_size(source);
			return false;
		}
		live_feed(source->live, source->block, (size_t)size, &source->state.problem);
		source->grown_ns = monotonic_ns();
		source->offset += size;
		give_back(source);
	}
	return !source->state.problem.status;
}

short top_source_follow(struct top_source *source, int fd, uint64_t until_ns)
{
	short events;

	do {
		int wait = milliseconds_until(until_ns);

		read_printed(source);
		if (read_trace(source))
			wait = 0;
		reap(source, WNOHANG);
		errno = 0;
		events = wait_for(source, fd,
				  wait < FOLLOW_MILLISECONDS ? wait : FOLLOW_MILLISECONDS);
	} while (!events && errno != EINTR && monotonic_ns() < until_ns);
	return events;
}

gp_status_t top_source_look(struct top_source *source, struct live_snapshot *snapshot,
			    struct top_state *state, struct error *error)
{
	gp_status_t status = live_snapshot(source->live, snapshot, error);

	if (status)
		return status;
	*state = source->state;
	if (!state->is_recording)
		state->has_ended = snapshot->counts.ended;
	state->silent_ns = monotonic_ns() - source->grown_ns;
	return GP_OK;
}

/* Asks the recording to end; after END_SECONDS kills it. */
static void end_recording(struct top_source *source)
{
	uint64_t deadline = monotonic_ns() + END_SECONDS * NS_PER_SECOND;

	reap(source, WNOHANG);
	source->state.was_told_to = source->child != 0;
	if (source->child)
		kill(source->child, SIGTERM);
	while (source->child) {
		read_printed(source);
		if (monotonic_ns() > deadline)
			kill(source->child, SIGKILL);
		reap(source, WNOHANG);
		if (source->child)
			sleep_ns(20 * NS_PER_MILLISECOND);
	}
	read_printed(source);
}

void top_source_close(struct top_source *source, struct top_state *state)
{
	if (!source)
		return;
	end_recording(source);
	*state = source->state;
	destroy(source);
}
