/* The lab: real KVM on a machine that has none.
 *
 * QEMU's TCG emulates a CPU with AMD's SVM; a stock Debian kernel (called L1 here) boots in
 * it, loads its own kvm_amd and runs one command in a copy-on-write view of the host's file
 * tree. The parts, one file each:
 *
 *	lab.c		the command line
 *	paths.c		the cache, and the programs that the lab needs
 *	kernels.c	a kernel's packages, unpacked into the cache (unpack.sh, copy.sh)
 *	packages.c	which those are, and getting them with apt
 *	initramfs.c	the initramfs that L1 boots from; its script is init.sh
 *	machine.c	the QEMU process and the descriptors that lead into it
 *	run.c		the life of one run: relays streams and signals, yields the exit code
 *	inside.c	the other end: process 1 of L1, which runs the command
 *	pump.c		one stream of the command, at either end
 *	protocol.c	the frames that the two ends exchange
 *	qemu_races.c	what inside.c does about the faults of QEMU
 */
#ifndef TOOLS_LAB_LAB_H
#define TOOLS_LAB_LAB_H

#include "base/error.h"
#include "tools/lab/protocol.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit codes of the lab itself, those that timeout(1), env(1) and a shell use. */
#define LAB_EXIT_TIMED_OUT 124  /* --timeout was over */
#define LAB_EXIT_FAILED 125     /* the lab failed, not the command in it */
#define LAB_EXIT_CANNOT_RUN 126 /* the command is there but cannot be executed */
#define LAB_EXIT_NOT_FOUND 127  /* no such command */
#define LAB_EXIT_SIGNAL 128     /* plus the signal's number */

#define LAB_KERNEL_DEFAULT "linux-image-amd64"

struct lab_options {
	unsigned cpus;
	uint64_t memory_mib;
	unsigned timeout_seconds; /* 0: none */
	const char *kernel;       /* a package's name, or a path when it holds a '/' */
	bool verbose;
	char *const *command; /* NULL-terminated */
	/* NAME=VALUE strings for the command, NULL-terminated. */
	char *const *environment;
};

/* Where a kernel lies: the layout that `guestprof lab --fetch` makes. */
struct lab_kernel {
	char image[PATH_MAX];
	char modules[PATH_MAX]; /* holds kernel/… */
	char release[128];      /* as uname -r would say */
};

/* snprintf() into a path; GP_ERR_INVALID_ARGS when it does not fit. */
gp_status_t lab_path(struct error *error, char path[static PATH_MAX], const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Makes the cache directory ($GUESTPROF_CACHE, $XDG_CACHE_HOME/guestprof or
 * ~/.cache/guestprof), with `below` appended, and gives its path. */
gp_status_t lab_cache_path(const char *below, char path[static PATH_MAX], struct error *error);

/* Finds a program in PATH; the error names `package`, the Debian package that has it. */
gp_status_t lab_find_program(const char *name, const char *package, char path[static PATH_MAX],
			     struct error *error);

/* Finds a statically linked busybox. */
gp_status_t lab_find_busybox(char path[static PATH_MAX], struct error *error);

/* Finds the kernel that `wanted` names, fetching a package when the cache does not have it
 * (one line on stderr says so). Safe to run in several processes at a time. */
gp_status_t lab_kernel_find(const char *wanted, struct lab_kernel *kernel, struct error *error);

/* True when the package is in the cache already: nothing would be fetched. */
bool lab_kernel_cached(const char *package);

/* Unpacks the package into `directory` (see lab_kernel_find); nothing happens when it is
 * there already. */
gp_status_t lab_kernel_fetch(const char *package, const char *directory, struct error *error);

/* Builds, or finds in the cache, the initramfs for that kernel. */
gp_status_t lab_initramfs_find(const struct lab_kernel *kernel, char path[static PATH_MAX],
			       struct error *error);

/* Shell scripts: /init there, and what makes a kernel's directory and a copy of it. */
extern const char lab_init_script[], lab_unpack_script[], lab_copy_script[];

/* What leads into the machine. All are sockets: non-blocking, close-on-exec. */
enum {
	LAB_CONTROL,                            /* to inside.c: protocol.h */
	LAB_STREAM,                             /* and the two behind it: the command's streams */
	LAB_CONSOLE = LAB_STREAM + LAB_STREAMS, /* L1's serial console */
	LAB_MESSAGES,                           /* what QEMU itself prints */
	LAB_FDS,
};

/* One L1 machine. */
struct lab_machine {
	pid_t process;
	int fds[LAB_FDS];
};

struct lab_machine_config {
	const char *qemu, *kernel, *initramfs;
	const char *agent;     /* path of the program that is process 1 of L1 */
	const char *directory; /* shared writable; NULL: none */
	unsigned cpus;
	uint64_t memory_mib;
	bool verbose;
};

/* Starts QEMU. It dies with this process. */
gp_status_t lab_machine_start(const struct lab_machine_config *config, struct lab_machine *machine,
			      struct error *error);

/* Kills QEMU if it still runs and closes everything. Safe on a machine that was stopped. */
void lab_machine_stop(struct lab_machine *machine);

/* Runs options->command in the lab and returns the exit code of guestprof. */
int lab_run(const struct lab_options *options);

/* Process 1 of L1: never returns. */
_Noreturn void lab_inside(void);

#endif
