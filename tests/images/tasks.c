/* What runs in the guests of the "tasks" memory images: processes and threads that sleep or spin in
 * known ways, below known call trees, with known mappings.
 *
 *   tasks sleepers     forks one child for each way to sleep, and waits for them
 *   tasks mappings     maps what there is to map, and pauses
 *   tasks spin         spins in its own code
 *   tasks spin-libc    spins in a leaf of the C library
 *
 * Everybody publishes the call tree it ends in as one line of the file /truth/TID:
 *
 *   TGID TID PROGRAM LEAF FRAME FRAME ...      innermost frame first
 *
 * FRAME is FUNCTION@PC: PC is the return address (of the leaf: where it sleeps), or "?" where it is
 * not known beforehand. FUNCTION is "?" where it is none of this program's. A leaf with @? sleeps
 * in the C library, whose frames come before it and are not in the line.
 *
 * Compiled several ways by make-image.sh: see there.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEVELS 5 /* tree_leaf, tree_three, tree_two, tree_one, the function that began */

struct tree {
	const char *leaf;
	const char *root;          /* the function that called tree_one() */
	uintptr_t returns[LEVELS]; /* from the leaf's own outwards; 0 is not known */
	char stack_filler[256];
};

static const char *program = "?";

#define KNOWN __attribute__((noinline, noclone, used))
#define RETURN_ADDRESS ((uintptr_t)__builtin_return_address(0))

/* Where the kernel returns to from the system call that raw_sleep() makes. */
extern char raw_sleep_return[] __asm__(".Lraw_sleep_return") __attribute__((visibility("hidden")));

static void fail(const char *what)
{
	fprintf(stderr, "tasks: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void publish(const struct tree *tree, uintptr_t leaf_pc)
{
	char path[64];
	char text[32] = "?";
	FILE *file;

	snprintf(path, sizeof(path), "/truth/%ld", syscall(SYS_gettid));
	file = fopen(path, "we");
	if (!file)
		fail(path);
	if (leaf_pc)
		snprintf(text, sizeof(text), "%#lx", (unsigned long)leaf_pc);
	fprintf(file,
		"%d %ld %s %s tree_leaf@%s tree_three@%#lx tree_two@%#lx tree_one@%#lx %s@%#lx",
		(int)getpid(), syscall(SYS_gettid), program, tree->leaf, text,
		(unsigned long)tree->returns[0], (unsigned long)tree->returns[1],
		(unsigned long)tree->returns[2], tree->root, (unsigned long)tree->returns[3]);
	if (tree->returns[4])
		fprintf(file, " ?@%#lx", (unsigned long)tree->returns[4]);
	fprintf(file, "\n");
	fclose(file);
}

static volatile unsigned counter;
static char haystack[1 << 16];

/* Code that a JIT compiler might have written: a frame, and a call of its argument. */
#ifdef __x86_64__
static const uint8_t jit_code[] = {
	0x55,             /* push %rbp */
	0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
	0xff, 0xd7,       /* call *%rdi */
	0x5d,             /* pop %rbp */
	0xc3,             /* ret */
};
#else
static const uint8_t jit_code[] = {
	0x55,             /* push %ebp */
	0x89, 0xe5,       /* mov %esp, %ebp */
	0x83, 0xec, 0x08, /* sub $8, %esp */
	0xff, 0x55, 0x08, /* call *8(%ebp) */
	0xc9,             /* leave */
	0xc3,             /* ret */
};
#endif

static void jit_sleep(void)
{
	pause();
}

static void sleep_in_jit(const struct tree *tree)
{
	char path[64];
	FILE *file;
	uint8_t *code = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (code == MAP_FAILED)
		fail("mmap");
	memcpy(code + 64, jit_code, sizeof(jit_code));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	file = fopen(path, "we");
	if (!file)
		fail(path);
	fprintf(file, "%lx 40 jit_before\n%lx %zx jit_trampoline with a space\n",
		(unsigned long)code, (unsigned long)(code + 64), sizeof(jit_code));
	fclose(file);
	publish(tree, 0);
	((void (*)(void (*)(void)))(code + 64))(jit_sleep);
}

static void wait_for_children(void)
{
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

static void sleep_in_pipe(void)
{
	int ends[2];
	char byte;

	if (pipe(ends) < 0)
		fail("pipe");
	(void)!read(ends[0], &byte, 1);
}

static void sleep_in_poll(void)
{
	int ends[2];
	struct pollfd poll_fd;

	if (pipe(ends) < 0)
		fail("pipe");
	poll_fd = (struct pollfd){.fd = ends[0], .events = POLLIN};
	poll(&poll_fd, 1, -1);
}

static void sleep_in_epoll(void)
{
	int ends[2];
	int fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};

	if (fd < 0 || pipe(ends) < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &event) < 0)
		fail("epoll");
	epoll_wait(fd, &event, 1, -1);
}

static void sleep_in_accept(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "tasks-%d", (int)getpid());
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 1) < 0)
		fail("socket");
	accept(fd, NULL, NULL);
}

static void sleep_in_condition(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

	pthread_mutex_lock(&mutex);
	pthread_cond_wait(&condition, &mutex);
}

/* The known call tree. Nothing is a tail call: each has something left to do. */
KNOWN static int tree_leaf(struct tree *tree)
{
	const char *leaf = tree->leaf;
	static uint32_t futex_word = 1;

	tree->returns[0] = RETURN_ADDRESS;
	tree->stack_filler[counter % 256] = 1;
	if (strcmp(leaf, "raw") == 0) {
		publish(tree, (uintptr_t)raw_sleep_return);
#ifdef __x86_64__
		long result;
		__asm__ volatile("syscall\n.Lraw_sleep_return:"
				 : "=a"(result)
				 : "0"(SYS_pause)
				 : "rcx", "r11", "memory");
#else
		int result;
		__asm__ volatile("int $0x80\n.Lraw_sleep_return:"
				 : "=a"(result)
				 : "0"(SYS_pause)
				 : "memory");
#endif
		counter += (unsigned)result;
	} else if (strcmp(leaf, "jit") == 0) {
		sleep_in_jit(tree);
	} else {
		publish(tree, 0);
		if (strcmp(leaf, "nanosleep") == 0)
			sleep(1000000);
		else if (strcmp(leaf, "pipe") == 0)
			sleep_in_pipe();
		else if (strcmp(leaf, "poll") == 0)
			sleep_in_poll();
		else if (strcmp(leaf, "epoll") == 0)
			sleep_in_epoll();
		else if (strcmp(leaf, "accept") == 0)
			sleep_in_accept();
		else if (strcmp(leaf, "condition") == 0)
			sleep_in_condition();
		else if (strcmp(leaf, "futex") == 0)
			syscall(SYS_futex, &futex_word, FUTEX_WAIT, 1, NULL);
		else if (strcmp(leaf, "wait") == 0)
			wait_for_children();
		else if (strcmp(leaf, "spin") == 0)
			for (;;)
				counter++;
		else if (strcmp(leaf, "spin-libc") == 0)
			for (;;)
				counter += memchr(haystack, 1, sizeof(haystack)) != NULL;
		else
			pause();
	}
	return (int)counter + tree->stack_filler[3];
}

KNOWN static int tree_three(struct tree *tree)
{
	tree->returns[1] = RETURN_ADDRESS;
	return tree_leaf(tree) * 3 + tree->stack_filler[2];
}

KNOWN static int tree_two(struct tree *tree)
{
	volatile int values[16];

	tree->returns[2] = RETURN_ADDRESS;
	for (unsigned i = 0; i < 16; i++)
		values[i] = tree->stack_filler[i];
	return tree_three(tree) * 5 + values[counter % 16];
}

KNOWN static int tree_one(struct tree *tree)
{
	tree->returns[3] = RETURN_ADDRESS;
	return tree_two(tree) * 7 + tree->stack_filler[1];
}

KNOWN static void *thread_main(void *argument)
{
	struct tree tree = {.leaf = argument, .root = "thread_main"};
	char name[16];

	tree.returns[4] = RETURN_ADDRESS;
	snprintf(name, sizeof(name), "t %s", tree.leaf);
	prctl(PR_SET_NAME, name);
	counter += (unsigned)tree_one(&tree);
	return NULL;
}

static void begin_thread(const char *leaf)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, thread_main, (void *)leaf) != 0)
		fail("pthread_create");
}

KNOWN static void child_main(const char *leaf)
{
	struct tree tree = {.leaf = leaf, .root = "child_main"};

	tree.returns[4] = RETURN_ADDRESS;
	counter += (unsigned)tree_one(&tree);
}

static void begin_child(const char *leaf)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	if (child == 0) {
		child_main(leaf);
		_exit(1);
	}
}

static void begin_sleepers(void)
{
	static const char *const leaves[] = {"raw",   "nanosleep", "pipe",  "poll",
					     "epoll", "accept",    "futex", "jit"};
	static const char *const threads[] = {"raw", "condition", "poll", "epoll", "futex"};
	pid_t child;

	for (unsigned i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++)
		begin_child(leaves[i]);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_NAME, "odd (name) \t\\");
		for (unsigned i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
			begin_thread(threads[i]);
		child_main("pause");
		_exit(1);
	}
	/* A leader that is gone while its thread lives on. */
	child = fork();
	if (child == 0) {
		prctl(PR_SET_NAME, "leader-gone");
		begin_thread("pause");
		syscall(SYS_exit, 0);
	}
}

static void *map_file(const char *path, size_t offset, size_t size, int protection, int flags)
{
	int fd = open(path, protection & PROT_WRITE && flags & MAP_SHARED ? O_RDWR : O_RDONLY);
	void *bytes;

	if (fd < 0) {
		fprintf(stderr, "tasks: %s: %s\n", path, strerror(errno));
		return NULL;
	}
	bytes = mmap(NULL, size, protection, flags, fd, (off_t)offset);
	if (bytes == MAP_FAILED)
		fprintf(stderr, "tasks: mmap of %s: %s\n", path, strerror(errno));
	close(fd);
	return bytes;
}

static void make_mappings(void)
{
	char path[64];
	char *bytes;
	int fd;

	map_file("/data/plain", 0, 8192, PROT_READ, MAP_PRIVATE);
	map_file("/data/plain", 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE);
	map_file("/mnt/bind/plain", 0, 4096, PROT_READ, MAP_SHARED);
	map_file("/mnt/tmp/file", 4096, 12288, PROT_READ | PROT_WRITE, MAP_SHARED);
	map_file("/mnt/tmp/deep/er/and/deeper/file", 0, 4096, PROT_READ, MAP_PRIVATE);
	map_file("/mnt/tmp/a\nb c\\d", 0, 4096, PROT_READ, MAP_PRIVATE);
	bytes = map_file("/mnt/huge/pattern", 0, 5 << 20, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (bytes)
		counter += (unsigned)bytes[3 << 20];
	map_file("/mnt/ext4/pattern", 8192, 1 << 20, PROT_READ, MAP_SHARED);
	map_file("/mnt/ext4/dir/small", 0, 4096, PROT_READ, MAP_PRIVATE);
	map_file("/mnt/ext4/inner/mounted", 0, 4096, PROT_READ, MAP_PRIVATE);
	map_file("/mnt/overlay/plain", 0, 4096, PROT_READ, MAP_PRIVATE);
	map_file("/mnt/overlay/above", 4096, 4096, PROT_READ, MAP_SHARED);
	map_file("/dev/zero", 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	snprintf(path, sizeof(path), "/mnt/tmp/deleted-%d", (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, 4096) < 0)
		fail(path);
	close(fd);
	map_file(path, 0, 4096, PROT_READ, MAP_SHARED);
	unlink(path);
	fd = memfd_create("in memory", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, 8192) == 0)
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mmap(NULL, 8192, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK, -1, 0);
	bytes = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef PR_SET_VMA
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, bytes, 8192, "named by hand");
#endif
	/* Many, so that the tree has several levels: neighbours with other rights do not merge. */
	bytes = mmap(NULL, 600 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < 600; i += 2)
		mprotect(bytes + i * 4096, 4096, PROT_READ | PROT_WRITE);
	(void)!sbrk(1 << 16);
}

int main(int argc, char **argv)
{
	struct tree tree = {.leaf = "pause", .root = "main"};
	const char *role = argc > 2 ? argv[2] : "";

	if (argc != 3) {
		fprintf(stderr, "usage: tasks PROGRAM sleepers|mappings|spin|spin-libc\n");
		return 2;
	}
	program = argv[1]; /* argv[0] is anything */
	tree.returns[4] = RETURN_ADDRESS;
	if (strcmp(role, "sleepers") == 0) {
		begin_sleepers();
		tree.leaf = "wait";
	} else if (strcmp(role, "mappings") == 0) {
		prctl(PR_SET_NAME, "renamed-mapper");
		make_mappings();
	} else {
		tree.leaf = role;
	}
	return tree_one(&tree);
}
