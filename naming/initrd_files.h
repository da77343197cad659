/* Takes single files out of an initial file system: the archives of an initrd, plain or compressed,
 * as the kernel unpacks them. Nothing of it is kept but what is not in there, so that a file costs
 * one pass over the archive.
 *
 * Compressed parts are read through the programs that unpack them: gzip, bzip2, xz, lzop, lz4 and
 * zstd. What follows a compressed part in another format is not seen: where the part ends, only its
 * program knows.
 *
 * For the helper process of naming/program_files.h: it starts child processes and waits for them.
 */
#ifndef NAMING_INITRD_FILES_H
#define NAMING_INITRD_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct initrd_files {
	int fd; /* of the initrd, -1: none */
	/* Asked between entries: true ends the pass. May be NULL. */
	bool (*is_cancelled)(void *context);
	void *context;

	/* What a whole pass has seen, as hashes, sorted. */
	bool seen_all;
	uint64_t *seen;
	size_t seen_count;
	size_t seen_capacity;
};

/* Takes over `fd` (-1: no initrd). */
void initrd_files_init(struct initrd_files *self, int fd);
void initrd_files_deinit(struct initrd_files *self);

/* A program or library with this build id, or, with `build_id_size` 0, the one at `path` with
 * `size` bytes, as a descriptor of an unnamed file in memory. -1: there is none. */
int initrd_files_take(struct initrd_files *self, const uint8_t *build_id, size_t build_id_size,
		      const char *path, uint64_t size);

#endif
