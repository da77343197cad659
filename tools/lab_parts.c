/* A stock kernel, unpacked from its Debian package into the cache. */
#include "lab.h"

#include "progress.h"
#include "subprocess.h"

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

/* snprintf() into a path; false when it does not fit. */
static bool make_path(char path[static PATH_MAX], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static bool make_path(char path[static PATH_MAX], const char *format, ...)
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

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

gp_status_t lab_make_directories(const char *path, struct error *error)
{
	char part[PATH_MAX];

	if (!make_path(part, "%s", path))
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
		fits = make_path(made, "%s/%s", cache, below);
	} else if (xdg && *xdg) {
		fits = make_path(made, "%s/guestprof/%s", xdg, below);
	} else {
		const struct passwd *user = home && *home ? NULL : getpwuid(getuid());

		if (user)
			home = user->pw_dir;
		if (!home || !*home)
			return error_set(error, GP_ERR_NOT_FOUND,
					 "no directory for the lab's parts: set HOME or "
					 "GUESTPROF_CACHE");
		fits = make_path(made, "%s/.cache/guestprof/%s", home, below);
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

gp_status_t lab_find_program(const char *name, const char *package, char path[static PATH_MAX],
			     struct error *error)
{
	const char *search = getenv("PATH");

	if (!search || !*search)
		search = "/usr/local/bin:/usr/bin:/bin";
	for (const char *start = search;;) {
		size_t length = strcspn(start, ":");

		if (length && make_path(path, "%.*s/%s", (int)length, start, name) &&
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
			make_path(path, "%s", places[i]);
			return GP_OK;
		}
	}
	return error_set(error, GP_ERR_NOT_FOUND,
			 "no statically linked busybox: apt-get install busybox-static");
}

/* Package names come from the command line and go to apt's: nothing that it would take for
 * an option, a path or a pattern. */
static bool is_package_name(const char *name)
{
	if (!isalnum((unsigned char)name[0]))
		return false;
	for (const char *at = name; *at; at++) {
		if (!isalnum((unsigned char)*at) && !strchr("+-.~", *at))
			return false;
	}
	return strlen(name) < 128;
}

/* The value of a field in `apt-cache show`'s output, up to the end of its line. */
static bool find_field(const char *text, const char *field, char *value, size_t size)
{
	size_t length = strlen(field);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, field, length) && line[length] == ':') {
			line += length + 1;
			line += strspn(line, " ");
			return snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line) <
			       (int)size;
		}
	}
	return false;
}

/* The package that holds the kernel's files: `package` itself, or what it depends on when
 * it is a meta-package such as linux-image-amd64. */
static gp_status_t resolve_package(const char *package, char *resolved, size_t size,
				   struct error *error)
{
	const char *const show[] = {"apt-cache", "show", "--no-all-versions", package, NULL};
	const char *const update[] = {"apt-get", "-qq", "update", NULL};
	char text[16384], depends[1024], *first;

	if (subprocess_run(show, NULL, text, sizeof(text), error) != GP_OK || !*text) {
		/* A fresh machine has no lists yet. */
		if (geteuid() == 0) {
			fprintf(stderr, "guestprof lab: running apt-get update\n");
			if (subprocess_run(update, NULL, NULL, 0, error) != GP_OK)
				return error->status;
		}
		if (subprocess_run(show, NULL, text, sizeof(text), error) != GP_OK || !*text)
			return error_set(error, GP_ERR_NOT_FOUND,
					 "no package %s is known here; is the name right, and "
					 "has apt-get update been run?",
					 package);
	}
	snprintf(resolved, size, "%s", package);
	if (!find_field(text, "Depends", depends, sizeof(depends)))
		return GP_OK;
	first = depends;
	first[strcspn(first, " ,(")] = 0;
	if (!strncmp(first, "linux-image-", 12) && is_package_name(first))
		snprintf(resolved, size, "%s", first);
	return GP_OK;
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

struct download {
	const char *directory;
	uint64_t bytes; /* in all; 0: not known */
};

/* How many bytes the package has, by the lists of packages. */
static uint64_t package_size(const char *package)
{
	const char *const show[] = {"apt-cache", "show", "--no-all-versions", package, NULL};
	char text[16384], size[32];

	if (subprocess_run(show, NULL, text, sizeof(text), NULL) != GP_OK ||
	    !find_field(text, "Size", size, sizeof(size)))
		return 0;
	return strtoull(size, NULL, 10);
}

static void tell_download(const void *context)
{
	const struct download *download = context;
	DIR *stream = opendir(download->directory);
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat file;

	while (stream && (entry = readdir(stream)))
		if (!fstatat(dirfd(stream), entry->d_name, &file, AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(file.st_mode))
			bytes += (uint64_t)file.st_size;
	if (stream)
		closedir(stream);
	progress_tell("downloading", bytes, download->bytes);
}

static void tell_unpacking(const void *context)
{
	(void)context;
	progress_tell("unpacking", 0, 0);
}

/* Downloads `package` into the empty directory `work` and makes `work`/kernel of it. */
static gp_status_t unpack_package(const char *package, const char *work, struct error *error)
{
	const char *const download[] = {"apt-get", "-qq", "download", package, NULL};
	char archive[PATH_MAX], tree[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
	char name[256], release[128];

	struct download watched = {work, package_size(package)};
	if (subprocess_run_watched(download, work, tell_download, &watched, error) != GP_OK)
		return error_prefix(error, "cannot download %s", package);
	if (!find_entry(work, package, name, sizeof(name)))
		return error_set(error, GP_ERR_NOT_FOUND, "apt-get download %s left no file in %s",
				 package, work);
	if (!make_path(archive, "%s/%s%s", work, package, name) ||
	    !make_path(tree, "%s/tree", work) || !make_path(to, "%s/kernel", work))
		return too_long(error);
	const char *const extract[] = {"dpkg-deb", "-x", archive, tree, NULL};
	if (subprocess_run_watched(extract, NULL, tell_unpacking, NULL, error) != GP_OK)
		return error_prefix(error, "cannot unpack %s", archive);
	if (mkdir(to, 0777) < 0)
		return error_set_errno(error, errno, "cannot make %s", to);

	if (!make_path(from, "%s/boot", tree))
		return too_long(error);
	if (!find_entry(from, "vmlinuz-", release, sizeof(release)))
		return error_set(error, GP_ERR_NOT_FOUND, "the package %s holds no kernel",
				 package);
	if (!make_path(from, "%s/boot/vmlinuz-%s", tree, release) ||
	    !make_path(to, "%s/kernel/vmlinuz", work))
		return too_long(error);
	if (move(from, to, error) != GP_OK)
		return error->status;
	if (make_path(from, "%s/boot/System.map-%s", tree, release) && exists(from) &&
	    make_path(to, "%s/kernel/System.map", work) && move(from, to, error) != GP_OK)
		return error->status;
	if (!make_path(from, "%s/lib/modules/%s", tree, release) ||
	    !make_path(to, "%s/kernel/modules", work))
		return too_long(error);
	/* Packages of a system with merged /usr. */
	if (!exists(from) && !make_path(from, "%s/usr/lib/modules/%s", tree, release))
		return too_long(error);
	if (move(from, to, error) != GP_OK)
		return error->status;
	if (!make_path(to, "%s/kernel/version", work))
		return too_long(error);
	return write_line(to, release, error);
}

/* Puts the package's kernel at `path`, which does not exist yet. */
static gp_status_t fetch_into_cache(const char *package, const char *path, struct error *error)
{
	char work[PATH_MAX], made[PATH_MAX];
	gp_status_t status;

	if (!make_path(work, "%s.XXXXXX", path))
		return too_long(error);
	if (!mkdtemp(work))
		return error_set_errno(error, errno, "cannot make a directory beside %s", path);
	fprintf(stderr, "guestprof lab: downloading the Debian package %s\n", package);
	progress_begin("guestprof lab");
	status = unpack_package(package, work, error);
	progress_end();
	if (status == GP_OK && !make_path(made, "%s/kernel", work))
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
	char resolved[1024];

	if (!is_package_name(package))
		return error_set(error, GP_ERR_INVALID_ARGS, "'%s' is not the name of a package",
				 package);
	if (lab_cache_path("kernels", kernels, error) != GP_OK)
		return error->status;
	if (!make_path(link, "%s/%s", kernels, package) ||
	    !make_path(lock_path, "%s/lock", kernels))
		return too_long(error);
	if (!exists(link)) {
		/* Others wait here and then find what the first one fetched. */
		AUTO_CLOSE int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

		if (lock < 0 || flock(lock, LOCK_EX) < 0)
			return error_set_errno(error, errno, "cannot lock %s", lock_path);
		if (!exists(link)) {
			if (resolve_package(package, resolved, sizeof(resolved), error) != GP_OK)
				return error->status;
			if (!make_path(real, "%s/%s", kernels, resolved))
				return too_long(error);
			if (!exists(real) && fetch_into_cache(resolved, real, error) != GP_OK)
				return error->status;
			if (strcmp(resolved, package)) {
				unlink(link); /* one that leads nowhere any more */
				if (symlink(resolved, link) < 0)
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
	       make_path(path, "%s/%s/version", kernels, package) && exists(path);
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
	if (!make_path(kernel->image, "%s/vmlinuz", directory) ||
	    !make_path(kernel->modules, "%s/modules", directory) ||
	    !make_path(version, "%s/version", directory))
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

	if (!make_path(target, "%s", directory))
		return too_long(error);
	for (size_t length = strlen(target); length > 1 && target[length - 1] == '/'; length--)
		target[length - 1] = 0;
	if (!make_path(marker, "%s/package", target))
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
	if (!make_path(work, "%s.XXXXXX", target))
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
	if (!make_path(made, "%s/kernel", work) || !make_path(marker, "%s/kernel/package", work))
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
