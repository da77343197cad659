/* A kernel's packages: which they are by what they depend on, and how a tree is made of them; with
 * an apt of the test's own. */
#include "tools/lab/packages.h"
#include "tools/lab/lab.h"
#include "base/subprocess.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct lab_packages packages;
static struct error error;

Test(lab_packages, up_to_6_18_one_has_all)
{
	cr_assert(lab_packages_parse("linux-image-6.12.1+deb13-amd64",
				     "kmod, linux-base (>= 4.3~), initramfs-tools | dracut",
				     &packages));
	cr_assert_eq(packages.count, 1);
	cr_assert_str_eq(packages.names[0], "linux-image-6.12.1+deb13-amd64");
}

Test(lab_packages, later_vmlinuz_and_modules_have_their_own)
{
	cr_assert(lab_packages_parse(
		"linux-image-7.3.4+deb13-amd64",
		"dracut | initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool, "
		"linux-base-7.3.4+deb13-amd64 (= 7.3.4-1~bpo13+1), "
		"linux-binary-7.3.4+deb13-amd64 (= 7.3.4-1~bpo13+1), "
		"linux-modules-7.3.4+deb13-amd64 (= 7.3.4-1~bpo13+1), "
		"linux-modules-7.3.4+deb13-rt-amd64",
		&packages));
	cr_assert_eq(packages.count, 3);
	cr_assert_str_eq(packages.names[0], "linux-image-7.3.4+deb13-amd64");
	cr_assert_str_eq(packages.names[1], "linux-binary-7.3.4+deb13-amd64");
	cr_assert_str_eq(packages.names[2], "linux-modules-7.3.4+deb13-amd64");
}

Test(lab_packages, others_stand_for_them)
{
	cr_assert_not(lab_packages_parse(
		"linux-image-amd64",
		"linux-base-amd64 (= 7.3.4-1), linux-image-7.3.4+deb13-amd64 (= 7.3.4-1), "
		"linux-modules-amd64 (= 7.3.4-1)",
		&packages));
	cr_assert_eq(packages.count, 1);
	cr_assert_str_eq(packages.names[0], "linux-image-7.3.4+deb13-amd64");
	cr_assert_not(lab_packages_parse("linux-image-amd64", "linux-image-6.1.0-56-amd64 (= 6.1)",
					 &packages));
	cr_assert_str_eq(packages.names[0], "linux-image-6.1.0-56-amd64");
}

Test(lab_packages, names_are_nothing_else)
{
	cr_assert(lab_is_package("linux-image-7.3.4+deb13-amd64"));
	cr_assert(lab_is_package("linux-image-amd64@trixie-backports"));
	cr_assert_not(lab_is_package(""));
	cr_assert_not(lab_is_package("-oAPT"));
	cr_assert_not(lab_is_package("a/b"));
	cr_assert_not(lab_is_package("a b"));
	cr_assert_not(lab_is_package("linux-image-amd64@"));
	cr_assert_not(lab_is_package("linux-image-amd64@-x"));
	cr_assert_not(lab_is_package("linux-image-amd64@a/b"));
	cr_assert_not(lab_is_package("linux-image-amd64@a@b"));
	cr_assert_not(lab_is_package("linux-image-amd64@a\nb"));
}

static char work[] = "/tmp/guestprof-packages-XXXXXX";
static char text[4096];

/* Runs a script in the work directory; what it prints is in `text`. */
static void shell(const char *script)
{
	const char *const argv[] = {"sh", "-ec", script, NULL};

	cr_assert_eq(subprocess_run(argv, work, text, sizeof(text), &error), GP_OK, "%s: %s",
		     script, error.text);
}

/* An archive with the kernel 9.9-test as Debian has packed it since 7.2, and an apt that has it. */
static void begin(void)
{
	char path[PATH_MAX];

	if (lab_find_program("dpkg-deb", "dpkg", path, &error) != GP_OK)
		cr_skip_test("%s", error.text);
	cr_assert(mkdtemp(work));
	snprintf(path, sizeof(path), "%s/cache", work);
	setenv("GUESTPROF_CACHE", path, 1);
	snprintf(path, sizeof(path), "%s/bin:%s", work, getenv("PATH"));
	setenv("PATH", path, 1);
	setenv("ARCHIVE", work, 1);
	shell("package() {\n"
	      "	mkdir -p $1/DEBIAN\n"
	      "	printf 'Package: %s\\nVersion: 9.9-1\\nArchitecture: amd64\\nDepends: %s\\n"
	      "Maintainer: a <a@b>\\nDescription: a\\n' $1 \"$2\" >$1/DEBIAN/control\n"
	      "	cp $1/DEBIAN/control $1.control\n"
	      "	dpkg-deb --root-owner-group -b $1 $1_9.9-1_amd64.deb >&2\n"
	      "}\n"
	      "mkdir -p bin linux-binary-9.9-test/usr/lib/modules/9.9-test \\\n"
	      "	linux-modules-9.9-test/usr/lib/modules/9.9-test/kernel\n"
	      "echo the kernel >linux-binary-9.9-test/usr/lib/modules/9.9-test/vmlinuz\n"
	      "echo a module >linux-modules-9.9-test/usr/lib/modules/9.9-test/kernel/a.ko\n"
	      "package linux-image-test 'linux-base-test, linux-image-9.9-test (= 9.9-1)'\n"
	      "package linux-image-9.9-test "
	      "'kmod, linux-binary-9.9-test (= 9.9-1), linux-modules-9.9-test (= 9.9-1)'\n"
	      "package linux-binary-9.9-test kmod\n"
	      "package linux-modules-9.9-test kmod\n"
	      "cat >bin/apt-cache <<'END'\n"
	      "#!/bin/sh\n"
	      "for package; do :; done\n"
	      "cat $ARCHIVE/$package.control\n"
	      "echo apt-cache \"$@\" >>$ARCHIVE/log\n"
	      "END\n"
	      "cat >bin/apt-get <<'END'\n"
	      "#!/bin/sh\n"
	      "echo apt-get \"$@\" >>$ARCHIVE/log\n"
	      "for word; do\n"
	      "	[ ! -e $ARCHIVE/${word}_9.9-1_amd64.deb ] || cp $ARCHIVE/${word}_* .\n"
	      "	[ \"$word\" != indextargets ] || echo http://mirror.test/debian\n"
	      "done\n"
	      "END\n"
	      "chmod +x bin/*\n");
}

static void end(void)
{
	shell("rm -rf \"$ARCHIVE\"");
}

TestSuite(lab_archive, .init = begin, .fini = end);

Test(lab_archive, a_kernel_is_put_together)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/kernel", work);
	cr_assert_eq(lab_kernel_fetch("linux-image-test", path, &error), GP_OK, "%s", error.text);
	shell("cat kernel/version kernel/vmlinuz kernel/modules/kernel/a.ko kernel/package");
	cr_assert_str_eq(text, "9.9-test\nthe kernel\na module\nlinux-image-test\n");
	/* What is there is not asked for again. */
	shell("rm log bin/*");
	cr_assert_eq(lab_kernel_fetch("linux-image-test", path, &error), GP_OK, "%s", error.text);
	snprintf(path, sizeof(path), "%s/other", work);
	cr_assert_eq(lab_kernel_fetch("linux-image-9.9-test", path, &error), GP_OK, "%s",
		     error.text);
}

Test(lab_archive, a_suite_has_lists_of_its_own)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/kernel", work);
	cr_assert_eq(lab_kernel_fetch("linux-image-test@forky", path, &error), GP_OK, "%s",
		     error.text);
	shell("cat cache/apt/forky/sources.list");
	cr_assert(strstr(text, "http://mirror.test/debian forky main"), "%s", text);
	/* All but the question for the mirror are about those lists. */
	shell("grep -v indextargets log | grep -cv -e \" -c $PWD/cache/apt/forky/apt.conf \" || :");
	cr_assert_str_eq(text, "0\n");
	shell("grep -c 'apt.conf update' log");
	cr_assert_str_eq(text, "1\n");
	shell("cat kernel/package; readlink cache/kernels/linux-image-test@forky");
	cr_assert_str_eq(text, "linux-image-test@forky\nlinux-image-9.9-test\n");
}

Test(lab_archive, what_is_no_kernel_leaves_nothing)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/kernel", work);
	cr_assert_neq(lab_kernel_fetch("linux-modules-9.9-test", path, &error), GP_OK);
	cr_assert(strstr(error.text, "holds no kernel"), "%s", error.text);
	cr_assert_eq(lab_kernel_fetch("linux-image-none@forky", path, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "suite"), "%s", error.text);
	shell("ls -d kernel* cache/kernels/linux* 2>/dev/null || :");
	cr_assert_str_eq(text, "");
}
