#include "vmm/cpuid.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

/* Bits from the Intel SDM volume 2A, CPUID, and AMD's APM volume 3, appendix E. */
#define LEAF1_ECX_MONITOR (1u << 3)
#define LEAF1_ECX_PDCM (1u << 15)
#define LEAF1_ECX_TSC_DEADLINE (1u << 24)
#define LEAF1_ECX_HYPERVISOR (1u << 31)
#define LEAF1_EDX_HTT (1u << 28)
#define AMD_ECX_CMP_LEGACY (1u << 1)
#define AMD_ECX_PERFCTR_CORE (1u << 23)
#define TOPOLOGY_SMT 1u
#define TOPOLOGY_CORE 2u

gp_status_t cpuid_supported(int kvm_fd, struct cpuid_table *table, struct error *error)
{
	memset(table, 0, sizeof(*table));
	table->count = CPUID_ENTRIES_MAX;
	if (ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, table))
		return error_set_errno(error, errno, "cannot read KVM's CPUID leaves");
	if (table->count > CPUID_ENTRIES_MAX)
		return error_set(error, GP_ERR_INTERNAL, "KVM has %u CPUID leaves, at most %d fit",
				 table->count, CPUID_ENTRIES_MAX);
	return GP_OK;
}

/* Bits needed to number `count` things. */
static unsigned id_bits(unsigned count)
{
	unsigned bits = 0;

	while ((1u << bits) < count)
		bits++;
	return bits;
}

/* Leaves 4 and 0x8000001d share this field: how many threads share the cache. */
static void share_cache(struct kvm_cpuid_entry2 *entry, unsigned vcpu_count)
{
	unsigned level = (entry->eax >> 5) & 7;
	unsigned sharing = level >= 3 ? vcpu_count : 1;

	entry->eax &= ~(0xfffu << 14);
	entry->eax |= ((1u << id_bits(sharing)) - 1) << 14;
}

static void remove_leaf(struct cpuid_table *table, uint32_t function)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < table->count; i++)
		if (table->entries[i].function != function)
			table->entries[kept++] = table->entries[i];
	table->count = kept;
}

/* Leaves 0xb and 0x1f: level 0 one thread per core, level 1 all cores, level 2 the end. */
static gp_status_t set_topology_leaf(struct cpuid_table *table, uint32_t function, unsigned vcpu,
				     unsigned vcpu_count, struct error *error)
{
	const struct kvm_cpuid_entry2 levels[] = {
		{.eax = 0, .ebx = 1, .ecx = TOPOLOGY_SMT << 8 | 0, .edx = vcpu},
		{.eax = id_bits(vcpu_count),
		 .ebx = vcpu_count,
		 .ecx = TOPOLOGY_CORE << 8 | 1,
		 .edx = vcpu},
		{.ecx = 2, .edx = vcpu},
	};

	remove_leaf(table, function);
	for (unsigned level = 0; level < 3; level++) {
		struct kvm_cpuid_entry2 *entry;

		if (table->count == CPUID_ENTRIES_MAX)
			return error_set(error, GP_ERR_INTERNAL, "too many CPUID leaves");
		entry = &table->entries[table->count++];
		*entry = levels[level];
		entry->function = function;
		entry->index = level;
		entry->flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
	}
	return GP_OK;
}

gp_status_t cpuid_for_vcpu(struct cpuid_table *table, unsigned vcpu, unsigned vcpu_count,
			   bool tsc_deadline, struct error *error)
{
	uint32_t highest = 0;
	bool amd = false;

	for (uint32_t i = 0; i < table->count; i++) {
		struct kvm_cpuid_entry2 *entry = &table->entries[i];

		switch (entry->function) {
		case 0:
			highest = entry->eax;
			/* "AuthenticAMD"; Hygon's leaves are the same. */
			amd = entry->ebx == 0x68747541 || entry->ebx == 0x6f677948;
			break;
		case 1:
			entry->ebx &= 0x0000ffff;
			entry->ebx |= vcpu << 24;
			entry->ebx |= (1u << id_bits(vcpu_count)) << 16;
			entry->ecx |= LEAF1_ECX_HYPERVISOR;
			entry->ecx &= ~(LEAF1_ECX_MONITOR | LEAF1_ECX_PDCM);
			if (tsc_deadline)
				entry->ecx |= LEAF1_ECX_TSC_DEADLINE;
			if (vcpu_count > 1)
				entry->edx |= LEAF1_EDX_HTT;
			else
				entry->edx &= ~LEAF1_EDX_HTT;
			break;
		case 4:
			if (!(entry->eax & 0x1f))
				break;
			share_cache(entry, vcpu_count);
			entry->eax &= ~(0x3fu << 26);
			entry->eax |= ((1u << id_bits(vcpu_count)) - 1) << 26;
			break;
		case 0xa:
		case 0x80000022:
			entry->eax = entry->ebx = entry->ecx = entry->edx = 0;
			break;
		case 0x80000001:
			entry->ecx &= ~(AMD_ECX_PERFCTR_CORE | AMD_ECX_CMP_LEGACY);
			break;
		case 0x80000008:
			if (!amd)
				break;
			/* Number of cores - 1 and bits of the core's id in the APIC id. */
			entry->ecx &= 0xffff0000;
			entry->ecx |= id_bits(vcpu_count) << 12 | (vcpu_count - 1);
			break;
		case 0x8000001d:
			if (entry->eax & 0x1f)
				share_cache(entry, vcpu_count);
			break;
		case 0x8000001e:
			entry->eax = vcpu;
			entry->ebx = vcpu & 0xff; /* core id; one thread per core */
			entry->ecx = 0;           /* one node */
			break;
		default:
			break;
		}
	}
	if (highest >= 0xb) {
		gp_status_t status = set_topology_leaf(table, 0xb, vcpu, vcpu_count, error);

		if (status)
			return status;
	}
	/* 0x1f says the same as 0xb with more kinds of levels, of which there are none here. */
	remove_leaf(table, 0x1f);
	return GP_OK;
}
