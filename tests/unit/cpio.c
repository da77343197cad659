/* The archive that a kernel takes as an initramfs. */
#include "naming/cpio.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static struct error error;

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
