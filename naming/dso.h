/* The files (DSOs) that a guest's processes execute, with their symbols: each read once, whatever
 * maps it, from wherever it can be had (guest-introspection/linux/user_symbols.h). A file is known
 * by its inode, size and device; the vDSO by where the kernel has its image; the code that a
 * program generates by its address space, its symbols being those of /tmp/perf-PID.map.
 *
 * One thread at a time. What has no room is read again when it is needed.
 */
#ifndef NAMING_DSO_H
#define NAMING_DSO_H

#include "guest-introspection/linux/user_symbols.h"
#include "guest-introspection/linux/linux_guest.h"

#define DSOS_MAX 256u                      /* that are known, some with symbols */
#define DSO_BYTES_MAX (UINT64_C(96) << 20) /* of their symbols together */

struct dso {
	struct linux_file key;
	uint64_t owner; /* the address space whose generated code it is; 0: a file */
	char *path;     /* NULL: not known */
	bool readable;  /* it is an ELF image */
	bool complete;  /* reading it again gives no more */
	bool awaited;   /* a copy of it is being looked for */
	unsigned reads;
	unsigned waits; /* for a copy */
	uint64_t next_read_ns;
	uint64_t last_use;
	uint64_t bytes;
	struct linux_file perf_map; /* as it was read last; it grows */
	struct user_symbols symbols;
};

/* Zeroed storage has none. */
struct dsos {
	struct dso dsos[DSOS_MAX];
	unsigned count;
	uint64_t bytes;
	uint64_t uses;
	/* Of one look. */
	unsigned reads_left;
	uint64_t now;
	uint64_t deadline;
};

void dsos_deinit(struct dsos *self);

/* A look begins: it may read so much and no more. `now` decides what is read again. */
void dsos_begin(struct dsos *self, uint64_t now);

/* Whether this look has used up its time or its reads. */
bool dsos_are_exhausted(struct dsos *self);

/* Notes the file of a mapping with its path, unread. Of the vDSO, completes `area->file`. */
void dsos_note(struct dsos *self, const struct guest_programs *programs, uint64_t mm,
	       struct linux_mapping *area);

/* "": not known. */
const char *dsos_path(struct dsos *self, const struct linux_file *file);

/* Who maps it. */
struct dso_user {
	uint64_t mm;     /* 0: the process is gone */
	uint64_t leader; /* a task of it; 0 likewise */
	uint64_t space;  /* the number of its address space */
};

enum dso_outlook {
	DSO_FINAL, /* nothing more comes */
	DSO_LATER, /* its symbols may become more in a second */
	DSO_SOON,  /* it is being looked for, or this look has read enough */
};

/* What is mapped there as executable, read if that is due. NULL: nothing is known of it. Valid
 * until another one is noted or read. */
const struct dso *dsos_get(struct dsos *self, const struct guest_programs *programs,
			   const struct dso_user *user, const struct linux_mapping *area,
			   enum dso_outlook *outlook);

#endif
