/* Finds the threads of a VMM that run its vCPUs. */
#ifndef ATTACH_VM_THREADS_H
#define ATTACH_VM_THREADS_H

#include "attach/vm_process.h"
#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

/* Sets threads[i] for process->vcpus[i]. A thread that is or was just in KVM_RUN on a vCPU's
 * descriptor is the vCPU's; those that are called as VMMs call vCPU threads are asked first, and
 * believed when they are nowhere near KVM_RUN, as in a machine that is paused. `may_stop`:
 * running threads may be stopped for a moment to be asked. Takes up to two seconds.
 * GP_ERR_TIMED_OUT: some were not found. */
gp_status_t vm_threads_find(const struct vm_process *process, const char *proc, bool may_stop,
			    pid_t *threads, struct error *error);

/* The number in the name of a vCPU thread; false: it is no such name. */
bool vm_thread_name_is_vcpu(const char *name, unsigned *id);

#endif
