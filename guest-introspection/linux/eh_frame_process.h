/* Unwind rules for the processes of a Linux guest: what guest_unwind_program() needs for the stacks
 * of one address space, prepared from what it has mapped.
 *
 * The bytes of .eh_frame come from the guest's page cache; what is not cached there, from the
 * memory of the process; the vDSO's from the kernel's own copy. Where a page is in neither, a copy
 * of the file is looked for (file_copies.h), else it is done without. The rules of a file are made
 * once and shared by all processes that map it.
 *
 * Preparing is cold: it allocates and takes some milliseconds for a file that is new. One thread at
 * a time for `struct eh_frame_files` and all that was made with it; unwinding with what was
 * prepared meanwhile is fine. The guest may run.
 */
#ifndef GUEST_INTROSPECTION_LINUX_EH_FRAME_PROCESS_H
#define GUEST_INTROSPECTION_LINUX_EH_FRAME_PROCESS_H

#include "base/error.h"
#include "guest-introspection/elf/file_copies.h"
#include "guest-introspection/linux/linux_mappings.h"
#include "guest-introspection/linux/linux_page_cache.h"
#include "guest-introspection/unwind/unwind_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rules of all files that were seen. What is in no process any more stays until room is
 * needed. */
struct eh_frame_files;

/* Most bytes of rules that no process uses any more, and most mappings of code of a process. */
#define EH_FRAME_FILES_BYTES ((size_t)64 << 20)
#define EH_FRAME_PROCESS_MAPPINGS 1024u

gp_status_t eh_frame_files_create(struct eh_frame_files **out, struct error *error);

/* NULL is ignored. After all processes. */
void eh_frame_files_destroy(struct eh_frame_files *files);

/* What was prepared of one address space. It does not change. */
struct eh_frame_process;

/* Prepares the processes that share `mm` (the address of a struct mm_struct). GP_ERR_NOT_FOUND: no
 * code of theirs has rules that are available, or they are gone. GP_ERR_UNAVAILABLE: neither, but a
 * copy is being looked for, so ask again soon. `copies` may be NULL. GP_ERR_NO_MEMORY. `*out` is
 * untouched on failure. To be made anew when the mappings change. */
gp_status_t eh_frame_process_create(struct eh_frame_files *files,
				    const struct linux_mappings *mappings,
				    const struct linux_page_cache *cache,
				    struct file_copies *copies, uint64_t mm,
				    struct eh_frame_process **out, struct error *error);

/* NULL is ignored. Nobody may unwind with it any more. */
void eh_frame_process_destroy(struct eh_frame_files *files, struct eh_frame_process *process);

/* For guest_unwind_program(); as long as `process` lives. */
const struct unwind_program *eh_frame_process_program(const struct eh_frame_process *process);

struct eh_frame_process_counts {
	unsigned code_mappings; /* executable ones, of files and the vDSO */
	unsigned with_rules;
	bool complete;     /* all rules that they have were available, and every mapping was seen */
	bool copy_pending; /* a copy of one with missing rules is still being looked for */
};

struct eh_frame_process_counts eh_frame_process_counts(const struct eh_frame_process *process);

/* The rules of the programs that were sampled.
 *
 * A capture that finds user frames of a program it has no rules for, or whose rules did not lead to
 * the stack's end, asks for that program by its mm (struct guest_knowledge, `wanted`). A learner
 * prepares it, some milliseconds for each file that is new, and publishes a list. Only learners use
 * this, one at a time; captures use the list. */

/* Programs at a time: the one that was not asked for longest makes room. */
#define PROGRAM_RULES_MAX 64

struct program_rules_entry {
	uint64_t mm;
	uint64_t stack; /* linux_mappings_stack(): another one is another program's */
	struct eh_frame_process *process; /* NULL: it has no rules that are available */
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
