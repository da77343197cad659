#include "tools/lab/packages.h"

#include "tools/lab/lab.h"

#include "base/progress.h"
#include "base/subprocess.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE "linux-image-"
#define META_LIMIT 4 /* packages that only stand for the next one */
#define MIRROR "http://deb.debian.org/debian"
#define KEYS "/usr/share/keyrings/debian-archive-keyring.gpg"

static bool is_name(const char *name, size_t length, const char *others)
{
	if (length == 0 || length >= LAB_PACKAGE_NAME || !isalnum((unsigned char)name[0]))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr(others, name[i]))
			return false;
	return true;
}

bool lab_is_package(const char *wanted)
{
	size_t length = strcspn(wanted, "@");

	return is_name(wanted, length, "+-.~") &&
	       (!wanted[length] ||
		is_name(wanted + length + 1, strlen(wanted + length + 1), "-.~"));
}

/* Is `name` the package of that kind for the same kernel as `image`? */
static bool belongs(const char *name, const char *kind, const char *image)
{
	return !strncmp(name, kind, strlen(kind)) &&
	       !strcmp(name + strlen(kind), image + strlen(IMAGE));
}

bool lab_packages_parse(const char *image, const char *depends, struct lab_packages *out)
{
	bool is_image = !strncmp(image, IMAGE, strlen(IMAGE));

	snprintf(out->names[0], sizeof(out->names[0]), "%s", image);
	out->count = 1;
	for (const char *at = depends; *at; at += strcspn(at, ",|"), at += *at != 0) {
		char name[LAB_PACKAGE_NAME];
		size_t length;

		at += strspn(at, " ");
		length = strcspn(at, " ,|(");
		if (!is_name(at, length, "+-.~"))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)length, at);
		if (!strncmp(name, IMAGE, strlen(IMAGE))) {
			snprintf(out->names[0], sizeof(out->names[0]), "%s", name);
			out->count = 1;
			return false;
		}
		if (is_image && out->count < LAB_PACKAGES_MAX &&
		    (belongs(name, "linux-binary-", image) ||
		     belongs(name, "linux-modules-", image)))
			snprintf(out->names[out->count++], sizeof(name), "%s", name);
	}
	return true;
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

/* What apt's lists say of a package; nothing when they do not know it. */
static gp_status_t show(const struct lab_packages *packages, const char *package, char *text,
			size_t size, struct error *error)
{
	const char *configuration = packages->configuration;
	const char *const plain[] = {"apt-cache", "show", "--no-all-versions", package, NULL};
	const char *const given[] = {"apt-cache",         "-c",    configuration, "show",
				     "--no-all-versions", package, NULL};

	*text = 0;
	return subprocess_run(*configuration ? given : plain, NULL, text, size, error);
}

/* The mirror of Debian that this machine uses, or the one that all may. */
static void find_mirror(char *mirror, size_t size)
{
	const char *const ask[] = {"apt-get",
				   "indextargets",
				   "--format",
				   "$(REPO_URI)",
				   "Created-By: Packages",
				   "Origin: Debian",
				   "Label: Debian",
				   NULL};
	char text[4096];
	size_t length;

	snprintf(mirror, size, "%s", MIRROR);
	if (subprocess_run(ask, NULL, text, sizeof(text), NULL) != GP_OK)
		return;
	length = strcspn(text, " \n");
	if (length && length < size && strstr(text, "://"))
		snprintf(mirror, size, "%.*s", (int)length, text);
}

/* Gives apt lists of its own, of one suite of Debian. */
static gp_status_t read_suite(const char *suite, struct lab_packages *packages, struct error *error)
{
	const char *const update[] = {"apt-get", "-qq", "-c", packages->configuration,
				      "update",  NULL};
	char below[LAB_PACKAGE_NAME + 32], path[PATH_MAX], file[PATH_MAX], mirror[1024];

	snprintf(below, sizeof(below), "apt/%s/lists/partial", suite);
	if (lab_cache_path(below, path, error) != GP_OK)
		return error->status;
	path[strlen(path) - strlen("/lists/partial")] = 0;
	if (lab_path(error, file, "%s/sources.list", path) ||
	    lab_path(error, packages->configuration, "%s/apt.conf", path))
		return error->status;
	find_mirror(mirror, sizeof(mirror));
	AUTO_FCLOSE FILE *sources = fopen(file, "we");
	AUTO_FCLOSE FILE *configuration = fopen(packages->configuration, "we");
	if (!sources || !configuration ||
	    fprintf(sources, "deb [arch=amd64%s] %s %s main\n",
		    access(KEYS, R_OK) ? "" : " signed-by=" KEYS, mirror, suite) < 0 ||
	    fprintf(configuration,
		    "Dir::Etc::SourceList \"%s\";\n"
		    "Dir::Etc::SourceParts \"/dev/null\";\n"
		    "Dir::State::Lists \"%s/lists\";\n"
		    "Dir::State::Status \"/dev/null\";\n"
		    "Dir::Cache::pkgcache \"\";\n"
		    "Dir::Cache::srcpkgcache \"\";\n"
		    "APT::Architecture \"amd64\";\n"
		    "Acquire::Languages \"none\";\n",
		    file, path) < 0 ||
	    fflush(sources) || fflush(configuration))
		return error_set_errno(error, errno, "cannot write below %s", path);
	if (subprocess_run(update, NULL, NULL, 0, error) != GP_OK)
		return error_prefix(error, "no list of packages of Debian's '%s' from %s", suite,
				    mirror);
	return GP_OK;
}

/* Is the package in the lists? A fresh machine has none yet: root gets them. */
static bool is_known(const struct lab_packages *packages, const char *name)
{
	const char *const update[] = {"apt-get", "-qq", "update", NULL};
	char text[16384];

	if (show(packages, name, text, sizeof(text), NULL) == GP_OK && *text)
		return true;
	if (*packages->configuration || geteuid() != 0)
		return false;
	fprintf(stderr, "guestprof lab: running apt-get update\n");
	return subprocess_run(update, NULL, NULL, 0, NULL) == GP_OK &&
	       show(packages, name, text, sizeof(text), NULL) == GP_OK && *text;
}

gp_status_t lab_packages_find(const char *wanted, struct lab_packages *out, struct error *error)
{
	char name[LAB_PACKAGE_NAME], text[16384], depends[4096];
	size_t length = strcspn(wanted, "@");

	*out = (struct lab_packages){0};
	snprintf(name, sizeof(name), "%.*s", (int)length, wanted);
	if (wanted[length] && read_suite(wanted + length + 1, out, error) != GP_OK)
		return error->status;
	if (!is_known(out, name))
		return error_set(error, GP_ERR_NOT_FOUND,
				 wanted[length]
					 ? "no package %s is in that suite of Debian"
					 : "no package %s is known here; is the name right, and "
					   "has apt-get update been run?",
				 wanted);
	for (unsigned i = 0; i < META_LIMIT; i++) {
		if (show(out, name, text, sizeof(text), error) != GP_OK)
			return error_prefix(error, "nothing is known of the package %s", name);
		if (!find_field(text, "Depends", depends, sizeof(depends)))
			depends[0] = 0;
		if (lab_packages_parse(name, depends, out))
			return GP_OK;
		snprintf(name, sizeof(name), "%s", out->names[0]);
	}
	return error_set(error, GP_ERR_NOT_FOUND, "the package %s leads to no kernel's", wanted);
}

struct download {
	const char *directory;
	uint64_t bytes; /* in all; 0: not known */
};

/* How many bytes the packages have, by apt's lists. */
static uint64_t count_bytes(const struct lab_packages *packages)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < packages->count; i++) {
		char text[16384], size[32];

		if (show(packages, packages->names[i], text, sizeof(text), NULL) != GP_OK ||
		    !find_field(text, "Size", size, sizeof(size)))
			return 0;
		bytes += strtoull(size, NULL, 10);
	}
	return bytes;
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

gp_status_t lab_packages_download(const struct lab_packages *packages, const char *directory,
				  struct error *error)
{
	const char *command[6 + LAB_PACKAGES_MAX] = {"apt-get", "-qq"};
	struct download watched = {directory, count_bytes(packages)};
	unsigned count = 2;

	if (*packages->configuration) {
		command[count++] = "-c";
		command[count++] = packages->configuration;
	}
	command[count++] = "download";
	for (unsigned i = 0; i < packages->count; i++)
		command[count++] = packages->names[i];
	if (subprocess_run_watched(command, directory, tell_download, &watched, error) != GP_OK)
		return error_prefix(error, "cannot download %s", packages->names[0]);
	return GP_OK;
}
