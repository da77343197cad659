/* Which Debian packages a kernel is in, and getting them: all that asks apt. */
#ifndef TOOLS_LAB_PACKAGES_H
#define TOOLS_LAB_PACKAGES_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>

#define LAB_PACKAGES_MAX 4
#define LAB_PACKAGE_NAME 128

/* A kernel's packages: one up to Linux 6.18; since then modules and vmlinuz have their own. The
 * first is the one that depends on the others, linux-image-RELEASE, whose name is unique to the
 * kernel.
 */
struct lab_packages {
	char names[LAB_PACKAGES_MAX][LAB_PACKAGE_NAME];
	unsigned count;
	char configuration[PATH_MAX]; /* a file for apt; empty: that of the machine */
};

/* Is it NAME or NAME@SUITE, and nothing that apt would take for an option, a path or a pattern? */
bool lab_is_package(const char *wanted);

/* What `depends`, the field of that name of the package `image`, says: false when `image` only
 * stands for another package, whose name is in names[0] then. */
bool lab_packages_parse(const char *image, const char *depends, struct lab_packages *out);

/* Finds the packages of the kernel that `wanted` names, a package such as linux-image-amd64 among
 * them; of NAME@SUITE those of that suite of Debian, even when this machine's apt does not know it.
 * Needs no root. */
gp_status_t lab_packages_find(const char *wanted, struct lab_packages *out, struct error *error);

/* Downloads all of them to `directory`, each as NAME_VERSION_ARCHITECTURE.deb. Shows progress. */
gp_status_t lab_packages_download(const struct lab_packages *packages, const char *directory,
				  struct error *error);

#endif
