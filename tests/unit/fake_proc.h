/* A /proc that is made for a test: processes with the files that guestprof reads. */
#ifndef TESTS_UNIT_FAKE_PROC_H
#define TESTS_UNIT_FAKE_PROC_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static inline void make_root(void)
{
	snprintf(root, sizeof(root), "/tmp/guestprof-proc.XXXXXX");
	cr_assert(mkdtemp(root));
}

static inline void remove_root(void)
{
	char line[128];

	snprintf(line, sizeof(line), "rm -rf %s", root);
	cr_assert_eq(system(line), 0);
}

static inline void make_directory(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	cr_assert(!mkdir(path, 0755), "%s", path);
}

static inline void make_file(const char *name, const char *bytes, size_t size)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

static inline void make_link(const char *name, const char *to)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	cr_assert(!symlink(to, path));
}

static const char qemu_status[] =
	"Name:\tqemu-system-x86\nTracerPid:\t77\nUid:\t107\t107\t107\t107\n";

/* A QEMU with two vCPUs, the second one's descriptor twice. */
static inline void make_qemu(const char *pid, const char *command_line, size_t size)
{
	char name[64];

	make_directory(pid);
	snprintf(name, sizeof(name), "%s/fd", pid);
	make_directory(name);
	snprintf(name, sizeof(name), "%s/fd/0", pid);
	make_link(name, "/dev/null");
	snprintf(name, sizeof(name), "%s/fd/11", pid);
	make_link(name, "anon_inode:kvm-vm");
	snprintf(name, sizeof(name), "%s/fd/21", pid);
	make_link(name, "anon_inode:kvm-vcpu:1");
	snprintf(name, sizeof(name), "%s/fd/20", pid);
	make_link(name, "anon_inode:kvm-vcpu:0");
	snprintf(name, sizeof(name), "%s/fd/22", pid);
	make_link(name, "anon_inode:kvm-vcpu:1");
	snprintf(name, sizeof(name), "%s/exe", pid);
	make_link(name, "/usr/bin/qemu-system-x86_64 (deleted)");
	snprintf(name, sizeof(name), "%s/cmdline", pid);
	make_file(name, command_line, size);
	snprintf(name, sizeof(name), "%s/status", pid);
	make_file(name, qemu_status, sizeof(qemu_status) - 1);
	/* A debugger has one of its threads. */
	snprintf(name, sizeof(name), "%s/task", pid);
	make_directory(name);
	for (int thread = 100; thread < 103; thread++) {
		snprintf(name, sizeof(name), "%s/task/%d", pid, thread);
		make_directory(name);
		snprintf(name, sizeof(name), "%s/task/%d/status", pid, thread);
		if (thread == 101)
			make_file(name, qemu_status, sizeof(qemu_status) - 1);
		else
			make_file(name, "TracerPid:\t0\n", 13);
	}
}

#endif
