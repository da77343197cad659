#include "kvm/registers.h"

#include <linux/kvm.h>

static struct guest_segment segment_value(const struct kvm_segment *segment)
{
	return (struct guest_segment){
		.base = segment->base,
		.limit = segment->limit,
		.selector = segment->selector,
		.dpl = segment->dpl,
		.long_mode = segment->l,
		.default_size = segment->db,
	};
}

void kvm_registers_value(const struct kvm_regs *regs, const struct kvm_sregs *sregs,
			 struct guest_cpu *cpu)
{
	cpu->gpr[GUEST_RAX] = regs->rax;
	cpu->gpr[GUEST_RCX] = regs->rcx;
	cpu->gpr[GUEST_RDX] = regs->rdx;
	cpu->gpr[GUEST_RBX] = regs->rbx;
	cpu->gpr[GUEST_RSP] = regs->rsp;
	cpu->gpr[GUEST_RBP] = regs->rbp;
	cpu->gpr[GUEST_RSI] = regs->rsi;
	cpu->gpr[GUEST_RDI] = regs->rdi;
	cpu->gpr[GUEST_R8] = regs->r8;
	cpu->gpr[GUEST_R9] = regs->r9;
	cpu->gpr[GUEST_R10] = regs->r10;
	cpu->gpr[GUEST_R11] = regs->r11;
	cpu->gpr[GUEST_R12] = regs->r12;
	cpu->gpr[GUEST_R13] = regs->r13;
	cpu->gpr[GUEST_R14] = regs->r14;
	cpu->gpr[GUEST_R15] = regs->r15;
	cpu->rip = regs->rip;
	cpu->rflags = regs->rflags;
	cpu->cr0 = sregs->cr0;
	cpu->cr3 = sregs->cr3;
	cpu->cr4 = sregs->cr4;
	cpu->efer = sregs->efer;
	cpu->cs = segment_value(&sregs->cs);
	cpu->ss = segment_value(&sregs->ss);
	cpu->ds = segment_value(&sregs->ds);
	cpu->fs = segment_value(&sregs->fs);
	cpu->gs = segment_value(&sregs->gs);
	cpu->idt_base = sregs->idt.base;
	cpu->idt_limit = sregs->idt.limit;
	cpu->tr_base = sregs->tr.base;
	/* The CPU keeps its privilege level in SS's descriptor (Intel SDM 3A, 5.5). In real mode
	 * the DPL fields are what an earlier mode left there. */
	cpu->cpl = sregs->cr0 & X86_CR0_PROTECTED ? sregs->ss.dpl & 3 : 0;
	if (regs->rflags & X86_RFLAGS_VIRTUAL_8086)
		cpu->cpl = 3;
}
