/* Stock kernels, unpacked from their Debian packages into the cache. */
#include "tools/lab/lab.h"
#include "tools/lab/packages.h"

#include "base/progress.h"

#include "base/cleanup.h"
#include "base/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static bool read_line(const char *path, char *line, size_t size)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");

	if (!file || !fgets(line, (int)size, file))
		return false;
	line[strcspn(line, "\n")] = 0;
	return true;
}

static void tell_unpacking(const void *context)
{
	(void)context;
	progress_tell("unpacking", 0, 0);
}

/* Downloads the packages into the empty directory `work` and makes `work`/kernel of them. */
static gp_status_t make_kernel(const struct lab_packages *packages, const char *work,
			       struct error *error)
{
	const char *const unpack[] = {"sh", "-c", lab_unpack_script, "sh", packages->names[0],
				      NULL};
	gp_status_t status;

	fprintf(stderr, "guestprof lab: downloading the Debian package %s\n", packages->names[0]);
	progress_begin("guestprof lab");
	status = lab_packages_download(packages, work, error);
	if (!status)
		status = subprocess_run_watched(unpack, work, tell_unpacking, NULL, error);
	progress_end();
	return status;
}

/* Puts the packages' kernel at `path`, which does not exist yet. */
static gp_status_t fetch_into_cache(const struct lab_packages *packages, const char *path,
				    struct error *error)
{
	char work[PATH_MAX], made[PATH_MAX];
	const char *const clean[] = {"rm", "-rf", "--", work, NULL};
	gp_status_t status;

	if (lab_path(error, work, "%s.XXXXXX", path))
		return error->status;
	if (!mkdtemp(work))
		return error_set_errno(error, errno, "cannot make a directory beside %s", path);
	status = lab_path(error, made, "%s/kernel", work);
	if (!status)
		status = make_kernel(packages, work, error);
	/* A rename, so that the path is either absent or complete. */
	if (!status && rename(made, path) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		status = error_set_errno(error, errno, "cannot move %s to %s", made, path);
	subprocess_run(clean, NULL, NULL, 0, NULL);
	return status;
}

/* Fetches what a name in the cache stands for, and links the name to it. */
static gp_status_t fill_cache(const char *package, const char *kernels, const char *link,
			      struct error *error)
{
	struct lab_packages packages;
	char real[PATH_MAX];

	if (lab_packages_find(package, &packages, error) ||
	    lab_path(error, real, "%s/%s", kernels, packages.names[0]) ||
	    (!exists(real) && fetch_into_cache(&packages, real, error)))
		return error->status;
	if (!strcmp(packages.names[0], package))
		return GP_OK;
	unlink(link); /* its target may be gone */
	if (symlink(packages.names[0], link) < 0)
		return error_set_errno(error, errno, "cannot make %s", link);
	return GP_OK;
}

/* The package's directory in the cache, made when it is not there. */
static gp_status_t cached_package(const char *package, char path[static PATH_MAX],
				  struct error *error)
{
	char kernels[PATH_MAX], link[PATH_MAX], lock_path[PATH_MAX];

	if (!lab_is_package(package))
		return error_set(error, GP_ERR_INVALID_ARGS, "'%s' is not the name of a package",
				 package);
	if (lab_cache_path("kernels", kernels, error) ||
	    lab_path(error, link, "%s/%s", kernels, package) ||
	    lab_path(error, lock_path, "%s/lock", kernels))
		return error->status;
	if (!exists(link)) {
		/* Others wait here and then find what the first one fetched. */
		AUTO_CLOSE int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

		if (lock < 0 || flock(lock, LOCK_EX) < 0)
			return error_set_errno(error, errno, "cannot lock %s", lock_path);
		if (!exists(link) && fill_cache(package, kernels, link, error))
			return error->status;
	}
	if (!realpath(link, path))
		return error_set_errno(error, errno, "cannot find %s", link);
	return GP_OK;
}

bool lab_kernel_cached(const char *package)
{
	char kernels[PATH_MAX], path[PATH_MAX];

	return !lab_cache_path("kernels", kernels, NULL) &&
	       !lab_path(NULL, path, "%s/%s/version", kernels, package) && exists(path);
}

gp_status_t lab_kernel_find(const char *wanted, struct lab_kernel *kernel, struct error *error)
{
	char directory[PATH_MAX], version[PATH_MAX];
	struct stat status;

	if (!strchr(wanted, '/')) {
		if (cached_package(wanted, directory, error))
			return error->status;
	} else {
		if (stat(wanted, &status) < 0 || !realpath(wanted, directory))
			return error_set_errno(error, errno, "cannot find the kernel %s", wanted);
		if (!S_ISDIR(status.st_mode))
			*strrchr(directory, '/') = 0;
	}
	if (lab_path(error, kernel->image, "%s/vmlinuz", directory) ||
	    lab_path(error, kernel->modules, "%s/modules", directory) ||
	    lab_path(error, version, "%s/version", directory))
		return error->status;
	if (!exists(kernel->image) || !exists(kernel->modules) ||
	    !read_line(version, kernel->release, sizeof(kernel->release)))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "%s lacks vmlinuz, modules or version; make such a directory with "
				 "guestprof lab --fetch PACKAGE DIRECTORY",
				 directory);
	return GP_OK;
}

gp_status_t lab_kernel_fetch(const char *package, const char *directory, struct error *error)
{
	char cached[PATH_MAX], marker[PATH_MAX], target[PATH_MAX], present[160];
	const char *const copy[] = {"sh",   "-c",   lab_copy_script, "sh",
				    cached, target, package,         NULL};

	if (lab_path(error, target, "%s", directory))
		return error->status;
	for (size_t length = strlen(target); length > 1 && target[length - 1] == '/'; length--)
		target[length - 1] = 0;
	if (lab_path(error, marker, "%s/package", target))
		return error->status;
	if (!read_line(marker, present, sizeof(present)))
		return cached_package(package, cached, error)
			       ? error->status
			       : subprocess_run(copy, NULL, NULL, 0, error);
	if (!strcmp(present, package))
		return GP_OK;
	return error_set(error, GP_ERR_ALREADY_EXISTS,
			 "%s holds the kernel of %s; give another directory or remove it", target,
			 present);
}
