#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gp_status_t open_direct(struct output_file *file, struct error *error)
{
	file->stream = strcmp(file->path, "-") == 0 ? stdout : fopen(file->path, "we");
	if (!file->stream)
		return error_set_errno(error, errno, "cannot write %s", file->path);
	return GP_OK;
}

/* The mode that open() would have given it; mkstemp() gives 0600. */
static mode_t usual_mode(const struct stat *present)
{
	mode_t mask = umask(0);

	umask(mask);
	return present ? present->st_mode & 07777 : 0666 & ~mask;
}

gp_status_t output_file_open(const char *path, struct output_file *file, struct error *error)
{
	struct output_file opened = {0};
	struct stat present;
	bool exists = false;
	int fd;

	if ((size_t)snprintf(opened.path, sizeof(opened.path), "%s", path) >= sizeof(opened.path))
		return error_set(error, GP_ERR_INVALID_ARGS, "the output's name is too long");
	if (strcmp(path, "-") != 0) {
		/* A link is followed: its target is replaced, not the link. */
		exists = stat(path, &present) == 0;
		if (exists && S_ISREG(present.st_mode) && !realpath(path, opened.path))
			return error_set_errno(error, errno, "cannot write %s", path);
	}
	if (strcmp(path, "-") == 0 || (exists && !S_ISREG(present.st_mode))) {
		if (open_direct(&opened, error))
			return error ? error->status : GP_ERR_IO;
		*file = opened;
		return GP_OK;
	}
	snprintf(opened.made, sizeof(opened.made), "%s.XXXXXX", opened.path);
	fd = mkostemp(opened.made, O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(error, errno, "cannot write %s", path);
	fchmod(fd, usual_mode(exists ? &present : NULL));
	opened.stream = fdopen(fd, "w");
	if (!opened.stream) {
		close(fd);
		unlink(opened.made);
		return error_set_errno(error, errno, "cannot write %s", path);
	}
	*file = opened;
	return GP_OK;
}

gp_status_t output_file_commit(struct output_file *file, struct error *error)
{
	bool failed = ferror(file->stream);
	/* The failed write's own number is gone by now, in most cases to be met again. */
	int problem = 0;

	if (fflush(file->stream) || (file->made[0] && fsync(fileno(file->stream)))) {
		problem = errno;
		failed = true;
	}
	if (file->stream != stdout && fclose(file->stream) && !failed) {
		problem = errno;
		failed = true;
	}
	file->stream = NULL;
	if (!failed && file->made[0] && rename(file->made, file->path) < 0) {
		problem = errno;
		failed = true;
	}
	if (!failed)
		return GP_OK;
	if (file->made[0])
		unlink(file->made);
	return error_set_errno(error, problem ? problem : EIO, "cannot write %s", file->path);
}

void output_file_abandon(struct output_file *file)
{
	if (file->stream && file->stream != stdout)
		fclose(file->stream);
	if (file->made[0])
		unlink(file->made);
	file->stream = NULL;
}
