/* A virtual machine that another process runs, as something to sample.
 *
 *   create()     finds its vCPUs, their threads and its memory; proves what it found; a thread of
 *                ours for each vCPU waits for ticks
 *   target()     what sampler sessions are opened on
 *   wait()       until the VMM ends, the guest resets, a time is over, or somebody asks
 *   destroy()    everything as it was
 *
 * A tick finds its vCPU asleep in KVM_RUN: halted, and left asleep. Or it runs: its thread is
 * stopped by ptrace, which makes KVM_RUN return and store the registers in the page that we
 * share; the sample is taken; the thread is let go. Nothing of the VMM's memory is written but
 * that page's kvm_valid_regs and a mark in the registers behind it. The VMM sees KVM_RUN return
 * with EINTR, as it does for any signal.
 *
 * When somebody else traces the VMM, its vCPUs are kicked with the signal that it kicks them with
 * itself; every register is marked before, and the ones that KVM has not stored are never used.
 *
 * Threads: one thread for all functions, except where they say otherwise.
 */
#ifndef ATTACH_ATTACHED_VM_H
#define ATTACH_ATTACHED_VM_H

#include "attach/vm_process.h"
#include "base/error.h"
#include "kvm/guest_end.h"

#include <stdbool.h>
#include <stdint.h>

struct attached_vm;
struct sampler_target;

struct attach_config {
	pid_t pid;
	const char *proc;     /* NULL: /proc */
	const char *kvm_path; /* NULL: /dev/kvm */
	bool signal_kick;     /* the fallback, also when nobody else traces the VMM */
	/* Optional: something happened that does not end the session: a line for people. From
	 * within wait(). */
	void (*on_event)(void *context, const char *text);
	void *context;
};

/* What it turned out to be; valid until destroy(). */
struct attached_info {
	const struct vm_process *process;
	uint64_t memory_bytes;
	char banner[256]; /* of a Linux kernel; empty: not found */
	char method[128]; /* how registers and memory are read, for people */
};

/* What happened to ticks that gave no stack of a running guest. */
struct attached_counts {
	uint64_t halted;  /* the vCPU slept and was left alone */
	uint64_t in_vmm;  /* its VMM was at work */
	uint64_t missed;  /* it could not be stopped: the next stack stands for this tick, too */
	uint64_t stale;   /* it was stopped, but KVM had stored no registers: not used */
	uint64_t signals; /* of the VMM, that came while it was stopped and were passed on */
	uint64_t pauses;
};

/* Errors say what is missing: rights, a vCPU that runs, a layout of memory that is known. Takes up
 * to some seconds. Nothing is left behind on failure. GP_ERR_NOT_FOUND: no such virtual machine;
 * GP_ERR_ACCESS_DENIED; GP_ERR_NOT_SUPPORTED: it or this host does not allow it by its kind;
 * GP_ERR_TIMED_OUT: not now. */
gp_status_t attached_vm_create(const struct attach_config *config, struct attached_vm **out,
			       struct error *error);

/* NULL is ignored. Sessions must have been closed. */
void attached_vm_destroy(struct attached_vm *vm);

struct sampler_target *attached_vm_target(struct attached_vm *vm);
const struct attached_info *attached_vm_info(const struct attached_vm *vm);
void attached_vm_counts(const struct attached_vm *vm, struct attached_counts *out);

/* Waits for the end; `duration_ns` 0: no limit. */
enum guest_end attached_vm_wait(struct attached_vm *vm, uint64_t duration_ns);

/* Any thread, also a signal handler: the first request wins. */
void attached_vm_request_end(struct attached_vm *vm, enum guest_end end);

#endif
