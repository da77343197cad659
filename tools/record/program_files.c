#include "program_files.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "program_files_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* The helper answers within a millisecond, unless it has to unpack an archive: then the one who
 * asks has better to do. */
#define PATIENCE_MILLISECONDS 20
/* An answer that nobody comes for. */
#define STALE_SECONDS 5

enum state { IDLE, ASKED, ANSWERED };

struct program_files {
	struct file_copies copies;
	pthread_mutex_t lock; /* all of it */
	int socket;
	/* One question at a time. */
	enum state state;
	struct program_files_request request;
	time_t asked;
	int answer; /* -1: none */
};

struct copy {
	struct file_source source;
	int fd;
};

static size_t read_copy(const struct file_source *source, uint64_t offset, void *buffer,
			size_t size)
{
	const struct copy *self =
		container_of((struct file_source *)(uintptr_t)source, struct copy, source);
	size_t done = 0;

	while (done < size && offset + done <= INT64_MAX) {
		ssize_t got =
			pread(self->fd, (char *)buffer + done, size - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

static time_t now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Takes the answer to the question that was asked, if it comes in time. */
static void receive(struct program_files *self, int milliseconds)
{
	struct pollfd socket = {.fd = self->socket, .events = POLLIN};
	struct program_files_reply reply = {0};
	struct iovec part = {.iov_base = &reply, .iov_len = sizeof(reply)};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = {0};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	const struct cmsghdr *header;
	int fd = -1;

	if (poll(&socket, 1, milliseconds) <= 0)
		return;
	if (recvmsg(self->socket, &message, MSG_CMSG_CLOEXEC) != sizeof(reply)) {
		/* The helper is gone: nothing will be found any more. */
		self->state = ANSWERED;
		return;
	}
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	if (reply.number != self->request.number) {
		if (fd >= 0)
			close(fd);
		return;
	}
	self->answer = fd;
	self->state = ANSWERED;
}

static void forget(struct program_files *self)
{
	if (self->answer >= 0)
		close(self->answer);
	self->answer = -1;
	self->state = IDLE;
}

static bool is_same(const struct program_files_request *a, const struct program_files_request *b)
{
	return a->build_id_size == b->build_id_size &&
	       !memcmp(a->build_id, b->build_id, a->build_id_size) && a->size == b->size &&
	       a->code == b->code && a->whole == b->whole && !strcmp(a->path, b->path);
}

static void make_request(const struct file_copy_wanted *wanted,
			 struct program_files_request *request)
{
	size_t length = strlen(wanted->path);

	memset(request, 0, sizeof(*request));
	request->build_id_size = wanted->build_id_size;
	memcpy(request->build_id, wanted->build_id, wanted->build_id_size);
	request->size = wanted->size;
	request->code = wanted->code;
	request->whole = wanted->whole;
	if (wanted->path[0] == '/' && length < sizeof(request->path))
		memcpy(request->path, wanted->path, length);
}

static enum file_copy_result find_locked(struct program_files *self,
					 struct program_files_request *request, struct copy *copy)
{
	if (self->state != IDLE && !is_same(&self->request, request)) {
		if (self->state == ASKED)
			receive(self, 0);
		if (self->state == ASKED ||
		    (self->answer >= 0 && now_seconds() - self->asked < STALE_SECONDS))
			return FILE_COPY_LATER;
		forget(self);
	}
	if (self->state == IDLE) {
		request->number = self->request.number + 1;
		self->request = *request;
		/* Not send(), which the sandbox does not know. */
		if (write(self->socket, request, sizeof(*request)) != sizeof(*request))
			return FILE_COPY_NONE;
		self->state = ASKED;
		self->asked = now_seconds();
	}
	if (self->state == ASKED)
		receive(self, self->copies.patience_ms);
	if (self->state == ASKED)
		return FILE_COPY_LATER;
	copy->fd = self->answer;
	self->answer = -1;
	self->state = IDLE;
	return copy->fd < 0 ? FILE_COPY_NONE : FILE_COPY_FOUND;
}

static enum file_copy_result find(struct file_copies *copies, const struct file_copy_wanted *wanted,
				  const struct file_source **out)
{
	struct program_files *self = container_of(copies, struct program_files, copies);
	struct copy *copy = calloc(1, sizeof(*copy));
	AUTO_FREE struct program_files_request *request = malloc(sizeof(*request));
	enum file_copy_result result;

	if (!copy || !request) {
		free(copy);
		return FILE_COPY_NONE;
	}
	copy->source.read = read_copy;
	make_request(wanted, request);
	pthread_mutex_lock(&self->lock);
	result = find_locked(self, request, copy);
	pthread_mutex_unlock(&self->lock);
	if (result == FILE_COPY_FOUND)
		*out = &copy->source;
	else
		free(copy);
	return result;
}

static void release(struct file_copies *copies, const struct file_source *source)
{
	struct copy *copy =
		container_of((struct file_source *)(uintptr_t)source, struct copy, source);

	(void)copies;
	close(copy->fd);
	free(copy);
}

/* In the helper: nothing of what guestprof has open stays, its terminal and output least of all. */
static _Noreturn void become_helper(int socket, int initrd_fd, int symfs_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[] = {socket, initrd_fd, symfs_fd};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Keys pressed at the guest's console are not for us: what is asked at the end has an
	 * answer, and then the socket is closed. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	/* All others but these three, wherever they are. */
	for (unsigned i = 0, first = 3; i <= ARRAY_SIZE(fds); i++) {
		unsigned next = ~0u;

		for (unsigned k = 0; k < ARRAY_SIZE(fds); k++)
			if (fds[k] >= (int)first && (unsigned)fds[k] < next)
				next = (unsigned)fds[k];
		if (next > first)
			syscall(SYS_close_range, first, next == ~0u ? next : next - 1, 0u);
		if (next == ~0u)
			break;
		first = next + 1;
	}
	program_files_serve(socket, initrd_fd, symfs_fd);
	_exit(0);
}

gp_status_t program_files_start(const char *initrd, const char *symfs, struct program_files **out,
				struct error *error)
{
	AUTO_CLOSE int initrd_fd = -1;
	AUTO_CLOSE int symfs_fd = -1;
	struct program_files *self;
	int sockets[2];
	int state;
	pid_t child;

	if (symfs)
		symfs_fd = open(symfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (symfs && symfs_fd < 0)
		return error_set_errno(error, errno, "cannot open the directory %s (--symfs)",
				       symfs);
	/* Whoever needs it says what is wrong with it; a guest may do without ours. */
	if (initrd)
		initrd_fd = open(initrd, O_RDONLY | O_CLOEXEC);
	self = calloc(1, sizeof(*self));
	if (!self)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets)) {
		free(self);
		return error_set_errno(error, errno, "cannot make a pair of sockets");
	}
	/* Twice: nobody has to wait for the one that stays. */
	child = fork();
	if (child == 0) {
		child = fork();
		if (child == 0)
			become_helper(sockets[1], initrd_fd, symfs_fd);
		_exit(child < 0);
	}
	close(sockets[1]);
	while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR)
		;
	if (child < 0 || !WIFEXITED(state) || WEXITSTATUS(state)) {
		close(sockets[0]);
		free(self);
		return error_set(error, GP_ERR_NO_RESOURCES,
				 "cannot start a helper process (ulimit -u)");
	}
	self->copies = (struct file_copies){
		.patience_ms = PATIENCE_MILLISECONDS, .find = find, .release = release};
	self->socket = sockets[0];
	self->answer = -1;
	pthread_mutex_init(&self->lock, NULL);
	*out = self;
	return GP_OK;
}

void program_files_end(struct program_files *files)
{
	if (!files)
		return;
	forget(files);
	close(files->socket);
	pthread_mutex_destroy(&files->lock);
	free(files);
}

struct file_copies *program_files_copies(struct program_files *files)
{
	return &files->copies;
}
