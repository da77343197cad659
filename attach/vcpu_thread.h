/* The thread of a VMM that runs a vCPU: which one it is, what it does, and stopping it.
 *
 * KVM_RUN is a system call, so the kernel shows where the thread is. One that sleeps is left alone.
 * One that runs is stopped by ptrace (SEIZE, INTERRUPT), which takes it out of the guest as a
 * signal would, but without one; it is let go at once when its stop was looked at, so that nothing
 * holds it should we be killed (the kernel lets go of everything a dead tracer held). Signals of
 * the VMM that come in between are passed on.
 */
#ifndef ATTACH_VCPU_THREAD_H
#define ATTACH_VCPU_THREAD_H

#include <stdbool.h>
#include <sys/types.h>

enum vcpu_activity {
	VCPU_RUNS,       /* on a CPU of the host, or ready to be: in the guest or in its VMM */
	VCPU_SLEEPS,     /* in KVM_RUN: the vCPU is halted, or not started */
	VCPU_VMM_SLEEPS, /* elsewhere: its VMM waits */
	VCPU_GONE,       /* the thread has ended */
};

/* Opens what vcpu_thread_activity() reads; -1: no such thread, or no rights. */
int vcpu_thread_open(const char *proc, pid_t pid, pid_t thread);

/* Opens what vcpu_thread_hold() reads; -1: not to be had. */
int vcpu_thread_open_stat(const char *proc, pid_t pid, pid_t thread);

enum vcpu_hold {
	VCPU_FREE,
	VCPU_TRACED,  /* stopped for a tracer: for another guestprof, that is for microseconds */
	VCPU_STOPPED, /* by a signal, with its whole process */
};

/* Who keeps a thread from going on: one that is kept in KVM_RUN counts as asleep there otherwise.
 * One system call, dearer than vcpu_thread_activity(). */
enum vcpu_hold vcpu_thread_hold(int stat_fd);

/* What the thread does now; `vcpu_fd` is its VMM's number of the vCPU's descriptor, -1: any, told
 * in `found` (may be NULL) for VCPU_SLEEPS. One system call. */
enum vcpu_activity vcpu_thread_activity(int activity_fd, int vcpu_fd, int *found);

enum vcpu_stop {
	VCPU_STOPPED_IN_RUN, /* KVM_RUN has just returned with EINTR, because of us */
	VCPU_STOPPED_IN_VMM, /* in the VMM's own code, or KVM_RUN has returned with work for it */
	VCPU_NOT_STOPPED,    /* nothing to let go: somebody else traces it, or no rights */
	VCPU_ENDED,          /* nothing to let go: the thread is gone */
};

struct vcpu_stopped {
	pid_t thread;
	int signal;  /* of the VMM, to be passed on; 0: none */
	int vcpu_fd; /* of the KVM_RUN; VCPU_STOPPED_IN_RUN */
	bool killed; /* by a signal, and its process with it; only for one that is gone */
};

/* Stops the thread. Waits for it, some microseconds, or as long as it is in a page fault or the
 * like. `vcpu_fd` as above. Errno says why it is not stopped. */
enum vcpu_stop vcpu_thread_stop(pid_t thread, int vcpu_fd, struct vcpu_stopped *stopped);

/* Lets it go; the same thread of ours that stopped it. False: it was killed meanwhile, and is gone.
 * One that takes long to die, as in a core dump, is let go by the end of our thread: see to that.
 */
bool vcpu_thread_release(struct vcpu_stopped *stopped);

#endif
