/* A disk the guest sees: a raw image file or a block device of the host.
 *
 * Locked while open (an open-file-description lock: exclusive when writable, shared when
 * read-only), so that two machines, or this one and QEMU, never write the same image.
 */
#ifndef VMM_DEVICES_DISK_IMAGE_H
#define VMM_DEVICES_DISK_IMAGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define DISK_SECTOR_SIZE 512

struct disk_image {
	int fd;
	uint64_t size; /* bytes, a multiple of DISK_SECTOR_SIZE, not 0 */
	bool read_only;
	char serial[21]; /* what the guest sees as its serial number; from device and inode */
};

/* Opens and locks. The error says which file, what about it, and what to do. */
gp_status_t disk_image_open(struct disk_image *disk, const char *path, bool read_only,
			    struct error *error);
void disk_image_close(struct disk_image *disk);

/* Transfers all bytes of `parts` at `offset`; false when not all could be. The caller has
 * checked the range against `size`. `parts` is changed. */
bool disk_image_read(const struct disk_image *disk, uint64_t offset, struct iovec *parts,
		     unsigned count);
bool disk_image_write(const struct disk_image *disk, uint64_t offset, struct iovec *parts,
		      unsigned count);
bool disk_image_flush(const struct disk_image *disk);

#endif
