/* A stock kernel, unpacked from its Debian package into the cache. */
#include "tools/lab/lab.h"
#include "tools/lab/packages.h"

#include "tools/progress.h"
#include "base/subprocess.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static gp_status_t too_long(struct error *error)
{
	return error_set(error, GP_ERR_INVALID_ARGS, "a path is longer than %d bytes", PATH_MAX);
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

gp_status_t lab_find_program(const char *name, const char *package, char path[static PATH_MAX],
			     struct error *error)
{
	const char *search = getenv("PATH");

	if (!search || !*search)
		search = "/usr/local/bin:/usr/bin:/bin";
	for (const char *start = search;;) {
		size_t length = strcspn(start, ":");

		if (length && lab_path(path, "%.*s/%s", (int)length, start, name) &&
		    access(path, X_OK) == 0)
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

	for (unsigned i = 0; i < 2; i++) {
		if (is_static(places[i])) {
			lab_path(path, "%s", places[i]);
			return GP_OK;
		}
	}
	return error_set(error, GP_ERR_NOT_FOUND,
			 "no statically linked busybox: apt-get install busybox-static");
}

static void remove_tree(const char *path)
{
	const char *const argv[] = {"rm", "-rf", "--", path, NULL};

	subprocess_run(argv, NULL, NULL, 0, NULL);
}

/* The one entry of a directory that starts with `prefix`; its name without the prefix. */
static bool find_entry(const char *directory, const char *prefix, char *name, size_t size)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;
	bool found = false;

	if (!stream)
		return false;
	while (!found && (entry = readdir(stream))) {
		if (entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix)))
			found = snprintf(name, size, "%s", entry->d_name + strlen(prefix)) <
				(int)size;
	}
	closedir(stream);
	return found;
}

static gp_status_t write_line(const char *path, const char *line, struct error *error)
{
	AUTO_FCLOSE FILE *file = fopen(path, "we");

	if (!file || fprintf(file, "%s\n", line) < 0 || fflush(file))
		return error_set_errno(error, errno, "cannot write %s", path);
	return GP_OK;
}

static bool read_line(const char *path, char *line, size_t size)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");

	if (!file || !fgets(line, (int)size, file))
		return false;
	line[strcspn(line, "\n")] = 0;
	return true;
}

static gp_status_t move(const char *from, const char *to, struct error *error)
{
	if (rename(from, to) < 0)
		return error_set_errno(error, errno, "cannot move %s to %s", from, to);
	return GP_OK;
}

static void tell_unpacking(const void *context)
{
	(void)context;
	progress_tell("unpacking", 0, 0);
}

/* Unpacks the packages in `work` into `tree`, one over the other. */
static gp_status_t unpack_archives(const struct lab_packages *packages, const char *work,
				   const char *tree, struct error *error)
{
	for (unsigned i = 0; i < packages->count; i++) {
		char archive[PATH_MAX], prefix[LAB_PACKAGE_NAME + 1], rest[256];
		const char *const extract[] = {"dpkg-deb", "-x", archive, tree, NULL};

		snprintf(prefix, sizeof(prefix), "%s_", packages->names[i]);
		if (!find_entry(work, prefix, rest, sizeof(rest)))
			return error_set(error, GP_ERR_NOT_FOUND,
					 "apt-get download %s left no file in %s",
					 packages->names[i], work);
		if (!lab_path(archive, "%s/%s%s", work, prefix, rest))
			return too_long(error);
		if (subprocess_run_watched(extract, NULL, tell_unpacking, NULL, error) != GP_OK)
			return error_prefix(error, "cannot unpack %s", archive);
	}
	return GP_OK;
}

/* Where the kernel is in an unpacked tree, and its release: in boot or, since Linux 7.2, beside its
 * modules. */
static bool find_image(const char *tree, char path[static PATH_MAX], char *release, size_t size)
{
	char directory[PATH_MAX];

	if (lab_path(directory, "%s/boot", tree) &&
	    find_entry(directory, "vmlinuz-", release, size))
		return lab_path(path, "%s/vmlinuz-%s", directory, release);
	return lab_path(directory, "%s/usr/lib/modules", tree) &&
	       find_entry(directory, "", release, size) &&
	       lab_path(path, "%s/%s/vmlinuz", directory, release) && exists(path);
}

/* Downloads the packages into the empty directory `work` and makes `work`/kernel of them. */
static gp_status_t unpack_packages(const struct lab_packages *packages, const char *work,
				   struct error *error)
{
	char tree[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
	char release[128];

	if (!lab_path(tree, "%s/tree", work) || !lab_path(to, "%s/kernel", work))
		return too_long(error);
	if (lab_packages_download(packages, work, error) != GP_OK ||
	    unpack_archives(packages, work, tree, error) != GP_OK)
		return error->status;
	if (mkdir(to, 0777) < 0)
		return error_set_errno(error, errno, "cannot make %s", to);
	if (!find_image(tree, from, release, sizeof(release)))
		return error_set(error, GP_ERR_NOT_FOUND, "the package %s holds no kernel",
				 packages->names[0]);
	if (!lab_path(to, "%s/kernel/vmlinuz", work))
		return too_long(error);
	if (move(from, to, error) != GP_OK)
		return error->status;
	if (lab_path(from, "%s/boot/System.map-%s", tree, release) && exists(from) &&
	    lab_path(to, "%s/kernel/System.map", work) && move(from, to, error) != GP_OK)
		return error->status;
	if (!lab_path(from, "%s/lib/modules/%s", tree, release) ||
	    !lab_path(to, "%s/kernel/modules", work))
		return too_long(error);
	/* Packages of a system with merged /usr. */
	if (!exists(from) && !lab_path(from, "%s/usr/lib/modules/%s", tree, release))
		return too_long(error);
	if (move(from, to, error) != GP_OK)
		return error->status;
	if (!lab_path(to, "%s/kernel/version", work))
		return too_long(error);
	return write_line(to, release, error);
}

/* Puts the packages' kernel at `path`, which does not exist yet. */
static gp_status_t fetch_into_cache(const struct lab_packages *packages, const char *path,
				    struct error *error)
{
	char work[PATH_MAX], made[PATH_MAX];
	gp_status_t status;

	if (!lab_path(work, "%s.XXXXXX", path))
		return too_long(error);
	if (!mkdtemp(work))
		return error_set_errno(error, errno, "cannot make a directory beside %s", path);
	fprintf(stderr, "guestprof lab: downloading the Debian package %s\n", packages->names[0]);
	progress_begin("guestprof lab");
	status = unpack_packages(packages, work, error);
	progress_end();
	if (status == GP_OK && !lab_path(made, "%s/kernel", work))
		status = too_long(error);
	/* A rename, so that the path is either absent or complete. */
	if (status == GP_OK && rename(made, path) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		status = error_set_errno(error, errno, "cannot move %s to %s", made, path);
	remove_tree(work);
	return status;
}

/* The package's directory in the cache, made when it is not there. */
static gp_status_t cached_package(const char *package, char path[static PATH_MAX],
				  struct error *error)
{
	char kernels[PATH_MAX], link[PATH_MAX], real[PATH_MAX], lock_path[PATH_MAX];
	struct lab_packages packages;

	if (!lab_is_package(package))
		return error_set(error, GP_ERR_INVALID_ARGS, "'%s' is not the name of a package",
				 package);
	if (lab_cache_path("kernels", kernels, error) != GP_OK)
		return error->status;
	if (!lab_path(link, "%s/%s", kernels, package) || !lab_path(lock_path, "%s/lock", kernels))
		return too_long(error);
	if (!exists(link)) {
		/* Others wait here and then find what the first one fetched. */
		AUTO_CLOSE int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

		if (lock < 0 || flock(lock, LOCK_EX) < 0)
			return error_set_errno(error, errno, "cannot lock %s", lock_path);
		if (!exists(link)) {
			if (lab_packages_find(package, &packages, error) != GP_OK)
				return error->status;
			if (!lab_path(real, "%s/%s", kernels, packages.names[0]))
				return too_long(error);
			if (!exists(real) && fetch_into_cache(&packages, real, error) != GP_OK)
				return error->status;
			if (strcmp(packages.names[0], package)) {
				unlink(link); /* one that leads nowhere any more */
				if (symlink(packages.names[0], link) < 0)
					return error_set_errno(error, errno, "cannot make %s",
							       link);
			}
		}
	}
	if (!realpath(link, path))
		return error_set_errno(error, errno, "cannot find %s", link);
	return GP_OK;
}

bool lab_kernel_cached(const char *package)
{
	char kernels[PATH_MAX], path[PATH_MAX];

	return lab_cache_path("kernels", kernels, NULL) == GP_OK &&
	       lab_path(path, "%s/%s/version", kernels, package) && exists(path);
}

gp_status_t lab_kernel_find(const char *wanted, struct lab_kernel *kernel, struct error *error)
{
	char directory[PATH_MAX], version[PATH_MAX];
	struct stat status;

	if (strchr(wanted, '/')) {
		if (stat(wanted, &status) < 0)
			return error_set_errno(error, errno, "cannot find the kernel %s", wanted);
		if (!realpath(wanted, directory))
			return error_set_errno(error, errno, "cannot find %s", wanted);
		if (!S_ISDIR(status.st_mode))
			*strrchr(directory, '/') = 0;
	} else if (cached_package(wanted, directory, error) != GP_OK) {
		return error->status;
	}
	if (!lab_path(kernel->image, "%s/vmlinuz", directory) ||
	    !lab_path(kernel->modules, "%s/modules", directory) ||
	    !lab_path(version, "%s/version", directory))
		return too_long(error);
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
	char cached[PATH_MAX], marker[PATH_MAX], work[PATH_MAX], made[PATH_MAX], present[160];
	char target[PATH_MAX];
	gp_status_t status;

	if (!lab_path(target, "%s", directory))
		return too_long(error);
	for (size_t length = strlen(target); length > 1 && target[length - 1] == '/'; length--)
		target[length - 1] = 0;
	if (!lab_path(marker, "%s/package", target))
		return too_long(error);
	if (read_line(marker, present, sizeof(present))) {
		if (!strcmp(present, package))
			return GP_OK;
		return error_set(error, GP_ERR_ALREADY_EXISTS,
				 "%s holds the kernel of %s; give another directory or remove it",
				 target, present);
	}
	if (cached_package(package, cached, error) != GP_OK)
		return error->status;
	if (!lab_path(work, "%s.XXXXXX", target))
		return too_long(error);
	char *slash = strrchr(target, '/');
	if (slash && slash != target) {
		*slash = 0;
		status = lab_make_directories(target, error);
		*slash = '/';
		if (status != GP_OK)
			return status;
	}
	if (!mkdtemp(work))
		return error_set_errno(error, errno, "cannot make %s", work);
	if (!lab_path(made, "%s/kernel", work) || !lab_path(marker, "%s/kernel/package", work))
		status = too_long(error);
	else
		status = GP_OK;
	/* Hard links cost no space; another file system needs the bytes. */
	const char *const link_tree[] = {"cp", "-al", "--", cached, made, NULL};
	const char *const copy_tree[] = {"cp", "-a", "--", cached, made, NULL};
	if (status == GP_OK && subprocess_run(link_tree, NULL, NULL, 0, error) != GP_OK) {
		remove_tree(made);
		status = subprocess_run(copy_tree, NULL, NULL, 0, error);
	} else if (status == GP_OK) {
		status = GP_OK;
	}
	if (status == GP_OK)
		status = write_line(marker, package, error);
	if (status == GP_OK && rename(made, target) < 0)
		status = error_set_errno(error, errno, "cannot make %s", target);
	remove_tree(work);
	return status;
}
