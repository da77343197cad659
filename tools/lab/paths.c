/* Where the lab keeps its parts. */
#include "tools/lab/lab.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool lab_path(char path[static PATH_MAX], const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(path, PATH_MAX, format, arguments);
	va_end(arguments);
	return length >= 0 && length < PATH_MAX;
}

static gp_status_t too_long(struct error *error)
{
	return error_set(error, GP_ERR_INVALID_ARGS, "a path is longer than %d bytes", PATH_MAX);
}

gp_status_t lab_make_directories(const char *path, struct error *error)
{
	char part[PATH_MAX];

	if (!lab_path(part, "%s", path))
		return too_long(error);
	for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = 0;
		if (mkdir(part, 0777) < 0 && errno != EEXIST)
			return error_set_errno(error, errno, "cannot make the directory %s", part);
		if (!slash)
			return GP_OK;
		*slash = '/';
	}
}

gp_status_t lab_cache_path(const char *below, char path[static PATH_MAX], struct error *error)
{
	const char *cache = getenv("GUESTPROF_CACHE");
	const char *xdg = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	char made[PATH_MAX];
	gp_status_t status;
	bool fits;

	if (cache && *cache) {
		fits = lab_path(made, "%s/%s", cache, below);
	} else if (xdg && *xdg) {
		fits = lab_path(made, "%s/guestprof/%s", xdg, below);
	} else {
		const struct passwd *user = home && *home ? NULL : getpwuid(getuid());

		if (user)
			home = user->pw_dir;
		if (!home || !*home)
			return error_set(error, GP_ERR_NOT_FOUND,
					 "no directory for the lab's parts: set HOME or "
					 "GUESTPROF_CACHE");
		fits = lab_path(made, "%s/.cache/guestprof/%s", home, below);
	}
	if (!fits)
		return too_long(error);
	/* `error` may be NULL here. */
	status = lab_make_directories(made, error);
	if (status != GP_OK)
		return status;
	if (!realpath(made, path))
		return error_set_errno(error, errno, "cannot find %s", made);
	return GP_OK;
}
