/* One look at the guest's processes: takes mmap events of address spaces, and turns sampled
 * addresses into files, offsets and names. Part of user_names.h, which has the states; on the
 * learner thread. Allocates; everything it reads is untrusted and every loop bounded.
 */
#ifndef NAMING_USER_LOOK_H
#define NAMING_USER_LOOK_H

#include "naming/user_code.h"
#include "naming/user_space.h"
#include "guest-introspection/linux/linux_guest.h"

struct user_look;

/* NULL: no memory. */
struct user_look *user_look_create(void);
void user_look_destroy(struct user_look *self);

/* False: this guest's processes cannot be looked into (yet). */
bool user_look_begin(struct user_look *self, struct linux_guest *guest);

/* Looks at `count` spaces with the addresses that wait in them. What was
 * found is in `words`, `named` and `replaced` of each. `clock_ns` is of the samples' clock;
 * `now_ns` is not before it, and decides what is due. */
void user_look_at(struct user_look *self, struct user_space *const *spaces, size_t count,
		  uint64_t clock_ns, uint64_t now_ns);

/* After user_look_begin(): user mode runs on page tables of its own. */
bool user_look_isolated(const struct user_look *self);

/* Of all copies of code so far. */
struct code_totals user_look_code_totals(const struct user_look *self);

#endif
