/* Which processes a guest's samples are of, and which programs each has run one after the other: a
 * generation is one program in one address space of one process. Private to sampler/: a part of
 * user_namer.h, under its lock. Bounded: what was not sampled for longest makes room.
 */
#ifndef NAMING_USER_PROGRAMS_H
#define NAMING_USER_PROGRAMS_H

#include "naming/address_set.h"
#include "naming/user_namer.h"
#include "naming/user_resolver.h"

#define USER_PROGRAMS_BUCKETS 4096u
#define USER_PAGE_TABLES UINT64_C(0x000ffffffffff000) /* what says where, in CR3 */
#define USER_ISOLATED_TABLES UINT64_C(0x1000) /* a program's own, with page-table isolation */

/* One program in one address space of one process. */
struct generation {
	uint64_t number;
	uint64_t root;      /* page tables of its first sample */
	uint64_t first_ns;  /* of its samples; fixed once `written` */
	bool written;       /* something with this time is in the trace */
	bool nameless;      /* it is not known which program these samples are of */
	bool tell;          /* the trace is to say that it began */
	bool fresh;         /* samples since the last look */
	bool retry;         /* some addresses are worth another look at `retry_ns` */
	unsigned attempts;  /* looks in vain since the last sample */
	uint64_t looked_ns; /* the last look that found it */
	uint64_t retry_ns;
	uint64_t quiet_until_ns; /* after a look in vain */
	bool identity_known;
	struct user_identity identity;
	struct user_place *places;
	unsigned place_count;
	struct user_kept *kept;       /* NULL: nothing */
	struct address_set addresses; /* marks: enum user_mark */
	size_t new_count;
};

struct process {
	uint64_t id;
	uint64_t last_ns;
	bool renamed; /* since its latest generation began */
	unsigned count;
	struct generation *generations[USER_GENERATIONS_MAX]; /* by first_ns */
	struct process *next;                                 /* of its bucket */
};

struct user_programs {
	struct process *buckets[USER_PROGRAMS_BUCKETS];
	unsigned process_count;
	size_t address_count;
	uint64_t next_number;
	bool forgotten; /* processes were: what comes may have been there before */
	bool isolated;  /* programs have page tables of their own */
};

/* Zeroed storage has none. */
void user_programs_deinit(struct user_programs *programs);

/* NULL: there is none. */
struct process *user_programs_find(const struct user_programs *programs, uint64_t id);
struct generation *user_programs_find_generation(const struct process *process, uint64_t number);

/* NULL: no memory. */
struct process *user_programs_add(struct user_programs *programs, uint64_t id);

void user_programs_forget_oldest(struct user_programs *programs);

/* A new generation at place `at`. One that could be taken for an earlier one has `tell` set,
 * whether it gets names or not. NULL: no memory, or it is older than all that there is room for. */
struct generation *user_programs_add_generation(struct user_programs *programs,
						struct process *process, unsigned at, uint64_t root,
						uint64_t first_ns);

/* The generation that a sample belongs to, added if need be. */
struct generation *user_programs_generation_at(struct user_programs *programs,
					       struct process *process, uint64_t root,
					       uint64_t time, bool *added);

/* An address of its samples; `stood`: the program itself was there. */
void user_programs_see(struct user_programs *programs, struct generation *generation,
		       uint64_t address, bool stood);

#endif
