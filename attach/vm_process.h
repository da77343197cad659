/* Processes of this host that run KVM virtual machines, as /proc shows them.
 *
 * A virtual machine is a descriptor `anon_inode:kvm-vm` of its VMM, each vCPU one named
 * `anon_inode:kvm-vcpu:N` (virt/kvm/kvm_main.c). Nothing here touches the VMM: it only reads files.
 * What they hold is another process's doing and untrusted.
 */
#ifndef ATTACH_VM_PROCESS_H
#define ATTACH_VM_PROCESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VM_VCPUS_MAX 1024
#define VM_NAME_SIZE 256

/* Whose VMM: they differ in the names of threads and in the signal that kicks a vCPU. */
enum vmm_kind {
	VMM_UNKNOWN,
	VMM_QEMU,
	VMM_GUESTPROF,
	VMM_FIRECRACKER,
	VMM_CLOUD_HYPERVISOR,
	VMM_CROSVM,
};

struct vm_vcpu {
	unsigned id; /* KVM's number of it */
	int fd;      /* the VMM's number of its descriptor */
};

struct vm_process {
	pid_t pid;
	enum vmm_kind kind;
	char vmm[64];            /* the program's file name */
	char name[VM_NAME_SIZE]; /* the guest's, of the command line; empty: it gives none */
	char uuid[64];           /* the same */
	uid_t owner;
	pid_t tracer;      /* 0: nobody traces it */
	unsigned vms;      /* virtual machines in it */
	bool is_protected; /* its guest's registers and memory are encrypted */
	/* Where its guest's memory below 4 GiB ends if there is more; 0: not told. */
	uint64_t hole_start;
	unsigned vcpu_count;
	struct vm_vcpu *vcpus; /* by id */
};

/* Looks at one process below `proc` ("/proc"). GP_ERR_NOT_FOUND: it runs no virtual machine, or
 * there is no such process; GP_ERR_ACCESS_DENIED: its descriptors may not be looked at; the error
 * says what would allow it. */
gp_status_t vm_process_init(struct vm_process *process, const char *proc, pid_t pid,
			    struct error *error);
void vm_process_deinit(struct vm_process *process);

/* Only what everybody may read: kind, program, name, UUID, owner, tracer; vms and vcpu_count are 0.
 * For a process whose descriptors may not be looked at, or a VMM that does without KVM. False:
 * there is no such process, or it has no command line. No deinit() is needed. */
bool vm_process_identify(struct vm_process *process, const char *proc, pid_t pid);

struct hidden_processes {
	unsigned count;
	pid_t first; /* of some; 0: there are none */
};

/* Calls `see` for each process that runs one; those that may not be looked at are counted. */
gp_status_t vm_processes(const char *proc, void (*see)(void *context, struct vm_process *process),
			 void *context, struct hidden_processes *hidden, struct error *error);

#endif
