/* The guest program of live-stacks.sh, its /init: keeps both vCPUs in the kernel in many ways, and
 * in the few instructions on its border. Static, no libc start-up files needed beyond that. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* With -m32 the program comes in by the entries for 32-bit programs. */
#ifdef __x86_64__
#define REGISTER_IP REG_RIP
#define OLD_CLOBBERS "memory", "r8", "r9", "r10", "r11"
#else
#define REGISTER_IP REG_EIP
#define OLD_CLOBBERS "memory"
#endif

static void system_calls(void)
{
	for (;;)
		syscall(SYS_getppid);
}

/* The 32-bit entry by an interrupt gate, from 64-bit code. */
static void old_system_calls(void)
{
	for (;;) {
		long result;

		__asm__ volatile("int $0x80" : "=a"(result) : "a"(64 /* getppid */) : OLD_CLOBBERS);
	}
}

static void page_faults(void)
{
	for (;;) {
		size_t size = 16 * 4096;
		char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0);

		for (size_t at = 0; at < size; at += 4096)
			memory[at] = 1;
		munmap(memory, size);
	}
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	/* ud2: two bytes */
	((ucontext_t *)context)->uc_mcontext.gregs[REGISTER_IP] += 2;
}

static void signals_and_exceptions(void)
{
	struct itimerval timer = {.it_interval = {.tv_usec = 4000}, .it_value = {.tv_usec = 4000}};
	struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	signal(SIGUSR1, on_signal);
	signal(SIGALRM, on_signal);
	signal(SIGTRAP, on_signal);
	sigaction(SIGILL, &fault, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (;;) {
		kill(getpid(), SIGUSR1);
		__asm__ volatile("int3");
		__asm__ volatile("ud2");
	}
}

static void pipes(void)
{
	int there[2];
	int back[2];
	char byte = 0;

	if (pipe(there) < 0 || pipe(back) < 0)
		_exit(1);
	if (fork() == 0)
		for (;;)
			if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
				_exit(1);
	for (;;)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			_exit(1);
}

static void files(void)
{
	static char block[65536];
	struct stat status;

	for (;;) {
		int fd = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);

		if (fd < 0 || write(fd, block, sizeof(block)) < 0)
			_exit(1);
		lseek(fd, 0, SEEK_SET);
		if (read(fd, block, sizeof(block)) < 0)
			_exit(1);
		fstat(fd, &status);
		close(fd);
		fd = open("/proc/self/maps", O_RDONLY);
		while (read(fd, block, sizeof(block)) > 0)
			;
		close(fd);
	}
}

static void processes(void)
{
	for (;;) {
		pid_t child = fork();

		if (child == 0) {
			execl("/init", "child", (char *)NULL);
			_exit(1);
		}
		waitpid(child, NULL, 0);
	}
}

static void sleeps(void)
{
	struct timespec time = {.tv_nsec = 300000};

	for (;;) {
		nanosleep(&time, NULL);
		poll(NULL, 0, 1);
	}
}

static void user_loop(void)
{
	for (;;)
		__asm__ volatile("");
}

int main(int count, char **arguments)
{
	static void (*const work[])(void) = {
		system_calls, old_system_calls, page_faults, signals_and_exceptions, pipes, files,
		processes,    sleeps,           user_loop,
	};

	if (count > 0 && strcmp(arguments[0], "child") == 0)
		return 0;
	mkdir("/proc", 0755);
	mkdir("/tmp", 0755);
	mkdir("/dev", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++)
		if (fork() == 0)
			work[i]();
	printf("GUEST READY\n");
	fflush(stdout);
	for (;;)
		wait(NULL);
}
