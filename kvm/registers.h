/* A vCPU's registers in the form of KVM's API, as a plain value.
 *
 * What vmm/ and attach/ share: both get registers from a KVM_RUN's shared page or an ioctl, and
 * nothing above them knows KVM's types.
 */
#ifndef KVM_REGISTERS_H
#define KVM_REGISTERS_H

#include "guest-introspection/x86/guest_cpu.h"

struct kvm_regs;
struct kvm_sregs;

/* Fills in all of `cpu`. Any thread; may be called while a vCPU is stopped. */
void kvm_registers_value(const struct kvm_regs *regs, const struct kvm_sregs *sregs,
			 struct guest_cpu *cpu);

#endif
