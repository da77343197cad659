#include "base/io.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FDS_MAX 8

size_t io_read(int fd, void *buffer, size_t size)
{
	size_t done = 0;
	ssize_t got = 1;

	while (done < size && got) {
		got = read(fd, (char *)buffer + done, size - done);
		if (got > 0)
			done += (size_t)got;
		else if (got < 0 && errno != EINTR)
			break;
	}
	return done;
}

size_t io_read_at(int fd, uint64_t offset, void *buffer, size_t size)
{
	size_t done = 0;
	ssize_t got = 1;

	while (done < size && got && offset + done <= INT64_MAX) {
		got = pread(fd, (char *)buffer + done, size - done, (off_t)(offset + done));
		if (got > 0)
			done += (size_t)got;
		else if (got < 0 && errno != EINTR)
			break;
	}
	return done;
}

void io_signal(int fd)
{
	int saved_errno = errno;
	uint64_t one = 1;
	ssize_t written = write(fd, &one, sizeof(one));

	(void)written;
	errno = saved_errno;
}

bool io_write(int fd, const void *bytes, size_t size)
{
	while (size) {
		ssize_t done = write(fd, bytes, size);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		bytes = (const char *)bytes + done;
		size -= (size_t)done;
	}
	return true;
}

gp_status_t io_read_file(const char *what, const char *path, size_t most, void **bytes,
			 size_t *size, struct error *error)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FREE char *content = NULL;
	struct stat file;

	if (fd < 0)
		return error_set_errno(error, errno, "cannot open %s %s", what, path);
	if (fstat(fd, &file) || !S_ISREG(file.st_mode) || (uint64_t)file.st_size > most)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%s %s is not a regular file of at most %zu MiB", what, path,
				 most >> 20);
	content = malloc((size_t)file.st_size + 1);
	if (!content)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to read %s", path);
	errno = 0;
	*size = io_read(fd, content, (size_t)file.st_size);
	if (errno && *size < (size_t)file.st_size)
		return error_set_errno(error, errno, "cannot read %s", path);
	*bytes = take_pointer(&content);
	return GP_OK;
}

union control {
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	struct cmsghdr header;
};

bool io_send(int socket, const void *bytes, size_t size, const int *fds, size_t count)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
	union control control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS,
						  .cmsg_len = CMSG_LEN(count * sizeof(int))};
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

bool io_receive(int socket, void *bytes, size_t size, int *fd)
{
	struct iovec part = {.iov_base = bytes, .iov_len = size};
	union control control = {0};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = CMSG_SPACE(sizeof(int))};
	const struct cmsghdr *header;

	*fd = -1;
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)size)
		return false;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	return true;
}

void io_close_all_but(const int *fds, size_t count)
{
	unsigned first = 3, next;

	do {
		next = ~0u;
		for (size_t i = 0; i < count; i++)
			if (fds[i] >= (int)first && (unsigned)fds[i] < next)
				next = (unsigned)fds[i];
		if (next > first)
			syscall(SYS_close_range, first, next == ~0u ? next : next - 1, 0u);
		first = next + 1;
	} while (next != ~0u);
}
