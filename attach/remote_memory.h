/* The guest memory of another process's virtual machine.
 *
 * Regions tell which guest-physical addresses lie where in the VMM. One that is a file which cannot
 * shrink (a sealed memfd) is mapped here too, read-only, and read without a system call. All
 * others are read through /proc/PID/mem, whose kernel side neither stops the VMM nor writes to it,
 * but may wait for a page that was swapped out.
 */
#ifndef ATTACH_REMOTE_MEMORY_H
#define ATTACH_REMOTE_MEMORY_H

#include "attach/memory_areas.h"
#include "base/error.h"
#include "guest-introspection/x86/guest_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REMOTE_REGIONS_MAX 8

struct remote_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t address;    /* in the VMM */
	const uint8_t *host; /* here; NULL: read through /proc */
};

/* A set of regions: what a layout says. */
struct remote_layout {
	unsigned count;
	struct remote_region regions[REMOTE_REGIONS_MAX];
};

struct remote_area {
	struct memory_area area;
	const uint8_t *host; /* mapped here; NULL: not */
};

struct remote_memory {
	struct guest_memory memory;
	pid_t pid;
	int mem_fd; /* /proc/PID/mem; -1: none */
	unsigned area_count;
	struct remote_area areas[MEMORY_AREAS_MAX];
	struct remote_layout layout;
};

/* Opens the memory of `pid` and maps here what can be mapped. No layout yet: nothing is readable.
 */
gp_status_t remote_memory_init(struct remote_memory *memory, const char *proc, pid_t pid, int pidfd,
			       struct error *error);
void remote_memory_deinit(struct remote_memory *memory);

/* Not while somebody reads. */
void remote_memory_set_layout(struct remote_memory *memory, const struct remote_layout *layout);

/* "shared" when every region is mapped here, "/proc" when none is, else "shared and /proc". */
const char *remote_memory_method(const struct remote_memory *memory);

/* While a vCPU is stopped: pages that this thread reads of the VMM are kept until the end, so that
 * neighbouring words cost one system call; and those that the stop before has read are fetched
 * together with the first. Not nested. */
void remote_memory_stop_begins(void);
void remote_memory_stop_ends(void);

#endif
