/* Where things are: the lab's parts, and the programs that it needs. */
#include "tools/lab/lab.h"

#include "base/cleanup.h"
#include "base/container.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

gp_status_t lab_path(struct error *error, char path[static PATH_MAX], const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(path, PATH_MAX, format, arguments);
	va_end(arguments);
	if (length >= 0 && length < PATH_MAX)
		return GP_OK;
	return error_set(error, GP_ERR_INVALID_ARGS, "a path is longer than %d bytes", PATH_MAX);
}

static gp_status_t make_directories(char *path, struct error *error)
{
	for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = 0;
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			return error_set_errno(error, errno, "cannot make the directory %s", path);
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
	const struct passwd *user = home && *home ? NULL : getpwuid(getuid());
	char made[PATH_MAX];
	gp_status_t status;

	if (user)
		home = user->pw_dir;
	if (cache && *cache)
		status = lab_path(error, made, "%s/%s", cache, below);
	else if (xdg && *xdg)
		status = lab_path(error, made, "%s/guestprof/%s", xdg, below);
	else if (home && *home)
		status = lab_path(error, made, "%s/.cache/guestprof/%s", home, below);
	else
		return error_set(error, GP_ERR_NOT_FOUND,
				 "no directory for the lab's parts: set HOME or GUESTPROF_CACHE");
	if (!status)
		status = make_directories(made, error);
	if (!status && !realpath(made, path))
		status = error_set_errno(error, errno, "cannot find %s", made);
	return status;
}

gp_status_t lab_find_program(const char *name, const char *package, char path[static PATH_MAX],
			     struct error *error)
{
	const char *search = getenv("PATH");

	if (!search || !*search)
		search = "/usr/local/bin:/usr/bin:/bin";
	for (const char *start = search;;) {
		size_t length = strcspn(start, ":");

		if (length && !lab_path(NULL, path, "%.*s/%s", (int)length, start, name) &&
		    !access(path, X_OK))
			return GP_OK;
		if (!start[length])
			break;
		start += length + 1;
	}
	return error_set(error, GP_ERR_NOT_FOUND, "%s is not installed: apt-get install %s", name,
			 package);
}

/* An ELF file without an interpreter needs no other file to run. */
static bool is_static(const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr header;

	if (fd < 0 || pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_phentsize != sizeof(Elf64_Phdr))
		return false;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr program;

		if (pread(fd, &program, sizeof(program),
			  (off_t)(header.e_phoff + i * sizeof(program))) != sizeof(program) ||
		    program.p_type == PT_INTERP)
			return false;
	}
	return true;
}

gp_status_t lab_find_busybox(char path[static PATH_MAX], struct error *error)
{
	static const char *const places[] = {"/bin/busybox", "/usr/bin/busybox"};

	for (unsigned i = 0; i < ARRAY_SIZE(places); i++)
		if (is_static(places[i]))
			return lab_path(error, path, "%s", places[i]);
	return error_set(error, GP_ERR_NOT_FOUND,
			 "no statically linked busybox: apt-get install busybox-static");
}
