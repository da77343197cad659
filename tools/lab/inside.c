/* Process 1 of L1: runs one command, and joins its streams, signals and exit code to the
 * ports that lead to run.c.
 *
 * It never exits: the host kills the machine when it has the exit code. When it cannot go
 * on it says why on the control port or, before there is one, on the console. */
#include "tools/lab/lab.h"
#include "tools/lab/protocol.h"
#include "tools/lab/pump.h"
#include "tools/lab/qemu_races.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct inside {
	struct lab_reader control;
	struct lab_writer answers;
	struct lab_pump streams[LAB_STREAMS]; /* one end is the command's pipe or its pty */
	struct lab_request request;
	const char *directory;
	char **arguments, **environment;
	int terminal; /* the pty, or -1 */
	pid_t child;
	bool exited;
	uint32_t exit_code;
};

static _Noreturn void wait_for_the_end(void)
{
	for (;;)
		pause();
}

static void send_all(struct lab_writer *writer)
{
	while (lab_writer_pending(writer)) {
		struct pollfd port = {.fd = writer->fd, .events = POLLOUT};

		if (poll(&port, 1, -1) < 0 && errno != EINTR)
			return;
		if (!lab_writer_flush(writer))
			return;
	}
}

static _Noreturn void fail(struct inside *inside, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Says why on the control port or, before there is one, on the console. */
static _Noreturn void fail(struct inside *inside, const char *format, ...)
{
	va_list arguments;
	char text[512];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (inside->answers.fd > 0 &&
	    lab_writer_put(&inside->answers, LAB_FAILED, text, strlen(text))) {
		send_all(&inside->answers);
		wait_for_the_end();
	}
	dprintf(2, LAB_FAILURE_MARK "%s\n", text);
	sleep(1);
	reboot(RB_POWER_OFF);
	wait_for_the_end();
}

/* Opens a virtio-serial port. They come up one after the other, so this waits for it, ten seconds
 * at most. */
static int open_port(struct inside *inside, unsigned number)
{
	char pattern[32];

	snprintf(pattern, sizeof(pattern), "/dev/vport*p%u", number);
	for (int attempt = 0; attempt < 1000; attempt++) {
		glob_t found = {0};
		int fd = -1;

		if (!glob(pattern, 0, NULL, &found))
			fd = open(found.gl_pathv[0], O_RDWR | O_NONBLOCK | O_CLOEXEC);
		globfree(&found);
		if (fd >= 0)
			return fd;
		sleep_ns(10 * NS_PER_MILLISECOND);
	}
	fail(inside, "the port %u is not there", number);
}

/* Splits strings off `*at`, of which *left bytes are there, as an array that exec takes. */
static char **take_strings(struct inside *inside, char **at, size_t *left, uint32_t count)
{
	char **strings = calloc((size_t)count + 1, sizeof(*strings));

	if (!strings)
		fail(inside, "no memory for the request");
	for (uint32_t i = 0; i < count; i++) {
		size_t size = strnlen(*at, *left) + 1;

		if (size > *left)
			fail(inside, "the request is cut short");
		strings[i] = *at;
		*at += size;
		*left -= size;
	}
	return strings;
}

static void take_request(struct inside *inside, const struct lab_frame *frame)
{
	const struct lab_request *request = &inside->request;
	size_t left;
	char *at;

	if (frame->length < sizeof(*request))
		fail(inside, "the request is cut short");
	memcpy(&inside->request, frame->payload, sizeof(*request));
	left = frame->length - sizeof(*request);
	at = malloc(left + 1);
	if (!at)
		fail(inside, "no memory for the request");
	memcpy(at, frame->payload + sizeof(*request), left);
	inside->directory = take_strings(inside, &at, &left, 1)[0];
	inside->arguments = take_strings(inside, &at, &left, request->argument_count);
	inside->environment = take_strings(inside, &at, &left, request->environment_count);
	if (!request->argument_count)
		fail(inside, "the request names no command");
}

static void wait_for_request(struct inside *inside)
{
	struct lab_frame frame;

	while (!lab_reader_next(&inside->control, &frame)) {
		struct pollfd port = {.fd = inside->control.fd, .events = POLLIN};

		if (poll(&port, 1, -1) < 0 && errno != EINTR)
			fail(inside, "cannot wait for the request: %s", strerror(errno));
		if (!lab_reader_fill(&inside->control))
			wait_for_the_end(); /* the host is gone */
	}
	if (frame.kind != LAB_REQUEST)
		fail(inside, "no request came first");
	take_request(inside, &frame);
}

static void enter_directory(struct inside *inside)
{
	/* cache=mmap: programs may map files shared; what they write() goes straight to the
	 * host, where others see it at once. */
	if (inside->request.writable &&
	    mount(LAB_SHARE_DIRECTORY, inside->directory, "9p", 0,
		  "trans=virtio,version=9p2000.L,msize=512000,access=any,cache=mmap") < 0)
		fail(inside, "cannot mount %s over 9p: %s", inside->directory, strerror(errno));
	if (chdir(inside->directory) < 0)
		fail(inside, "cannot enter %s: %s", inside->directory, strerror(errno));
}

static void set_window(struct inside *inside, const struct lab_window *window)
{
	struct winsize size = {.ws_row = window->rows, .ws_col = window->columns};

	if (inside->terminal >= 0)
		ioctl(inside->terminal, TIOCSWINSZ, &size);
}

static _Noreturn void become_command(struct inside *inside, const int fds[static 3],
				     const char *slave)
{
	sigset_t none;
	int terminal = -1;

	setsid();
	if (slave) {
		terminal = open(slave, O_RDWR | O_CLOEXEC);
		if (terminal < 0)
			_exit(LAB_EXIT_CANNOT_RUN);
		ioctl(terminal, TIOCSCTTY, 0);
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(fds[i] >= 0 ? fds[i] : terminal, i) < 0)
			_exit(LAB_EXIT_CANNOT_RUN);
	}
	if (!qemu_races_keep_off_the_first_cpu()) {
		dprintf(2, "guestprof lab: cannot choose CPUs: %s\n", strerror(errno));
		_exit(LAB_EXIT_CANNOT_RUN);
	}
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	environ = inside->environment;
	execvp(inside->arguments[0], inside->arguments);
	int why = errno;
	dprintf(2, "guestprof lab: cannot run %s: %s\n", inside->arguments[0], strerror(why));
	_exit(why == ENOENT ? LAB_EXIT_NOT_FOUND : LAB_EXIT_CANNOT_RUN);
}

static int *command_end(struct inside *inside, int which)
{
	return which ? &inside->streams[which].from : &inside->streams[which].to;
}

static void start_command(struct inside *inside)
{
	/* The command's ends: -1 stands for the pty. */
	int fds[3] = {-1, -1, -1}, pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
	const char *slave = NULL;
	bool through_pty[3] = {inside->request.terminal, inside->request.terminal,
			       inside->request.terminal && inside->request.terminal_errors};

	inside->terminal = -1;
	if (inside->request.terminal) {
		inside->terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (inside->terminal < 0 || grantpt(inside->terminal) < 0 ||
		    unlockpt(inside->terminal) < 0 || !(slave = ptsname(inside->terminal)))
			fail(inside, "cannot make a terminal: %s", strerror(errno));
		set_window(inside, &inside->request.window);
	}
	for (int i = 0; i < 3; i++) {
		if (through_pty[i])
			continue;
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			fail(inside, "cannot make a pipe: %s", strerror(errno));
		fds[i] = pipes[i][i == 0 ? 0 : 1];
	}
	inside->child = fork();
	if (inside->child == 0)
		become_command(inside, fds, slave);
	if (inside->child < 0)
		fail(inside, "cannot fork: %s", strerror(errno));
	for (int i = 0; i < 3; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
	inside->streams[0].to = through_pty[0] ? inside->terminal : pipes[0][1];
	inside->streams[1].from = through_pty[1] ? inside->terminal : pipes[1][0];
	inside->streams[2].from = through_pty[2] ? -1 : pipes[2][0];
	inside->streams[2].ended = through_pty[2];
	for (int i = 0; i < 3; i++) {
		int fd = *command_end(inside, i);

		if (fd >= 0)
			fcntl(fd, F_SETFL, O_NONBLOCK);
	}
	lab_writer_put(&inside->answers, LAB_STARTED, NULL, 0);
}

/* Closes the command's end of a stream. A terminal has no end of file: what it is closed by is a
 * hang-up. */
static void end_stream(struct inside *inside, int which)
{
	int *fd = command_end(inside, which);

	lab_pump_stop(&inside->streams[which]);
	if (*fd >= 0 && *fd != inside->terminal)
		close(*fd);
	*fd = -1;
}

/* Gives the command what came in for it; it may take a part, or have closed its end. */
static void move_input(struct inside *inside)
{
	struct lab_pump *input = &inside->streams[0];

	lab_pump_move(input);
	if (input->broken)
		lab_writer_put(&inside->answers, LAB_INPUT_CLOSED, NULL, 0);
	if (lab_pump_is_done(input))
		end_stream(inside, 0);
}

static void handle_frame(struct inside *inside, const struct lab_frame *frame)
{
	union {
		uint32_t number;
		uint64_t bytes;
		struct lab_window window;
	} payload = {0};

	if (frame->length > sizeof(payload))
		return;
	memcpy(&payload, frame->payload, frame->length);
	switch (frame->kind) {
	case LAB_WINDOW:
		set_window(inside, &payload.window);
		break;
	case LAB_SIGNAL:
		/* To its process group, as a terminal would. */
		if (!inside->exited && payload.number && payload.number < NSIG)
			kill(-inside->child, (int)payload.number);
		break;
	case LAB_INPUT_END:
		lab_pump_set_end(&inside->streams[0], payload.bytes);
		if (lab_pump_is_done(&inside->streams[0]))
			end_stream(inside, 0);
		break;
	case LAB_CLOSE:
		if (payload.number == 1 || payload.number == 2)
			end_stream(inside, (int)payload.number);
		break;
	}
}

static void handle_control(struct inside *inside)
{
	struct lab_frame frame;

	if (!lab_reader_fill(&inside->control))
		wait_for_the_end();
	while (lab_reader_next(&inside->control, &frame))
		handle_frame(inside, &frame);
}

/* Process 1 inherits every orphan. */
static void reap(struct inside *inside)
{
	int status;
	pid_t process;

	while ((process = waitpid(-1, &status, WNOHANG)) > 0) {
		if (process != inside->child)
			continue;
		inside->exited = true;
		inside->exit_code = WIFSIGNALED(status)
					    ? LAB_EXIT_SIGNAL + (uint32_t)WTERMSIG(status)
					    : (uint32_t)WEXITSTATUS(status);
	}
}

/* What was printed before the exit is in the pipes now; what others still print, who may run for
 * ever, is not waited for. */
static bool is_drained(struct lab_pump *output)
{
	if (!lab_pump_is_done(output) && output->start == output->used) {
		lab_pump_move(output);
		output->ended |= output->start == output->used;
	}
	return lab_pump_is_done(output);
}

static bool is_over(struct inside *inside)
{
	bool drained = inside->exited && is_drained(&inside->streams[1]);

	return drained && is_drained(&inside->streams[2]);
}

/* Until the command has exited and all that it printed is on its way. */
static void relay(struct inside *inside, int signals)
{
	enum { SIGNALS, CONTROL, STREAM, FDS = STREAM + LAB_STREAMS };

	while (!is_over(inside)) {
		bool answering = lab_writer_pending(&inside->answers);
		struct pollfd fds[FDS] = {
			[SIGNALS] = {.fd = signals, .events = POLLIN},
			[CONTROL] = {.fd = inside->control.fd,
				     .events = (short)(answering ? POLLIN | POLLOUT : POLLIN)},
		};

		for (int i = 0; i < LAB_STREAMS; i++)
			fds[STREAM + i] = lab_pump_wait(&inside->streams[i]);
		if (poll(fds, FDS, -1) < 0)
			continue;
		if (fds[SIGNALS].revents) {
			struct signalfd_siginfo info;

			while (read(signals, &info, sizeof(info)) == sizeof(info))
				;
			reap(inside);
		}
		if (fds[CONTROL].revents & (POLLIN | POLLHUP))
			handle_control(inside);
		lab_writer_flush(&inside->answers);
		if (fds[STREAM].revents)
			move_input(inside);
		for (int i = 1; i < LAB_STREAMS; i++)
			if (fds[STREAM + i].revents)
				lab_pump_move(&inside->streams[i]);
	}
}

static _Noreturn void finish(struct inside *inside)
{
	const struct lab_exit end = {.code = inside->exit_code,
				     .bytes = {inside->streams[1].taken, inside->streams[2].taken}};

	/* Pages of shared mappings; the host kills the machine next. */
	sync();
	lab_writer_put(&inside->answers, LAB_EXITED, &end, sizeof(end));
	send_all(&inside->answers);
	wait_for_the_end();
}

void lab_inside(void)
{
	static struct inside inside;
	const struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
	struct error error;
	sigset_t child;
	int signals;

	if (getpid() != 1) {
		fprintf(stderr, "guestprof lab --inside is for the lab's own use\n");
		exit(LAB_EXIT_FAILED);
	}
	/* L1 has no user whom a limit could protect. */
	setrlimit(RLIMIT_MEMLOCK, &unlimited);
	if (qemu_races_start_cpus(&error))
		fail(&inside, "%s", error.text);
	inside.control.fd = inside.answers.fd = open_port(&inside, LAB_PORT_CONTROL);
	inside.streams[0].from = open_port(&inside, LAB_PORT_STREAM);
	inside.streams[1].to = open_port(&inside, LAB_PORT_STREAM + 1);
	inside.streams[2].to = open_port(&inside, LAB_PORT_STREAM + 2);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		fail(&inside, "cannot wait for signals: %s", strerror(errno));
	wait_for_request(&inside);
	enter_directory(&inside);
	start_command(&inside);
	relay(&inside, signals);
	finish(&inside);
}
