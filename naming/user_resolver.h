/* Looks up addresses of user programs in a guest's processes as they are now: task, mm_struct,
 * mappings, files and their symbols. Private to sampler/; the part of user_namer.h that reads the
 * guest. One thread at a time; allocates; everything it reads is untrusted and every loop bounded.
 */
#ifndef NAMING_USER_RESOLVER_H
#define NAMING_USER_RESOLVER_H

#include "guest-introspection/linux/linux_guest.h"
#include "naming/user_code.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USER_PLACES_MAX 256u /* mappings that were named in a generation */
#define USER_KEPT_MAX 64u    /* mappings of code that are kept of one */

/* Which program it is, beyond its page tables: a stack's place is random, a task_struct and an
 * mm_struct are reused, all three at once hardly. */
struct user_identity {
	uint64_t mm;
	uint64_t leader;
	uint64_t start_time;
	uint64_t stack;
};

/* A mapping of a generation that is in the trace. */
struct user_place {
	uint64_t start;
	uint64_t end;
	uint64_t identity; /* of the file, or of the kind of memory */
};

enum user_result {
	USER_WAITING,    /* not looked at */
	USER_GONE,       /* no such process, or with other page tables */
	USER_CHANGED,    /* another program than before */
	USER_LOOKED,     /* results are in `words`, `marks`, `places` */
	USER_REMEMBERED, /* the same, but it is gone: from what was kept of it */
};

enum user_mark {
	USER_NEW,     /* not looked up yet */
	USER_MISSED,  /* not in any mapping, or in one that could not be read, once */
	USER_MAPPED,  /* in a mapping, no function known */
	USER_NAMED,   /* has a function's name */
	USER_NOWHERE, /* given up */
	USER_AWAITED, /* in a mapping of which a file is being looked for: new until that is done */
};
/* Set in a mark in addition: an instruction where the program stood, of whose function the code is
 * wanted, and not the end of a call. */
#define USER_STOOD 0x80u

/* The mappings of code of a generation, as they were when they were last walked. Samples wait in
 * rings and a process may end within milliseconds: while this is young it holds for one that is
 * gone. */
struct user_kept {
	unsigned count;
	uint64_t walked_ns;
	struct linux_mapping mappings[USER_KEPT_MAX];
};

/* One generation to be looked at. */
struct user_work {
	uint64_t number; /* of the generation */
	uint64_t process;
	uint64_t root; /* page tables, from the sample: bit 12 may be set */
	bool identity_known;
	struct user_identity identity;
	struct user_place *places; /* room for USER_PLACES_MAX */
	unsigned place_count;
	struct user_kept *kept;
	uint64_t *addresses;
	uint8_t *marks; /* enum user_mark, by address; before, whether it is awaited */
	uint8_t *stood; /* USER_STOOD or 0, by address */
	size_t count;
	enum user_result result;
	bool awaited;            /* a file of theirs is being looked for, or to be read yet */
	struct user_words words; /* records; their times are filled in later */
	uint64_t *code;          /* which functions' code is among them; room for `count` */
	size_t code_count;
};

struct user_resolver;

struct user_resolver *user_resolver_create(void);
void user_resolver_destroy(struct user_resolver *resolver);

/* Looks at `count` generations, all of different processes, and changes their order. `now` is of
 * the samples' clock. False: this guest's processes cannot be looked into (yet). */
bool user_resolver_look(struct user_resolver *resolver, struct linux_guest *view, uint64_t now,
			struct user_work *work, size_t count);

/* The records of `work` are going to be written: the code that is among them needs no other copy,
 * in whatever process it is mapped. */
void user_resolver_keep_code(struct user_resolver *resolver, const struct user_work *work);

/* Of all copies so far. */
struct user_code_totals user_resolver_code_totals(const struct user_resolver *resolver);

/* What was to be read again later is read at the next look. */
void user_resolver_hurry(struct user_resolver *resolver);

/* After a look that was possible: user mode runs on page tables of its own, whose address differs
 * in bit 12. */
bool user_resolver_isolated(const struct user_resolver *resolver);

#endif
