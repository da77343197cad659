/* Copies the code of programs' functions out of a guest's processes. Private to sampler/: a part of
 * user_resolver.h, on its thread.
 *
 * Bytes come from the process's page tables, which have what the program has changed, and where
 * they are not there, from the page cache. What two processes map of one file is copied once.
 */
#ifndef NAMING_USER_CODE_H
#define NAMING_USER_CODE_H

#include "guest-introspection/elf/elf_image.h"
#include "guest-introspection/elf/symbol_table.h"
#include "naming/address_set.h"
#include "naming/code_copy.h"
#include "guest-introspection/linux/linux_guest.h"
#include "naming/user_words.h"

#define USER_CODE_BYTES_MAX (UINT64_C(16) << 20) /* in a trace */

struct user_code_totals {
	uint64_t functions; /* that were copied */
	uint64_t bytes;     /* of them */
	uint64_t left_out;  /* functions whose code was not at hand, or had no room */
};

struct user_code {
	struct address_set known; /* keys; marked: in the trace, or nowhere */
	struct user_code_totals totals;
	struct code_copier copier;
};

/* Where the code of one mapping is. */
struct user_code_source {
	const struct guest_memory *memory;
	struct address_space space; /* the process's */
	bool has_space;
	bool has_file; /* whose code it is, in all processes */
	bool failed;   /* no memory for records */
	struct linux_cached_file file;
	const struct elf_image *image;
	uint64_t bias;
	uint64_t file_identity; /* the same in all processes */
	struct fxt_process_symbols of;
	struct user_words *words; /* where records go */
	/* Takes the file's address of what copied code may call; `context` is the caller's. */
	void (*called)(void *context, uint64_t address);
	void *context;
	struct user_code *code;
};

void user_code_deinit(struct user_code *self);

/* A mapping of the process with `mm`; 0: it is gone, and only the page cache is left. `source` is
 * used where it stays. */
void user_code_open(struct user_code *self, const struct guest_programs *programs, uint64_t mm,
		    const struct linux_mapping *mapping, struct user_code_source *source);

/* Copies the code of a function, whose address is the file's. Returns a key for user_code_keep();
 * 0: nothing was copied. */
uint64_t user_code_copy(struct user_code_source *source, const struct symbol *symbol);

/* The same of some bytes of code that has no functions, from an address of the process on. */
uint64_t user_code_copy_window(struct user_code_source *source, uint64_t address);

/* The records with that key are going to be written: no other copy is needed. */
void user_code_keep(struct user_code *self, uint64_t key);

#endif
