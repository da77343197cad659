#include "tools/output.h"

#include "base/progress.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

static struct {
	dev_t device;
	ino_t number;
} inputs[OUTPUT_INPUTS_MAX];
static size_t input_count;

void output_protect(const char *path)
{
	struct stat file;

	if (input_count == OUTPUT_INPUTS_MAX || stat(path, &file))
		return;
	inputs[input_count].device = file.st_dev;
	inputs[input_count++].number = file.st_ino;
}

static bool is_input(const struct stat *file)
{
	for (size_t i = 0; i < input_count; i++)
		if (inputs[i].device == file->st_dev && inputs[i].number == file->st_ino)
			return true;
	return false;
}

bool output_is_protected(const char *path)
{
	struct stat file;

	return !stat(path, &file) && is_input(&file);
}

static gp_status_t open_temporary(struct output *output, struct error *error)
{
	mode_t mask = umask(0);
	int fd;

	umask(mask);
	if (asprintf(&output->temporary, "%s.XXXXXX", output->path) < 0) {
		output->temporary = NULL;
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	}
	fd = mkostemp(output->temporary, O_CLOEXEC);
	if (fd < 0) {
		error_set_errno(error, errno, "cannot create %s", output->path);
		free(take_pointer(&output->temporary));
		return status_from_errno(errno);
	}
	output->file = fdopen(fd, "w");
	if (output->file && !fchmod(fd, 0666 & ~mask))
		return GP_OK;
	error_set_errno(error, errno, "cannot write %s", output->path);
	if (!output->file)
		close(fd);
	return status_from_errno(errno);
}

gp_status_t output_open(struct output *output, const char *path, struct error *error)
{
	struct stat file;
	gp_status_t status = GP_OK;

	*output = (struct output){0};
	signal(SIGPIPE, SIG_IGN);
	if (!path || !strcmp(path, "-")) {
		output->file = stdout;
		output->is_terminal = isatty(STDOUT_FILENO);
		if (output->is_terminal)
			progress_end();
		return GP_OK;
	}
	if (!*path)
		return error_set(error, GP_ERR_INVALID_ARGS, "the output has no name; give one");
	if (stat(path, &file)) {
		output->path = strdup(path);
		file.st_mode = S_IFREG;
	} else if (is_input(&file)) {
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%s is what is read, and would be lost; give another output",
				 path);
	} else if (S_ISREG(file.st_mode)) {
		/* The link stays, what it leads to is replaced. */
		output->path = realpath(path, NULL);
	} else {
		/* What /dev/stdout leads to has no path that could be opened when it is a pipe. */
		output->path = strdup(path);
	}
	if (!output->path)
		return error_set_errno(error, errno, "cannot write %s", path);
	if (S_ISREG(file.st_mode)) {
		status = open_temporary(output, error);
	} else {
		output->file = fopen(output->path, "we");
		if (!output->file)
			status = error_set_errno(error, errno, "cannot write %s", path);
	}
	if (status)
		output_abandon(output);
	return status;
}

void output_open_paged(struct output *output)
{
	const char *pager = getenv("PAGER");

	*output = (struct output){.file = stdout, .is_terminal = isatty(STDOUT_FILENO)};
	progress_end();
	signal(SIGPIPE, SIG_IGN);
	if (!output->is_terminal)
		return;
	if (!pager)
		pager = "less";
	if (!*pager || !strcmp(pager, "cat"))
		return;
	/* less: leave the text on the screen if it fits, show colours. As git does. */
	setenv("LESS", "FRX", 0);
	if (!getenv("PAGER") && system("command -v less >/dev/null 2>&1"))
		return;
	output->file = popen(pager, "we");
	if (output->file)
		output->is_pager = true;
	else
		output->file = stdout;
}

/* Writes out what a stream holds; GP_OK, or why that failed, now or before. */
static gp_status_t flush(FILE *file, const char *name, struct error *error)
{
	bool failed = ferror(file) != 0;

	errno = 0;
	/* A stream keeps that it failed, not why: what failed before fails again. */
	if (failed)
		putc('\n', file);
	if (!fflush(file) && !failed)
		return GP_OK;
	return error_set_errno(error, errno ? errno : EIO, "cannot write %s", name);
}

gp_status_t output_finish(struct output *output, struct error *error)
{
	const char *name = output->path ? output->path : "standard output";
	gp_status_t status = GP_OK;

	if (output->is_pager) {
		pclose(take_pointer(&output->file));
		output_abandon(output);
		return GP_OK;
	}
	status = flush(output->file, name, error);
	if (!status && output->path) {
		if (fclose(take_pointer(&output->file)))
			status = error_set_errno(error, errno, "cannot write %s", name);
		else if (output->temporary && rename(output->temporary, output->path))
			status = error_set_errno(error, errno, "cannot name %s", name);
		else
			free(take_pointer(&output->temporary));
	}
	/* Reported once. */
	if (status && output->file)
		clearerr(output->file);
	output_abandon(output);
	return status;
}

gp_status_t output_close(struct output *output, gp_status_t status, struct error *error)
{
	if (!status)
		return output_finish(output, error);
	output_abandon(output);
	return status;
}

bool output_settle(struct error *error)
{
	return flush(stdout, "standard output", error) == GP_OK;
}

void output_abandon(struct output *output)
{
	if (output->file && output->is_pager)
		pclose(output->file);
	else if (output->file && output->path)
		fclose(output->file);
	if (output->temporary)
		unlink(output->temporary);
	free(output->temporary);
	free(output->path);
	*output = (struct output){0};
}
