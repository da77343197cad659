/* Takes single files out of the disks that a guest is given: from ext2, ext3 and ext4 file systems,
 * on the whole disk or on a partition, as libblkid and libext2fs (e2fsprogs) read them.
 *
 * The guest writes to these disks at the same time, and may have written anything. So each file is
 * taken by a process of its own, which may read the disks and write what it found into memory, and
 * nothing else (`confine`), in a limited time; what it gives is only a candidate. A journal is not
 * replayed: a file that was written just now may not be there yet, but is in the guest's memory.
 *
 * For the helper process of naming/program_files.h: it starts child processes and waits for them.
 */
#ifndef NAMING_DISK_FILES_H
#define NAMING_DISK_FILES_H

#include "base/error.h"
#include "base/library.h"

#include <stdbool.h>
#include <stdint.h>

#define DISK_FILES_DISKS_MAX 15 /* MACHINE_DISKS_MAX */

struct disk_files {
	struct library blkid;
	struct library ext2fs;
	unsigned count;
	int fds[DISK_FILES_DISKS_MAX];
	/* Required. Called in the process that reads: leaves it what reading needs and so many
	 * bytes of memory. False: it could not. */
	bool (*confine)(uint64_t memory_bytes);
};

/* Opens the raw images or block devices at `paths`; those that cannot be opened are left
 * out: the machine reports them. GP_ERR_NOT_SUPPORTED: a library is not here, or was not when this
 * was built; `error` names what to install. Nothing is found then. */
gp_status_t disk_files_init(struct disk_files *self, const char *const *paths, unsigned count,
			    bool (*confine)(uint64_t memory_bytes), struct error *error);
void disk_files_deinit(struct disk_files *self);

/* A file at `path` (absolute), or at its end below the root of a file system that may be mounted
 * somewhere, for which `is_wanted` is true, as a descriptor of an unnamed file in memory. -1: there
 * is none. `is_wanted` is called in the confined process. */
int disk_files_take(const struct disk_files *self, const char *path,
		    bool (*is_wanted)(const void *context, int fd), const void *context);

#endif
