/* The other process of the benchmarks of attach/: a fork that runs tests/guests/long4. */
#ifndef TESTS_BENCH_REMOTE_H
#define TESTS_BENCH_REMOTE_H

#include "tests/bench/child.h"
#include "vmm/machine.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000ull

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static inline int compare_values(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* A quantile; 0 of none. */
static inline double at(double *values, size_t count, unsigned percent)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), compare_values);
	return values[count * percent / 100 < count ? count * percent / 100 : count - 1];
}

/* False, said: there is no guest or no /dev/kvm to run it with. */
static inline bool find_guest(char *path, size_t size)
{
	char own[400];

	if (!own_folder(own, sizeof(own)))
		return false;
	snprintf(path, size, "%s/../guests/long4", own);
	if (!access("/dev/kvm", R_OK | W_OK) && !access(path, R_OK))
		return true;
	printf("not measured: /dev/kvm or %s cannot be opened\n", path);
	return false;
}

struct vmm {
	pid_t pid;
	_Atomic bool *runs;
};

/* `prepare`, which may be NULL, is called in the new process before it makes its machine. */
static inline bool start_vmm(struct vmm *vmm, const char *guest, const char *command_line,
			     void (*prepare)(void))
{
	struct machine_config config = {.kernel = guest,
					.command_line = command_line,
					.vcpus = 1,
					.memory = 16 << 20,
					.console_input_fd = -1,
					.console_output_fd = -1};
	struct machine_limits limits = {.timeout_ns = 120 * NS_PER_SECOND};
	struct machine *machine;

	vmm->runs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (vmm->runs == MAP_FAILED)
		return false;
	fflush(stdout);
	vmm->pid = fork();
	if (!vmm->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (prepare)
			prepare();
		if (machine_create(&config, &machine, NULL, NULL) || machine_start(machine, NULL))
			_exit(1);
		atomic_store(vmm->runs, true);
		machine_run(machine, &limits, NULL);
		_exit(0);
	}
	for (int i = 0; vmm->pid > 0 && i < 5000 && !atomic_load(vmm->runs); i++)
		usleep(1000);
	return vmm->pid > 0 && atomic_load(vmm->runs);
}

static inline void end_vmm(struct vmm *vmm)
{
	kill(vmm->pid, SIGKILL);
	waitpid(vmm->pid, NULL, 0);
	munmap(vmm->runs, 4096);
}

/* The thread with that name and a line's end; 0: there is none. */
static inline pid_t thread_called(pid_t pid, const char *wanted)
{
	char path[300];
	struct dirent *entry;
	pid_t found = 0;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		char name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, wanted))
			found = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	if (directory)
		closedir(directory);
	return found;
}

#endif
