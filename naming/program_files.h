/* Copies of the guest's programs for sampler/ (guest-introspection/elf/file_copies.h): from the
 * initial file system and the disks that the guest is given, a directory that the user names, and
 * the host's own files.
 *
 * guestprof itself may open nothing once its sandbox is closed. So a helper process is started
 * before. It gets a request for a file, by its build id (without one, by its path and size), and
 * hands over a descriptor to read it by. It gives nothing but ELF programs and libraries, found in
 * that order:
 *
 *   DIR/.build-id, DIR/usr/lib/debug/.build-id, DIR/path-in-the-guest   (--symfs DIR)
 *   /usr/lib/debug/.build-id                                            by build id
 *   the same path on the host, below /usr, /lib, /lib64, /bin, /sbin, /opt   by build id
 *   /usr/lib/debug/.build-id on the guest's disks (-d)                  by build id
 *   the same path on the guest's disks    when bytes are wanted that are not in the guest's memory
 *   the initial file system (-i)          the same
 *
 * For symbols, the first one with .symtab is taken, else the first whole one. The helper ends with
 * the process that started it. */
#ifndef NAMING_PROGRAM_FILES_H
#define NAMING_PROGRAM_FILES_H

#include "base/error.h"
#include "guest-introspection/elf/file_copies.h"

struct program_files;

/* Where to look besides the host. */
struct program_files_places {
	const char *initrd; /* NULL: none */
	const char *symfs;  /* a directory; NULL: none */
	const char *const *disks;
	unsigned disk_count;
	bool (*confine)(uint64_t memory_bytes); /* required with disks: see disk_files.h */
};

/* Starts the helper; before any thread. The error names what cannot be read. */
gp_status_t program_files_start(const struct program_files_places *places,
				struct program_files **out, struct error *error);

/* Why the disks are not looked at (a library is missing); NULL: they are, or there are none. */
const char *program_files_no_disks(const struct program_files *files);

/* No more questions may come. NULL is ignored. */
void program_files_end(struct program_files *files);

/* Any thread, several at a time, in a sandbox for readers as well. */
struct file_copies *program_files_copies(struct program_files *files);

#endif
