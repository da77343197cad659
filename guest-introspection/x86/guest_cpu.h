/* The registers of one stopped vCPU, as a plain value.
 *
 * Filled by the owner of the vCPU (vmm/, attach/, a test); no KVM type comes this far.
 */
#ifndef GUEST_INTROSPECTION_X86_GUEST_CPU_H
#define GUEST_INTROSPECTION_X86_GUEST_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* General registers in the order of their x86 encoding. */
enum guest_register {
	GUEST_RAX,
	GUEST_RCX,
	GUEST_RDX,
	GUEST_RBX,
	GUEST_RSP,
	GUEST_RBP,
	GUEST_RSI,
	GUEST_RDI,
	GUEST_R8,
	GUEST_R9,
	GUEST_R10,
	GUEST_R11,
	GUEST_R12,
	GUEST_R13,
	GUEST_R14,
	GUEST_R15,
	GUEST_REGISTER_COUNT,
};

struct guest_segment {
	uint64_t base;
	uint32_t limit;
	uint16_t selector;
	uint8_t dpl;       /* descriptor privilege level */
	bool long_mode;    /* L: 64-bit code (CS only) */
	bool default_size; /* D/B: 32-bit code or stack */
};

struct guest_cpu {
	uint64_t gpr[GUEST_REGISTER_COUNT]; /* by enum guest_register */
	uint64_t rip;                       /* offset in CS, as the CPU has it */
	uint64_t rflags;
	uint64_t cr0;
	uint64_t cr3;
	uint64_t cr4;
	uint64_t efer;
	struct guest_segment cs;
	struct guest_segment ss;
	struct guest_segment ds;
	struct guest_segment fs;
	struct guest_segment gs;
	uint64_t idt_base; /* linear */
	uint64_t tr_base;  /* linear address of the TSS */
	uint16_t idt_limit;
	uint8_t cpl; /* current privilege level, 0..3 */
};

#define X86_CR0_PROTECTED (UINT64_C(1) << 0)
#define X86_CR0_PAGING (UINT64_C(1) << 31)
#define X86_CR4_PSE (UINT64_C(1) << 4)
#define X86_CR4_PAE (UINT64_C(1) << 5)
#define X86_CR4_LA57 (UINT64_C(1) << 12)
#define X86_EFER_LONG_MODE_ACTIVE (UINT64_C(1) << 10)
#define X86_EFER_NO_EXECUTE (UINT64_C(1) << 11)
#define X86_RFLAGS_INTERRUPT (UINT64_C(1) << 9)
#define X86_RFLAGS_VIRTUAL_8086 (UINT64_C(1) << 17)

#endif
