/* The unwind rules of the guest's programs, prepared for those that were sampled.
 *
 * A capture that finds user frames of a program it has no rules for, or whose rules did not lead to
 * the stack's end, asks for that program by its mm (struct guest_knowledge, `wanted`). A learner
 * prepares it, some milliseconds for each file that is new, and publishes a list. Only learners use
 * this, one at a time; captures use the list.
 */
#ifndef GUEST_INTROSPECTION_LINUX_PROGRAM_RULES_H
#define GUEST_INTROSPECTION_LINUX_PROGRAM_RULES_H

#include "guest-introspection/linux/eh_frame_process.h"
#include "guest-introspection/linux/linux_mappings.h"
#include "guest-introspection/linux/linux_page_cache.h"
#include "guest-introspection/unwind/unwind_source.h"

#include <stdbool.h>
#include <stdint.h>

/* Programs at a time: the one that was not asked for longest makes room. */
#define PROGRAM_RULES_MAX 64

struct program_rules_entry {
	uint64_t mm;
	uint64_t stack; /* linux_mappings_stack(): another one is another program's */
	struct eh_frame_process *process; /* NULL: it has no rules that are at hand */
	uint64_t asked_ns;                /* last */
	uint64_t again_ns;                /* not to be prepared anew before */
	uint64_t wait_ns;
};

struct program_rules {
	struct eh_frame_files *files;
	struct program_rules_entry entries[PROGRAM_RULES_MAX];
	unsigned count;
	/* Taken off the list, but a capture may still use them. */
	struct eh_frame_process *retired[PROGRAM_RULES_MAX];
	unsigned retired_count;
};

/* Zeroed storage is an empty one. */
void program_rules_deinit(struct program_rules *rules);

/* `mm` was asked for at `now` (CLOCK_MONOTONIC); `copies` may be NULL. True: the list has changed.
 */
bool program_rules_want(struct program_rules *rules, const struct linux_mappings *mappings,
			const struct linux_page_cache *cache, struct file_copies *copies,
			uint64_t mm, uint64_t now);

/* Fills `list`, sorted as unwind_program_find() wants it; returns how many. */
unsigned program_rules_list(const struct program_rules *rules,
			    const struct unwind_program *list[static PROGRAM_RULES_MAX]);

/* A list made after the last change has been published and no capture uses an older one. */
void program_rules_free_retired(struct program_rules *rules);

#endif
