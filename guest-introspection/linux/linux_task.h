/* Which task a vCPU is running, from its registers and the guest's memory alone; and the names of
 * all tasks.
 *
 * Linux keeps a pointer to the current task in each CPU's own area. Which area is whose is
 * learned from the task register: a CPU's TSS is mapped once in the fixed cpu_entry_area and lies
 * once in its per-CPU area, in the same physical page. That holds in user mode, too, where
 * the GS base is the program's, and no program can change it.
 *
 * Prepared once per boot (cold: reads all it needs by name, from symbols and BTF), then asked
 * while a vCPU is stopped (hot: allocates nothing, locks nothing, four reads of guest memory).
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_TASK_H
#define GUEST_INTROSPECTION_LINUX_LINUX_TASK_H

#include "base/error.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINUX_TASK_CPU_LIMIT 1024u /* CPUs beyond are not looked for */
#define LINUX_TASK_NAME_SIZE 16u   /* TASK_COMM_LEN, its terminator included */
#define LINUX_TASK_LONG_NAME_SIZE 64u
#define LINUX_TASK_FIELDS 9u

/* A CPU's own area: what is added to the address of a per-CPU symbol. */
struct linux_cpu_area {
	uint64_t offset;
	uint64_t tss; /* gpa of the TSS in it; UINT64_MAX: not known */
};

/* A piece of a structure that is read at once, and where its bytes go. */
struct linux_task_window {
	uint32_t offset;
	uint16_t size;
	uint16_t packed;
};

/* What is known of this boot of this kernel. A plain value without pointers; read-only after
 * preparation, then any thread may use it. Fields are offsets in bytes unless they say otherwise;
 * LINUX_MEMBER_MISSING: start_time, worker_private and thread_full_name may be missing.
 */
struct linux_task_layout {
	struct address_space space; /* the kernel's own: what all reads go through */
	uint64_t current;           /* per-CPU symbol */
	uint64_t per_cpu_offset;    /* address of __per_cpu_offset */
	uint64_t per_cpu_boot;      /* what is in it before the areas are set up */
	uint64_t tss;               /* per-CPU symbol; 0: there is none */
	uint64_t irq_stack;         /* per-CPU symbol of the pointer to its top; 0: there is none */
	uint64_t cpu_count_address; /* nr_cpu_ids; 0: there is none */
	uint64_t direct_map_address; /* page_offset_base; 0: it is a constant */
	uint64_t capability_address; /* the word with X86_FEATURE_PTI; 0: there is none */
	uint64_t init_task;          /* linear address */
	uint64_t init_mm;            /* linear address; 0: not known */
	uint32_t stack_size;         /* bytes of a kernel stack */
	struct {
		uint64_t start;
		uint64_t end;
	} switches[2]; /* code that changes the stack and the current task */

	/* In task_struct. */
	uint32_t stack, flags, mm, active_mm, tid, pid, group_leader, comm, start_time;
	uint32_t tasks, thread_node, signal;
	uint32_t worker_private; /* struct kthread */
	uint32_t comm_size;
	/* Elsewhere. */
	uint32_t mm_pgd;
	uint32_t thread_head;      /* in signal_struct */
	uint32_t thread_full_name; /* in kthread */
	struct linux_task_window windows[LINUX_TASK_FIELDS];
	unsigned window_count;

	/* Read anew by linux_task_layout_refresh(). */
	uint64_t direct_map; /* linear address of gpa 0 */
	bool isolated;       /* page-table isolation: user mode runs on tables of its own */
	/* All per-CPU areas have been set up, and `space` has them: nothing of this changes. */
	bool settled;
	uint32_t generation; /* counts changes of `areas` */
	uint32_t area_count;
	struct linux_cpu_area areas[LINUX_TASK_CPU_LIMIT];
};

/* Finds everything by name. GP_ERR_NOT_FOUND or GP_ERR_NOT_SUPPORTED says what is missing; `out` is
 * untouched then. Early in boot `out->settled` is false: refresh it before use, until it is true.
 * Allocates nothing. The structure is large (16 KiB): not for a stack that is small. */
gp_status_t linux_task_layout_init(const struct guest_memory *memory,
				   const struct linux_kernel *kernel,
				   const struct symbol_table *symbols, const struct btf *btf,
				   struct linux_task_layout *out, struct error *error);

/* Reads again what boot changes. Cheap when there are few CPUs (a few µs); no thread may be using
 * `layout` meanwhile. If linux_kernel_find() has found other page tables since, put its `space`
 * into the layout first. */
void linux_task_layout_refresh(struct linux_task_layout *layout, const struct guest_memory *memory);

/* What is remembered of one vCPU between its samples; zero to begin with. Belongs to one thread at
 * a time. */
struct linux_task_cpu {
	uint64_t tr_base;
	uint64_t offset; /* of its per-CPU area */
	uint32_t generation;
	uint32_t number; /* Linux's number of this CPU */
	bool known;
};

enum linux_task_result {
	LINUX_TASK_FOUND,
	LINUX_TASK_CPU_UNKNOWN, /* this vCPU's per-CPU area is not known (not up yet) */
	LINUX_TASK_UNREADABLE,  /* what should be the current task is not there, or is none */
};

enum linux_task_check {
	/* The page tables in use are those of this task; of a task without memory of its own:
	 * those it has borrowed, or the kernel's. */
	LINUX_TASK_VERIFIED,
	/* They are not, or the stack is another's: the vCPU is in the middle of a switch, or runs
	 * on other tables for a moment (patching code, EFI). Not to be named, unless `own_stack`;
	 * and what CR3 leads to is not this task's memory. */
	LINUX_TASK_CONTRADICTED,
	LINUX_TASK_UNCHECKED, /* the task's page tables could not be found out */
};

struct linux_task {
	uint64_t address;    /* of its task_struct, linear */
	uint64_t mm;         /* its own memory, linear; 0: none (kernel thread, or about to exit) */
	uint64_t stack;      /* lowest address of its kernel stack, linear; 0: it has exited */
	uint64_t leader;     /* task_struct of its process */
	uint64_t start_time; /* ns after boot; two tasks that had one pid differ in it; 0: not known
			      */
	int32_t pid;         /* of its process: `tgid` in Linux; in the first pid namespace */
	int32_t tid;         /* of itself: `pid` in Linux */
	bool idle;           /* the CPU has nothing to do; pid and tid are 0 */
	bool kernel_thread;  /* idle tasks, too */
	/* In the kernel, on this task's own stack, which no other task is ever on: that is proof,
	 * too. False in user mode and on the stacks of interrupts and exceptions. */
	bool own_stack;
	enum linux_task_check check;
	/* As it is now: any bytes but zero, then zeroes. Names change: a new program, prctl(). */
	char name[LINUX_TASK_NAME_SIZE];
};

/* The task that `cpu` is running. `cache` (may be NULL) is one for `layout->space`, cleared since
 * the vCPU was stopped. `out` is untouched unless the result is LINUX_TASK_FOUND. Hot.
 *
 * Not seen: an NMI in the few instructions between the change of the stack and of the current
 * task, both of one process; then the thread before is reported. */
enum linux_task_result
linux_task_current(const struct linux_task_layout *layout, const struct guest_memory *memory,
		   struct translation_cache *cache, const struct guest_cpu *cpu,
		   struct linux_task_cpu *remembered, struct linux_task *out);

/* The name of the task_struct at `address`: linux_task.name of a thread gives its own, of
 * linux_task.leader its process's. False: not readable. Hot: one read. */
bool linux_task_name(const struct linux_task_layout *layout, const struct guest_memory *memory,
		     struct translation_cache *cache, uint64_t address,
		     char name[static LINUX_TASK_NAME_SIZE]);

/* As linux_task_name(), for a kernel thread: the whole of a name that is longer than comm,
 * "rcu_tasks_trace_kthread" (since Linux 5.17). A kworker's does not say what it works on. */
bool linux_task_long_name(const struct linux_task_layout *layout, const struct guest_memory *memory,
			  struct translation_cache *cache, uint64_t address,
			  char name[static LINUX_TASK_LONG_NAME_SIZE]);

/* Gets one task; false ends the walk. `check` is LINUX_TASK_UNCHECKED. */
typedef bool linux_task_visit(void *context, const struct linux_task *task);

/* Visits the idle task of the first CPU and every thread of every process, kernel threads too;
 * at most `limit`. GP_OK: all of them, or `visit` ended it; GP_ERR_IO_DATA_INTEGRITY: a list is
 * damaged or changed meanwhile, or has more than `limit`: what was visited counts. Cold. */
gp_status_t linux_task_walk(const struct linux_task_layout *layout,
			    const struct guest_memory *memory, size_t limit,
			    linux_task_visit *visit, void *context, struct error *error);

#endif
