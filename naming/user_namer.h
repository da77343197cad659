/* Finds the names of sampled addresses of user programs, from guest memory alone. Private to
 * sampler/.
 *
 *   reader thread:  samples -> user_namer_see_sample()      which address of which process, when
 *   learner thread: user_namer_resolve()                    mappings, files, symbols; slow
 *   reader thread:  user_namer_write()                      symbol blobs, module and mmap records
 *
 * Names belong to a generation: one program in one address space of one process. A process that
 * executes another program gets another address space, so samples of a process that come with other
 * page tables begin a generation. Page tables are pages and come back, and so do pids; hence a
 * generation also begins when the process has another name, when the samples before it were of
 * other page tables, and when a look into the guest finds another mm_struct, another task or
 * another stack behind the same page tables, or another file at a place where one was named. Only
 * the latest generation of a process is looked up in the guest, which knows nothing of earlier
 * ones. Times between the last look that found the old and the first that found the new belong to a
 * generation without names.
 *
 * What is not closed: a process that within one such interval (100 ms) executes a program and then
 * a second one, on the pages that its first tables had, without a sample of the program between and
 * without a change of its name.
 *
 * Everything is bounded; what has no room is not named.
 */
#ifndef NAMING_USER_NAMER_H
#define NAMING_USER_NAMER_H

#include "fxt/sample.h"
#include "guest-introspection/linux/linux_guest.h"
#include "naming/user_resolver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USER_PROCESSES_MAX 8192u /* then the one not sampled for longest is forgotten */
#define USER_GENERATIONS_MAX 64u /* of a process; then its samples are not looked at */
#define USER_PROGRAM_ADDRESSES_MAX (1u << 16) /* of a generation; others are not looked at */
#define USER_ADDRESSES_MAX (1u << 20)         /* of all generations remembered */
#define USER_OUTPUT_MAX (UINT64_C(4) << 20)   /* words that wait for user_namer_write() */

struct user_namer;

/* NULL: no memory. `view` must outlive it. */
struct user_namer *user_namer_create(struct linux_guest *view);
void user_namer_destroy(struct user_namer *namer);

/* Reader thread. Remembers the user frames of a sample. True: of an address space that was not seen
 * before, so that looking at once is worth while: it may be gone soon. */
bool user_namer_see_sample(struct user_namer *namer, const struct fxt_sample *sample);

/* Reader thread: a process has this name from the next sample on. */
void user_namer_see_name(struct user_namer *namer, uint64_t process, const char *name, size_t size);

/* Reader thread. Writes whole records with what has been found; `named` gets each sampled address
 * that a function was found for. */
struct user_namer_output {
	void (*write)(void *context, const uint64_t *words, size_t count);
	void (*named)(void *context, uint64_t address);
	void *context;
};
void user_namer_write(struct user_namer *namer, const struct user_namer_output *output);

/* After the learner has ended: what was copied of programs' code. */
struct user_code_totals user_namer_code_totals(const struct user_namer *namer);

/* Learner thread; after it has ended, any one. Looks up what is waiting, as much as one look may
 * cost. False: there was nothing to look up, or it cannot be (yet). */
bool user_namer_resolve(struct user_namer *namer);

/* The same threads: what was put off is looked up at the next look. For the end. */
void user_namer_hurry(struct user_namer *namer);

#endif
