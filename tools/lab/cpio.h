/* Writes a cpio archive in the "newc" format, which a kernel takes as its initramfs:
 * Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
 *
 * Only what the lab's initramfs holds: directories, regular files, devices. No links, all
 * owned by root, all of the year 1970, so that the same content gives the same bytes. Not
 * libarchive: it and the twelve libraries that come with it would be mapped in every
 * guestprof that runs a guest. */
#ifndef TOOLS_LAB_CPIO_H
#define TOOLS_LAB_CPIO_H

#include "base/error.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* Appends an entry to `to`, at a multiple of four bytes from the archive's beginning. `mode`
 * as stat(2) gives it, with the file's type. `device` (makedev(3)) is for character and block
 * devices, which have no bytes. GP_ERR_IO leaves half an entry behind. */
gp_status_t lab_cpio_put(FILE *to, const char *name, mode_t mode, dev_t device, const void *bytes,
			 size_t size, struct error *error);

/* Ends the archive and flushes it. */
gp_status_t lab_cpio_end(FILE *to, struct error *error);

#endif
