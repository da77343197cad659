/* The address spaces of a guest's processes, one after the other, and what was sampled in them.
 * Part of user_names.h, which has the states.
 *
 * The reader thread adds, the learner thread looks up and forgets; `lock` of struct user_names is
 * held for what is marked (R), the rest belongs to the learner.
 */
#ifndef NAMING_USER_SPACE_H
#define NAMING_USER_SPACE_H

#include "base/hash_table.h"
#include "base/vector.h"
#include "naming/mapping_snapshot.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USER_SPACES_MAX 8192u
#define USER_SPACE_ADDRESSES_MAX (1u << 16) /* sampled in one */
#define USER_ADDRESSES_MAX (1u << 20)       /* in all */
#define USER_SPACE_LISTS 4096u

/* Which program it is, beyond its page tables: a stack's place is random, a task_struct and an
 * mm_struct are reused, all of them at once hardly. */
struct user_identity {
	uint64_t mm;
	uint64_t leader;
	uint64_t start_time;
	uint64_t stack;
};

/* An address as it was sampled: the key of `seen`. */
struct user_address {
	uint64_t address;
	uint64_t leaf; /* 1: the instruction pointer; 0: the end of a call */
};

enum sampled_state { SAMPLED_PENDING, SAMPLED_LOCATED, SAMPLED_DONE };

struct sampled_address {
	uint64_t address;
	bool leaf;
	enum sampled_state state;
	unsigned misses;
	uint64_t latest_ns; /* it was sampled then or before */
	uint64_t next_ns;   /* not looked up before */
};

struct user_space {
	uint64_t process;
	uint64_t number;
	uint64_t root;          /* (R) page tables of its first sample */
	uint64_t first_ns;      /* (R) of its samples; fixed once `written` */
	uint64_t last_ns;       /* (R) */
	bool written;           /* (R) the trace has something with `first_ns` */
	bool ambiguous;         /* (R) which program its samples are of is not known: no names */
	bool renamed;           /* (R) its process has another name now */
	bool announce;          /* (R) the trace is to say that it began */
	bool looked_at;         /* (R) the learner is at it: what follows `current` is its own */
	bool resampled;         /* (R) there are samples since the last look */
	struct hash_table seen; /* (R) struct user_address, in the order of arrival */
	_Atomic bool current;   /* (R) the last of its process */

	size_t taken;         /* of `seen` */
	uint64_t ended_ns;    /* it was another program's afterwards; 0: not */
	uint64_t verified_ns; /* the guest had it then */
	bool identified;
	uint64_t task; /* of this look: a task that has `mm`; 0: none */
	struct user_identity found;
	bool replaced; /* the last look found another program, or another file at a sampled place */
	struct user_identity identity;
	struct mapping_snapshot snapshot;
	VECTOR(struct sampled_address) waiting;
	uint64_t next_waiting_ns;    /* the first of them is due */
	uint16_t modules;            /* in the trace */
	struct hash_table functions; /* in the trace: u64, where they start */
	struct user_space *next;     /* (R) of its list */
	struct word_vector words;    /* records for the reader */
	struct word_vector named;    /* addresses that a function was found for, likewise */
};

/* Each list has the spaces of some processes, the latest of a process first. */
struct user_spaces {
	struct user_space *lists[USER_SPACE_LISTS];
	unsigned count;
	size_t address_count;
	uint64_t next_number;
	bool forgotten; /* some were: what comes may have been there before */
	bool isolated;  /* user mode has page tables of its own, whose root differs in one bit */
};

/* Zeroed storage has none. */
void user_spaces_deinit(struct user_spaces *self);

/* The current space of a process. NULL: it has none. */
struct user_space *user_spaces_current(const struct user_spaces *self, uint64_t process);

/* The root without the bit that isolation changes. */
uint64_t user_spaces_root(const struct user_spaces *self, uint64_t root);

/* The space that a sample is of, added if need be. NULL: no memory or no room. */
struct user_space *user_spaces_at(struct user_spaces *self, uint64_t process, uint64_t root,
				  uint64_t time, bool *added);

/* A new space in front of one of its process's, or at the end of their list. `announce` is set if
 * it could be taken for an earlier one. NULL as above. */
struct user_space *user_spaces_add(struct user_spaces *self, struct user_space **at,
				   uint64_t process, uint64_t root, uint64_t first_ns);

/* The list of a process. */
static inline struct user_space **user_spaces_list(struct user_spaces *self, uint64_t process)
{
	return &self->lists[process % USER_SPACE_LISTS];
}

/* An address of a sample. */
void user_spaces_see(struct user_spaces *self, struct user_space *space, uint64_t address,
		     bool leaf);

/* Learner: makes room where there is little, by what was not sampled for longest. */
void user_spaces_make_room(struct user_spaces *self);

/* Learner: moves sampled addresses from `seen` to `waiting`. False: there were none. */
bool user_space_take(struct user_space *space);

#endif
