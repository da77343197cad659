/* Where the return address of interrupted code is, by the instructions ahead of it.
 *
 * Compilers keep one height of the stack for each instruction, whatever way led there. So when the
 * instructions from an address on run into a return, what they take off the stack until then
 * says where the return address is, whether or not the code has a frame pointer. Libraries are full
 * of functions without a frame that programs with frame pointers spend their time in.
 *
 * Only what is understood counts: a call, a push, any other change of the stack pointer, an
 * instruction that is not known, or too long a way, and nothing is said. Hot: reads little,
 * bounded, allocates nothing.
 */
#ifndef GUEST_INTROSPECTION_UNWIND_UNWIND_EPILOGUE_H
#define GUEST_INTROSPECTION_UNWIND_UNWIND_EPILOGUE_H

#include "guest-introspection/unwind/unwind_source.h"

#include <stdbool.h>
#include <stdint.h>

/* What is on the stack at the address, bytes from the stack pointer on. */
struct unwind_epilogue {
	unsigned return_address;
	bool frame_pointer_saved; /* otherwise the register still holds the caller's */
	unsigned frame_pointer;
};

/* Looks ahead from `context->pc`, 32- or 64-bit code. False, `out` untouched: nothing is known. */
bool unwind_find_epilogue(struct unwind_context *context, struct unwind_epilogue *out);

#endif
