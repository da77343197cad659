/* The lab's initramfs: modules found and unpacked whatever packs them, each behind what it
 * depends on, in an archive that cpio(1) reads as well. */
#include "tools/lab/lab.h"
#include "naming/cpio.h"
#include "base/subprocess.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static char work[] = "/tmp/guestprof-initramfs-XXXXXX";
static char text[4096];
static struct error error;

/* Runs a script in the work directory; what it prints is in `text`. */
static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void shell(const char *format, ...)
{
	char script[1024];
	const char *const argv[] = {"sh", "-ec", script, NULL};
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(script, sizeof(script), format, arguments);
	va_end(arguments);
	cr_assert_eq(subprocess_run(argv, work, text, sizeof(text), &error), GP_OK, "%s: %s",
		     script, error.text);
}

static void need(const char *program, const char *package)
{
	char path[PATH_MAX];

	if (lab_find_program(program, package, path, &error) != GP_OK)
		cr_skip_test("%s", error.text);
}

static struct lab_kernel kernel = {.release = "6.1.0-test"};

static void begin(void)
{
	char path[PATH_MAX];

	cr_assert(mkdtemp(work));
	snprintf(path, sizeof(path), "%s/cache", work);
	setenv("GUESTPROF_CACHE", path, 1);
	snprintf(kernel.image, sizeof(kernel.image), "%s/vmlinuz", work);
	snprintf(kernel.modules, sizeof(kernel.modules), "%s/lib", work);
	shell("echo kernel >vmlinuz; mkdir -p lib/kernel/net lib/kernel/fs");
}

static void end(void)
{
	shell("rm -rf %s", work);
}

TestSuite(lab_initramfs, .init = begin, .fini = end);

/* A module as far as the lab looks into it, below lib/kernel. */
static void add_module(const char *path, const char *depends)
{
	shell("printf '\\177ELF\\0license=GPL\\0depends=%s\\0name=%s\\0' >lib/kernel/%s", depends,
	      path, path);
}

/* Makes the initramfs and unpacks its files into out/. */
static void make(char archive[static PATH_MAX])
{
	need("cpio", "cpio");
	if (lab_find_busybox(archive, &error) != GP_OK)
		cr_skip_test("%s", error.text);
	cr_assert_eq(lab_initramfs_find(&kernel, archive, &error), GP_OK, "%s", error.text);
	shell("mkdir out; cd out; cpio -id --quiet init 'bin/*' 'modules/*' <%s", archive);
}

Test(lab_initramfs, holds_init_and_busybox_as_they_are)
{
	char archive[PATH_MAX], busybox[PATH_MAX];

	make(archive);
	cr_assert_eq(lab_find_busybox(busybox, &error), GP_OK);
	shell("cmp %s out/bin/busybox; test -x out/bin/busybox; test -x out/init; cat out/init",
	      busybox);
	cr_assert_eq(strncmp(text, lab_init_script, sizeof(text) - 1), 0);
}

Test(lab_initramfs, each_module_comes_behind_what_it_depends_on)
{
	char archive[PATH_MAX];

	add_module("fs/9p.ko", "9pnet,netfs");
	add_module("fs/netfs.ko", "fscache");
	add_module("fs/fscache.ko", "");
	add_module("net/9pnet.ko", "");
	add_module("net/9pnet-virtio.ko", "9pnet"); /* wanted as 9pnet_virtio */
	add_module("net/9pnetwork.ko", "");         /* not wanted */
	make(archive);
	shell("ls out/modules; cmp out/modules/00-9pnet.ko lib/kernel/net/9pnet.ko");
	cr_assert_str_eq(text, "00-9pnet.ko\n01-9pnet_virtio.ko\n02-fscache.ko\n03-netfs.ko\n"
			       "04-9p.ko\n");
}

Test(lab_initramfs, packed_modules_are_unpacked)
{
	char archive[PATH_MAX];

	need("xz", "xz-utils");
	need("zstd", "zstd");
	add_module("fs/9p.ko", "netfs");
	add_module("fs/netfs.ko", "overlay");
	add_module("fs/overlay.ko", "");
	shell("cp -r lib plain; xz lib/kernel/fs/9p.ko; zstd -q --rm lib/kernel/fs/netfs.ko; "
	      "gzip lib/kernel/fs/overlay.ko");
	make(archive);
	shell("cmp out/modules/00-overlay.ko plain/kernel/fs/overlay.ko; "
	      "cmp out/modules/01-netfs.ko plain/kernel/fs/netfs.ko; "
	      "cmp out/modules/02-9p.ko plain/kernel/fs/9p.ko");
}

Test(lab_initramfs, a_broken_module_is_named_and_leaves_no_archive)
{
	char archive[PATH_MAX];

	need("xz", "xz-utils");
	if (lab_find_busybox(archive, &error) != GP_OK)
		cr_skip_test("%s", error.text);
	shell("echo nonsense >lib/kernel/fs/9p.ko.xz");
	cr_assert_eq(lab_initramfs_find(&kernel, archive, &error), GP_ERR_IO);
	cr_assert(strstr(error.text, "/lib/kernel/fs/9p.ko.xz"), "%s", error.text);
	shell("ls cache/lab");
	cr_assert_str_eq(text, "");
}

Test(lab_initramfs, the_same_parts_are_found_again_and_others_are_not)
{
	char archive[PATH_MAX], again[PATH_MAX], other[PATH_MAX];

	make(archive);
	cr_assert_eq(lab_initramfs_find(&kernel, again, &error), GP_OK);
	cr_assert_str_eq(archive, again);
	shell("echo a longer kernel >vmlinuz");
	cr_assert_eq(lab_initramfs_find(&kernel, other, &error), GP_OK);
	cr_assert_str_neq(archive, other);
}

/* Against the format's description, digit by digit. */
Test(cpio, an_entry_is_a_header_a_name_and_bytes_each_to_four_bytes)
{
	static const char expected[] = "070701" /* newc */
				       "00000000"
				       "00002180" /* S_IFCHR | 0600 */
				       "00000000"
				       "00000000"
				       "00000001" /* one link */
				       "00000000"
				       "00000000" /* no bytes */
				       "00000000"
				       "00000000"
				       "00000005" /* device 5:1 */
				       "00000001"
				       "0000000C" /* the name's length with its end */
				       "00000000"
				       "dev/console\0\0\0"
				       "070701"
				       "00000000"
				       "000081ED" /* S_IFREG | 0755 */
				       "00000000"
				       "00000000"
				       "00000001"
				       "00000000"
				       "00000005" /* bytes */
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000005"
				       "00000000"
				       "init\0\0"
				       "hello\0\0\0"
				       "070701"
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000001"
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000000"
				       "00000000"
				       "0000000B"
				       "00000000"
				       "TRAILER!!!\0\0\0"; /* and the one that ends the literal */
	char *bytes = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&bytes, &size);

	cr_assert_eq(cpio_put(file, "dev/console", S_IFCHR | 0600, makedev(5, 1), NULL, 0, &error),
		     GP_OK);
	cr_assert_eq(cpio_put(file, "init", S_IFREG | 0755, 0, "hello", 5, &error), GP_OK);
	cr_assert_eq(cpio_end(file, &error), GP_OK);
	fclose(file);
	cr_assert_eq(size % 4, 0);
	cr_assert_eq(size, sizeof(expected) - 1 + (-(sizeof(expected) - 1) & 3));
	cr_assert_eq(memcmp(bytes, expected, sizeof(expected) - 1), 0);
	free(bytes);
}

Test(cpio, a_full_disk_and_what_does_not_fit_the_format_are_errors)
{
	FILE *full = fopen("/dev/full", "w");
	char *name = malloc(PATH_MAX + 1);

	cr_assert(full && name);
	memset(name, 'n', PATH_MAX);
	name[PATH_MAX] = 0;
	cr_assert_eq(cpio_put(full, name, S_IFREG, 0, "", 0, &error), GP_ERR_INVALID_ARGS);
	cr_assert_eq(cpio_put(full, "big", S_IFREG, 0, "", (size_t)1 << 32, &error),
		     GP_ERR_INVALID_ARGS);
	cr_assert_neq(cpio_end(full, &error), GP_OK);
	fclose(full);
	free(name);
}
