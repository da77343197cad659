#include "vmm/devices/disk_image.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static gp_status_t find_size(int fd, const char *path, const struct stat *info, uint64_t *size_out,
			     struct error *error)
{
	uint64_t size = 0;

	if (S_ISBLK(info->st_mode)) {
		if (ioctl(fd, BLKGETSIZE64, &size))
			return error_set_errno(error, errno, "cannot tell the size of disk %s",
					       path);
	} else if (S_ISREG(info->st_mode)) {
		size = (uint64_t)info->st_size;
	} else {
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "disk %s is neither a file nor a block device", path);
	}
	if (size == 0)
		return error_set(error, GP_ERR_INVALID_ARGS, "disk %s is empty", path);
	if (size % DISK_SECTOR_SIZE)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "disk %s has %llu bytes, not whole sectors of %d; if it is a raw "
				 "image, 'truncate -s %%%d' rounds it up",
				 path, (unsigned long long)size, DISK_SECTOR_SIZE,
				 DISK_SECTOR_SIZE);
	*size_out = size;
	return GP_OK;
}

/* An open-file-description lock belongs to the descriptor, not the process: it goes away
 * with it, and another open of the same file by this process is refused, too. */
static gp_status_t lock(int fd, const char *path, bool read_only, struct error *error)
{
	struct flock whole = {.l_type = read_only ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
		return GP_OK;
	if (errno == EAGAIN || errno == EACCES)
		return error_set(error, GP_ERR_UNAVAILABLE,
				 "disk %s is in use: another process has locked it%s", path,
				 read_only
					 ? " for writing"
					 : "; stop that one, or share it with ',ro' on all sides");
	return error_set_errno(error, errno,
			       "cannot lock disk %s; is it on a file system without locks?", path);
}

gp_status_t disk_image_open(struct disk_image *disk, const char *path, bool read_only,
			    struct error *error)
{
	/* Without O_NONBLOCK the open of a FIFO would wait for its other end. It means nothing
	 * to files and block devices. */
	AUTO_CLOSE int fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
	struct disk_image made = {.read_only = read_only};
	struct stat info;
	gp_status_t status;

	if (fd < 0 && !read_only && (errno == EACCES || errno == EROFS || errno == EPERM))
		return error_set_errno(error, errno,
				       "cannot open disk %s for writing (',ro' opens it read-only)",
				       path);
	if (fd < 0)
		return error_set_errno(error, errno, "cannot open disk %s", path);
	if (fstat(fd, &info))
		return error_set_errno(error, errno, "cannot look at disk %s", path);
	status = find_size(fd, path, &info, &made.size, error);
	if (!status)
		status = lock(fd, path, read_only, error);
	if (status)
		return status;
	snprintf(made.serial, sizeof(made.serial), "%llx-%llx", (unsigned long long)info.st_dev,
		 (unsigned long long)info.st_ino);
	made.fd = take_fd(&fd);
	*disk = made;
	return GP_OK;
}

void disk_image_close(struct disk_image *disk)
{
	close_fd(&disk->fd);
}

typedef ssize_t transfer_function(int fd, const struct iovec *parts, int count, off_t offset);

/* A transfer may be cut short by a signal or a page boundary: goes on behind what was done. */
static bool transfer_all(transfer_function *transfer, int fd, uint64_t offset, struct iovec *parts,
			 unsigned count)
{
	unsigned first = 0;

	for (;;) {
		ssize_t done;

		while (first < count && parts[first].iov_len == 0)
			first++;
		if (first == count)
			return true;
		done = transfer(fd, parts + first, (int)(count - first), (off_t)offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		offset += (uint64_t)done;
		for (size_t left = (size_t)done; left > 0;) {
			size_t taken = left < parts[first].iov_len ? left : parts[first].iov_len;

			parts[first].iov_base = (char *)parts[first].iov_base + taken;
			parts[first].iov_len -= taken;
			left -= taken;
			if (parts[first].iov_len == 0)
				first++;
		}
	}
}

bool disk_image_read(const struct disk_image *disk, uint64_t offset, struct iovec *parts,
		     unsigned count)
{
	return transfer_all(preadv, disk->fd, offset, parts, count);
}

bool disk_image_write(const struct disk_image *disk, uint64_t offset, struct iovec *parts,
		      unsigned count)
{
	return transfer_all(pwritev, disk->fd, offset, parts, count);
}

bool disk_image_flush(const struct disk_image *disk)
{
	return fdatasync(disk->fd) == 0;
}
