#include "base/subprocess.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MILLISECONDS 200

static _Noreturn void become(const char *const *argv, const char *directory, int output, int errors)
{
	sigset_t none;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0)
		_exit(127);
	/* The messages that are read here are not translated. */
	setenv("LC_ALL", "C", 1);
	if (directory && chdir(directory) < 0)
		_exit(127);
	execvp(argv[0], (char *const *)argv);
	dprintf(2, "%s\n", strerror(errno));
	_exit(127);
}

/* Appends what the pipe has; what does not fit into `size` bytes is dropped. False at its end. */
static bool drain(int fd, char *bytes, size_t size, size_t *used)
{
	char piece[4096];
	ssize_t got = read(fd, piece, sizeof(piece));

	if (got < 0)
		return errno == EINTR || errno == EAGAIN;
	if (got == 0)
		return false;
	size_t room = size - *used;
	size_t fits = (size_t)got < room ? (size_t)got : room;

	if (fits) {
		memcpy(bytes + *used, piece, fits);
		*used += fits;
	}
	return true;
}

static const char *last_line(char *text)
{
	size_t length = strlen(text);
	char *line;

	while (length && text[length - 1] == '\n')
		text[--length] = 0;
	line = strrchr(text, '\n');
	return line ? line + 1 : text;
}

struct watch {
	void (*tick)(const void *context);
	const void *context;
};

/* Puts at most `size` bytes at `output` and says in *output_used how many. */
static gp_status_t run(const char *const *argv, const char *directory, const struct watch *watch,
		       char *output, size_t size, size_t *output_used, struct error *error)
{
	int out[2] = {-1, -1}, err[2] = {-1, -1};
	char errors[2048] = "";
	size_t errors_used = 0;
	pid_t child;
	int status;

	if (pipe2(out, O_CLOEXEC) < 0)
		return error_set_errno(error, errno, "cannot make a pipe");
	AUTO_CLOSE int out_read = out[0];
	if (pipe2(err, O_CLOEXEC) < 0) {
		status = errno;
		close(out[1]);
		return error_set_errno(error, status, "cannot make a pipe");
	}
	AUTO_CLOSE int err_read = err[0];
	child = fork();
	if (child == 0)
		become(argv, directory, out[1], err[1]);
	status = errno;
	close(out[1]);
	close(err[1]);
	if (child < 0)
		return error_set_errno(error, status, "cannot start %s", argv[0]);

	struct pollfd pipes[2] = {{.fd = out_read, .events = POLLIN},
				  {.fd = err_read, .events = POLLIN}};
	while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
		int ready = poll(pipes, 2, watch ? TICK_MILLISECONDS : -1);

		if (ready < 0 && errno != EINTR)
			break;
		if (watch)
			watch->tick(watch->context);
		if (ready <= 0)
			continue;
		if (pipes[0].revents && !drain(out_read, output, size, output_used))
			pipes[0].fd = -1;
		if (pipes[1].revents && !drain(err_read, errors, sizeof(errors) - 1, &errors_used))
			pipes[1].fd = -1;
	}
	errors[errors_used] = 0;
	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR)
			return error_set_errno(error, errno, "cannot wait for %s", argv[0]);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return GP_OK;
	/* A script says itself what failed. */
	if (!strcmp(argv[0], "sh") && errors_used)
		return error_set(error, GP_ERR_IO, "%s", last_line(errors));
	return error_set(error, GP_ERR_IO, "%s failed: %s", argv[0],
			 errors_used ? last_line(errors) : "it said nothing");
}

gp_status_t subprocess_run(const char *const *argv, const char *directory, char *output,
			   size_t size, struct error *error)
{
	size_t used = 0, room = output && size ? size - 1 : 0;
	gp_status_t status = run(argv, directory, NULL, output, room, &used, error);

	if (output && size)
		output[used] = 0;
	return status;
}

gp_status_t subprocess_run_watched(const char *const *argv, const char *directory,
				   void (*tick)(const void *context), const void *context,
				   struct error *error)
{
	const struct watch watch = {tick, context};
	size_t used = 0;

	return run(argv, directory, &watch, NULL, 0, &used, error);
}

gp_status_t subprocess_read(const char *const *argv, void *output, size_t size, size_t *length,
			    struct error *error)
{
	size_t used = 0;
	gp_status_t status = run(argv, NULL, NULL, output, size, &used, error);

	if (status == GP_OK)
		*length = used;
	return status;
}
