#include "naming/disk_files.h"

#include <unistd.h>

#ifndef GUESTPROF_DISK_FILES

gp_status_t disk_files_init(struct disk_files *self, const char *const *paths, unsigned count,
			    bool (*confine)(uint64_t memory_bytes), struct error *error)
{
	(void)paths;
	(void)count;
	(void)confine;
	*self = (struct disk_files){0};
	return error_set(error, GP_ERR_NOT_SUPPORTED,
			 "this guestprof was built without libext2fs-dev and libblkid-dev");
}

int disk_files_take(const struct disk_files *self, const char *path,
		    bool (*is_wanted)(const void *context, int fd), const void *context)
{
	(void)self;
	(void)path;
	(void)is_wanted;
	(void)context;
	return -1;
}

#else

#include "base/container.h"
#include "base/io.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FILE_SIZE_MAX (UINT64_C(512) << 20)
#define FILE_SIZE_MIN 64u
#define COPY_SIZE (64u << 10)
/* A disk may be laid out so that reading it has no end. */
#define SECONDS_MAX 10
#define MEMORY_MAX (UINT64_C(1) << 30)
#define PARTITIONS_MAX 128
#define AHEAD_SIZE (128u << 10)
#define AHEAD_BUFFERS 8
#define BLKID_SECTOR_SIZE 512u

/* What is used of the two libraries. */
static struct {
	blkid_probe (*new_probe)(void);
	void (*free_probe)(blkid_probe);
	int (*set_device)(blkid_probe, int, blkid_loff_t, blkid_loff_t);
	blkid_loff_t (*get_size)(blkid_probe);
	int (*enable_partitions)(blkid_probe, int);
	blkid_partlist (*get_partitions)(blkid_probe);
	int (*count_partitions)(blkid_partlist);
	blkid_partition (*get_partition)(blkid_partlist, int);
	blkid_loff_t (*partition_start)(blkid_partition);
	blkid_loff_t (*partition_size)(blkid_partition);
} blkid;
static struct {
	errcode_t (*open)(const char *, const char *, int, int, unsigned int, io_manager,
			  ext2_filsys *);
	void (*free)(ext2_filsys);
	errcode_t (*look_up)(ext2_filsys, ext2_ino_t, ext2_ino_t, const char *, ext2_ino_t *);
	errcode_t (*read_inode)(ext2_filsys, ext2_ino_t, struct ext2_inode *);
	errcode_t (*file_open)(ext2_filsys, ext2_ino_t, int, ext2_file_t *);
	errcode_t (*file_size)(ext2_file_t, __u64 *);
	errcode_t (*file_read)(ext2_file_t, void *, unsigned int, unsigned int *);
	errcode_t (*file_close)(ext2_file_t);
} ext2fs;

static gp_status_t load(struct disk_files *self, struct error *error)
{
	static const struct library_symbol blkid_symbols[] = {
		{"blkid_new_probe", &blkid.new_probe},
		{"blkid_free_probe", &blkid.free_probe},
		{"blkid_probe_set_device", &blkid.set_device},
		{"blkid_probe_get_size", &blkid.get_size},
		{"blkid_probe_enable_partitions", &blkid.enable_partitions},
		{"blkid_probe_get_partitions", &blkid.get_partitions},
		{"blkid_partlist_numof_partitions", &blkid.count_partitions},
		{"blkid_partlist_get_partition", &blkid.get_partition},
		{"blkid_partition_get_start", &blkid.partition_start},
		{"blkid_partition_get_size", &blkid.partition_size},
	};
	static const struct library_symbol ext2fs_symbols[] = {
		{"ext2fs_open2", &ext2fs.open},
		{"ext2fs_free", &ext2fs.free},
		{"ext2fs_namei_follow", &ext2fs.look_up},
		{"ext2fs_read_inode", &ext2fs.read_inode},
		{"ext2fs_file_open", &ext2fs.file_open},
		{"ext2fs_file_get_lsize", &ext2fs.file_size},
		{"ext2fs_file_read", &ext2fs.file_read},
		{"ext2fs_file_close", &ext2fs.file_close},
	};
	gp_status_t status = library_load(&self->blkid, "libblkid.so.1", "libblkid1", blkid_symbols,
					  ARRAY_SIZE(blkid_symbols), error);

	return status ? status
		      : library_load(&self->ext2fs, "libext2fs.so.2", "libext2fs2", ext2fs_symbols,
				     ARRAY_SIZE(ext2fs_symbols), error);
}

gp_status_t disk_files_init(struct disk_files *self, const char *const *paths, unsigned count,
			    bool (*confine)(uint64_t memory_bytes), struct error *error)
{
	gp_status_t status;

	*self = (struct disk_files){.confine = confine};
	status = load(self, error);
	for (unsigned i = 0; !status && i < count && self->count < DISK_FILES_DISKS_MAX; i++) {
		/* As the machine does it: it must not wait for the other end of a FIFO. */
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd >= 0)
			self->fds[self->count++] = fd;
	}
	return status;
}

/* From here on in the confined process, which has nothing else to do. */

/* Where a file system may be. */
struct part {
	int fd;
	uint64_t offset;
	uint64_t size;
};

static bool read_disk(int fd, uint64_t offset, void *buffer, size_t size)
{
	return io_read_at(fd, offset, buffer, size) == size;
}

/* The library reads block by block, and files lie in one piece mostly. */
static struct {
	int fd;
	uint64_t offset;
	size_t size; /* 0: nothing */
	uint8_t bytes[AHEAD_SIZE];
} ahead[AHEAD_BUFFERS];
static unsigned ahead_next;

/* What is at `offset` of the disk, from the start of a buffer on or somewhere in it. */
static bool read_ahead(int fd, uint64_t offset, uint64_t end, void *buffer, size_t size)
{
	unsigned i = 0;

	while (i < AHEAD_BUFFERS && (ahead[i].fd != fd || offset < ahead[i].offset ||
				     offset - ahead[i].offset >= ahead[i].size ||
				     ahead[i].size - (offset - ahead[i].offset) < size))
		i++;
	if (i == AHEAD_BUFFERS) {
		i = ahead_next;
		ahead_next = (ahead_next + 1) % AHEAD_BUFFERS;
		ahead[i].fd = fd;
		ahead[i].offset = offset;
		ahead[i].size = end - offset < AHEAD_SIZE ? (size_t)(end - offset) : AHEAD_SIZE;
		if (!read_disk(fd, offset, ahead[i].bytes, ahead[i].size)) {
			ahead[i].size = 0;
			return false;
		}
	}
	memcpy(buffer, ahead[i].bytes + (offset - ahead[i].offset), size);
	return true;
}

static bool read_part(const struct part *part, uint64_t offset, void *buffer, uint64_t size)
{
	if (offset > part->size || size > part->size - offset)
		return false;
	if (size > AHEAD_SIZE)
		return read_disk(part->fd, part->offset + offset, buffer, size);
	return read_ahead(part->fd, part->offset + offset, part->offset + part->size, buffer,
			  (size_t)size);
}

/* The library's view of a part. It opens by a name, which has no room for more: */
static const struct part *opened_part;

static struct struct_io_manager part_manager;

static errcode_t open_channel(const char *name, int flags, io_channel *out)
{
	io_channel channel = calloc(1, sizeof(*channel));

	(void)name;
	(void)flags;
	if (!channel)
		return EXT2_ET_NO_MEMORY;
	channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	channel->manager = &part_manager;
	channel->block_size = 1024;
	channel->refcount = 1;
	channel->private_data = (void *)(uintptr_t)opened_part;
	*out = channel;
	return 0;
}

static errcode_t close_channel(io_channel channel)
{
	if (--channel->refcount == 0)
		free(channel);
	return 0;
}

static errcode_t set_block_size(io_channel channel, int size)
{
	channel->block_size = size;
	return 0;
}

/* A negative count is one of bytes. */
static errcode_t read_blocks(io_channel channel, unsigned long long block, int count, void *buffer)
{
	uint64_t unit = (uint64_t)channel->block_size;
	uint64_t size = count < 0 ? (uint64_t) - (int64_t)count : (uint64_t)count * unit;

	if (block > UINT64_MAX / unit ||
	    !read_part(channel->private_data, block * unit, buffer, size))
		return EXT2_ET_SHORT_READ;
	return 0;
}

static errcode_t read_blocks_32(io_channel channel, unsigned long block, int count, void *buffer)
{
	return read_blocks(channel, block, count, buffer);
}

static errcode_t refuse_write(io_channel channel, unsigned long block, int count,
			      const void *buffer)
{
	(void)channel;
	(void)block;
	(void)count;
	(void)buffer;
	return EXT2_ET_RO_FILSYS;
}

static errcode_t flush_nothing(io_channel channel)
{
	(void)channel;
	return 0;
}

static struct struct_io_manager part_manager = {
	.magic = EXT2_ET_MAGIC_IO_MANAGER,
	.name = "guestprof",
	.open = open_channel,
	.close = close_channel,
	.set_blksize = set_block_size,
	.read_blk = read_blocks_32,
	.read_blk64 = read_blocks,
	.write_blk = refuse_write,
	.flush = flush_nothing,
};

static bool copy_contents(ext2_file_t file, int out)
{
	static uint8_t buffer[COPY_SIZE];
	uint64_t done = 0;
	unsigned got;

	while (!ext2fs.file_read(file, buffer, sizeof(buffer), &got) && got) {
		if (done + got > FILE_SIZE_MAX ||
		    pwrite(out, buffer, got, (off_t)done) != (ssize_t)got)
			return false;
		done += got;
	}
	return done > 0 && !ftruncate(out, (off_t)done);
}

/* The regular file at `path` in `out`. */
static bool copy_file(ext2_filsys system, const char *path, int out)
{
	struct ext2_inode inode;
	ext2_file_t file;
	ext2_ino_t number;
	__u64 size = 0;
	bool copied;

	if (ext2fs.look_up(system, EXT2_ROOT_INO, EXT2_ROOT_INO, path, &number) ||
	    ext2fs.read_inode(system, number, &inode) || !LINUX_S_ISREG(inode.i_mode) ||
	    ext2fs.file_open(system, number, 0, &file))
		return false;
	copied = !ext2fs.file_size(file, &size) && size >= FILE_SIZE_MIN && size <= FILE_SIZE_MAX &&
		 copy_contents(file, out);
	ext2fs.file_close(file);
	return copied;
}

struct search {
	const char *path;
	bool (*is_wanted)(const void *context, int fd);
	const void *context;
	int out;
};

/* The mount point is not known: some end of the path is the path in the file system. */
static bool search_part(const struct search *search, const struct part *part)
{
	ext2_filsys system;
	bool found = false;

	opened_part = part;
	/* Checksums of what is just being written do not hold, and do not matter. */
	if (ext2fs.open("", NULL,
			EXT2_FLAG_64BITS | EXT2_FLAG_IGNORE_CSUM_ERRORS | EXT2_FLAG_SKIP_MMP, 0, 0,
			&part_manager, &system))
		return false;
	for (const char *path = search->path; path && !found; path = strchr(path + 1, '/'))
		found = copy_file(system, path, search->out) &&
			search->is_wanted(search->context, search->out);
	ext2fs.free(system);
	return found;
}

static bool search_disk(const struct search *search, int fd)
{
	blkid_probe probe = blkid.new_probe();
	blkid_partlist list;
	struct part part = {.fd = fd};
	bool found;

	if (!probe || blkid.set_device(probe, fd, 0, 0))
		return false;
	part.size = (uint64_t)blkid.get_size(probe);
	found = search_part(search, &part);
	blkid.enable_partitions(probe, 1);
	list = found ? NULL : blkid.get_partitions(probe);
	for (int i = 0; list && !found && i < blkid.count_partitions(list) && i < PARTITIONS_MAX;
	     i++) {
		blkid_partition partition = blkid.get_partition(list, i);

		if (!partition)
			continue;
		part.offset = (uint64_t)blkid.partition_start(partition) * BLKID_SECTOR_SIZE;
		part.size = (uint64_t)blkid.partition_size(partition) * BLKID_SECTOR_SIZE;
		found = search_part(search, &part);
	}
	blkid.free_probe(probe);
	return found;
}

static _Noreturn void become_searcher(const struct disk_files *self, const struct search *search)
{
	int fds[DISK_FILES_DISKS_MAX + 1];
	bool found = false;

	memcpy(fds, self->fds, sizeof(self->fds));
	fds[self->count] = search->out;
	io_close_all_but(fds, self->count + 1);
	if (setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS_MAX, SECONDS_MAX}) ||
	    !self->confine(MEMORY_MAX))
		_exit(EXIT_FAILURE);
	for (unsigned i = 0; i < self->count && !found; i++)
		found = search_disk(search, self->fds[i]);
	_exit(found ? EXIT_SUCCESS : EXIT_FAILURE);
}

int disk_files_take(const struct disk_files *self, const char *path,
		    bool (*is_wanted)(const void *context, int fd), const void *context)
{
	struct search search = {.path = path, .is_wanted = is_wanted, .context = context};
	int state;
	pid_t child;

	if (!self->count || path[0] != '/')
		return -1;
	search.out = memfd_create("guestprof-program", MFD_CLOEXEC);
	if (search.out < 0)
		return -1;
	child = fork();
	if (child == 0)
		become_searcher(self, &search);
	while (child > 0 && waitpid(child, &state, 0) < 0)
		if (errno != EINTR)
			child = -1;
	if (child > 0 && WIFEXITED(state) && WEXITSTATUS(state) == EXIT_SUCCESS)
		return search.out;
	close(search.out);
	return -1;
}

#endif

void disk_files_deinit(struct disk_files *self)
{
	for (unsigned i = 0; i < self->count; i++)
		close(self->fds[i]);
	self->count = 0;
	library_unload(&self->ext2fs);
	library_unload(&self->blkid);
}
