/* Runs programs and says what they cost: for benchmarks that compare commands. */
#ifndef TESTS_BENCH_CHILD_H
#define TESTS_BENCH_CHILD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct cost {
	double cpu; /* seconds, user and system, with all children that it waited for */
	double wall;
	long peak_kib;
	long anonymous_kib; /* of the child itself; looked at every 10 ms */
};

static inline double wall_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline long anonymous_kib(pid_t child)
{
	char path[64], line[128];
	long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)child);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "RssAnon:", 8))
			kib = strtol(line + 8, NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

/* Runs a command with its output in the file `output`. False: it failed. */
static inline bool run_child(const char *const arguments[], const char *output, struct cost *cost)
{
	double begin = wall_seconds();
	struct rusage usage;
	pid_t child = fork();
	int status;

	if (child < 0)
		return false;
	if (!child) {
		int to = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		if (to < 0 || dup2(to, STDOUT_FILENO) < 0)
			_exit(127);
		execvp(arguments[0], (char *const *)(uintptr_t)arguments);
		_exit(127);
	}
	*cost = (struct cost){0};
	while (!wait4(child, &status, WNOHANG, &usage)) {
		long kib = anonymous_kib(child);

		cost->anonymous_kib = kib > cost->anonymous_kib ? kib : cost->anonymous_kib;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	cost->wall = wall_seconds() - begin;
	cost->cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	cost->peak_kib = usage.ru_maxrss;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static inline int compare_costs(const void *left, const void *right)
{
	const struct cost *a = left, *b = right;

	return (a->cpu > b->cpu) - (a->cpu < b->cpu);
}

/* The median by CPU time, of which others on the machine take little. */
static inline struct cost median_cost(struct cost *costs, size_t count)
{
	qsort(costs, count, sizeof(*costs), compare_costs);
	return costs[count / 2];
}

/* The folder this program lies in. False: it cannot be had. */
static inline bool own_folder(char *out, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", out, size - 1);

	if (length <= 0)
		return false;
	out[length] = 0;
	*strrchr(out, '/') = 0;
	return true;
}

#endif
