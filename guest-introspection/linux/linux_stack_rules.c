#include "guest-introspection/linux/linux_stack_rules.h"

#include "base/container.h"
#include "guest-introspection/unwind/unwind_call.h"

#include <string.h>

/* struct pt_regs (arch/x86/include/asm/ptrace.h), a fixed layout since 2.6.26, which the entry
 * code pushes; its end is the CPU's interrupt frame (Intel SDM vol. 3, 6.14.2). */
#define PT_REGS_IP 128
#define PT_REGS_SP 152
#define IRET_SP 24
#define IRET_SIZE 40

static const int16_t pt_regs_at[GUEST_REGISTER_COUNT] = {
	[GUEST_R15] = 0,  [GUEST_R14] = 8,   [GUEST_R13] = 16,  [GUEST_R12] = 24,
	[GUEST_RBP] = 32, [GUEST_RBX] = 40,  [GUEST_R11] = 48,  [GUEST_R10] = 56,
	[GUEST_R9] = 64,  [GUEST_R8] = 72,   [GUEST_RAX] = 80,  [GUEST_RCX] = 88,
	[GUEST_RDX] = 96, [GUEST_RSI] = 104, [GUEST_RDI] = 112, [GUEST_RSP] = PT_REGS_SP,
};

/* The 64-bit TSS (Intel SDM vol. 3, 8.7). The entry code keeps the user's RSP where the
 * architecture has that of privilege level 2. */
#define TSS_SP0 4
#define TSS_SP2 20

/* The entry stack holds an interrupt frame, an error code, and the last register to restore. */
#define ENTRY_STACK_USED 64

/* arch/x86/include/asm/segment.h */
#define KERNEL_CODE 0x10
#define KERNEL_DATA 0x18
#define USER_CODE_32 0x23
#define USER_CODE_64 0x33

/* Calls in a row before the stack pointer is put right: two or 16. */
#define STUFFING_WORDS 16

static const struct linux_stack *self_of(const struct unwind_source *source)
{
	return container_of((struct unwind_source *)source, struct linux_stack, source);
}

/* An address in the lower half that a program could have. */
static bool is_user_address(uint64_t address)
{
	return address < UINT64_C(1) << 56;
}

static void rule_of_registers(struct unwind_rule *rule, uint8_t base, int32_t offset)
{
	rule->kind = UNWIND_INTERRUPTION;
	rule->base = base;
	rule->dereference = false;
	rule->exact = true;
	rule->offset = offset;
	rule->offset_after = 0;
	rule->return_address = PT_REGS_IP;
	rule->saved = UNWIND_ALL_REGISTERS;
	rule->preserved = 0;
	memcpy(rule->at, pt_regs_at, sizeof(rule->at));
}

static void rule_of_interrupt_frame(struct unwind_rule *rule, uint8_t base, int32_t offset)
{
	rule->kind = UNWIND_INTERRUPTION;
	rule->base = base;
	rule->dereference = false;
	rule->exact = true;
	rule->offset = offset;
	rule->offset_after = 0;
	rule->return_address = 0;
	rule->saved = UNWIND_BIT(GUEST_RSP);
	rule->preserved = UNWIND_ALL_REGISTERS;
	rule->at[GUEST_RSP] = IRET_SP;
}

/* The return address is `slots` words up the stack, and nothing else was pushed. */
static enum unwind_lookup rule_of_top(struct unwind_rule *rule, unsigned slots)
{
	rule->kind = UNWIND_CALL;
	rule->base = GUEST_RSP;
	rule->dereference = false;
	rule->offset = (int32_t)(slots + 1) * 8;
	rule->return_address = -8;
	rule->saved = 0;
	rule->preserved = UNWIND_BIT(GUEST_RBP);
	return UNWIND_FOUND;
}

/* Is there an interrupt frame of user code at `address`? What is left over from an earlier
 * entry looks the same: ask only where one belongs. */
static bool is_user_frame(struct unwind_context *context, uint64_t address)
{
	uint64_t words[IRET_SIZE / 8]; /* RIP, CS, RFLAGS, RSP, SS */

	return unwind_read(context, address, words, sizeof(words)) && (words[1] & 3) == 3 &&
	       (words[4] & 3) == 3 && is_user_address(words[0]) && is_user_address(words[3]);
}

/* Where a task begins: a program's registers at the top of its stack, or none. A kernel thread
 * has zeroes there, and a kernel's thread of a program (io_uring) no RIP. */
static enum unwind_lookup find_task_start(struct unwind_context *context, struct unwind_rule *rule,
					  uint8_t base, int32_t offset)
{
	uint64_t registers = context->gpr[base] + (uint64_t)(int64_t)offset;
	uint64_t pc;

	if (!unwind_read(context, registers + PT_REGS_IP, &pc, sizeof(pc)) || pc == 0 ||
	    !is_user_frame(context, registers + PT_REGS_IP))
		return UNWIND_ROOT;
	rule_of_registers(rule, base, offset);
	return UNWIND_FOUND;
}

/* Is there an interrupt frame at `address`, of kernel or user code? */
static bool is_frame(struct unwind_context *context, uint64_t address)
{
	uint64_t words[IRET_SIZE / 8];

	if (!unwind_read(context, address, words, sizeof(words)))
		return false;
	if ((words[1] & 3) == 3)
		return is_user_frame(context, address);
	/* __KERNEL_CS, and __KERNEL_DS or what the CPU loads on a change of level */
	return (words[1] & 0xffff) == KERNEL_CODE && (words[4] == 0 || words[4] == KERNEL_DATA);
}

static enum unwind_lookup rule_of_syscall(struct unwind_context *context, struct unwind_rule *rule,
					  uint64_t stack_pointer, uint16_t code_segment)
{
	if (!is_user_address(context->gpr[GUEST_RCX]))
		return UNWIND_NO_RULE;
	rule->kind = UNWIND_USER;
	rule->preserved = UNWIND_ALL_REGISTERS;
	rule->user.pc = context->gpr[GUEST_RCX];
	rule->user.stack_pointer = stack_pointer;
	rule->user.code_segment = code_segment;
	return UNWIND_FOUND;
}

/* In the entry code where ORC has no rule: user code was here a few instructions ago, or will be
 * (arch/x86/entry/entry_64.S, entry_64_compat.S). All registers are known: of the vCPU, or
 * saved by an NMI that came in between. */
static enum unwind_lookup find_in_entry(const struct linux_stack *self,
					struct unwind_context *context, struct unwind_rule *rule)
{
	uint64_t rsp = context->gpr[GUEST_RSP];
	uint64_t rdi = context->gpr[GUEST_RDI];
	uint64_t tss = context->cpu->tr_base;
	uint64_t sp0;
	uint64_t user_rsp = 0;

	if (!context->exact || context->known != UNWIND_ALL_REGISTERS)
		return UNWIND_NO_RULE;
	if (contains(self->syscall_32.entering, context->pc))
		return rule_of_syscall(
			context, rule,
			context->pc <= self->syscall_32.rsp_saved ? rsp : context->gpr[GUEST_R8],
			USER_CODE_32);
	if (tss == 0 || !unwind_read(context, tss + TSS_SP0, &sp0, sizeof(sp0)))
		return UNWIND_NO_RULE;
	if (contains(self->syscall_64.entering, context->pc)) {
		user_rsp = rsp;
		if (context->pc > self->syscall_64.rsp_saved &&
		    !unwind_read(context, tss + TSS_SP2, &user_rsp, sizeof(user_rsp)))
			user_rsp = 0;
		return rule_of_syscall(context, rule, user_rsp, USER_CODE_64);
	}
	/* On the way out the registers are still where RDI points, until RDI, too, is restored or
	 * serves to load CR3; then what is needed is on the entry stack. */
	if (rsp <= sp0 && sp0 - rsp < IRET_SIZE && is_user_frame(context, rdi + 16)) {
		rule_of_interrupt_frame(rule, GUEST_RDI, 16);
		return UNWIND_FOUND;
	}
	if (contains(self->syscall_64.leaving, context->pc)) {
		user_rsp = rsp;
		if (rsp <= sp0 && sp0 - rsp <= ENTRY_STACK_USED &&
		    !unwind_read(context, sp0 - 8, &user_rsp, sizeof(user_rsp)))
			user_rsp = 0;
		return rule_of_syscall(context, rule, user_rsp, USER_CODE_64);
	}
	/* The CPU pushed its interrupt frame there, or the way out copied it to the same place. */
	if (!is_user_frame(context, sp0 - IRET_SIZE))
		return UNWIND_NO_RULE;
	rule->address = sp0;
	rule_of_interrupt_frame(rule, UNWIND_BASE_ADDRESS, -IRET_SIZE);
	return UNWIND_FOUND;
}

/* A retpoline calls into itself and overwrites the return address with its target
 * (arch/x86/lib/retpoline.S): for three instructions the caller's is one slot up. */
static enum unwind_lookup find_in_retpoline(const struct linux_stack *self,
					    struct unwind_context *context,
					    struct unwind_rule *rule)
{
	uint64_t top;
	uint8_t code;

	if (!unwind_read(context, context->gpr[GUEST_RSP], &top, sizeof(top)) ||
	    !unwind_read(context, context->pc, &code, sizeof(code)))
		return UNWIND_NO_RULE;
	/* ret, or jmp to what has replaced it */
	return rule_of_top(rule,
			   contains(self->retpolines, top) || code == 0xc3 || code == 0xe9 ? 1 : 0);
}

/* A retpoline's return may be a jump to a thunk that returns: its target is on top there, too. */
static bool returns_for_retpoline(const struct linux_stack *self, struct unwind_context *context)
{
	uint64_t top;

	return contains(self->thunks, context->pc) &&
	       unwind_read(context, context->gpr[GUEST_RSP], &top, sizeof(top)) &&
	       !unwind_is_return_address(context, top);
}

static enum unwind_lookup find_at_end(const struct linux_stack *self,
				      struct unwind_context *context, struct unwind_rule *rule)
{
	if (contains(self->fork, context->pc))
		return find_task_start(context, rule, GUEST_RSP, 0);
	if (contains(self->entry_text, context->pc))
		return find_in_entry(self, context, rule);
	if (contains(self->thunks, context->pc))
		return context->exact ? rule_of_top(rule, 0) : UNWIND_NO_RULE;
	return UNWIND_ROOT;
}

/* What asm_exc_* calls first, error_entry, takes the CPU's interrupt frame and leaves a whole
 * struct pt_regs on the entry stack; the tables speak of the frame until the next instruction has
 * loaded the task's stack. sync_regs(), which copies the registers there, is called then. */
static bool is_error_entry_done(const struct linux_stack *self, struct unwind_context *context,
				int32_t offset)
{
	uint64_t rsp = context->gpr[GUEST_RSP];

	return contains(self->entry_text, context->pc) &&
	       !is_frame(context, rsp + (uint64_t)(int64_t)offset) &&
	       is_frame(context, rsp + PT_REGS_IP);
}

static enum unwind_lookup translate_entry(const struct linux_stack *self,
					  struct unwind_context *context,
					  const struct orc_entry *entry, struct unwind_rule *rule)
{
	static const uint8_t bases[ORC_REGISTER_COUNT] = {
		[ORC_REGISTER_DX] = GUEST_RDX,          [ORC_REGISTER_DI] = GUEST_RDI,
		[ORC_REGISTER_BP] = GUEST_RBP,          [ORC_REGISTER_SP] = GUEST_RSP,
		[ORC_REGISTER_R10] = GUEST_R10,         [ORC_REGISTER_R13] = GUEST_R13,
		[ORC_REGISTER_BP_INDIRECT] = GUEST_RBP, [ORC_REGISTER_SP_INDIRECT] = GUEST_RSP,
		[ORC_REGISTER_AX] = GUEST_RAX,
	};
	unsigned sp = entry->registers & 15;
	unsigned bp = entry->registers >> 4;
	uint8_t base;
	int32_t offset = entry->sp_offset;

	if (sp < ORC_REGISTER_DX || sp >= ORC_REGISTER_COUNT)
		return UNWIND_NO_RULE;
	base = bases[sp];
	if (sp == ORC_REGISTER_SP_INDIRECT)
		offset = 0;
	if (entry->type == ORC_REGS) {
		rule_of_registers(rule, base, offset);
	} else if (entry->type == ORC_REGS_PARTIAL) {
		if (sp == ORC_REGISTER_SP && is_error_entry_done(self, context, offset)) {
			rule_of_registers(rule, GUEST_RSP, 0);
			return UNWIND_FOUND;
		}
		rule_of_interrupt_frame(rule, base, offset);
	} else {
		rule->kind = UNWIND_CALL;
		rule->base = base;
		rule->offset = offset;
		rule->return_address = -8;
		rule->saved = 0;
		rule->preserved = UNWIND_BIT(GUEST_RBP);
		/* Before 5.12 the code that calls on an interrupt's stack keeps the task's in RBP
		 * (arch/x86/entry/entry_64.S, asm_call_on_stack); later it is stored on the new
		 * one.
		 */
		rule->other_stack = sp == ORC_REGISTER_BP;
	}
	rule->exact = entry->exact;
	rule->dereference = sp == ORC_REGISTER_SP_INDIRECT || sp == ORC_REGISTER_BP_INDIRECT;
	rule->offset_after = sp == ORC_REGISTER_SP_INDIRECT ? entry->sp_offset : 0;
	if (bp == ORC_REGISTER_UNDEFINED || entry->type != ORC_CALL)
		return UNWIND_FOUND;
	rule->saved = UNWIND_BIT(GUEST_RBP);
	rule->preserved = 0;
	if (bp == ORC_REGISTER_PREVIOUS_SP) {
		rule->at[GUEST_RBP] = entry->bp_offset;
		return UNWIND_FOUND;
	}
	/* Relative to bp: of functions that align their stack. The CFA must be known first. */
	if (bp == ORC_REGISTER_BP && (context->known & UNWIND_BIT(GUEST_RBP)) &&
	    (context->known & UNWIND_BIT(base))) {
		uint64_t cfa = context->gpr[base] + (uint64_t)(int64_t)offset;
		uint64_t at = context->gpr[GUEST_RBP] + (uint64_t)(int64_t)entry->bp_offset;

		if (rule->dereference) {
			if (!unwind_read(context, cfa, &cfa, sizeof(cfa)))
				return UNWIND_NO_RULE;
			cfa += (uint64_t)(int64_t)rule->offset_after;
		}
		if ((int64_t)(at - cfa) < INT16_MIN || (int64_t)(at - cfa) > INT16_MAX)
			return UNWIND_NO_RULE;
		rule->base = UNWIND_BASE_ADDRESS;
		rule->address = cfa;
		rule->offset = 0;
		rule->dereference = false;
		rule->at[GUEST_RBP] = (int16_t)(int64_t)(at - cfa);
		return UNWIND_FOUND;
	}
	return UNWIND_NO_RULE;
}

/* A kernel with frame pointers marks one that points to saved registers with its lowest bit
 * (arch/x86/include/asm/frame.h, ENCODE_FRAME_POINTER), and clears it on entry from a program,
 * whose registers are then right above the first call's return address. */
static enum unwind_lookup find_by_marks(const struct linux_stack *self,
					struct unwind_context *context, struct unwind_rule *rule)
{
	uint64_t frame_pointer = context->gpr[GUEST_RBP];

	if (!(context->known & UNWIND_BIT(GUEST_RBP)))
		return UNWIND_NOT_FOUND;
	if (frame_pointer == 0 && !context->exact)
		return contains(self->entry_text, context->pc)
			       ? find_task_start(context, rule, GUEST_RSP, 0)
			       : UNWIND_ROOT;
	if ((frame_pointer & 7) != 1)
		return UNWIND_NOT_FOUND;
	if (context->exact)
		return UNWIND_NOT_FOUND; /* the entry code itself may be saving them */
	if (find_task_start(context, rule, GUEST_RBP, -1) == UNWIND_FOUND)
		return UNWIND_FOUND;
	if (contains(self->fork, context->pc))
		return UNWIND_ROOT;
	rule_of_registers(rule, GUEST_RBP, -1);
	return UNWIND_FOUND;
}

/* Calls to the next instruction but one fill the CPU's return stack buffer when tasks are switched
 * (arch/x86/include/asm/nospec-branch.h, __FILL_RETURN_BUFFER), by one of several sequences that
 * are patched in, while the tables speak of another. What holds behind them holds there, but for
 * the return addresses not taken off again. */
static enum unwind_lookup find_in_stuffing(const struct linux_stack *self,
					   struct unwind_context *context, struct unwind_rule *rule)
{
	const struct orc_entry *entry = orc_find(&self->orc, self->stuffing.end);
	uint64_t top[STUFFING_WORDS];
	int32_t surplus = 0;
	enum unwind_lookup lookup;

	if (!entry || entry->type != ORC_CALL ||
	    !unwind_read(context, context->gpr[GUEST_RSP], top, sizeof(top)))
		return UNWIND_NO_RULE;
	for (unsigned i = 0; i < STUFFING_WORDS && contains(self->stuffing, top[i]); i++)
		surplus += 8;
	lookup = translate_entry(self, context, entry, rule);
	if (lookup == UNWIND_FOUND)
		rule->offset += surplus;
	return lookup;
}

enum unwind_lookup linux_stack_find(const struct unwind_source *source,
				    struct unwind_context *context, struct unwind_rule *rule)
{
	const struct linux_stack *self = self_of(source);
	const struct orc_entry *entry;
	uint64_t pc = context->pc;

	if (self->orc.kernel.count == 0)
		return find_by_marks(self, context, rule);
	if (context->exact && contains(self->retpolines, pc))
		return find_in_retpoline(self, context, rule);
	if (context->exact && contains(self->stuffing, pc))
		return find_in_stuffing(self, context, rule);
	/* The program's stack is loaded; the tables look for registers below it. */
	if (context->exact && contains(self->syscall_32.leaving, pc))
		return rule_of_syscall(context, rule, context->gpr[GUEST_RSP], USER_CODE_32);
	/* What holds behind a call need not hold at it, when the callee does not return. A new
	 * task's stack has the start of its first code, which nobody called. */
	entry = orc_find(&self->orc, context->exact || pc == self->fork.start ? pc : pc - 1);
	if (!entry)
		return UNWIND_NOT_FOUND;
	switch (entry->type) {
	case ORC_UNDEFINED:
		return context->exact ? rule_of_top(rule, 0) : UNWIND_NO_RULE;
	case ORC_END:
		return find_at_end(self, context, rule);
	default:
		if (context->exact && returns_for_retpoline(self, context))
			return rule_of_top(rule, 1);
		return translate_entry(self, context, entry, rule);
	}
}

bool linux_stack_vouches_for(const struct unwind_source *source, uint64_t address)
{
	const struct linux_stack *self = self_of(source);
	const struct orc_entry *entry = orc_find(&self->orc, address - 1);

	if (self->fork.start && address == self->fork.start)
		return true;
	return entry && (entry->type == ORC_END ||
			 (entry->type == ORC_CALL && contains(self->start_text, address)));
}
