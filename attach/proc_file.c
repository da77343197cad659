#include "attach/proc_file.h"

#include "base/cleanup.h"
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 65536

size_t proc_read(const char *proc, pid_t pid, const char *name, char *text, size_t size)
{
	AUTO_CLOSE int fd = -1;
	size_t length;
	char path[300];

	*text = 0;
	snprintf(path, sizeof(path), "%s/%d/%s", proc, (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = io_read(fd, text, size - 1);
	text[length] = 0;
	return length;
}

bool proc_number(const char *text, uint64_t most, uint64_t *value)
{
	unsigned long long number;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || number > most)
		return false;
	*value = number;
	return true;
}

bool proc_file_number(const char *path, uint64_t most, uint64_t *value)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	char text[32];

	if (!file || !fgets(text, sizeof(text), file))
		return false;
	text[strcspn(text, "\n")] = 0;
	return proc_number(text, most, value);
}

bool proc_field(const char *text, const char *name, int base, uint64_t *value)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		if (*line == '\n')
			line++;
		if (strncmp(line, name, length) || line[length] != ':')
			continue;
		*value = strtoull(line + length + 1, &end, base);
		return end > line + length + 1;
	}
	return false;
}

const char *proc_stat_fields(const char *text)
{
	const char *name_end = strrchr(text, ')');

	return name_end && name_end[1] == ' ' ? name_end + 2 : NULL;
}

bool proc_thread_field(const char *proc, pid_t pid, pid_t thread, const char *name, int base,
		       uint64_t *value)
{
	char file[64], text[4096];

	snprintf(file, sizeof(file), "task/%d/status", (int)thread);
	proc_read(proc, pid, file, text, sizeof(text));
	return proc_field(text, name, base, value);
}

void proc_each_thread(const char *proc, pid_t pid, bool (*visit)(void *context, pid_t thread),
		      void *context)
{
	char path[300];
	struct dirent *entry;
	DIR *directory;
	bool on = true;

	snprintf(path, sizeof(path), "%s/%d/task", proc, (int)pid);
	directory = opendir(path);
	if (!directory)
		return;
	for (unsigned seen = 0; on && seen < THREADS_MAX && (entry = readdir(directory)); seen++) {
		uint64_t thread;

		if (proc_number(entry->d_name, INT32_MAX, &thread))
			on = visit(context, (pid_t)thread);
	}
	closedir(directory);
}
