/* One vCPU of an attached virtual machine, and our thread that samples it. Private to attach/.
 *
 * The thread sleeps until a tick's signal; only there is that signal let through, so that nothing
 * interrupts it while the vCPU is stopped.
 */
#ifndef ATTACH_ATTACHED_VCPU_H
#define ATTACH_ATTACHED_VCPU_H

#include "attach/run_page.h"
#include "base/error.h"
#include "guest-introspection/x86/guest_cpu.h"
#include "kvm/guest_end.h"
#include "sampler/target.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct attached_vcpu {
	struct sampler_target *target;
	struct guest_end_event *end; /* told of a reset, and that the VMM was killed */
	unsigned index;
	pid_t vmm;        /* process */
	pid_t vmm_thread; /* that runs the vCPU */
	int vmm_fd;       /* the VMM's number of the vCPU's descriptor */
	int activity_fd;  /* vcpu_thread_open() */
	int stat_fd;      /* vcpu_thread_open_stat(); -1: not to be had */
	int kick_signal;  /* 0: ptrace */
	struct run_page page;

	int stop_fd; /* eventfd: the thread is to end */
	pthread_t thread;
	bool started;
	_Atomic pid_t tick_thread;    /* 0: it has ended */
	volatile sig_atomic_t kicked; /* by the handler, on the thread */
	bool paged;                   /* the guest has come as far as page tables */

	/* The thread writes, any thread reads. */
	_Atomic bool gone;
	_Atomic uint64_t halted;
	_Atomic uint64_t in_vmm;
	_Atomic uint64_t missed;
	_Atomic uint64_t stale;
	_Atomic uint64_t signals;
};

/* The registers of the vCPU now, kicking it if it runs, or also if it sleeps (`wake`). False: it
 * could not be had this time. Before attached_vcpu_start() only. */
bool attached_vcpu_peek(struct attached_vcpu *vcpu, bool wake, struct guest_cpu *cpu);

gp_status_t attached_vcpu_start(struct attached_vcpu *vcpu, struct error *error);
/* Also one that was not started. Everything as the VMM had it. */
void attached_vcpu_stop(struct attached_vcpu *vcpu);

#endif
