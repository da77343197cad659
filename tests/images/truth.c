/* What the guest of a "tasks" memory image says about itself, out of its /proc, on standard output:
 * sections, each opened by a line "==== NAME". See make-image.sh for what they become. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy_file(const char *path)
{
	char buffer[65536];
	size_t size;
	FILE *file = fopen(path, "re");

	if (!file)
		return;
	while ((size = fread(buffer, 1, sizeof(buffer), file)) > 0)
		fwrite(buffer, 1, size, stdout);
	fclose(file);
}

/* Calls `each` for every thread of every process. */
static void each_thread(void (*each)(const char *tgid, const char *tid))
{
	DIR *processes = opendir("/proc");
	struct dirent *process;
	struct dirent *thread;

	while (processes && (process = readdir(processes))) {
		char path[300];
		DIR *threads;

		if (!isdigit((unsigned char)process->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/task", process->d_name);
		threads = opendir(path);
		while (threads && (thread = readdir(threads)))
			if (isdigit((unsigned char)thread->d_name[0]))
				each(process->d_name, thread->d_name);
		if (threads)
			closedir(threads);
	}
	if (processes)
		closedir(processes);
}

/* TGID TID PPID KTHREAD STATE CPU COMM, as /proc/TGID/task/TID/stat has it; KTHREAD is 0 or 1 */
static void tell_task(const char *tgid, const char *tid)
{
	char path[600];
	char text[1024];
	size_t size;
	char *name;
	char *end;
	char state;
	int parent;
	unsigned flags;
	int cpu;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%s/task/%s/stat", tgid, tid);
	file = fopen(path, "re");
	if (!file)
		return;
	size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[size] = '\0';
	name = strchr(text, '(');
	end = strrchr(text, ')');
	if (!name || !end ||
	    sscanf(end + 1,
		   " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d"
		   " %*u %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d",
		   &state, &parent, &flags, &cpu) != 4)
		return;
	*end = '\0';
	printf("%s %s %d %d %c %d %s\n", tgid, tid, parent, (flags & 0x200000) != 0, state, cpu,
	       name + 1);
}

static void tell_stack(const char *tgid, const char *tid)
{
	char path[600];

	printf("== %s %s\n", tgid, tid);
	snprintf(path, sizeof(path), "/proc/%s/task/%s/stack", tgid, tid);
	copy_file(path);
}

/* Where a sleeping system call returns to: NUMBER ARGUMENTS SP PC, or "running" */
static void tell_syscall(const char *tgid, const char *tid)
{
	char path[600];

	printf("%s %s ", tgid, tid);
	fflush(stdout);
	snprintf(path, sizeof(path), "/proc/%s/task/%s/syscall", tgid, tid);
	copy_file(path);
	if (access(path, F_OK) != 0)
		printf("gone\n");
}

static void tell_maps(const char *tgid, const char *tid)
{
	char path[600];

	if (strcmp(tgid, tid) != 0)
		return;
	printf("== %s\n", tgid);
	snprintf(path, sizeof(path), "/proc/%s/maps", tgid);
	copy_file(path);
}

static void tell_program(const char *tgid, const char *tid)
{
	char path[600];
	char target[4096];
	ssize_t size;

	if (strcmp(tgid, tid) != 0)
		return;
	snprintf(path, sizeof(path), "/proc/%s/exe", tgid);
	size = readlink(path, target, sizeof(target) - 1);
	if (size > 0)
		printf("%s %.*s\n", tgid, (int)size, target);
}

/* PATH SIZE, and for each page 1 when it is in the page cache */
static void tell_cached(const char *path)
{
	static unsigned char pages[65536];
	struct stat status;
	size_t count;
	void *bytes;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && status.st_size > 0) {
		count = ((size_t)status.st_size + 4095) / 4096;
		bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (bytes != MAP_FAILED && count <= sizeof(pages) &&
		    mincore(bytes, (size_t)status.st_size, pages) == 0) {
			printf("%s %zu ", path, (size_t)status.st_size);
			for (size_t i = 0; i < count; i++)
				putchar(pages[i] & 1 ? '1' : '0');
			putchar('\n');
		}
		if (bytes != MAP_FAILED)
			munmap(bytes, (size_t)status.st_size);
	}
	close(fd);
}

static void tell_trees(void)
{
	DIR *directory = opendir("/truth");
	struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		char path[300];

		snprintf(path, sizeof(path), "/truth/%s", entry->d_name);
		if (entry->d_name[0] != '.')
			copy_file(path);
	}
	if (directory)
		closedir(directory);
}

int main(int argc, char **argv)
{
	printf("==== tasks\n");
	each_thread(tell_task);
	printf("==== stacks\n");
	each_thread(tell_stack);
	printf("==== syscalls\n");
	each_thread(tell_syscall);
	printf("==== maps\n");
	each_thread(tell_maps);
	printf("==== programs\n");
	each_thread(tell_program);
	printf("==== calltrees\n");
	tell_trees();
	printf("==== modules\n");
	copy_file("/proc/modules");
	printf("==== mounts\n");
	copy_file("/proc/self/mountinfo");
	printf("==== cached\n");
	for (int i = 1; i < argc; i++)
		tell_cached(argv[i]);
	printf("==== end\n");
	return ferror(stdout) || fflush(stdout) != 0;
}
