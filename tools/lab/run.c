/* The life of one run in the lab, seen from the host. */
#include "tools/lab/lab.h"
#include "tools/lab/protocol.h"
#include "tools/lab/pump.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/terminal_lines.h"

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
#include <time.h>
#include <unistd.h>

/* A machine whose command has not started by then has hung, which QEMU's emulation of
 * several CPUs does once in a while. Long: the box may be busy. It is tried once more, as
 * nothing has run yet. */
#define BOOT_SECONDS 120
/* A command that was asked to end by a signal, in a lab that may have locked up. */
#define GRACE_SECONDS 60
#define BOOT_ATTEMPTS 2

/* Lines of L1's console and QEMU's messages that are shown when the lab fails. */
#define TAIL_LINES 12

/* Logs older than this are removed. */
#define LOG_SECONDS (24 * 60 * 60)

struct run {
	const struct lab_options *options;
	struct lab_machine machine;
	struct lab_reader control;
	struct lab_writer requests;
	struct lab_pump streams[LAB_STREAMS];
	uint64_t begin_ns;        /* of the first attempt, for --timeout */
	uint64_t boot_ns;         /* of this one */
	uint64_t end_asked_at_ns; /* 0: no SIGTERM or SIGHUP yet */
	bool stalled;             /* not started after BOOT_SECONDS */
	bool started, exited;
	sigset_t passed_on; /* signals the command got; a second one is for the lab */
	int exit_code;      /* valid when exited */
	char failure[512];  /* why the lab failed; empty: unknown yet */
	int log;
	char log_path[PATH_MAX];
	struct terminal_lines tail; /* the log's end */
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

/* Takes console or QEMU output into the log. False when the descriptor has ended. */
static bool take_noise(struct run *run, int fd)
{
	char piece[4096];
	ssize_t got = read(fd, piece, sizeof(piece));

	if (got <= 0)
		return got < 0 && (errno == EAGAIN || errno == EINTR);
	if (run->log >= 0 && write(run->log, piece, (size_t)got) < 0) {
		close(run->log);
		run->log = -1;
	}
	if (run->options->verbose)
		fwrite(piece, 1, (size_t)got, stderr);
	terminal_lines_add(&run->tail, piece, (size_t)got);
	return true;
}

/* What follows `mark` in a line of the log's end; NULL: no line has it. */
static const char *find_in_tail(const struct run *run, const char *mark)
{
	for (size_t i = 0; i < terminal_lines_count(&run->tail); i++) {
		const char *at = strstr(terminal_lines_get(&run->tail, i), mark);

		if (at)
			return at + strlen(mark);
	}
	return NULL;
}

static void print_tail(const struct run *run)
{
	size_t count = terminal_lines_count(&run->tail);

	for (size_t i = count > TAIL_LINES ? count - TAIL_LINES : 0; i < count; i++)
		fprintf(stderr, "  | %s\n", terminal_lines_get(&run->tail, i));
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

static struct lab_window window_size(void)
{
	struct winsize size = {0};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	return (struct lab_window){.rows = size.ws_row, .columns = size.ws_col};
}

static uint32_t put_strings(FILE *to, char *const *texts)
{
	uint32_t count = 0;

	for (; texts[count]; count++)
		fwrite(texts[count], 1, strlen(texts[count]) + 1, to);
	return count;
}

static bool put_request(struct run *run, char *directory, bool writable, bool terminal)
{
	struct lab_request request = {
		.terminal = terminal,
		.terminal_errors = terminal && isatty(STDERR_FILENO),
		.writable = writable,
		.window = window_size(),
	};
	AUTO_FREE char *bytes = NULL;
	size_t size;
	FILE *to = open_memstream(&bytes, &size);

	if (!to)
		return false;
	fwrite(&request, sizeof(request), 1, to);
	put_strings(to, (char *const[]){directory, NULL});
	request.argument_count = put_strings(to, run->options->command);
	request.environment_count = put_strings(to, run->options->environment);
	if (fclose(to))
		return false;
	memcpy(bytes, &request, sizeof(request));
	return lab_writer_put(&run->requests, LAB_REQUEST, bytes, size);
}

static void put_number(struct run *run, enum lab_frame_kind kind, uint32_t number)
{
	lab_writer_put(&run->requests, kind, &number, sizeof(number));
}

/* Ends the run with an exit code of the lab's own making. */
static void finish(struct run *run, int exit_code)
{
	run->exited = true;
	run->exit_code = exit_code;
	for (int i = 0; i < LAB_STREAMS; i++)
		lab_pump_stop(&run->streams[i]);
}

static void handle_signal(struct run *run, int number)
{
	if (number == SIGWINCH) {
		struct lab_window window = window_size();

		lab_writer_put(&run->requests, LAB_WINDOW, &window, sizeof(window));
		return;
	}
	if (number == SIGCHLD) /* QEMU has ended; its sockets show that, too */
		return;
	if (!run->end_asked_at_ns && (number == SIGTERM || number == SIGHUP))
		run->end_asked_at_ns = monotonic_ns();
	if (!run->started || sigismember(&run->passed_on, number))
		finish(run, LAB_EXIT_SIGNAL + number);
	else
		put_number(run, LAB_SIGNAL, (uint32_t)number);
	sigaddset(&run->passed_on, number);
}

static void take_exit(struct run *run, const struct lab_frame *frame)
{
	struct lab_exit end;

	if (frame->length != sizeof(end))
		return;
	memcpy(&end, frame->payload, sizeof(end));
	run->exit_code = (int)(end.code & 255);
	run->exited = true;
	lab_pump_set_end(&run->streams[1], end.bytes[0]);
	lab_pump_set_end(&run->streams[2], end.bytes[1]);
}

static void handle_control(struct run *run)
{
	struct lab_frame frame;

	lab_reader_fill(&run->control);
	while (lab_reader_next(&run->control, &frame)) {
		switch (frame.kind) {
		case LAB_STARTED:
			run->started = true;
			break;
		case LAB_INPUT_CLOSED:
			lab_pump_stop(&run->streams[0]);
			break;
		case LAB_EXITED:
			take_exit(run, &frame);
			break;
		case LAB_FAILED:
			run_fail(run, "%.*s", (int)(frame.length < 400 ? frame.length : 400),
				 (const char *)frame.payload);
			break;
		}
	}
}

static void move_input(struct run *run)
{
	struct lab_pump *input = &run->streams[0];

	lab_pump_move(input);
	if (input->ended)
		lab_writer_put(&run->requests, LAB_INPUT_END, &input->taken, sizeof(input->taken));
}

static void move_output(struct run *run, uint32_t which)
{
	lab_pump_move(&run->streams[which]);
	/* As if the command wrote there: it gets SIGPIPE at its next write. */
	if (run->streams[which].broken)
		put_number(run, LAB_CLOSE, which);
}

static bool run_is_over(const struct run *run)
{
	return (run->exited && lab_pump_is_done(&run->streams[1]) &&
		lab_pump_is_done(&run->streams[2])) ||
	       run->failure[0];
}

/* QEMU is gone. */
static void explain_end(struct run *run)
{
	struct pollfd console = {.fd = run->machine.fds[LAB_CONSOLE], .events = POLLIN};
	const char *text;

	while (console.fd >= 0 && take_noise(run, console.fd) && poll(&console, 1, 0) > 0)
		;
	if (run_is_over(run))
		return;
	if ((text = find_in_tail(run, LAB_FAILURE_MARK)))
		run_fail(run, "%s", text);
	else if ((text = find_in_tail(run, "Kernel panic - not syncing: ")))
		run_fail(run, "the lab's kernel panicked: %s", text);
	else
		run_fail(run, "the lab's machine ended before the command did");
}

enum { SIGNALS, CONTROL, CONSOLE, MESSAGES, STREAM, FDS = STREAM + LAB_STREAMS };

static void prepare_poll(const struct run *run, int signals, struct pollfd fds[static FDS])
{
	const int *machine = run->machine.fds;
	bool asking = lab_writer_pending(&run->requests);

	fds[SIGNALS] = (struct pollfd){.fd = signals, .events = POLLIN};
	fds[CONTROL] = (struct pollfd){.fd = run->control.ended ? -1 : machine[LAB_CONTROL],
				       .events = (short)(asking ? POLLIN | POLLOUT : POLLIN)};
	fds[CONSOLE] = (struct pollfd){.fd = machine[LAB_CONSOLE], .events = POLLIN};
	fds[MESSAGES] = (struct pollfd){.fd = machine[LAB_MESSAGES], .events = POLLIN};
	for (int i = 0; i < LAB_STREAMS; i++)
		fds[STREAM + i] = lab_pump_wait(&run->streams[i]);
	if (!run->started)
		fds[STREAM].fd = -1;
}

static void handle_poll(struct run *run, const struct pollfd fds[static FDS])
{
	if (fds[SIGNALS].revents) {
		struct signalfd_siginfo info;

		while (read(fds[SIGNALS].fd, &info, sizeof(info)) == sizeof(info))
			handle_signal(run, (int)info.ssi_signo);
	}
	if (fds[CONTROL].revents & (POLLIN | POLLHUP))
		handle_control(run);
	if (fds[STREAM].revents)
		move_input(run);
	for (uint32_t i = 1; i < LAB_STREAMS; i++)
		if (fds[STREAM + i].revents)
			move_output(run, i);
	lab_writer_flush(&run->requests);
	if (fds[CONSOLE].revents && !take_noise(run, run->machine.fds[LAB_CONSOLE])) {
		close(run->machine.fds[LAB_CONSOLE]);
		run->machine.fds[LAB_CONSOLE] = -1;
	}
	/* QEMU holds the other end as its stderr: this ends when QEMU does. */
	if (fds[MESSAGES].revents && !take_noise(run, run->machine.fds[LAB_MESSAGES]))
		explain_end(run);
}

/* True when the time is over. Else *wait, milliseconds, becomes no longer than it. */
static bool is_over(uint64_t begin_ns, unsigned seconds, int *wait)
{
	int left = milliseconds_until(begin_ns + seconds * NS_PER_SECOND);

	if (*wait < 0 || left < *wait)
		*wait = left;
	return !left;
}

/* What cannot be waited for any longer ends the run. Returns how long to wait, for poll(). */
static int check_time(struct run *run)
{
	const unsigned limit = run->options->timeout_seconds;
	int wait = -1;

	if (limit && is_over(run->begin_ns, limit, &wait)) {
		restore_terminal();
		fprintf(stderr, "guestprof lab: %u seconds are over\n", limit);
		finish(run, LAB_EXIT_TIMED_OUT);
	} else if (run->end_asked_at_ns && is_over(run->end_asked_at_ns, GRACE_SECONDS, &wait)) {
		run_fail(run, "the command did not end within %d seconds of the signal",
			 GRACE_SECONDS);
	} else if (!run->started && is_over(run->boot_ns, BOOT_SECONDS, &wait)) {
		run->stalled = true;
		run_fail(run, "the command had not started after %d seconds", BOOT_SECONDS);
	}
	return wait;
}

static void relay(struct run *run, int signals)
{
	run->boot_ns = monotonic_ns();
	for (;;) {
		int wait = check_time(run);
		struct pollfd fds[FDS];

		if (run_is_over(run))
			return;
		prepare_poll(run, signals, fds);
		if (poll(fds, FDS, wait) >= 0)
			handle_poll(run, fds);
		else if (errno != EINTR)
			run_fail(run, "cannot wait: %s", strerror(errno));
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

	if (!realpath("/proc/self/exe", agent))
		return error_set_errno(error, errno, "cannot read /proc/self/exe");
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
	run->requests.fd = run->control.fd = run->machine.fds[LAB_CONTROL];
	for (int i = 0; i < LAB_STREAMS; i++)
		run->streams[i] = (struct lab_pump){.from = run->machine.fds[LAB_STREAM + i],
						    .to = i,
						    /* These descriptors are shared with other
						     * processes, so they are not made non-blocking;
						     * after POLLOUT a pipe takes a page. */
						    .piece = 4096};
	run->streams[0] =
		(struct lab_pump){.from = STDIN_FILENO, .to = run->machine.fds[LAB_STREAM]};
	return GP_OK;
}

/* Frees what belongs to a machine that is no more. */
static void run_reset(struct run *run)
{
	lab_reader_deinit(&run->control);
	lab_writer_deinit(&run->requests);
	run->control.ended = false;
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
