/* Whether a process goes on at all: one that is held as a whole cannot be sampled, and a thread
 * that is frozen is not to be waited for. */
#ifndef ATTACH_PROCESS_STATE_H
#define ATTACH_PROCESS_STATE_H

#include <sys/types.h>

enum process_state {
	PROCESS_GOES_ON,
	PROCESS_STOPPED, /* SIGSTOP, a shell's job control */
	PROCESS_HELD,    /* by who traces it, a debugger */
	PROCESS_FROZEN,  /* by a cgroup's freezer */
};

/* Now; as its first thread has it, or for a freezer any. */
enum process_state process_state(const char *proc, pid_t pid);

/* "stopped (SIGSTOP)", ...: for people. Static storage. */
const char *process_state_name(enum process_state state);

/* Who traces one of its threads just now; 0: nobody. */
pid_t process_tracer(const char *proc, pid_t pid);

/* Who traces one of its threads, again and again; 0: nobody. Another guestprof does so for some
 * microseconds per sample, which does not count. Takes some milliseconds when there is one. */
pid_t process_lasting_tracer(const char *proc, pid_t pid);

#endif
