/* Process 1 of L1: runs one command, and joins its streams, signals and exit code to the
 * ports that lead to run.c.
 *
 * It never exits: the host kills the machine when it has the exit code. When it cannot go
 * on it says why on the control port or, before there is one, on the console. */
#include "base/clock.h"
#include "tools/lab/lab.h"
#include "tools/lab/protocol.h"
#include "tools/lab/qemu_races.h"

#include "base/cleanup.h"
#include "base/container.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
	struct lab_reader control, input;
	struct lab_writer answers, streams[2]; /* stdout, stderr */
	struct lab_request request;
	const char *directory;
	char **arguments, **environment;
	int stdin_fd;      /* pipe to the command, or the pty; -1 when closed */
	int sources[2];    /* its stdout and stderr; -1 when closed or none */
	int terminal;      /* the pty, or -1 */
	uint8_t *unfed;    /* input that the command has not taken yet */
	size_t unfed_size; /* of LAB_DATA_MAX */
	bool input_ended;
	pid_t child;
	bool exited;
	uint32_t exit_code;
};

static _Noreturn void wait_for_the_end(void)
{
	for (;;)
		pause();
}

static _Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Before the control port works. */
static _Noreturn void die(const char *format, ...)
{
	va_list arguments;
	char text[512];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	dprintf(2, LAB_FAILURE_MARK "%s\n", text);
	sleep(1);
	reboot(RB_POWER_OFF);
	wait_for_the_end();
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

static _Noreturn void fail(struct inside *inside, const char *format, ...)
{
	va_list arguments;
	char text[512];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	lab_writer_put(&inside->answers, LAB_FAILED, text, strlen(text));
	send_all(&inside->answers);
	wait_for_the_end();
}

/* Opens the virtio-serial port with that name. They come up one after the other, so this
 * waits for it, ten seconds at most. */
static int open_port(const char *name)
{
	static const char ports[] = "/sys/class/virtio-ports";

	for (int attempt = 0; attempt < 1000; attempt++) {
		DIR *directory = opendir(ports);
		struct dirent *entry;

		while (directory && (entry = readdir(directory))) {
			char path[PATH_MAX], found[64] = "";

			snprintf(path, sizeof(path), "%s/%s/name", ports, entry->d_name);
			AUTO_FCLOSE FILE *file = fopen(path, "re");
			if (!file || !fgets(found, sizeof(found), file))
				continue;
			found[strcspn(found, "\n")] = 0;
			if (strcmp(found, name))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
			int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
			if (fd >= 0) {
				closedir(directory);
				return fd;
			}
		}
		if (directory)
			closedir(directory);
		sleep_ns(10 * NS_PER_MILLISECOND);
	}
	die("the port %s is not there", name);
}

/* The strings behind the request, as the arrays that exec takes. */
static void take_request(struct inside *inside, const struct lab_frame *frame)
{
	size_t left;
	char *at;

	if (frame->length < sizeof(inside->request))
		fail(inside, "the request is cut short");
	memcpy(&inside->request, frame->payload, sizeof(inside->request));
	left = frame->length - sizeof(inside->request);
	at = malloc(left + 1);
	inside->arguments = calloc((size_t)inside->request.argument_count + 1, sizeof(char *));
	inside->environment = calloc((size_t)inside->request.environment_count + 1, sizeof(char *));
	if (!at || !inside->arguments || !inside->environment)
		fail(inside, "no memory for the request");
	memcpy(at, frame->payload + sizeof(inside->request), left);
	at[left] = 0;
	for (uint64_t i = 0;
	     i < 1ull + inside->request.argument_count + inside->request.environment_count; i++) {
		size_t length = strlen(at);

		if (length >= left)
			fail(inside, "the request is cut short");
		if (i == 0)
			inside->directory = at;
		else if (i <= inside->request.argument_count)
			inside->arguments[i - 1] = at;
		else
			inside->environment[i - 1 - inside->request.argument_count] = at;
		at += length + 1;
		left -= length + 1;
	}
	if (!inside->request.argument_count)
		fail(inside, "the request names no command");
}

static void wait_for_request(struct inside *inside)
{
	struct lab_frame frame;

	while (!lab_reader_next(&inside->control, &frame)) {
		struct pollfd port = {.fd = inside->control.fd, .events = POLLIN};

		if (poll(&port, 1, -1) < 0 && errno != EINTR)
			die("cannot wait for the request: %s", strerror(errno));
		if (!lab_reader_fill(&inside->control))
			die("the host closed the control port");
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
	inside->stdin_fd = through_pty[0] ? inside->terminal : pipes[0][1];
	inside->sources[0] = through_pty[1] ? inside->terminal : pipes[1][0];
	inside->sources[1] = through_pty[2] ? -1 : pipes[2][0];
	fcntl(inside->stdin_fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 2; i++) {
		if (inside->sources[i] >= 0)
			fcntl(inside->sources[i], F_SETFL, O_NONBLOCK);
	}
	lab_writer_put(&inside->answers, LAB_STARTED, NULL, 0);
}

static void close_input(struct inside *inside)
{
	if (inside->stdin_fd < 0)
		return;
	if (inside->stdin_fd != inside->terminal)
		close(inside->stdin_fd);
	inside->stdin_fd = -1;
	inside->unfed_size = 0;
}

/* Gives the command what came in for it; it may take a part, or have closed its end. */
static void feed(struct inside *inside)
{
	struct lab_frame frame;

	for (;;) {
		while (inside->unfed_size && inside->stdin_fd >= 0) {
			ssize_t put = write(inside->stdin_fd, inside->unfed, inside->unfed_size);

			if (put > 0) {
				inside->unfed_size -= (size_t)put;
				memmove(inside->unfed, inside->unfed + put, inside->unfed_size);
			} else if (put < 0 && errno == EAGAIN) {
				return;
			} else if (put < 0 && errno != EINTR) {
				close_input(inside);
				lab_writer_put(&inside->answers, LAB_INPUT_CLOSED, NULL, 0);
			}
		}
		if (!lab_reader_next(&inside->input, &frame))
			break;
		if (frame.kind == LAB_END) {
			/* A terminal has no end of file; what it is closed by is a hang-up. */
			if (inside->stdin_fd != inside->terminal || inside->terminal < 0)
				close_input(inside);
			inside->input_ended = true;
		} else if (frame.kind == LAB_DATA && frame.length <= LAB_DATA_MAX &&
			   inside->stdin_fd >= 0) {
			memcpy(inside->unfed, frame.payload, frame.length);
			inside->unfed_size = frame.length;
		}
	}
}

static void end_stream(struct inside *inside, int which)
{
	if (inside->sources[which] >= 0 && inside->sources[which] != inside->terminal)
		close(inside->sources[which]);
	inside->sources[which] = -1;
}

/* Takes what the command printed, one piece. False when there is nothing now. */
static bool take_output(struct inside *inside, int which)
{
	static uint8_t piece[LAB_DATA_MAX];
	ssize_t got;

	if (inside->sources[which] < 0)
		return false;
	got = read(inside->sources[which], piece, sizeof(piece));
	if (got > 0) {
		lab_writer_put(&inside->streams[which], LAB_DATA, piece, (size_t)got);
		return true;
	}
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	/* The end; on a pty EIO, when the last process has closed it. */
	end_stream(inside, which);
	return false;
}

static void handle_control(struct inside *inside)
{
	struct lab_frame frame;
	uint32_t number;

	if (!lab_reader_fill(&inside->control))
		wait_for_the_end();
	while (lab_reader_next(&inside->control, &frame)) {
		if (frame.kind == LAB_WINDOW && frame.length == sizeof(struct lab_window)) {
			struct lab_window window;

			memcpy(&window, frame.payload, sizeof(window));
			set_window(inside, &window);
			continue;
		}
		if (frame.length != sizeof(number))
			continue;
		memcpy(&number, frame.payload, sizeof(number));
		/* To its process group, as a terminal would. */
		if (frame.kind == LAB_SIGNAL && !inside->exited && number && number < NSIG)
			kill(-inside->child, (int)number);
		else if (frame.kind == LAB_CLOSE && (number == 1 || number == 2))
			end_stream(inside, (int)number - 1);
	}
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

static _Noreturn void finish(struct inside *inside)
{
	/* What was printed before the exit is in the pipes now; what others still print, who
	 * may run for ever, is not waited for. */
	for (int which = 0; which < 2; which++) {
		do {
			send_all(&inside->streams[which]);
		} while (take_output(inside, which));
		lab_writer_put(&inside->streams[which], LAB_END, NULL, 0);
		send_all(&inside->streams[which]);
	}
	/* Pages of shared mappings; the host kills the machine next. */
	sync();
	lab_writer_put(&inside->answers, LAB_EXITED, &inside->exit_code, sizeof(inside->exit_code));
	send_all(&inside->answers);
	wait_for_the_end();
}

/* Until the command has exited. */
static void relay(struct inside *inside, int signals)
{
	while (!inside->exited) {
		struct pollfd wait[8] = {
			{.fd = signals, .events = POLLIN},
			{.fd = inside->control.fd,
			 .events = (short)(POLLIN |
					   (lab_writer_pending(&inside->answers) ? POLLOUT : 0))},
			/* The next input is taken when the command has taken the last. */
			{.fd = inside->unfed_size || inside->input_ended ? -1 : inside->input.fd,
			 .events = POLLIN},
			{.fd = inside->unfed_size ? inside->stdin_fd : -1, .events = POLLOUT},
		};

		for (int i = 0; i < 2; i++) {
			struct lab_writer *to = &inside->streams[i];

			wait[4 + i] = (struct pollfd){.fd = to->fd, .events = POLLOUT};
			wait[6 + i] = (struct pollfd){.fd = inside->sources[i], .events = POLLIN};
			if (lab_writer_pending(to))
				wait[6 + i].fd = -1;
			else
				wait[4 + i].fd = -1;
		}
		if (poll(wait, ARRAY_SIZE(wait), -1) < 0)
			continue;
		if (wait[0].revents) {
			struct signalfd_siginfo info;

			while (read(signals, &info, sizeof(info)) == sizeof(info))
				;
			reap(inside);
		}
		if (wait[1].revents & (POLLIN | POLLHUP))
			handle_control(inside);
		lab_writer_flush(&inside->answers);
		if (wait[2].revents)
			inside->input_ended |= !lab_reader_fill(&inside->input);
		if (wait[2].revents || wait[3].revents)
			feed(inside);
		for (int i = 0; i < 2; i++) {
			if (wait[6 + i].revents)
				take_output(inside, i);
			lab_writer_flush(&inside->streams[i]);
		}
	}
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
		die("%s", error.text);
	inside.control.fd = inside.answers.fd = open_port(LAB_PORT_CONTROL);
	inside.input.fd = open_port(LAB_PORT_INPUT);
	inside.streams[0].fd = open_port(LAB_PORT_OUTPUT);
	inside.streams[1].fd = open_port(LAB_PORT_ERRORS);
	inside.unfed = malloc(LAB_DATA_MAX);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (!inside.unfed || signals < 0)
		die("no memory or descriptors");
	wait_for_request(&inside);
	enter_directory(&inside);
	start_command(&inside);
	relay(&inside, signals);
	finish(&inside);
}
