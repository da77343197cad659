#include "naming/initrd_files.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"
#include "naming/cpio.h"
#include "guest-introspection/elf/elf_image.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FILE_SIZE_MAX (UINT64_C(512) << 20)
#define SEEN_MAX ((size_t)1 << 16)
/* What is read of a file to see which it is: its headers and notes come first. */
#define HEAD_SIZE (64u << 10)

/* lib/decompress.c of the kernel */
static const struct {
	char magic[4];
	unsigned size;
	const char *command[4];
} compressions[] = {
	{"\x1f\x8b", 2, {"gzip", "-dc"}},
	{"BZh", 3, {"bzip2", "-dc"}},
	{"\x5d\x00\x00", 3, {"xz", "-dc", "--format=lzma"}},
	{"\xfd"
	 "7zX",
	 4,
	 {"xz", "-dc"}},
	{"\x89LZO", 4, {"lzop", "-dc"}},
	{"\x02\x21\x4c\x18", 4, {"lz4", "-dc"}},
	{"\x28\xb5\x2f\xfd", 4, {"zstd", "-dcq"}},
};

struct fd_stream {
	struct cpio_stream stream;
	int fd;
};

static size_t read_fd(struct cpio_stream *stream, void *buffer, size_t size)
{
	return io_read(container_of(stream, struct fd_stream, stream)->fd, buffer, size);
}

/* The program that unpacks what is in `fd` from its position on; its output is at *output. */
static pid_t start_unpacking(int fd, const char *const *command, int *output)
{
	int pipe_fds[2];
	pid_t child;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		signal(SIGPIPE, SIG_DFL);
		setpriority(PRIO_PROCESS, 0, 10);
		if (dup2(fd, 0) == 0 && dup2(pipe_fds[1], 1) == 1)
			execvp(command[0], (char *const *)command);
		_exit(127);
	}
	close(pipe_fds[1]);
	if (child < 0)
		close(pipe_fds[0]);
	else
		*output = pipe_fds[0];
	return child;
}

static uint64_t key_of(const uint8_t *build_id, size_t build_id_size, const char *path,
		       uint64_t size)
{
	if (build_id_size)
		return fnv_add(FNV_START, build_id, build_id_size);
	return fnv_add(fnv_add(FNV_START, &size, sizeof(size)), path, strlen(path));
}

static int compare_keys(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

/* One pass. */
struct pass {
	struct initrd_files *files;
	const uint8_t *build_id;
	size_t build_id_size;
	const char *path;
	uint64_t size;
	bool noting; /* what is seen */
	bool full;   /* too many files to remember */
	int found;
	uint8_t head[HEAD_SIZE];
};

static void note(struct pass *pass, uint64_t key)
{
	struct initrd_files *files = pass->files;

	if (!pass->noting)
		return;
	if (files->seen_count == files->seen_capacity) {
		size_t capacity = files->seen_capacity * 2 + 256;
		uint64_t *larger = capacity > SEEN_MAX
					   ? NULL
					   : realloc(files->seen, capacity * sizeof(*larger));

		if (!larger) {
			pass->full = true;
			return;
		}
		files->seen = larger;
		files->seen_capacity = capacity;
	}
	files->seen[files->seen_count++] = key;
}

/* The entry's file, of which `head` bytes have been read. */
static int copy_file(struct pass *pass, struct cpio_reader *reader, size_t head)
{
	AUTO_CLOSE int fd = memfd_create("initrd file", MFD_CLOEXEC);
	uint8_t buffer[16384];
	size_t got;

	if (fd < 0 || !io_write(fd, pass->head, head))
		return -1;
	while ((got = cpio_reader_read(reader, buffer, sizeof(buffer))) > 0)
		if (!io_write(fd, buffer, got))
			return -1;
	return take_fd(&fd);
}

static void see_file(struct pass *pass, struct cpio_reader *reader, const struct cpio_entry *entry)
{
	size_t head = cpio_reader_read(reader, pass->head, sizeof(pass->head));
	struct file_buffer buffer = file_buffer_over(pass->head, head);
	struct elf_image image;
	bool is_it;

	if (elf_image_read(&buffer.source, &image, NULL) != GP_OK)
		return;
	note(pass, key_of(NULL, 0, entry->name, entry->size));
	if (image.build_id_size)
		note(pass, key_of(image.build_id, image.build_id_size, "", 0));
	is_it = pass->build_id_size
			? image.build_id_size == pass->build_id_size &&
				  !memcmp(image.build_id, pass->build_id, pass->build_id_size)
			: entry->size == pass->size && !strcmp(entry->name, pass->path);
	if (is_it)
		pass->found = copy_file(pass, reader, head);
}

/* All entries of a stream, until the wanted one. False: it was ended before. */
static bool see_entries(struct pass *pass, struct cpio_reader *reader, enum cpio_next *end)
{
	struct cpio_entry entry;

	while ((*end = cpio_reader_next(reader, &entry)) == CPIO_ENTRY) {
		if (pass->files->is_cancelled && pass->files->is_cancelled(pass->files->context))
			return false;
		if (S_ISREG(entry.mode) && entry.size >= 64 && entry.size <= FILE_SIZE_MAX)
			see_file(pass, reader, &entry);
		if (pass->found >= 0)
			return false;
	}
	return true;
}

static bool see_compressed(struct pass *pass, uint64_t offset)
{
	struct fd_stream stream = {.stream = {.read = read_fd}};
	struct cpio_reader reader;
	enum cpio_next end;
	char magic[4];
	bool ended = true;

	/* It may begin anywhere behind zeros. */
	do {
		if (pread(pass->files->fd, magic, sizeof(magic), (off_t)offset) != sizeof(magic))
			return true;
	} while (!magic[0] && offset++ < UINT64_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(compressions); i++) {
		AUTO_CLOSE int output = -1;
		pid_t child;

		if (memcmp(magic, compressions[i].magic, compressions[i].size) != 0)
			continue;
		if (lseek(pass->files->fd, (off_t)offset, SEEK_SET) < 0)
			return true;
		child = start_unpacking(pass->files->fd, compressions[i].command, &output);
		if (child < 0)
			return true;
		stream.fd = output;
		cpio_reader_init(&reader, &stream.stream);
		ended = see_entries(pass, &reader, &end);
		/* The program ends when its output is closed. */
		close(take_fd(&output));
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		return ended;
	}
	return true;
}

void initrd_files_init(struct initrd_files *self, int fd)
{
	*self = (struct initrd_files){.fd = fd};
}

void initrd_files_deinit(struct initrd_files *self)
{
	if (self->fd >= 0)
		close(self->fd);
	free(self->seen);
}

int initrd_files_take(struct initrd_files *self, const uint8_t *build_id, size_t build_id_size,
		      const char *path, uint64_t size)
{
	struct fd_stream stream = {.stream = {.read = read_fd}, .fd = self->fd};
	struct pass *pass;
	struct cpio_reader reader;
	enum cpio_next end;
	uint64_t wanted;
	bool ended;
	int found;

	while (*path == '/')
		path++;
	wanted = key_of(build_id, build_id_size, path, size);
	if (self->fd < 0 || (self->seen_all && !bsearch(&wanted, self->seen, self->seen_count,
							sizeof(*self->seen), compare_keys)))
		return -1;
	pass = calloc(1, sizeof(*pass));
	if (!pass || lseek(self->fd, 0, SEEK_SET) < 0) {
		free(pass);
		return -1;
	}
	pass->noting = !self->seen_all;
	if (pass->noting)
		self->seen_count = 0;
	pass->files = self;
	pass->build_id = build_id;
	pass->build_id_size = build_id_size;
	pass->path = path;
	pass->size = size;
	pass->found = -1;
	cpio_reader_init(&reader, &stream.stream);
	ended = see_entries(pass, &reader, &end);
	if (ended && end == CPIO_OTHER)
		ended = see_compressed(pass, reader.offset);
	if (ended && pass->noting && !pass->full) {
		qsort(self->seen, self->seen_count, sizeof(*self->seen), compare_keys);
		self->seen_all = true;
	}
	found = pass->found;
	free(pass);
	return found;
}
