/* How linux_stack.c, which prepares, and linux_stack_rules.c, which looks frames up while a vCPU is
 * stopped, share one kernel. For these two only. */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_STACK_RULES_H
#define GUEST_INTROSPECTION_LINUX_LINUX_STACK_RULES_H

#include "guest-introspection/linux/orc.h"
#include "guest-introspection/unwind/unwind_source.h"

struct range {
	uint64_t start;
	uint64_t end;
};

static inline bool contains(struct range range, uint64_t address)
{
	return address >= range.start && address < range.end;
}

/* SYSCALL puts the user's RIP in RCX and leaves RSP as it is. */
struct syscall_entry {
	struct range entering;
	/* Up to here RSP is the user's; further on it is a scratch register, later the kernel's. */
	uint64_t rsp_saved;
	struct range leaving;
};

struct linux_stack {
	struct unwind_kernel unwind;
	struct unwind_source source;
	struct orc orc;
	struct range entry_text;
	struct range start_text; /* freed at the end of boot */
	struct range fork;       /* where new tasks start */
	struct range retpolines;
	struct range thunks;   /* retpolines and their like */
	struct range stuffing; /* of the return stack buffer, between two tasks */
	struct syscall_entry syscall_64;
	struct syscall_entry syscall_32;
};

/* struct unwind_source's functions for stack->source. */
enum unwind_lookup linux_stack_find(const struct unwind_source *source,
				    struct unwind_context *context, struct unwind_rule *rule);
bool linux_stack_vouches_for(const struct unwind_source *source, uint64_t address);

#endif
