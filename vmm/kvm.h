/* The host's KVM: what it can do, and a virtual machine made with it. */
#ifndef VMM_KVM_H
#define VMM_KVM_H

#include "base/error.h"
#include "vmm/devices/guest_ram.h"

#include <stdbool.h>
#include <stddef.h>

struct kvm {
	int fd;              /* /dev/kvm */
	size_t run_size;     /* of a vCPU's shared page, with what follows it */
	unsigned vcpus_max;  /* of one VM */
	bool sync_registers; /* registers are in the shared page after KVM_RUN */
	bool tsc_deadline;   /* the local APIC timer has the TSC-deadline mode */
};

/* Opens `path` and checks that it has all we need. The error says who may use it, what is
 * missing, and what else to do. */
gp_status_t kvm_open(const char *path, struct kvm *kvm, struct error *error);
void kvm_close(struct kvm *kvm);

/* Makes a VM with interrupt controllers, timer and `ram`; its descriptor is the caller's. */
gp_status_t kvm_create_vm(const struct kvm *kvm, const struct guest_ram *ram, int *vm_fd,
			  struct error *error);

#endif
