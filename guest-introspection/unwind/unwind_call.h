/* Return addresses, and the callers of ordinary calls: most of every stack is those.
 *
 * An ordinary call stores its return address right below the CFA, and at most RBP besides. unwind.c
 * has the rules for everything, this is the short way for what is hot.
 */
#ifndef GUEST_INTROSPECTION_UNWIND_UNWIND_CALL_H
#define GUEST_INTROSPECTION_UNWIND_UNWIND_CALL_H

#include "guest-introspection/unwind/unwind_source.h"

/* The biggest step from one frame to the next. Kernel stacks are 16 or 32 KiB on Linux;
 * other systems and unikernels get room. Beyond it a "frame pointer" is just a register. */
#define FRAME_SIZE_LIMIT_SUPERVISOR (UINT64_C(1) << 18)
#define FRAME_SIZE_LIMIT_USER (UINT64_C(1) << 24)

static inline uint64_t unwind_frame_limit(const struct unwind_context *context)
{
	return context->user ? FRAME_SIZE_LIMIT_USER : FRAME_SIZE_LIMIT_SUPERVISOR;
}

/* Why a stack ends at an address that does not translate. */
enum stack_end unwind_end_of_result(enum translate_result result);

/* Does a page with these rights belong to code of the leaf's privilege? */
static inline bool unwind_privilege_matches(const struct unwind_context *context,
					    const struct translation *translation)
{
	if (context->user)
		return translation->user;
	return !context->supervisor_pages || !translation->user;
}

/* What was prepared for this frame's code; NULL: nothing. */
const struct unwind_source *unwind_prepared_source(const struct unwind_context *context);

/* Accepts a linear return address, or gives the reason not to. */
bool unwind_check_return_address(struct unwind_context *context, uint64_t address,
				 enum stack_end *end);

/* For sources: whether `address` would be accepted as a return address of this frame's privilege.
 */
bool unwind_is_return_address(struct unwind_context *context, uint64_t address);

enum unwind_step {
	UNWIND_STEPPED,
	UNWIND_ENDS,
	UNWIND_NOT_PLAIN, /* nothing was done */
};

/* Applies the rule of an ordinary call in 64-bit code: the frame in `context` becomes the caller's,
 * or the stack ends here, for the reason in `end`. */
enum unwind_step unwind_plain_call(struct unwind_context *context, const struct unwind_rule *rule,
				   enum stack_end *end);

#endif
