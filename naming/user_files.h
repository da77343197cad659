/* The symbols of the files that a guest's processes have mapped, each read once whatever maps it,
 * and those of code that programs made while they ran. Private to sampler/; for user_resolver.h,
 * one thread at a time. What has no room is read again when it is needed. */
#ifndef NAMING_USER_FILES_H
#define NAMING_USER_FILES_H

#include "guest-introspection/linux/user_symbols.h"
#include "guest-introspection/linux/linux_guest.h"

#define USER_FILES_MAX 256u                      /* that are known, some with symbols */
#define USER_FILE_BYTES_MAX (UINT64_C(96) << 20) /* of their symbols together */
#define USER_GENERATED_MAX 16u                   /* programs with code that they made */

struct user_file {
	struct linux_file key;
	char *path;    /* NULL: not known */
	bool readable; /* it is an ELF image */
	bool whole;    /* reading it again gives no more */
	unsigned reads;
	unsigned waits; /* for a copy */
	bool waiting;
	uint64_t next_read_ns;
	uint64_t last_use;
	uint64_t bytes;
	struct user_symbols symbols;
};

/* The code that the program of a generation made. */
struct user_generated {
	uint64_t process;
	uint64_t number;
	struct linux_file key;
	uint64_t next_read_ns;
	uint64_t last_use;
	struct symbol_table symbols; /* at linear addresses */
};

/* Zeroed storage has none. */
struct user_files {
	struct user_file files[USER_FILES_MAX];
	unsigned count;
	uint64_t bytes;
	uint64_t uses;
	struct user_generated generated[USER_GENERATED_MAX];
	unsigned generated_count;
	/* Of one look. */
	unsigned reads_left;
	uint64_t now;
	uint64_t deadline;
};

void user_files_deinit(struct user_files *self);

/* A look begins at `now`, of the samples' clock: it may read so much and no more. */
void user_files_begin(struct user_files *self, uint64_t now);

/* What was to be read again later is read at the next look. */
void user_files_hurry(struct user_files *self);

/* NULL: not known. Valid until the next file is added. */
struct user_file *user_files_known(struct user_files *self, const struct linux_file *key);

/* The file of a mapping, with its path, not read yet. */
struct user_file *user_files_add(struct user_files *self, const struct linux_mapping *mapping);

/* The file of a mapping, read if that is due. NULL: this look has read enough, or the process is
 * gone (`mm` 0) and the file as well, of which no copy is being looked for. */
struct user_file *user_files_of(struct user_files *self, const struct guest_programs *programs,
				uint64_t mm, const struct linux_mapping *mapping);

/* The names that a process has given to code that it made, from /tmp/perf-PID.map as the task
 * `task` sees it: read again when the file has grown. `task` 0: the process is gone. NULL: there
 * are none. */
const struct symbol_table *user_files_generated(struct user_files *self,
						const struct guest_programs *programs,
						uint64_t task, uint64_t process, uint64_t number);

#endif
