/* What /dev/kvm can do on this machine.
 *
 * That it opens is not enough: on some machines it runs guests in KVM's instruction
 * emulator, which knows plain integer code and not what stock kernels are made of. The
 * probe runs two tiny guests of its own, a counting loop against the clock and one SSE
 * instruction, and believes those and not CPU flags.
 */
#ifndef VMM_KVM_PROBE_H
#define VMM_KVM_PROBE_H

#include <stdbool.h>
#include <stdint.h>

enum kvm_kind {
	KVM_NONE,          /* no /dev/kvm, or it cannot make a VM */
	KVM_NO_PERMISSION, /* it is there and this user may not open it */
	KVM_EMULATED,      /* guests run in software: integer code only, no stock kernel */
	KVM_NATIVE,        /* guests run on the CPU */
};

struct kvm_probe_capability {
	const char *name; /* as in <linux/kvm.h>, without KVM_CAP_ */
	int value;        /* of KVM_CHECK_EXTENSION; 0: absent */
	int wanted;       /* the bits, or the least value, that guestprof needs */
	bool enough;
};

#define KVM_PROBE_CAPABILITIES 14

struct kvm_probe {
	enum kvm_kind kind;
	/* Why it is no better than `kind`; "" when it is KVM_NATIVE. A constant string. */
	const char *reason;
	int error_number;        /* errno of what failed, 0 when nothing did */
	int api_version;         /* 0 when it did not open */
	bool flag_vmx, flag_svm; /* in /proc/cpuinfo: a hint, and no more than that */
	bool runs_sse;           /* the decisive test: one SSE instruction in a guest */
	bool all_capabilities;   /* every one of the list is enough */
	unsigned capability_count;
	struct kvm_probe_capability capabilities[KVM_PROBE_CAPABILITIES];
	uint32_t loop_iterations;  /* of the timed loop, one million unless time was over */
	uint64_t loop_nanoseconds; /* what they took; 0: the loop did not run */
};

/* Fills `probe`. Takes a second at most, makes VMs of its own and leaves nothing behind.
 * Any thread. It cannot fail: what does not work is the result. */
void kvm_probe(struct kvm_probe *probe);

/* "native", "emulated", "no permission", "none". */
const char *kvm_kind_name(enum kvm_kind kind);

#endif
