/* The host's console: buffering, slow readers, --until, lines, keys, the terminal's mode. */
#include "vmm/devices/console.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static struct event_loop loop;
static struct serial serial;
static struct console *console;
static struct io_bus bus;
static pthread_t thread;
static struct guest_end_event end = {.fd = -1};
static char lines[4096];
static uint64_t line_ns;

static void note_line(void *context, uint64_t time, const char *text, size_t size)
{
	(void)context;
	line_ns = time;
	strncat(lines, text, size);
	strcat(lines, "|");
}

static void *run_loop(void *context)
{
	(void)context;
	event_loop_run(&loop, NULL);
	return NULL;
}

static void start(struct console_config config)
{
	struct serial_output output;
	struct error error;
	uint8_t ready = 0x0b, fifo = 0x01;

	end.end = GUEST_RUNNING;
	lines[0] = 0;
	config.end = &end;
	cr_assert_eq(event_loop_init(&loop, &error), GP_OK);
	cr_assert_eq(console_create(&config, &console, &error), GP_OK, "%s", error.text);
	output = console_output(console);
	serial_init(&serial, &output,
		    &(struct interrupt_line){.event_fd = -1, .gsi = SERIAL_COM1_GSI});
	bus.count = 0;
	cr_assert_eq(serial_attach(&serial, &bus, SERIAL_COM1_PORT, NULL), GP_OK);
	io_bus_write(&bus, SERIAL_COM1_PORT + 2, &fifo, 1);
	io_bus_write(&bus, SERIAL_COM1_PORT + 4, &ready, 1);
	cr_assert_eq(console_connect(console, &serial, &loop, &error), GP_OK);
	cr_assert_eq(pthread_create(&thread, NULL, run_loop, NULL), 0);
}

static void stop(void)
{
	event_loop_stop(&loop);
	pthread_join(thread, NULL);
	console_destroy(console);
	serial_deinit(&serial);
	event_loop_deinit(&loop);
}

static void guest_prints(const char *text)
{
	for (; *text; text++)
		io_bus_write(&bus, SERIAL_COM1_PORT, text, 1);
}

/* What the guest reads within `milliseconds`, up to `size` bytes. */
static size_t guest_reads(char *out, size_t size, int milliseconds)
{
	size_t got = 0;

	while (got < size && milliseconds-- > 0) {
		uint8_t status;

		io_bus_read(&bus, SERIAL_COM1_PORT + 5, &status, 1);
		if (status & 1) {
			io_bus_read(&bus, SERIAL_COM1_PORT, out + got++, 1);
			milliseconds++;
		} else {
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
	}
	return got;
}

static size_t read_for(int fd, char *out, size_t size, int milliseconds)
{
	struct pollfd poll_fd = {fd, POLLIN, 0};
	size_t got = 0;

	while (got < size && poll(&poll_fd, 1, milliseconds) > 0) {
		ssize_t count = read(fd, out + got, size - got);

		if (count <= 0)
			break;
		got += (size_t)count;
	}
	return got;
}

Test(console, output_arrives_without_a_newline_and_byte_exact, .timeout = 10)
{
	int pipes[2];
	char got[64];

	cr_assert_eq(pipe(pipes), 0);
	start((struct console_config){.input_fd = -1, .output_fd = pipes[1]});
	guest_prints("login: \033]0;x\a\x9b");
	cr_assert_eq(read_for(pipes[0], got, 14, 2000), 14);
	cr_assert_arr_eq(got, "login: \033]0;x\a\x9b", 14);
	stop();
	close(pipes[0]);
	close(pipes[1]);
}

Test(console, what_is_left_is_written_at_the_end, .timeout = 10)
{
	int pipes[2];
	char got[64];

	cr_assert_eq(pipe(pipes), 0);
	start((struct console_config){.input_fd = -1, .output_fd = pipes[1]});
	event_loop_stop(&loop);
	pthread_join(thread, NULL);
	guest_prints("last words");
	cr_assert_eq(read_for(pipes[0], got, sizeof(got), 50), 0);
	console_finish(console);
	cr_assert_eq(read_for(pipes[0], got, sizeof(got), 50), 10);
	pthread_create(&thread, NULL, run_loop, NULL);
	stop();
}

/* Nobody reads: the guest goes on, what is lost is counted, noted in its place, and the
 * rest arrives. */
Test(console, a_stalled_reader_stalls_nobody, .timeout = 30)
{
	static char got[CONSOLE_BUFFER_SIZE * 2];
	static const char tail[] = "after the gap";
	uint8_t block[1024];
	uint64_t sent = 0;
	size_t size = 0;
	char note[100];
	int pipes[2];

	memset(block, 'x', sizeof(block));
	cr_assert_eq(pipe(pipes), 0);
	start((struct console_config){.input_fd = -1, .output_fd = pipes[1]});
	for (unsigned i = 0; i < 600; i++, sent += sizeof(block))
		console_write(console, block, sizeof(block));
	uint64_t dropped = console_dropped_bytes(console);

	cr_assert_gt(dropped, 0);
	while (size < sent - dropped)
		size += read_for(pipes[0], got + size, sizeof(got) - size, 200);
	for (size_t i = 0; i < sent - dropped; i++)
		cr_assert_eq(got[i], 'x');
	snprintf(note, sizeof(note), "[guestprof: %llu bytes of console output are missing here",
		 (unsigned long long)dropped);
	cr_assert_eq(console_dropped_bytes(console), dropped);
	console_write(console, (const uint8_t *)tail, strlen(tail));
	size += read_for(pipes[0], got + size, sizeof(got) - size - 1, 200);
	got[size] = 0;
	char *noted = strstr(got, note);

	cr_assert_not_null(noted, "%s", got + (sent - dropped));
	cr_assert_not_null(strstr(noted, tail));
	stop();
	close(pipes[0]);
	close(pipes[1]);
}

Test(console, a_reader_that_goes_away_does_not_end_the_machine, .timeout = 10)
{
	int pipes[2];

	signal(SIGPIPE, SIG_IGN);
	cr_assert_eq(pipe(pipes), 0);
	start((struct console_config){.input_fd = -1, .output_fd = pipes[1]});
	close(pipes[0]);
	guest_prints("abc");
	for (int i = 0; i < 2000 && console_dropped_bytes(console) == 0; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	cr_assert_gt(console_dropped_bytes(console), 0);
	cr_assert_eq(end.end, GUEST_RUNNING);
	stop();
	close(pipes[1]);
}

static void until(const char *text, size_t size)
{
	start((struct console_config){
		.input_fd = -1, .output_fd = -1, .until = text, .until_size = size});
}

Test(console, until_is_found_across_writes_and_partial_matches, .timeout = 10)
{
	until("aab", 3);
	guest_prints("aa");
	guest_prints("a");
	cr_assert_eq(end.end, GUEST_RUNNING);
	guest_prints("b");
	cr_assert_eq(end.end, GUEST_TEXT_SEEN);
	stop();
	until("abcabd", 6);
	guest_prints("abcabcab");
	cr_assert_eq(end.end, GUEST_RUNNING);
	guest_prints("dabcabd");
	cr_assert_eq(end.end, GUEST_TEXT_SEEN);
	stop();
	/* Bytes, not text. */
	until("\0\xff", 2);
	console_write(console, (const uint8_t *)"x\0", 2);
	cr_assert_eq(end.end, GUEST_RUNNING);
	console_write(console, (const uint8_t *)"\xff", 1);
	cr_assert_eq(end.end, GUEST_TEXT_SEEN);
	stop();
}

Test(console, until_has_a_bound)
{
	struct console_config config = {.input_fd = -1,
					.output_fd = -1,
					.until = lines,
					.until_size = CONSOLE_UNTIL_MAX + 1};
	struct error error;

	console = NULL;
	cr_assert_eq(console_create(&config, &console, &error), GP_ERR_INVALID_ARGS);
	cr_assert_null(console);
}

Test(console, lines_are_given_with_the_time_of_their_first_byte, .timeout = 10)
{
	static char longest[CONSOLE_LINE_MAX + 100];

	start((struct console_config){.input_fd = -1, .output_fd = -1, .line = note_line});
	uint64_t before = boot_ns();
	guest_prints("first\r\n\nthi");
	cr_assert_str_eq(lines, "first||");
	uint64_t started = line_ns;

	cr_assert_geq(started, before);
	guest_prints("rd\n");
	cr_assert_str_eq(lines, "first||third|");
	cr_assert_geq(line_ns, started);
	lines[0] = 0;
	memset(longest, 'l', sizeof(longest) - 1);
	guest_prints(longest);
	guest_prints("\n");
	cr_assert_eq(strlen(lines), CONSOLE_LINE_MAX + 1);
	lines[0] = 0;
	guest_prints("login: ");
	cr_assert_str_empty(lines);
	console_finish(console);
	cr_assert_str_eq(lines, "login: |", "a prompt has no line end");
	console_finish(console);
	cr_assert_str_eq(lines, "login: |", "once");
	stop();
}

Test(console, input_waits_for_the_guest_and_loses_nothing, .timeout = 20)
{
	static char sent[5000], got[5000];
	char path[] = "/tmp/console-XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (char)(i * 7);
	cr_assert_eq(write(fd, sent, sizeof(sent)), (ssize_t)sizeof(sent));
	lseek(fd, 0, SEEK_SET);
	start((struct console_config){.input_fd = fd, .output_fd = -1});
	cr_assert_eq(guest_reads(got, sizeof(got), 2000), sizeof(got));
	cr_assert_arr_eq(got, sent, sizeof(sent));
	/* The end of the input is not the end of the machine; Ctrl-A is an ordinary byte. */
	cr_assert_eq(end.end, GUEST_RUNNING);
	stop();
	close(fd);
}

/* ---- with a terminal: in a child that has it as controlling terminal ---- */

static int in_terminal(int (*child_work)(int terminal, int parent), char *shown, size_t size,
		       const char *type)
{
	int parent = posix_openpt(O_RDWR | O_NOCTTY), status;
	size_t got;
	pid_t child;

	if (parent < 0 || grantpt(parent) || unlockpt(parent))
		cr_skip_test("this machine has no pseudo-terminals");
	fflush(NULL);
	child = fork();
	if (child == 0) {
		int terminal;

		setsid();
		terminal = open(ptsname(parent), O_RDWR);
		if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0))
			_exit(90);
		tcsetpgrp(terminal, getpgrp());
		_exit(child_work(terminal, parent));
	}
	/* The child says "ready" when the terminal is raw. */
	got = read_for(parent, shown, 5, 3000);
	cr_assert_eq(got, 5);
	cr_assert_eq(write(parent, type, strlen(type)), (ssize_t)strlen(type));
	got = read_for(parent, shown, size - 1, 700);
	shown[got] = 0;
	cr_assert_eq(waitpid(child, &status, 0), child);
	close(parent);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static size_t tell_status(void *context, char *text, size_t size)
{
	(void)context;
	return (size_t)snprintf(text, size, "7 samples");
}

static int terminal_work(int terminal, int parent)
{
	struct termios before, during, after;
	char keys[8] = {0};

	close(parent);
	tcgetattr(terminal, &before);
	start((struct console_config){
		.input_fd = terminal, .output_fd = terminal, .status = tell_status});
	tcgetattr(terminal, &during);
	if ((during.c_lflag & (ICANON | ECHO | ISIG)) || !(during.c_oflag & OPOST))
		return 1;
	guest_prints("ready");
	guest_reads(keys, 4, 3000);
	if (memcmp(keys, "k\001\003z", 4))
		return 2;
	guest_prints("\033[31mred\033[6n\033]0;x\a\n");
	while (end.end == GUEST_RUNNING)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (end.end != GUEST_USER_QUIT)
		return 3;
	stop();
	tcgetattr(terminal, &after);
	return after.c_lflag == before.c_lflag && after.c_iflag == before.c_iflag ? 0 : 4;
}

Test(console, terminal_keys_escapes_and_mode, .timeout = 20)
{
	char shown[512];
	/* k, Ctrl-A a, Ctrl-C, Ctrl-A h, Ctrl-A s, Ctrl-A q (nothing), z, Ctrl-A x. */
	int code =
		in_terminal(terminal_work, shown, sizeof(shown), "k\001a\003\001h\001s\001qz\001x");

	cr_assert_eq(code, 0, "step %d, shown: %s", code, shown);
	cr_assert_not_null(strstr(shown, "Ctrl-A x quits"), "%s", shown);
	cr_assert_not_null(strstr(shown, "[guestprof: 7 samples]"), "%s", shown);
	cr_assert_not_null(strstr(shown, "\033[31mred^[]0;x\a"), "%s", shown);
	cr_assert_not_null(strstr(shown, "\033[0m"), "colours are put back");
}

static int restore_work(int terminal, int parent)
{
	struct termios before, after;

	close(parent);
	tcgetattr(terminal, &before);
	start((struct console_config){.input_fd = terminal, .output_fd = -1});
	cr_assert_eq(write(terminal, "ready", 5), 5);
	console_restore();
	console_restore();
	tcgetattr(terminal, &after);
	return after.c_lflag == before.c_lflag ? 0 : 1;
}

Test(console, restore_works_without_the_console, .timeout = 20)
{
	char shown[64];

	cr_assert_eq(in_terminal(restore_work, shown, sizeof(shown), ""), 0);
}
