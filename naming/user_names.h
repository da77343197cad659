/* Names of the functions that were sampled in user programs, from guest memory alone.
 *
 *   reader   user_names_see_sample()   which address of which process, when
 *   learner  user_names_look()         mmap events, files (DSOs), symbols; slow
 *   reader   user_names_write()        symbol blobs, module and mmap records
 *
 * An address space is one program in one process: process id, page tables, and from when on. Its
 * states, and those of an address that was sampled in it:
 *
 *   NEW ---- the guest has the process -----> MAPPED --- samples with other page tables, ---> ENDED
 *    |       with these page tables: its      | ^  |     another name; a look finds another
 *    |       mapping snapshot is taken        | |  |     mm, task or stack, or another file
 *    +-- samples as for ENDED --> ENDED       +-+  |     at a sampled place
 *                                          again,  +--> AMBIGUOUS, then NEW: in the latter case,
 *                                  for new addresses    samples since the last look are of either
 *
 *   PENDING ---- the snapshot has its ----> LOCATED ---- the file's symbols ----> DONE
 *    |           mapping: it is a file       |           are there, or nothing
 *    |           and an offset now           |           more comes
 *    |                                       +-- again later, while a copy of the file is looked
 *    |                                           for, or its pages come into the page cache
 *    +-- in no mapping, twice; or the space has ended and has no snapshot that holds --> DONE
 *
 * A snapshot holds for samples up to 100 ms later: a process that ends is named from it. Once an
 * address is located, the process's end does not matter.
 *
 * Page tables are pages and come back, and so do process ids. Not noticed is a process that within
 * one look (100 ms) executes a program and then a second one, on the pages that its first tables
 * had, without a sample of the program between and without a change of its name.
 *
 * Everything is bounded; what has no room is not named, and what was not sampled for longest makes
 * room. A process that is not found is looked for eight times, 200 ms apart.
 */
#ifndef NAMING_USER_NAMES_H
#define NAMING_USER_NAMES_H

#include "fxt/sample.h"
#include "naming/user_code.h"
#include "naming/user_space.h"
#include "guest-introspection/linux/linux_guest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USER_OUTPUT_MAX (UINT64_C(4) << 20) /* words that wait for user_names_write() */

struct user_names;

/* NULL: no memory. `guest` must outlive it. */
struct user_names *user_names_create(struct linux_guest *guest);
void user_names_destroy(struct user_names *self);

/* Reader thread. Remembers the user frames of a sample. True: of an address space that was not seen
 * before, so that looking at once is worth while: it may be gone soon. */
bool user_names_see_sample(struct user_names *self, const struct fxt_sample *sample);

/* Reader thread: a process has this name from the next sample on. */
void user_names_see_process(struct user_names *self, uint64_t process, const char *name,
			    size_t size);

/* Reader thread. Writes whole records with what has been found; `named` gets each sampled address
 * that a function was found for. */
struct user_names_output {
	void (*write)(void *context, const uint64_t *words, size_t count);
	void (*named)(void *context, uint64_t address);
	void *context;
};
void user_names_write(struct user_names *self, const struct user_names_output *output);

/* Learner thread; after it has ended, any one. Looks up what is waiting, as much as one look may
 * cost. False: there was nothing to look up, or it cannot be (yet). */
bool user_names_look(struct user_names *self);

/* The same threads, at the end: what was put off until later is due. */
void user_names_skip_waits(struct user_names *self);

/* After the learner has ended: what was copied of programs' code. */
struct code_totals user_names_code_totals(const struct user_names *self);

#endif
