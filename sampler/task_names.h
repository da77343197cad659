/* The names of the guest's processes and threads, written into a vCPU's ring when they are first
 * seen and when they change: whatever has been sampled has its name in the trace, even if it lived
 * for milliseconds. Private to sampler/; with a vCPU stopped, on its tick thread.
 *
 * Each vCPU of a session remembers what it has written, in tables that never grow: an id that had
 * to make room for another is written again when it comes back. A reader takes the latest.
 */
#ifndef SAMPLER_TASK_NAMES_H
#define SAMPLER_TASK_NAMES_H

#include "fxt/ring.h"
#include "guest-introspection/linux/linux_task.h"

#include <stdbool.h>
#include <stdint.h>

#define TASK_NAMES_THREADS 512 /* powers of two */
#define TASK_NAMES_PROCESSES 128

struct task_name {
	bool known;
	int32_t id;
	int32_t process; /* of a thread */
	char name[LINUX_TASK_NAME_SIZE];
};

struct task_names {
	struct task_name threads[TASK_NAMES_THREADS];
	struct task_name processes[TASK_NAMES_PROCESSES];
};

/* The tasks of Linux that run when nothing else does have id 0, one for each CPU: they are given
 * one name, without the CPU's number. */
#define TASK_NAMES_IDLE "swapper"

/* Writes what is new about `task`: its name and that of its process, whose task_struct may have to
 * be read. Only if the ring has room for that and for `words` more: names never cost a sample.
 * `now` as for fxt_ring_write(). */
void task_names_write(struct task_names *names, struct fxt_ring *ring,
		      const struct linux_task_layout *layout, const struct guest_memory *memory,
		      struct translation_cache *cache, const struct linux_task *task, size_t words,
		      uint64_t now);

#endif
