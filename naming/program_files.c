#include "naming/program_files.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/io.h"
#include "naming/disk_files.h"
#include "naming/program_files_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* The helper answers within a millisecond, unless it has to unpack an archive: then the one who
 * asks has better to do. */
#define PATIENCE_MILLISECONDS 20
/* After this time nobody will ask for the answer. */
#define STALE_NS (5 * NS_PER_SECOND)

/* The helper takes one after the other. */
#define QUESTIONS_MAX 16

enum state { IDLE, ASKED, ANSWERED };

struct question {
	enum state state;
	struct program_files_request request;
	uint64_t asked_ns;
	int answer; /* -1: none */
};

struct program_files {
	struct file_copies copies;
	pthread_mutex_t lock; /* all of it */
	int socket;
	bool helper_ended; /* nothing will be found any more */
	uint32_t last_number;
	struct question questions[QUESTIONS_MAX];
	struct error no_disks; /* why the disks are not looked at */
};

/* Takes one answer, if it comes in time. */
static bool receive(struct program_files *self, int milliseconds)
{
	struct pollfd socket = {.fd = self->socket, .events = POLLIN};
	struct program_files_reply reply;
	int fd;

	if (poll(&socket, 1, milliseconds) <= 0)
		return false;
	if (!io_receive(self->socket, &reply, sizeof(reply), &fd)) {
		self->helper_ended = true;
		return false;
	}
	for (unsigned i = 0; i < QUESTIONS_MAX; i++) {
		struct question *question = &self->questions[i];

		if (question->state == ASKED && question->request.number == reply.number) {
			question->answer = fd;
			question->state = ANSWERED;
			return true;
		}
	}
	if (fd >= 0)
		close(fd);
	return true;
}

static void forget(struct question *question)
{
	if (question->answer >= 0)
		close(question->answer);
	question->answer = -1;
	question->state = IDLE;
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

/* The question that is this one, or a place for it; NULL: all are waiting for their answers. */
static struct question *question_of(struct program_files *self,
				    const struct program_files_request *request)
{
	struct question *free_one = NULL;

	for (unsigned i = 0; i < QUESTIONS_MAX; i++) {
		struct question *question = &self->questions[i];

		if (question->state != IDLE && is_same(&question->request, request))
			return question;
		if (question->state == ANSWERED && monotonic_ns() - question->asked_ns >= STALE_NS)
			forget(question);
		if (question->state == IDLE)
			free_one = question;
	}
	return free_one;
}

static enum file_copy_result find_locked(struct program_files *self,
					 struct program_files_request *request,
					 struct fd_source *copy)
{
	struct question *question;
	uint64_t end = monotonic_ns() + (uint64_t)self->copies.patience_ms * NS_PER_MILLISECOND;

	while (receive(self, 0))
		;
	question = question_of(self, request);
	if (self->helper_ended)
		return FILE_COPY_NONE;
	if (!question)
		return FILE_COPY_LATER;
	if (question->state == IDLE) {
		request->number = ++self->last_number;
		/* Not send(), which the sandbox does not know. */
		if (write(self->socket, request, sizeof(*request)) != sizeof(*request))
			return FILE_COPY_NONE;
		question->request = *request;
		question->state = ASKED;
		question->asked_ns = monotonic_ns();
	}
	while (question->state == ASKED && !self->helper_ended) {
		int left = milliseconds_until(end);

		if (!left || !receive(self, left))
			break;
	}
	if (question->state == ASKED)
		return self->helper_ended ? FILE_COPY_NONE : FILE_COPY_LATER;
	copy->fd = question->answer;
	question->answer = -1;
	question->state = IDLE;
	return copy->fd < 0 ? FILE_COPY_NONE : FILE_COPY_FOUND;
}

static enum file_copy_result find(struct file_copies *copies, const struct file_copy_wanted *wanted,
				  const struct file_source **out)
{
	struct program_files *self = container_of(copies, struct program_files, copies);
	struct fd_source *copy = calloc(1, sizeof(*copy));
	AUTO_FREE struct program_files_request *request = malloc(sizeof(*request));
	enum file_copy_result result;

	if (!copy || !request) {
		free(copy);
		return FILE_COPY_NONE;
	}
	copy->source.read = fd_source_read;
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
	struct fd_source *copy =
		container_of((struct file_source *)(uintptr_t)source, struct fd_source, source);

	(void)copies;
	close(copy->fd);
	free(copy);
}

/* In the helper: nothing of what guestprof has open stays, its terminal and output least of all. */
static _Noreturn void become_helper(int socket, int initrd_fd, int symfs_fd,
				    const struct disk_files *disks)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[3 + DISK_FILES_DISKS_MAX] = {socket, initrd_fd, symfs_fd};
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
	memcpy(fds + 3, disks->fds, disks->count * sizeof(fds[0]));
	io_close_all_but(fds, 3 + disks->count);
	program_files_serve(socket, initrd_fd, symfs_fd, disks);
	_exit(0);
}

/* fork() twice: the helper becomes a child of init, so that nobody has to wait for it. */
static bool start_helper(int socket, int initrd_fd, int symfs_fd, const struct disk_files *disks)
{
	pid_t child = fork();
	int state = -1;

	if (child == 0) {
		child = fork();
		if (child == 0)
			become_helper(socket, initrd_fd, symfs_fd, disks);
		_exit(child < 0);
	}
	while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR)
		;
	return child > 0 && WIFEXITED(state) && !WEXITSTATUS(state);
}

gp_status_t program_files_start(const struct program_files_places *places,
				struct program_files **out, struct error *error)
{
	AUTO_CLOSE int initrd_fd = -1;
	AUTO_CLOSE int symfs_fd = -1;
	struct program_files *self;
	struct disk_files disks = {0};
	int sockets[2];
	bool started;

	if (places->symfs)
		symfs_fd = open(places->symfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (places->symfs && symfs_fd < 0)
		return error_set_errno(error, errno, "cannot open the directory %s (--symfs)",
				       places->symfs);
	/* An initrd that cannot be opened is not an error here: the machine reports it. */
	if (places->initrd)
		initrd_fd = open(places->initrd, O_RDONLY | O_CLOEXEC);
	self = calloc(1, sizeof(*self));
	if (!self)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets)) {
		free(self);
		return error_set_errno(error, errno, "cannot make a pair of sockets");
	}
	if (places->disk_count)
		disk_files_init(&disks, places->disks, places->disk_count, places->confine,
				&self->no_disks);
	started = start_helper(sockets[1], initrd_fd, symfs_fd, &disks);
	disk_files_deinit(&disks);
	close(sockets[1]);
	if (!started) {
		close(sockets[0]);
		free(self);
		return error_set(error, GP_ERR_NO_RESOURCES,
				 "cannot start a helper process (ulimit -u)");
	}
	self->copies = (struct file_copies){
		.patience_ms = PATIENCE_MILLISECONDS, .find = find, .release = release};
	self->socket = sockets[0];
	for (unsigned i = 0; i < QUESTIONS_MAX; i++)
		self->questions[i].answer = -1;
	pthread_mutex_init(&self->lock, NULL);
	*out = self;
	return GP_OK;
}

const char *program_files_no_disks(const struct program_files *files)
{
	return files->no_disks.status ? files->no_disks.text : NULL;
}

void program_files_end(struct program_files *files)
{
	if (!files)
		return;
	for (unsigned i = 0; i < QUESTIONS_MAX; i++)
		forget(&files->questions[i]);
	close(files->socket);
	pthread_mutex_destroy(&files->lock);
	free(files);
}

struct file_copies *program_files_copies(struct program_files *files)
{
	return &files->copies;
}
