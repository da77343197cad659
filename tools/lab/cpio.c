#include "tools/lab/cpio.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/sysmacros.h>

#define HEADER_SIZE 110 /* the magic number's 6 digits and 13 fields of 8 */

/* Writes bytes, then zeros up to a multiple of four bytes. `before` were written since the last
 * such one. */
static bool put_padded(FILE *to, size_t before, const void *bytes, size_t size)
{
	static const char zeros[4];
	size_t padding = -(before + size) & 3;

	return (!size || fwrite(bytes, 1, size, to) == size) &&
	       fwrite(zeros, 1, padding, to) == padding;
}

gp_status_t lab_cpio_put(FILE *to, const char *name, mode_t mode, dev_t device, const void *bytes,
			 size_t size, struct error *error)
{
	size_t name_size = strlen(name) + 1;
	char header[HEADER_SIZE + 1];

	if (name_size > PATH_MAX || size > UINT32_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%.60s is too large for a cpio archive: %zu bytes", name, size);
	/* Inode 0 for all: the kernel looks at it only where there is more than one link. */
	snprintf(header, sizeof(header),
		 "070701"
		 "%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		 0u, (unsigned)mode, 0u, 0u, 1u, 0u, (unsigned)size, 0u, 0u, major(device),
		 minor(device), (unsigned)name_size, 0u);
	if (fwrite(header, 1, HEADER_SIZE, to) != HEADER_SIZE ||
	    !put_padded(to, HEADER_SIZE, name, name_size) || !put_padded(to, 0, bytes, size))
		return error_set_errno(error, errno, "cannot write %s to the archive", name);
	return GP_OK;
}

gp_status_t lab_cpio_end(FILE *to, struct error *error)
{
	gp_status_t status = lab_cpio_put(to, "TRAILER!!!", 0, 0, NULL, 0, error);

	if (status == GP_OK && fflush(to))
		status = error_set_errno(error, errno, "cannot write the archive's end");
	return status;
}
