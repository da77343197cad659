/* Takes away from this process and its threads what they will not need, once the machine
 * is set up, so that a guest that breaks out of its VM finds little.
 *
 * Order: open everything; sandbox_enter_process() on the main thread before any other
 * thread exists; create the threads; each calls sandbox_enter_thread() first thing;
 * then main calls it for itself, after which no more threads can be made.
 *
 * A thread that makes a system call its table does not list ends the whole process: one
 * line on standard error names the thread's kind and the call's number, the terminal is
 * restored, the exit code is SANDBOX_VIOLATION_EXIT. Opening files fails with EPERM instead,
 * because the C library tries that by itself (malloc looks at /proc) and does well without. The
 * tables, with the reason for each line, are in sandbox.c.
 */
#ifndef VMM_SANDBOX_H
#define VMM_SANDBOX_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_VIOLATION_EXIT 86

enum sandbox_thread {
	SANDBOX_VCPU,       /* KVM_RUN, port and memory-mapped I/O, sampling */
	SANDBOX_EVENT_LOOP, /* disks, console */
	SANDBOX_READER,     /* drains the rings into the output file */
	SANDBOX_MAIN,       /* waits, then ends the machine and finishes the file */
	SANDBOX_DISK_FILES, /* a process of its own: reads file systems that a guest wrote */
};

struct sandbox_fds {
	int vcpu_fd; /* SANDBOX_VCPU: the only descriptor its KVM ioctls may go to; -1: any */
};

/* Whether this build can be confined at all: false under sanitizers, whose run-time
 * makes calls that no table lists. Callers say so loudly and go on unconfined. */
bool sandbox_is_supported(void);

/* For this thread and those it creates: no_new_privs; for the process: no core dumps. Irreversible.
 * Descriptors stay open and usable. GP_ERR_NOT_SUPPORTED as above. */
gp_status_t sandbox_enter_process(struct error *error);

/* Confines the calling thread, irreversibly: no capabilities (the kernel keeps them per thread; the
 * bounding and ambient sets, too, where allowed) and its table of system calls. Main may need a
 * capability until the session has started (perf events), the others never do. `fds` may
 * be NULL: no restriction by descriptor. GP_ERR_NOT_SUPPORTED as above, or when the kernel has no
 * seccomp filters. */
gp_status_t sandbox_enter_thread(enum sandbox_thread kind, const struct sandbox_fds *fds,
				 struct error *error);

/* For a process that reads the file systems that a guest wrote: both of the above, and a limit of
 * its memory. False: it could not be confined. True without any of it where sandbox_is_supported()
 * is false: a sanitizer needs all addresses. */
bool sandbox_disk_reader(uint64_t memory_bytes);

#endif
