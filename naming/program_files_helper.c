#include "naming/program_files_protocol.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/io.h"
#include "naming/disk_files.h"
#include "guest-introspection/elf/elf_sections.h"
#include "naming/initrd_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

size_t fd_source_read(const struct file_source *source, uint64_t offset, void *buffer, size_t size)
{
	const struct fd_source *self =
		container_of((struct file_source *)(uintptr_t)source, struct fd_source, source);

	return io_read_at(self->fd, offset, buffer, size);
}

/* A regular file below `root`, which no path leads out of. The path is the guest's word: what is
 * no regular file is not opened, because opening some devices does something. */
static int open_below(int root, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	struct stat file;
	int fd;

	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	if (fd < 0)
		return -1;
	if (fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_size < 64) {
		close(fd);
		return -1;
	}
	close(fd);
	how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* How good a file is for what was asked. */
enum rank { RANK_NONE, RANK_WHOLE, RANK_BEST };

static enum rank rank_of(const struct program_files_request *request, int fd)
{
	struct fd_source source = {.source = {.read = fd_source_read}, .fd = fd};
	struct elf_contents contents;
	struct elf_image image;
	struct stat file;

	if (fstat(fd, &file) || elf_image_read(&source.source, &image, NULL) != GP_OK)
		return RANK_NONE;
	if (request->build_id_size
		    ? image.build_id_size != request->build_id_size ||
			      memcmp(image.build_id, request->build_id, image.build_id_size) != 0
		    : (uint64_t)file.st_size != request->size)
		return RANK_NONE;
	contents = elf_contents_read(&source.source, &image);
	if (request->code)
		return contents.without_code ? RANK_NONE : RANK_BEST;
	if (contents.symbols)
		return RANK_BEST;
	return contents.without_code || request->whole ? RANK_NONE : RANK_WHOLE;
}

struct choice {
	const struct program_files_request *request;
	int fd;
	enum rank rank;
};

/* Takes over `fd`. True: nothing better can come. */
static bool offer(struct choice *choice, int fd)
{
	enum rank rank = fd >= 0 ? rank_of(choice->request, fd) : RANK_NONE;

	if (rank > choice->rank) {
		if (choice->fd >= 0)
			close(choice->fd);
		choice->fd = fd;
		choice->rank = rank;
	} else if (fd >= 0) {
		close(fd);
	}
	return choice->rank == RANK_BEST;
}

#define BUILD_ID_PATH_SIZE (64 + 2 * ELF_BUILD_ID_LIMIT)

/* "PREFIX/.build-id/ab/cdef….debug", as gdb looks for it. Returns how long it is without ".debug";
 * 0: there is no such path. */
static int build_id_path(const struct program_files_request *request, const char *prefix,
			 char path[static BUILD_ID_PATH_SIZE])
{
	int length;

	if (request->build_id_size < 2)
		return 0;
	length = snprintf(path, 64, "%s/.build-id/%02x/", prefix, request->build_id[0]);
	for (unsigned i = 1; i < request->build_id_size; i++)
		length += snprintf(path + length, 3, "%02x", request->build_id[i]);
	snprintf(path + length, BUILD_ID_PATH_SIZE - (size_t)length, ".debug");
	return length;
}

static bool offer_by_build_id(struct choice *choice, int root, const char *prefix)
{
	char path[BUILD_ID_PATH_SIZE];
	int length = build_id_path(choice->request, prefix, path);

	if (root < 0 || !length)
		return false;
	if (offer(choice, open_below(root, path)))
		return true;
	path[length] = '\0'; /* there, a link to the program itself */
	return offer(choice, open_below(root, path));
}

/* Where programs are on the host. In other places files may do something when they are read. */
static bool is_program_path(const char *path)
{
	static const char *const places[] = {"/usr/", "/lib/",  "/lib64/",
					     "/bin/", "/sbin/", "/opt/"};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (!strncmp(path, places[i], strlen(places[i])))
			return !strstr(path, "/..");
	return false;
}

static bool answers(const void *context, int fd)
{
	return rank_of(context, fd) != RANK_NONE;
}

/* The program itself is there as the guest has it. */
static bool offer_from_disks(struct choice *choice, const struct disk_files *disks)
{
	const struct program_files_request *request = choice->request;
	char path[BUILD_ID_PATH_SIZE];

	if (!request->code && build_id_path(request, "/usr/lib/debug", path) &&
	    offer(choice, disk_files_take(disks, path, answers, request)))
		return true;
	return !request->whole && choice->rank == RANK_NONE &&
	       offer(choice, disk_files_take(disks, request->path, answers, request));
}

/* The file that answers `request`, open for reading; -1: none. */
static int find_file(const struct program_files_request *request, int host_fd, int symfs_fd,
		     const struct disk_files *disks, struct initrd_files *initrd)
{
	struct choice choice = {.request = request, .fd = -1};

	if (offer_by_build_id(&choice, symfs_fd, "") ||
	    offer_by_build_id(&choice, symfs_fd, "/usr/lib/debug") ||
	    (symfs_fd >= 0 && request->path[0] &&
	     offer(&choice, open_below(symfs_fd, request->path))) ||
	    offer_by_build_id(&choice, host_fd, "/usr/lib/debug"))
		return choice.fd;
	if (host_fd >= 0 && request->build_id_size && is_program_path(request->path) &&
	    offer(&choice, open_below(host_fd, request->path)))
		return choice.fd;
	if (offer_from_disks(&choice, disks))
		return choice.fd;
	if (!request->whole && choice.rank == RANK_NONE)
		offer(&choice, initrd_files_take(initrd, request->build_id, request->build_id_size,
						 request->path, request->size));
	return choice.fd;
}

/* With the file, which stays open here until the caller closes it. */
static void answer(int socket, uint32_t number, int fd)
{
	const struct program_files_reply reply = {.number = number, .found = fd >= 0};

	io_send(socket, &reply, sizeof(reply), &fd, fd >= 0);
}

static bool is_well_formed(const struct program_files_request *request, ssize_t size)
{
	return size == sizeof(*request) && request->build_id_size <= ELF_BUILD_ID_LIMIT &&
	       memchr(request->path, 0, sizeof(request->path)) &&
	       (!request->path[0] || request->path[0] == '/');
}

/* The same is asked again for each process that uses a file: what was just now not found is not
 * looked for at once again. */
#define REFUSALS 128
#define REFUSED_NS (20 * NS_PER_SECOND)

struct refusals {
	struct {
		uint64_t key;
		uint64_t until_ns;
	} last[REFUSALS];
	unsigned next;
};

static uint64_t key_of(const struct program_files_request *request)
{
	struct program_files_request same = *request;

	same.number = 0;
	return fnv_add(FNV_START, &same, sizeof(same));
}

static bool was_refused(const struct refusals *refusals, uint64_t key)
{
	uint64_t now = monotonic_ns();

	for (unsigned i = 0; i < REFUSALS; i++)
		if (refusals->last[i].key == key && now < refusals->last[i].until_ns)
			return true;
	return false;
}

static void note_refusal(struct refusals *refusals, uint64_t key)
{
	refusals->last[refusals->next].key = key;
	refusals->last[refusals->next].until_ns = monotonic_ns() + REFUSED_NS;
	refusals->next = (refusals->next + 1) % REFUSALS;
}

static bool is_closed(void *context)
{
	struct pollfd socket = {.fd = *(const int *)context};

	return poll(&socket, 1, 0) > 0 && socket.revents & (POLLHUP | POLLERR);
}

void program_files_serve(int socket, int initrd_fd, int symfs_fd, const struct disk_files *disks)
{
	AUTO_CLOSE int host_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct program_files_request request;
	struct refusals refusals = {0};
	struct initrd_files initrd;
	uint64_t key;

	initrd_files_init(&initrd, initrd_fd);
	initrd.is_cancelled = is_closed;
	initrd.context = &socket;
	for (;;) {
		ssize_t size = recv(socket, &request, sizeof(request), 0);
		AUTO_CLOSE int fd = -1;

		if (size < 0 && errno == EINTR)
			continue;
		if (size <= 0)
			break;
		if (!is_well_formed(&request, size))
			continue;
		key = key_of(&request);
		if (!was_refused(&refusals, key)) {
			fd = find_file(&request, host_fd, symfs_fd, disks, &initrd);
			if (fd < 0)
				note_refusal(&refusals, key);
		}
		answer(socket, request.number, fd);
	}
	initrd_files_deinit(&initrd);
	if (symfs_fd >= 0)
		close(symfs_fd);
	close(socket);
}
