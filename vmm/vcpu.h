/* One vCPU: its KVM file descriptor, its thread, its run loop.
 *
 * The loop knows nothing of sampling. It offers a stop: whenever KVM_RUN returns with EINTR,
 * because somebody kicked it, the guest's state is consistent and `on_stop` is called.
 *
 * A kick cannot be lost. It is a signal to the vCPU's thread whose handler sets
 * kvm_run->immediate_exit: a signal before KVM_RUN makes KVM_RUN return at once, a
 * signal during it interrupts it. The loop clears the flag *before* it looks at what the
 * kick was for, so that a kick in between sets it again.
 */
#ifndef VMM_VCPU_H
#define VMM_VCPU_H

#include "base/error.h"
#include "guest-introspection/x86/guest_cpu.h"
#include "vmm/boot/boot.h"
#include "vmm/cpuid.h"
#include "vmm/devices/io_bus.h"
#include "kvm/guest_end.h"

#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vcpu;

struct vcpu_callbacks {
	/* Required. The vCPU was kicked and stands between two instructions; vcpu_registers() is
	 * valid. On its thread; runs with the vCPU stopped, so it must be short. */
	void (*on_stop)(void *context, struct vcpu *vcpu);
	/* Required. Its thread is about to end. On its thread. */
	void (*on_end)(void *context, struct vcpu *vcpu);
	/* Required. First thing on the vCPU's thread: confine it. A failure ends the machine. */
	gp_status_t (*on_thread_start)(void *context, struct vcpu *vcpu, struct error *error);
	void *context;
};

struct vcpu_environment {
	const struct io_bus *ports;
	const struct io_bus *memory;
	const struct guest_memory *guest_memory; /* for error reports */
	struct guest_end_event *end;
	struct vcpu_callbacks callbacks;
};

/* Where all vCPUs wait until the machine is let go. */
struct vcpu_gate {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool open;
};

void vcpu_gate_init(struct vcpu_gate *gate);
void vcpu_gate_deinit(struct vcpu_gate *gate);
void vcpu_gate_open(struct vcpu_gate *gate);

struct vcpu {
	unsigned index;
	int fd;
	struct kvm_run *run;
	size_t run_size;
	bool has_sync_registers;
	const struct vcpu_environment *environment;

	pthread_t thread;
	_Atomic pid_t thread_id; /* 0: not running */
	_Atomic bool stop_requested;
	volatile bool in_guest; /* own thread and its signal handlers only */

	/* Written once by the vCPU's thread before it requests GUEST_ERROR. */
	struct error error;

	/* Counters for whoever wants to know; own thread writes. */
	_Atomic uint64_t exits;
};

/* Creates vCPU `index` of `vm_fd` and sets its registers: the first vCPU starts as
 * `state` says, the others wait for INIT and SIPI. */
gp_status_t vcpu_init(struct vcpu *vcpu, int vm_fd, unsigned index, size_t run_size,
		      bool has_sync_registers, const struct cpuid_table *cpuid,
		      const struct boot_state *state, const struct vcpu_environment *environment,
		      struct error *error);
void vcpu_deinit(struct vcpu *vcpu);

/* Starts the thread; it waits at `gate` before its first instruction. */
gp_status_t vcpu_start(struct vcpu *vcpu, struct vcpu_gate *gate, struct error *error);

/* Asks the thread to end, whatever the guest does, and waits for it. The gate must be open. */
void vcpu_stop(struct vcpu *vcpu);

/* Makes KVM_RUN return soon. On the vCPU's own thread: in a signal handler or otherwise.
 * Returns whether the thread was inside KVM_RUN. */
bool vcpu_kick(struct vcpu *vcpu);

/* The registers of the stopped vCPU, in on_stop. */
void vcpu_registers(const struct vcpu *vcpu, struct guest_cpu *cpu);

#endif
