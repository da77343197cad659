/* Copies the code of programs' functions out of a guest's processes. Part of user_look.h, on its
 * thread.
 *
 * Bytes come from the process's page tables, which have what the program has changed, and where
 * they are not there, from the page cache. What two processes map of one file is copied once.
 */
#ifndef NAMING_USER_CODE_H
#define NAMING_USER_CODE_H

#include "base/hash_table.h"
#include "base/vector.h"
#include "guest-introspection/elf/elf_image.h"
#include "guest-introspection/elf/symbol_table.h"
#include "naming/code_copy.h"
#include "guest-introspection/linux/linux_guest.h"

#define USER_CODE_BYTES_MAX (UINT64_C(16) << 20) /* in a trace */

/* Zeroed storage has copied nothing. */
struct user_code {
	struct hash_table known; /* what was copied, or cannot be */
	struct code_totals totals;
	struct code_copier copier;
	/* Since the last user_code_end(). */
	struct word_vector records;
	struct word_vector keys;
	struct code_totals totals_before;
};

/* Where the code of one mapping is. */
struct user_code_source {
	const struct guest_programs *programs;
	const struct address_space *space; /* the process's; NULL: it is gone */
	const struct linux_mapping *area;
	struct fxt_process_symbols of;
	const struct elf_image *image;      /* NULL: none */
	const struct symbol_table *symbols; /* NULL: none */
	uint64_t bias;
	/* Takes a function that copied code may call. */
	void (*called)(void *context, const struct symbol *symbol, uint64_t bias);
	void *context;
	struct user_code *code;
};

void user_code_deinit(struct user_code *self);

/* Copies the code of a function, whose address is the file's. */
void user_code_copy(struct user_code_source *source, const struct symbol *symbol);

/* Copies some bytes of code that has no functions, from an address of the process on. */
void user_code_copy_window(struct user_code_source *source, uint64_t address);

/* What was copied is added to `words`; not `good`: it is forgotten, it may be another process's. */
void user_code_end(struct user_code *self, bool good, struct word_vector *words);

#endif
