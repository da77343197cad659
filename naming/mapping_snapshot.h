/* mmap events of one address space, from guest memory: which file or kind of memory is mapped
 * where.
 *
 * A snapshot is taken when an address space is first seen and again when there are new addresses
 * in it. It has all executable mappings, sampled or not: a process may end within milliseconds, and
 * then names the samples that are read later.
 */
#ifndef NAMING_MAPPING_SNAPSHOT_H
#define NAMING_MAPPING_SNAPSHOT_H

#include "base/vector.h"
#include "guest-introspection/linux/linux_mappings.h"

#include <stddef.h>
#include <stdint.h>

#define MAPPING_SNAPSHOT_EXECUTABLE_MAX 256u /* mappings without a sample */
#define MAPPING_SNAPSHOT_MAX 1024u           /* all */

struct mapping {
	/* Its name is not valid: mapping_snapshot_name(). The vDSO has a file of its own: where the
	 * kernel has the image (dso.h). */
	struct linux_mapping area;
	char name[24]; /* of the kernel's own pages: "[vdso]" */
	bool sampled;
	bool written; /* in the trace */
};

struct mapping_snapshot {
	uint64_t taken_ns; /* of the samples' clock; 0: never */
	bool trimmed;
	VECTOR(struct mapping) mappings; /* by address */
};

/* Zeroed storage is an empty one. */
void mapping_snapshot_deinit(struct mapping_snapshot *self);

/* Adds the next mapping of a walk. False: no memory or no room. */
bool mapping_snapshot_add(struct mapping_snapshot *self, const struct linux_mapping *area,
			  bool sampled);

/* NULL: none. */
struct mapping *mapping_snapshot_find(const struct mapping_snapshot *self, uint64_t address);

/* Whether a mapping of a later walk is something else at a place that was sampled. */
bool mapping_snapshot_contradicts(const struct mapping_snapshot *self,
				  const struct linux_mapping *area);

/* Puts `later` in place of `self` and empties it. Sampled mappings that are gone stay. */
void mapping_snapshot_update(struct mapping_snapshot *self, struct mapping_snapshot *later);

/* Frees what was not sampled. */
void mapping_snapshot_trim(struct mapping_snapshot *self);

/* Which file is mapped, or which kind of memory: the same in all processes. */
uint64_t mapping_file_identity(const struct linux_mapping *area);

/* What a mapping is called in reports: "[libc.so.6]" for a file, what the memory is for others; cut
 * to `size`. */
void mapping_label(const struct linux_mapping *area, char *out, size_t size);

#endif
