/* The Linux that a guest runs, as far as it is known: kernel, symbols, modules, tasks, the files
 * and mappings of its processes, how its stacks are unwound; and for each part that is missing,
 * why.
 *
 * Learning is slow, allocates, and is done step by step by the threads that call
 * linux_guest_learn(), never with a vCPU stopped. What captures need of it is one value that does
 * not change (struct guest_knowledge); it is published, and a later one takes its place.
 *
 *   no kernel -> kernel found -> symbols -> types, tasks, stacks: published
 *                                             -> again when modules come or go
 *
 * Every step may fail for now (the guest is still booting) or for good (a kernel that has none of
 * it): the reason says what is missing by name, and everything else goes on.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_GUEST_H
#define GUEST_INTROSPECTION_LINUX_LINUX_GUEST_H

#include "base/error.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/linux/linux_mappings.h"
#include "guest-introspection/linux/linux_modules.h"
#include "guest-introspection/linux/linux_page_cache.h"
#include "guest-introspection/linux/linux_stack.h"
#include "guest-introspection/linux/linux_task.h"
#include "guest-introspection/linux/eh_frame_process.h"
#include "guest-introspection/elf/symbol_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A vCPU's own part of the knowledge, for its tick thread. */
struct guest_knowledge_vcpu {
	struct linux_task_cpu remembered;
	/* An mm whose program's stacks need rules, for the learner to take; 0: none. */
	_Atomic uint64_t wanted;
};

/* What capture uses. Read-only but for `vcpus`. */
struct guest_knowledge {
	struct linux_stack *stack; /* NULL: frame pointers only */
	const struct unwind_kernel *unwind;
	bool tasks_known;
	struct linux_task_layout tasks;
	const struct unwind_program *programs[PROGRAM_RULES_MAX]; /* sorted by mm */
	unsigned program_count;
	unsigned vcpu_count;
	struct guest_knowledge_vcpu vcpus[];
};

/* What is needed to look into the guest's processes. */
struct guest_programs {
	const struct guest_memory *memory;
	_Atomic(struct file_copies *) copies; /* of the guest's programs; NULL: none are known */
	struct linux_task_layout tasks;
	struct linux_files files;
	struct linux_mappings mappings;
	struct linux_page_cache cache;
};

/* Gives captures `next` to use (NULL: nothing). When it returns no capture uses the one before any
 * more, which is then freed. Called by learners, one at a time. */
typedef void linux_guest_publish(void *context, struct guest_knowledge *next);

struct linux_guest {
	unsigned vcpu_count;
	linux_guest_publish *publish;
	void *context;
	_Atomic unsigned published; /* how often something was given to captures */

	/* Held by learners among themselves, for as long as a step takes. */
	pthread_mutex_t learning;
	uint64_t next_step_ns; /* CLOCK_MONOTONIC; not before, as long as boot goes on */
	uint64_t next_try_ns;  /* a step that failed is not tried again before */
	uint64_t wait_ns;
	uint64_t next_modules_ns;
	bool types_tried;
	bool settled; /* boot does not change any more what was learned */
	struct guest_programs programs;
	struct linux_module_layout module_layout;
	struct program_rules rules;
	struct linux_stack *base; /* without modules: the published ones are made from it */
	struct guest_knowledge *knowledge; /* what captures use; NULL: nothing yet */

	/* Held for a short time to look at or to exchange what follows: linux_guest_lock(). */
	pthread_mutex_t lock;
	struct linux_kernel kernel;
	uint64_t kernel_physical;    /* of kernel.text_base; 0: not known */
	struct symbol_table symbols; /* of vmlinux */
	struct linux_modules modules;
	/* Those before the last change: names of what was unloaded, or freed after its start. */
	struct linux_modules modules_before;
	/* Why a part is not known (yet); GP_OK: it is. */
	struct {
		struct error kernel;
		struct error symbols;
		struct error tasks; /* which task runs */
		struct error modules;
		struct error programs; /* their mappings and files */
		struct error stacks;   /* what the kernel's stacks lack */
	} missing;
};

/* `memory` must outlive it; `publish` may be NULL. NULL: no memory. */
struct linux_guest *linux_guest_create(const struct guest_memory *memory, unsigned vcpu_count,
				       linux_guest_publish *publish, void *context);

/* NULL is ignored. Nobody captures or learns any more. */
void linux_guest_destroy(struct linux_guest *guest);

/* One step further, from the latest registers of `count` vCPUs (those that are known). Cheap when
 * there is nothing to do; some steps take tens of milliseconds. GP_OK: tasks and stacks are known
 * as far as they will be; otherwise what is missing so far, in `error`. Any thread. */
gp_status_t linux_guest_learn(struct linux_guest *guest, const struct guest_cpu *cpus,
			      const bool *known, unsigned count, struct error *error);

/* Finds the kernel and reads its symbols now if that has not been done, whenever it last failed;
 * and the list of modules. For the end of a session. */
void linux_guest_learn_names(struct linux_guest *guest, const struct guest_cpu *cpus,
			     const bool *known, unsigned count);

/* From now on copies of the guest's programs are looked for here; NULL: none are. Waits for a
 * learner: when it returns no learner uses the ones before. */
void linux_guest_use_copies(struct linux_guest *guest, struct file_copies *copies);

/* NULL: nothing is known yet, or the processes of this kernel cannot be looked into
 * (missing.programs). Does not change any more, but for `copies`. Waits for a learner. */
const struct guest_programs *linux_guest_programs(struct linux_guest *guest);

static inline void linux_guest_lock(struct linux_guest *guest)
{
	pthread_mutex_lock(&guest->lock);
}

static inline void linux_guest_unlock(struct linux_guest *guest)
{
	pthread_mutex_unlock(&guest->lock);
}

/* The guest kernel's memory says that it panicked. */
bool linux_guest_panicked(struct linux_guest *guest);

/* The symbol of a linear kernel address; `module`: it is one of a module. Locked. */
bool linux_guest_find_symbol(const struct linux_guest *guest, uint64_t address,
			     struct symbol *symbol, bool *module);

#endif
