/* Stacks of a Linux kernel: what guest_unwind() needs to follow them, prepared once per boot.
 *
 * Rules come from the kernel's ORC tables (orc.h). Where those end and the stack does not, in
 * the few instructions between user code and a kernel stack with the registers on it, what
 * the entry code is known to do says where the program goes on. A kernel that has no ORC
 * tables is followed by its frame pointers, which say themselves where registers were saved.
 *
 * Preparing is a cold path that allocates. What was prepared does not change (but for
 * linux_stack_add_module()), and any thread may unwind with it while vCPUs are stopped.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_STACK_H
#define GUEST_INTROSPECTION_LINUX_LINUX_STACK_H

#include "base/error.h"
#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/linux/orc.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/unwind/unwind_source.h"

#include <stdbool.h>
#include <stdint.h>

struct linux_stack;

/* Prepares stacks of `kernel`. `note` is set when a kernel is followed with less than it could
 * be: a line that says what is missing, such as ORC tables of an unknown format; empty
 * otherwise. GP_ERR_NO_MEMORY; `*out` is untouched on failure. The guest may run meanwhile. */
gp_status_t linux_stack_create(const struct guest_memory *memory, const struct linux_kernel *kernel,
			       const struct symbol_table *symbols, struct linux_stack **out,
			       struct error *note, struct error *error);

/* One with what `base` knows of the kernel and none of its modules, to which those that are loaded
 * now are added: cheap, because the kernel's tables are used by both. `base` must live longer. */
gp_status_t linux_stack_create_from(const struct linux_stack *base, struct linux_stack **out,
				    struct error *error);

/* NULL is ignored. Nobody may unwind with it any more. */
void linux_stack_destroy(struct linux_stack *stack);

/* For guest_unwind(); as long as `stack` lives. */
const struct unwind_kernel *linux_stack_unwind_kernel(const struct linux_stack *stack);

/* Whether there are ORC tables, and what they are. */
const struct orc *linux_stack_orc(const struct linux_stack *stack);

/* Adds a module's tables. Nobody may unwind meanwhile: for modules that are loaded later, make
 * another one and exchange the two. Errors as orc_add_module(); GP_ERR_NOT_FOUND without ORC. */
gp_status_t linux_stack_add_module(struct linux_stack *stack, const struct guest_memory *memory,
				   const struct orc_module *module, struct error *error);

#endif
