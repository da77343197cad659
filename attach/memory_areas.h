/* The mappings of a VMM that may hold guest memory: writable and large, as /proc/PID/maps lists
 * them. */
#ifndef ATTACH_MEMORY_AREAS_H
#define ATTACH_MEMORY_AREAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_AREAS_MAX 16
#define MEMORY_AREA_MIN (UINT64_C(1) << 20)

struct memory_area {
	uint64_t start; /* in the VMM */
	uint64_t size;
	/* What backs it: a file (memfd, shared memory, huge pages), by device and inode, or
	 * nothing: anonymous, inode 0. */
	bool shared;
	uint64_t device; /* as dev_t */
	uint64_t inode;
	uint64_t offset;
};

struct memory_areas {
	unsigned count;
	struct memory_area areas[MEMORY_AREAS_MAX]; /* the largest first */
};

/* Takes the text of a maps file, terminated; lines that are none are passed over. Parts of one
 * mapping that the kernel lists apart, because their flags differ, become one area. Of more than
 * MEMORY_AREAS_MAX the largest. */
void memory_areas_parse(const char *maps, struct memory_areas *out);

#endif
