/* An image as a process has it in memory, as a struct file_source: the vDSO, which is in no file,
 * and pieces of a file that is mapped but not in the page cache.
 *
 * Nothing here allocates or locks; any thread; cold: not for a stopped vCPU.
 */
#ifndef GUEST_INTROSPECTION_LINUX_USER_MEMORY_H
#define GUEST_INTROSPECTION_LINUX_USER_MEMORY_H

#include "guest-introspection/elf/file_source.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stdint.h>

#define USER_MEMORY_PIECES 16

/* Pages that a process has touched, found by the file's offset. Use it where it stays. */
struct user_memory {
	struct file_source source;
	const struct guest_memory *memory;
	struct address_space space; /* the process's */
	unsigned count;
	struct {
		uint64_t start; /* linear */
		uint64_t size;
		uint64_t offset; /* in the file */
	} pieces[USER_MEMORY_PIECES];
};

/* `memory` must outlive `self`. */
void user_memory_init(struct user_memory *self, const struct guest_memory *memory,
		      const struct address_space *space);

/* Adds the mapping of [start, end) of what is in the file from `offset` on. Leave out writable
 * mappings: their pages may have been changed. False: there is no room, or it is none. */
bool user_memory_add(struct user_memory *self, uint64_t start, uint64_t end, uint64_t offset);

#endif
