/* Which guest-physical address lies where in a VMM: found by supposition and proof.
 *
 * No interface of the kernel tells it to another process. What VMMs do is little, though: the
 * guest's RAM is the largest writable mapping, or a few in a row, from address 0 on, and what does
 * not fit below the hole for devices that ends at 4 GiB goes on behind it. So each such layout is
 * supposed, and has to be proven by the guest: through its page tables, starting at its CR3, its
 * program counter must lead to executable memory. Wrong ones fail at the first or second table.
 * Where the hole begins shows only in a guest that uses memory behind it; a Linux kernel also tells
 * by what it has mapped, and for others the VMM's usual place goes first.
 */
#ifndef ATTACH_MEMORY_LAYOUT_H
#define ATTACH_MEMORY_LAYOUT_H

#include "attach/remote_memory.h"
#include "base/error.h"
#include "guest-introspection/x86/guest_cpu.h"

#include <stdbool.h>

/* The layout number `index` of those that the areas of `memory` may have, the likeliest first;
 * `hole` is where memory below 4 GiB is likely to end, 0: not known. False: there are no more. */
bool memory_layout_guess(const struct remote_memory *memory, uint64_t hole, unsigned index,
			 struct remote_layout *out);

/* Whether the registers of `count` vCPUs agree with the layout that `memory` has now: all that use
 * page tables do, and at least one does. With a Linux kernel its mapping of all memory has to end
 * where the layout does. `banner` (of 256 bytes) is set to that kernel's, or empty. */
bool memory_layout_is_proven(const struct remote_memory *memory, const struct guest_cpu *cpus,
			     unsigned count, char *banner);

/* Finds the layout and leaves it set. GP_ERR_NOT_FOUND: none agrees with these registers;
 * GP_ERR_TIMED_OUT: they prove nothing, no vCPU uses page tables now. */
gp_status_t memory_layout_find(struct remote_memory *memory, uint64_t hole,
			       const struct guest_cpu *cpus, unsigned count, char *banner,
			       struct error *error);

#endif
