#include "attach/process_rights.h"

#include "attach/proc_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAPABILITY_PTRACE (UINT64_C(1) << 19) /* linux/capability.h: CAP_SYS_PTRACE */

/* The host's own user namespace has this name (include/linux/proc_ns.h, PROC_USER_INIT_INO). */
#define FIRST_USER_NAMESPACE "user:[4026531837]"

static uint64_t yama_scope(const char *proc)
{
	char path[300];
	uint64_t scope = 0; /* a kernel without Yama */

	snprintf(path, sizeof(path), "%s/sys/kernel/yama/ptrace_scope", proc);
	proc_file_number(path, 3, &scope);
	return scope;
}

static bool in_a_user_namespace(const char *proc)
{
	char path[300], link[64];
	ssize_t length;

	snprintf(path, sizeof(path), "%s/self/ns/user", proc);
	length = readlink(path, link, sizeof(link) - 1);
	if (length < 0)
		return false;
	link[length] = 0;
	return strcmp(link, FIRST_USER_NAMESPACE) != 0;
}

/* The kernel gives the files of a process that must not be dumped to root, but not their
 * directory. */
static bool is_undumpable(const char *proc, pid_t pid)
{
	char path[300];
	struct stat file;

	snprintf(path, sizeof(path), "%s/%d/status", proc, (int)pid);
	return !stat(path, &file) && file.st_uid != geteuid();
}

/* Real, effective and saved ID of "Uid:" or "Gid:"; all three have to be the tracer's. The first
 * that is not; -1: they are. */
static int64_t other_id(const char *status, const char *name, unsigned own)
{
	unsigned ids[3];
	const char *line = strstr(status, name);

	if (!line || sscanf(line + strlen(name), "%u %u %u", &ids[0], &ids[1], &ids[2]) != 3)
		return -1;
	for (int i = 0; i < 3; i++)
		if (ids[i] != own)
			return ids[i];
	return -1;
}

/* As any user, without the capability. */
static void for_a_user(const char *proc, pid_t pid, const char *status, uint64_t permitted,
		       char *text, size_t size)
{
	int64_t user = other_id(status, "\nUid:", geteuid());
	int64_t group = other_id(status, "\nGid:", getegid());
	uint64_t scope = yama_scope(proc), held = 0;

	proc_field(status, "CapPrm", 16, &held);
	if (user >= 0)
		snprintf(text, size,
			 "it is another user's (uid %" PRId64
			 "): be that user or root, or have CAP_SYS_PTRACE",
			 user);
	else if (scope > 0)
		snprintf(text, size,
			 "kernel.yama.ptrace_scope is %u: only root or CAP_SYS_PTRACE may attach; "
			 "'sysctl kernel.yama.ptrace_scope=0' lets every user attach to own "
			 "processes",
			 (unsigned)scope);
	else if (group >= 0)
		snprintf(text, size,
			 "it runs with another group (gid %" PRId64
			 "): run guestprof with that one, as by 'sg', or be root",
			 group);
	else if (held & ~permitted)
		snprintf(text, size,
			 "it has capabilities that this user lacks: be root, or have "
			 "CAP_SYS_PTRACE");
	else if (is_undumpable(proc, pid))
		snprintf(text, size,
			 "it is not dumpable (PR_SET_DUMPABLE), not even for its user: be "
			 "root, or have CAP_SYS_PTRACE");
	else
		snprintf(text, size, "be its user, or root, or have CAP_SYS_PTRACE");
}

void process_rights(const char *proc, pid_t pid, char *text, size_t size)
{
	uint64_t effective = 0, permitted = 0;
	char own[4096], its[4096];

	proc_read(proc, getpid(), "status", own, sizeof(own));
	proc_field(own, "CapEff", 16, &effective);
	proc_field(own, "CapPrm", 16, &permitted);
	proc_read(proc, pid, "status", its, sizeof(its));
	if (yama_scope(proc) >= 3)
		snprintf(text, size,
			 "kernel.yama.ptrace_scope is 3: nobody may attach to a process until the "
			 "host is booted with another value");
	else if (effective & CAPABILITY_PTRACE && in_a_user_namespace(proc))
		snprintf(text, size,
			 "guestprof runs in a user namespace of its own, where root's rights reach "
			 "no process outside: run it outside");
	else if (effective & CAPABILITY_PTRACE)
		snprintf(text, size,
			 "a security module (AppArmor, SELinux) or a container's filter of system "
			 "calls forbids it");
	else
		for_a_user(proc, pid, its, permitted, text, size);
}
