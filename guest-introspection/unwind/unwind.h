/* Stacks of a stopped vCPU, from its registers and the guest's memory alone.
 *
 * An unwind source looks a frame up and gives a rule; one evaluator reads memory and applies
 * rules, so that kinds of code mix frame by frame. The source that is always there follows
 * frame pointers (16-bit code has none) and repairs a leaf where its instruction bytes prove
 * where the return address is. A guest kernel that was prepared (struct unwind_kernel) brings
 * rules for its own code, and the way on into the program that entered it.
 *
 * Nothing is invented: a return address counts only when it lies in an executable page of
 * the same privilege, right behind a call instruction, or where the kernel's own tables say
 * that a stack begins. What cannot be followed ends the stack with the reason. Fixed size,
 * nothing allocated, every loop bounded by `capacity`.
 */
#ifndef GUEST_INTROSPECTION_UNWIND_UNWIND_H
#define GUEST_INTROSPECTION_UNWIND_UNWIND_H

#include "guest-introspection/unwind/unwind_source.h"

struct unwind_stack {
	unsigned count;
	/* Index of the first frame of user code; `count` when there is none. With frames of a
	 * kernel before it, its address is exact: where the program was interrupted. */
	unsigned user_frame;
	enum stack_end end; /* of the outermost part */
};

/* Fills `pcs`, leaf first: pcs[0] is where the vCPU is (linear: CS.base + RIP), the others
 * are return addresses, so they point behind their call, or addresses of interrupted code.
 * At most `capacity` entries. `kernel` is what was prepared for this guest's kernel, NULL for
 * none. */
struct unwind_stack guest_unwind(const struct guest_memory *memory,
				 const struct unwind_kernel *kernel, const struct guest_cpu *cpu,
				 uint64_t *pcs, unsigned capacity);

/* The same, with what was prepared for the program that the vCPU runs, or NULL. It is not used
 * when the page tables are not that program's. */
struct unwind_stack guest_unwind_program(const struct guest_memory *memory,
					 const struct unwind_kernel *kernel,
					 const struct unwind_program *program,
					 const struct guest_cpu *cpu, uint64_t *pcs,
					 unsigned capacity);

#endif
