/* The CPUID leaves a vCPU answers with.
 *
 * What KVM supports on this host (KVM_GET_SUPPORTED_CPUID), with the leaves corrected that
 * describe topology and identity, which KVM copies from whatever host CPU asked: one socket,
 * one thread per core, APIC ids 0 to n-1. The guest gets no performance counters: its NMI
 * watchdog would take them and cost it exits.
 */
#ifndef VMM_CPUID_H
#define VMM_CPUID_H

#include "base/error.h"

#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPUID_ENTRIES_MAX 256

/* A struct kvm_cpuid2 with room for its entries. */
struct cpuid_table {
	uint32_t count;
	uint32_t padding;
	struct kvm_cpuid_entry2 entries[CPUID_ENTRIES_MAX];
};
_Static_assert(offsetof(struct cpuid_table, entries) == offsetof(struct kvm_cpuid2, entries),
	       "handed to KVM as a struct kvm_cpuid2");

/* What the host's KVM can give to any vCPU. */
gp_status_t cpuid_supported(int kvm_fd, struct cpuid_table *table, struct error *error);

/* Rewrites a copy of the supported table for vCPU `vcpu` of `vcpu_count`. `tsc_deadline`:
 * KVM_CAP_TSC_DEADLINE_TIMER is there, which the supported table does not show. */
gp_status_t cpuid_for_vcpu(struct cpuid_table *table, unsigned vcpu, unsigned vcpu_count,
			   bool tsc_deadline, struct error *error);

#endif
