/* Unwind sources: where rules come from, what a rule says, and what a source and the evaluator
 * share while one stack is walked.
 *
 * A source looks a frame up and gives a rule, which says how to get to the caller; unwind.c applies
 * it. Hot: a vCPU is stopped. A source allocates nothing, locks nothing, does not block, and reads
 * the guest only through the context.
 */
#ifndef GUEST_INTROSPECTION_UNWIND_UNWIND_SOURCE_H
#define GUEST_INTROSPECTION_UNWIND_UNWIND_SOURCE_H

#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stdint.h>

/* Why a stack ended. Written into sample records: the numbers are stable. */
enum stack_end {
	/* Frame pointer or return address 0, or where the kernel starts its threads. In code
	 * built without frame pointers the first is a register like any other: only its builder
	 * knows. */
	STACK_END_ROOT = 1,
	STACK_END_DEPTH_LIMIT,    /* there are more frames than `capacity` */
	STACK_END_NOT_PRESENT,    /* stack or code page not present */
	STACK_END_BAD_POINTER,    /* unaligned, non-canonical, not rising, wrong rights */
	STACK_END_OUTSIDE_MEMORY, /* a page or a page table is not in guest memory */
	STACK_END_NO_RULE,        /* no source knows, or no call comes before the address */
};

struct unwind_kernel;
struct unwind_program;

/* A page that stack or code was read on, with the right to be there. */
struct unwind_page {
	uint64_t start; /* linear */
	uint64_t size;  /* 0: none */
	uint64_t gpa;   /* of `start` */
};

/* What an unwind source and the evaluator share while one stack is walked. */
struct unwind_context {
	const struct guest_memory *memory;
	const struct unwind_kernel *kernel;   /* may be NULL */
	const struct unwind_program *program; /* may be NULL */
	const struct guest_cpu *cpu;          /* of the leaf */
	struct address_space space;
	struct translation_cache cache; /* of `space` */
	struct unwind_page stack_page;  /* the last one of each */
	struct unwind_page code_page;
	unsigned word;      /* bytes of a stack slot: 4 or 8; 0 for 16-bit code */
	uint64_t code_base; /* linear = base + offset; 0 in 64-bit code */
	uint64_t stack_base;
	bool user; /* CPL 3 */
	/* Code of a guest that runs its kernel from user pages has no such bit to tell by. */
	bool supervisor_pages;   /* CPL < 3 and the leaf's page is a supervisor page */
	unsigned stack_switches; /* so far */
	/* The frame being unwound; offsets, not linear, except `pc`. */
	bool exact;     /* `pc` is the next instruction, not a return address */
	bool frameless; /* the frame below was found to have no frame pointer */
	bool chained; /* a frame was found by its frame pointer: so is the next, where nothing else
		       * is known */
	uint64_t pc;
	uint16_t known; /* a bit for each register whose value in this frame is known */
	uint64_t gpr[GUEST_REGISTER_COUNT];
};

/* Where another address space, or another privilege, begins. */
static inline void unwind_forget_pages(struct unwind_context *context)
{
	translation_cache_clear(&context->cache);
	context->stack_page.size = 0;
	context->code_page.size = 0;
}

#define UNWIND_BIT(number) ((uint16_t)(1u << (number)))
#define UNWIND_ALL_REGISTERS ((uint16_t)0xffff)

/* A base that is no register: `address` of the rule. */
#define UNWIND_BASE_ADDRESS GUEST_REGISTER_COUNT

enum unwind_kind {
	/* A call: its return address is in memory. */
	UNWIND_CALL,
	/* An interruption: CS follows the return address in memory, and RSP is among the saved
	 * registers. The interrupted code may be user code. */
	UNWIND_INTERRUPTION,
	/* A program that was interrupted for a signal: the kernel has stored its registers, RSP
	 * among the saved ones, at base + n; the offset is 0. */
	UNWIND_SIGNAL,
	/* The source knows where user code goes on: `user` of the rule. */
	UNWIND_USER,
};

/* How to get from a frame to its caller. All offsets are bytes. The canonical frame address
 * (CFA) is base + offset, and for a call the caller's stack pointer after the return. */
struct unwind_rule {
	enum unwind_kind kind;
	uint8_t base;     /* enum guest_register, or UNWIND_BASE_ADDRESS */
	bool dereference; /* CFA = the word at base + offset, + offset_after */
	bool exact;       /* interruptions: the return address is the next instruction itself */
	int32_t offset;
	int32_t offset_after;
	int32_t return_address; /* stored at CFA + this */
	/* What the caller's registers are: stored in memory, the same as in this frame, or (all
	 * others) unknown. RSP of a call is the CFA and in neither mask. */
	uint16_t saved;
	uint16_t preserved;
	uint16_t from_base; /* saved ones that are stored at base + n; 0 when find() is called */
	/* The caller's frame may be on another stack than this one's; false when find() is called.
	 * A rule that dereferences says so by itself. */
	bool other_stack;
	int16_t at[GUEST_REGISTER_COUNT]; /* saved: stored at CFA + this */
	uint64_t address;
	struct {
		uint64_t pc;
		uint64_t stack_pointer;
		uint16_t code_segment; /* selector; the other registers are `preserved` */
	} user;
};

enum unwind_lookup {
	UNWIND_FOUND,
	UNWIND_NOT_FOUND, /* not this source's code: another one may be asked */
	UNWIND_ROOT,
	UNWIND_NO_RULE, /* this source's code, and there is no way on */
};

/* Where rules come from. */
struct unwind_source {
	/* Required. Looks up the frame that `context` describes. May read guest memory through
	 * the context's cache; must not allocate, lock or block (a vCPU is stopped). */
	enum unwind_lookup (*find)(const struct unwind_source *source,
				   struct unwind_context *context, struct unwind_rule *rule);
	/* Optional. Whether `address` is a return address though there is no call before it, or no
	 * code any more: a starting routine puts such an address on the stack by itself, and what
	 * a kernel starts with is freed while it is still at the bottom of a stack. */
	bool (*vouches_for)(const struct unwind_source *source, uint64_t address);
};

extern const struct unwind_source unwind_frame_pointer_source;

/* A guest kernel in 64-bit mode that was prepared. Read-only while stacks are unwound, from
 * any number of threads. linux_stack.h makes one. */
struct unwind_kernel {
	/* Its own page tables, which map its code and stacks at any time. A vCPU's CR3 need not:
	 * page-table isolation loads it late and leaves it early. */
	struct address_space space;
	const struct unwind_source *source; /* of its code; frame pointers where it knows none */
};

/* A 64-bit program, or rather one address space, that was prepared. Read-only while stacks are
 * unwound, from any number of threads. eh_frame_process.h makes one. */
struct unwind_program {
	uint64_t mm; /* what the kernel calls it: linear address of its struct mm_struct */
	/* gpa of its page tables, mm->pgd: with page-table isolation those of the kernel. */
	uint64_t root;
	const struct unwind_source *source; /* of its code; frame pointers where it knows none */
};

/* The one of `count` programs, sorted by mm, that is `mm`; NULL: none. Hot. */
static inline const struct unwind_program *
unwind_program_find(const struct unwind_program *const *programs, unsigned count, uint64_t mm)
{
	unsigned low = 0;
	unsigned high = count;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (programs[middle]->mm < mm)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && programs[low]->mm == mm ? programs[low] : NULL;
}

/* For sources: copies `size` bytes of this frame's address space; false: cannot be read. */
static inline bool unwind_read(struct unwind_context *context, uint64_t address, void *buffer,
			       size_t size)
{
	return guest_read_virtual(&context->space, &context->cache, context->memory, gva(address),
				  buffer, size) == TRANSLATE_OK;
}

/* For sources: an offset in a segment as a linear address, with the wrap of the mode. */
static inline uint64_t unwind_linear(const struct unwind_context *context, uint64_t base,
				     uint64_t offset)
{
	return context->word == 8 ? offset : (uint32_t)(base + offset);
}

#endif
