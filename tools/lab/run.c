/* The life of one run in the lab, seen from the host. */
#include "base/clock.h"
#include "tools/lab/lab.h"
#include "tools/lab/protocol.h"

#include "base/cleanup.h"
#include "base/container.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* A machine whose command has not started by then has hung, which QEMU's emulation of
 * several CPUs does once in a while. Long: the box may be busy. It is tried once more, as
 * nothing has run yet. */
#define BOOT_SECONDS 120
/* A command that was asked to end by a signal, in a lab that may have locked up. */
#define GRACE_SECONDS 60
#define BOOT_ATTEMPTS 2

/* What is kept of L1's console and QEMU's messages, to be shown when the lab fails. */
#define TAIL_BYTES 8192
#define TAIL_LINES 12

/* Logs older than this are removed. */
#define LOG_SECONDS (24 * 60 * 60)

struct run {
	const struct lab_options *options;
	struct lab_machine machine;
	struct lab_reader control, streams[2];
	struct lab_writer requests, input;
	uint64_t begin_ns; /* of the first attempt, for --timeout */
	bool stalled;      /* not started after BOOT_SECONDS */
	bool started, input_ended, stream_ended[2], exited;
	bool pending[2]; /* the frame in `data` is not written yet */
	struct lab_frame data[2];
	sigset_t passed_on;    /* signals the command got; a second one is for the lab */
	uint64_t end_asked_ns; /* 0: no SIGTERM or SIGHUP yet */
	int exit_code;         /* valid when exited */
	char failure[512];     /* why the lab failed; empty: unknown yet */
	int log;
	char log_path[PATH_MAX];
	char tail[TAIL_BYTES]; /* the log's end */
	size_t tail_used;
};

static struct termios saved_terminal;
static volatile sig_atomic_t terminal_is_raw;

static void restore_terminal(void)
{
	if (terminal_is_raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_terminal);
	terminal_is_raw = 0;
}

static void make_terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &saved_terminal) < 0)
		return;
	raw = saved_terminal;
	cfmakeraw(&raw);
	atexit(restore_terminal);
	terminal_is_raw = 1;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static void run_fail(struct run *run, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The first reason is the one that counts. */
static void run_fail(struct run *run, const char *format, ...)
{
	va_list arguments;

	if (run->failure[0])
		return;
	va_start(arguments, format);
	vsnprintf(run->failure, sizeof(run->failure), format, arguments);
	va_end(arguments);
}

/* Puts console or QEMU output in the log. */
static void note(struct run *run, const char *bytes, size_t size)
{
	if (run->log >= 0 && write(run->log, bytes, size) < 0) {
		close(run->log);
		run->log = -1;
	}
	if (run->options->verbose)
		fwrite(bytes, 1, size, stderr);
	if (size > TAIL_BYTES) {
		bytes += size - TAIL_BYTES;
		size = TAIL_BYTES;
	}
	if (run->tail_used + size > TAIL_BYTES) {
		size_t drop = run->tail_used + size - TAIL_BYTES;

		memmove(run->tail, run->tail + drop, run->tail_used - drop);
		run->tail_used -= drop;
	}
	memcpy(run->tail + run->tail_used, bytes, size);
	run->tail_used += size;
}

/* Reads one of the noise descriptors. False when it has ended. */
static bool take_noise(struct run *run, int fd)
{
	char piece[4096];
	ssize_t got = read(fd, piece, sizeof(piece));

	if (got > 0)
		note(run, piece, (size_t)got);
	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* The text behind `mark` in the log's end, up to the end of its line. */
static bool find_in_tail(const struct run *run, const char *mark, char *text, size_t size)
{
	const char *at = memmem(run->tail, run->tail_used, mark, strlen(mark));
	size_t left, length = 0;

	if (!at)
		return false;
	at += strlen(mark);
	left = (size_t)(run->tail + run->tail_used - at);
	while (length < left && length < size - 1 && at[length] != '\n' && at[length] != '\r')
		length++;
	memcpy(text, at, length);
	text[length] = 0;
	return true;
}

/* The last lines, without the control characters that a console may hold. */
static void print_tail(const struct run *run)
{
	size_t start = run->tail_used;
	unsigned lines = 0;

	while (start && !(run->tail[start - 1] == '\n' && ++lines > TAIL_LINES))
		start--;
	bool fresh = true;
	for (size_t i = start; i < run->tail_used; i++) {
		char c = run->tail[i];

		if (c == '\r')
			continue;
		if (fresh && c != '\n')
			fputs("  | ", stderr);
		fresh = c == '\n';
		fputc(c == '\n' || c == '\t' || isprint((unsigned char)c) ? c : '?', stderr);
	}
	if (!fresh)
		fputc('\n', stderr);
}

static void open_log(struct run *run)
{
	char directory[PATH_MAX];
	DIR *stream;
	struct dirent *entry;

	run->log = -1;
	if (lab_cache_path("logs", directory, NULL) != GP_OK)
		return;
	stream = opendir(directory);
	while (stream && (entry = readdir(stream))) {
		struct stat status;

		if (!strncmp(entry->d_name, "lab-", 4) &&
		    !fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) &&
		    status.st_mtime < time(NULL) - LOG_SECONDS)
			unlinkat(dirfd(stream), entry->d_name, 0);
	}
	if (stream)
		closedir(stream);
	if (snprintf(run->log_path, sizeof(run->log_path), "%s/lab-%d.log", directory,
		     (int)getpid()) < (int)sizeof(run->log_path))
		run->log = open(run->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static bool append(uint8_t *bytes, size_t *used, const char *text)
{
	size_t length = strlen(text) + 1;

	if (*used + length > LAB_FRAME_MAX)
		return false;
	memcpy(bytes + *used, text, length);
	*used += length;
	return true;
}

static struct lab_window window_size(void)
{
	struct winsize size = {0};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	return (struct lab_window){.rows = size.ws_row, .columns = size.ws_col};
}

static bool put_request(struct run *run, const char *directory, bool writable, bool terminal)
{
	struct lab_request request = {
		.terminal = terminal,
		.terminal_errors = terminal && isatty(STDERR_FILENO),
		.writable = writable,
		.window = window_size(),
	};
	AUTO_FREE uint8_t *bytes = malloc(LAB_FRAME_MAX);
	size_t used = sizeof(request);
	bool fits;

	if (!bytes)
		return false;
	fits = append(bytes, &used, directory);
	for (char *const *text = run->options->command; *text && fits; text++) {
		fits = append(bytes, &used, *text);
		request.argument_count++;
	}
	for (char *const *text = run->options->environment; *text && fits; text++) {
		fits = append(bytes, &used, *text);
		request.environment_count++;
	}
	memcpy(bytes, &request, sizeof(request));
	return fits && lab_writer_put(&run->requests, LAB_REQUEST, bytes, used);
}

static void put_number(struct run *run, enum lab_frame_kind kind, uint32_t number)
{
	lab_writer_put(&run->requests, kind, &number, sizeof(number));
}

/* Ends the run with an exit code of the lab's own making. */
static void finish(struct run *run, int exit_code)
{
	run->exited = true;
	run->stream_ended[0] = run->stream_ended[1] = true;
	run->exit_code = exit_code;
}

static void handle_signal(struct run *run, int number)
{
	if (number == SIGWINCH) {
		struct lab_window window = window_size();

		lab_writer_put(&run->requests, LAB_WINDOW, &window, sizeof(window));
		return;
	}
	if (number == SIGCHLD) /* QEMU; its sockets tell the rest */
		return;
	if (!run->end_asked_ns && (number == SIGTERM || number == SIGHUP))
		run->end_asked_ns = monotonic_ns();
	if (!run->started || sigismember(&run->passed_on, number))
		finish(run, LAB_EXIT_SIGNAL + number);
	else
		put_number(run, LAB_SIGNAL, (uint32_t)number);
	sigaddset(&run->passed_on, number);
}

static void handle_control(struct run *run)
{
	struct lab_frame frame;
	uint32_t number = 0;

	lab_reader_fill(&run->control);
	while (lab_reader_next(&run->control, &frame)) {
		switch (frame.kind) {
		case LAB_STARTED:
			run->started = true;
			break;
		case LAB_INPUT_CLOSED:
			run->input_ended = true;
			break;
		case LAB_EXITED:
			if (frame.length == sizeof(number))
				memcpy(&number, frame.payload, sizeof(number));
			run->exit_code = (int)(number & 255);
			run->exited = true;
			break;
		case LAB_FAILED:
			run_fail(run, "%.*s", (int)(frame.length < 400 ? frame.length : 400),
				 (const char *)frame.payload);
			break;
		}
	}
}

static void handle_input(struct run *run)
{
	static uint8_t piece[LAB_DATA_MAX];
	ssize_t got = read(STDIN_FILENO, piece, sizeof(piece));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got > 0) {
		lab_writer_put(&run->input, LAB_DATA, piece, (size_t)got);
		return;
	}
	lab_writer_put(&run->input, LAB_END, NULL, 0);
	run->input_ended = true;
}

/* Looks for the next frame of stdout (0) or stderr (1). */
static void next_output(struct run *run, int which)
{
	while (!run->pending[which] && !run->stream_ended[which] &&
	       lab_reader_next(&run->streams[which], &run->data[which])) {
		if (run->data[which].kind == LAB_END)
			run->stream_ended[which] = true;
		else if (run->data[which].kind == LAB_DATA && run->data[which].length)
			run->pending[which] = true;
	}
}

/* Writes a piece of the pending frame. The descriptor is shared with other processes, so it
 * is not made non-blocking; after POLLOUT a pipe takes a page without blocking. */
static void write_output(struct run *run, int which)
{
	struct lab_frame *data = &run->data[which];
	int fd = which == 0 ? STDOUT_FILENO : STDERR_FILENO;
	size_t size = data->length < 4096 ? data->length : 4096;
	ssize_t put = write(fd, data->payload, size);

	if (put < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (put < 0) {
		/* As if the command wrote there: it gets SIGPIPE at its next write. */
		put_number(run, LAB_CLOSE, which == 0 ? 1 : 2);
		run->pending[which] = false;
		run->stream_ended[which] = true;
		return;
	}
	data->payload += put;
	data->length -= (uint32_t)put;
	run->pending[which] = data->length > 0;
}

static bool run_is_over(const struct run *run)
{
	return (run->exited && run->stream_ended[0] && run->stream_ended[1]) || run->failure[0];
}

enum { SIGNALS, CONTROL, INPUT, STDIN, CONSOLE, MESSAGES, STREAM, STANDARD = STREAM + 2, FDS = 10 };

static void prepare_poll(const struct run *run, int signals, struct pollfd fds[static FDS])
{
	bool feeding = lab_writer_pending(&run->input);

	for (int i = 0; i < FDS; i++)
		fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
	fds[SIGNALS].fd = signals;
	fds[CONTROL].fd = run->control.ended ? -1 : run->machine.control;
	if (lab_writer_pending(&run->requests))
		fds[CONTROL].events |= POLLOUT;
	if (feeding)
		fds[INPUT] = (struct pollfd){.fd = run->machine.input, .events = POLLOUT};
	else if (run->started && !run->input_ended)
		fds[STDIN].fd = STDIN_FILENO;
	fds[CONSOLE].fd = run->machine.console;
	fds[MESSAGES].fd = run->machine.messages;
	for (int i = 0; i < 2; i++) {
		if (run->pending[i]) {
			fds[STANDARD + i] =
				(struct pollfd){.fd = STDOUT_FILENO + i, .events = POLLOUT};
		} else if (!run->stream_ended[i] && !run->streams[i].ended) {
			fds[STREAM + i].fd = run->streams[i].fd;
		}
	}
}

static void handle_poll(struct run *run, const struct pollfd fds[static FDS])
{
	if (fds[SIGNALS].revents) {
		struct signalfd_siginfo info;

		while (read(fds[SIGNALS].fd, &info, sizeof(info)) == sizeof(info))
			handle_signal(run, (int)info.ssi_signo);
	}
	for (int i = 0; i < 2; i++) {
		if (fds[STANDARD + i].revents)
			write_output(run, i);
		if (fds[STREAM + i].revents)
			lab_reader_fill(&run->streams[i]);
		next_output(run, i);
	}
	if (fds[CONTROL].revents & (POLLIN | POLLHUP))
		handle_control(run);
	if (fds[STDIN].revents)
		handle_input(run);
	lab_writer_flush(&run->requests);
	lab_writer_flush(&run->input);
	if (fds[CONSOLE].revents && !take_noise(run, run->machine.console)) {
		close(run->machine.console);
		run->machine.console = -1;
	}
	/* QEMU holds the other end as its stderr: this ends when QEMU does. */
	if (fds[MESSAGES].revents && !take_noise(run, run->machine.messages)) {
		while (run->machine.console >= 0 && take_noise(run, run->machine.console) &&
		       poll(&(struct pollfd){.fd = run->machine.console, .events = POLLIN}, 1, 0) >
			       0)
			;
		if (!find_in_tail(run, LAB_FAILURE_MARK, run->failure, sizeof(run->failure)) &&
		    find_in_tail(run, "Kernel panic - not syncing: ", run->failure,
				 sizeof(run->failure) - 1)) {
			struct error error = {0};

			error_set(&error, GP_ERR_INTERNAL, "%.400s", run->failure);
			run->failure[0] = 0;
			run_fail(run, "the lab's kernel panicked: %.400s", error.text);
		}
		if (!run_is_over(run))
			run_fail(run, "the lab's machine ended before the command did");
	}
}

static void relay(struct run *run, int signals)
{
	uint64_t start_by = monotonic_ns() + BOOT_SECONDS * NS_PER_SECOND;
	uint64_t limit = run->options->timeout_seconds * NS_PER_SECOND;

	while (!run_is_over(run)) {
		struct pollfd fds[FDS];
		uint64_t now = monotonic_ns(), next = UINT64_MAX;

		if (limit) {
			next = run->begin_ns + limit;
			if (now >= next) {
				restore_terminal();
				fprintf(stderr, "guestprof lab: %u seconds are over\n",
					run->options->timeout_seconds);
				finish(run, LAB_EXIT_TIMED_OUT);
				return;
			}
		}
		if (run->end_asked_ns) {
			uint64_t end_by = run->end_asked_ns + GRACE_SECONDS * NS_PER_SECOND;

			if (now >= end_by) {
				run_fail(run,
					 "the command did not end within %d seconds of the signal",
					 GRACE_SECONDS);
				return;
			}
			next = end_by < next ? end_by : next;
		}
		if (!run->started) {
			if (now >= start_by) {
				run->stalled = true;
				run_fail(run, "the command had not started after %d seconds",
					 BOOT_SECONDS);
				return;
			}
			next = start_by < next ? start_by : next;
		}
		prepare_poll(run, signals, fds);
		if (poll(fds, FDS, next < UINT64_MAX ? milliseconds_until(next) : -1) < 0 &&
		    errno != EINTR) {
			run_fail(run, "cannot wait: %s", strerror(errno));
			return;
		}
		handle_poll(run, fds);
	}
}

/* Signals that are passed on arrive at a descriptor; those that the caller has ignored, as a
 * shell does for the background, stay ignored. */
static int catch_signals(void)
{
	static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCHLD};
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_SIZE(passed_on); i++) {
		struct sigaction action;

		if (!sigaction(passed_on[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&set, passed_on[i]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static gp_status_t start(struct run *run, bool terminal, struct error *error)
{
	struct lab_machine_config config = {
		.cpus = run->options->cpus,
		.memory_mib = run->options->memory_mib,
		.verbose = run->options->verbose,
	};
	char qemu[PATH_MAX], initramfs[PATH_MAX], agent[PATH_MAX], directory[PATH_MAX];
	struct lab_kernel kernel;
	ssize_t length = readlink("/proc/self/exe", agent, sizeof(agent) - 1);

	if (length < 0)
		return error_set_errno(error, errno, "cannot read /proc/self/exe");
	agent[length] = 0;
	if (!getcwd(directory, sizeof(directory)))
		return error_set_errno(error, errno, "cannot find the current directory");
	if (lab_find_program("qemu-system-x86_64", "qemu-system-x86", qemu, error) != GP_OK ||
	    lab_kernel_find(run->options->kernel, &kernel, error) != GP_OK ||
	    lab_initramfs_find(&kernel, initramfs, error) != GP_OK)
		return error->status;
	config.qemu = qemu;
	config.kernel = kernel.image;
	config.initramfs = initramfs;
	config.agent = agent;
	/* The root itself stays as it is: nothing that is written lands there. */
	config.directory = strcmp(directory, "/") ? directory : NULL;
	if (!put_request(run, directory, config.directory != NULL, terminal))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the command and its environment are longer than %u bytes",
				 LAB_FRAME_MAX);
	if (lab_machine_start(&config, &run->machine, error) != GP_OK)
		return error->status;
	run->requests.fd = run->control.fd = run->machine.control;
	run->input.fd = run->machine.input;
	run->streams[0].fd = run->machine.output;
	run->streams[1].fd = run->machine.errors;
	return GP_OK;
}

/* Frees what belongs to a machine that is no more. */
static void run_reset(struct run *run)
{
	lab_reader_deinit(&run->control);
	lab_reader_deinit(&run->streams[0]);
	lab_reader_deinit(&run->streams[1]);
	lab_writer_deinit(&run->requests);
	lab_writer_deinit(&run->input);
	run->control.ended = run->streams[0].ended = run->streams[1].ended = false;
	run->stalled = false;
	run->failure[0] = 0;
}

int lab_run(const struct lab_options *options)
{
	/* Static for its size. */
	static struct run run;
	bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	struct error error = {0};
	int signals = -1;

	run.options = options;
	run.log = -1;
	run.begin_ns = monotonic_ns();
	for (int attempt = 0; attempt < BOOT_ATTEMPTS; attempt++) {
		if (start(&run, terminal, &error) != GP_OK) {
			fprintf(stderr, "guestprof lab: %s\n", error.text);
			return LAB_EXIT_FAILED;
		}
		if (attempt == 0) {
			signals = catch_signals();
			open_log(&run);
			if (terminal)
				make_terminal_raw();
		}
		relay(&run, signals);
		lab_machine_stop(&run.machine);
		if (!run.stalled || attempt + 1 == BOOT_ATTEMPTS)
			break;
		run_reset(&run);
	}
	restore_terminal();
	if (run.failure[0]) {
		fprintf(stderr, "guestprof lab: %s\n", run.failure);
		print_tail(&run);
		if (run.log >= 0)
			fprintf(stderr, "guestprof lab: all of it is in %s\n", run.log_path);
		run.exit_code = LAB_EXIT_FAILED;
	}
	if (run.log >= 0)
		close(run.log);
	close(signals);
	run_reset(&run);
	return run.exit_code;
}
