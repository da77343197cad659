/* Stacks of a stopped vCPU, from its registers and the guest's memory alone.
 *
 * An unwind source looks a frame up and gives a rule; one evaluator reads memory and applies
 * rules. The source here follows frame pointers (16-bit code has none) and repairs the leaf
 * where its instruction bytes prove where the return address is.
 *
 * Nothing is invented: a return address counts only when it lies in an executable page of
 * the same privilege, right behind a call instruction. What cannot be followed ends the
 * stack with the reason. Fixed size, nothing allocated, every loop bounded by `capacity`.
 */
#ifndef GUEST_INTROSPECTION_UNWIND_H
#define GUEST_INTROSPECTION_UNWIND_H

#include "guest-introspection/guest_cpu.h"
#include "guest-introspection/guest_memory.h"
#include "guest-introspection/translate.h"

#include <stdbool.h>
#include <stdint.h>

/* Why a stack ended. Written into sample records: the numbers are stable. */
enum stack_end {
	/* Frame pointer or return address 0. In code built without frame pointers the former is
	 * a register like any other: only who built the guest knows. */
	STACK_END_ROOT = 1,
	STACK_END_DEPTH_LIMIT,    /* there are more frames than `capacity` */
	STACK_END_NOT_PRESENT,    /* stack or code page not present */
	STACK_END_BAD_POINTER,    /* unaligned, non-canonical, not rising, wrong rights */
	STACK_END_OUTSIDE_MEMORY, /* a page or a page table is not in guest memory */
	STACK_END_NO_RULE,        /* no source knows, or no call stands before the address */
};

/* "root reached", "depth limit", ...; "unknown" for other numbers. Static storage. */
const char *stack_end_string(enum stack_end end);

struct unwind_stack {
	unsigned count;
	enum stack_end end;
};

/* Fills `pcs`, leaf first: pcs[0] is where the vCPU is (linear: CS.base + RIP), the others
 * are return addresses, so they point behind their call. At most `capacity` entries. */
struct unwind_stack guest_unwind(const struct guest_memory *memory, const struct guest_cpu *cpu,
				 uint64_t *pcs, unsigned capacity);

/* What an unwind source and the evaluator share while one stack is walked. */
struct unwind_context {
	const struct guest_memory *memory;
	struct address_space space;
	struct translation_cache cache;
	unsigned word;      /* bytes of a stack slot: 4 or 8; 0 for 16-bit code */
	uint64_t code_base; /* linear = base + offset; 0 in 64-bit code */
	uint64_t stack_base;
	bool user; /* CPL 3 */
	/* Code of a guest that runs its kernel from user pages has no such bit to tell by. */
	bool supervisor_pages; /* CPL < 3 and the leaf's page is a supervisor page */
	/* The frame being unwound; offsets, not linear, except `pc`. */
	unsigned depth; /* 0 for the leaf */
	uint64_t pc;
	uint64_t stack_pointer;
	uint64_t frame_pointer;
};

enum unwind_base { UNWIND_FROM_STACK_POINTER, UNWIND_FROM_FRAME_POINTER };

/* How to get from a frame to its caller, in stack slots. The canonical frame address (CFA) is
 * the stack pointer of the caller after the return. */
struct unwind_rule {
	enum unwind_base base;
	int cfa;                  /* CFA = base register + cfa slots */
	int return_address;       /* stored at CFA + this many slots */
	bool frame_pointer_saved; /* otherwise the register still holds the caller's */
	int frame_pointer;        /* stored at CFA + this many slots */
};

enum unwind_lookup { UNWIND_FOUND, UNWIND_NOT_FOUND, UNWIND_ROOT };

/* Where rules come from. */
struct unwind_source {
	/* Required. Looks up the frame that `context` describes. May read guest memory through
	 * the context's cache; must not allocate, lock or block (a vCPU is stopped). */
	enum unwind_lookup (*find)(const struct unwind_source *source,
				   struct unwind_context *context, struct unwind_rule *rule);
};

extern const struct unwind_source unwind_frame_pointer_source;

#endif
