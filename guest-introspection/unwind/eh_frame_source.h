/* The .eh_frame rules of all programs and libraries that one process has mapped, as a source for
 * guest_unwind().
 *
 * A fixed, sorted array over tables that others own; looking up allocates nothing and takes no
 * lock, any number of threads may. Where no table knows a rule, or its registers are not known
 * there, the source has none, and frame pointers are tried.
 */
#ifndef GUEST_INTROSPECTION_UNWIND_EH_FRAME_SOURCE_H
#define GUEST_INTROSPECTION_UNWIND_EH_FRAME_SOURCE_H

#include "guest-introspection/elf/eh_frame.h"
#include "guest-introspection/unwind/unwind_source.h"

struct eh_frame_mapping {
	uint64_t start; /* linear */
	uint64_t end;
	uint64_t bias; /* linear address - file's address */
	const struct eh_frame *table;
};

struct eh_frame_source {
	struct unwind_source source;
	const struct eh_frame_mapping *mappings;
	unsigned count;
};

/* `mappings`, sorted by start and disjoint, and their tables must outlive the source. Use it where
 * it stays. */
void eh_frame_source_init(struct eh_frame_source *self, const struct eh_frame_mapping *mappings,
			  unsigned count);

#endif
