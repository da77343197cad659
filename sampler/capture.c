/* A stopped vCPU: its pending ticks become records. Nothing here allocates, takes a lock or
 * makes a system call (vcpu_state() may, for a vCPU that is not running anyway). */
#include "sampler/capture.h"

#include "base/container.h"
#include "guest-introspection/x86/translate.h"
#include "guest-introspection/unwind/unwind.h"
#include "guest-introspection/linux/linux_guest.h"
#include "sampler/records.h"

#include <signal.h>

#define OPCODE_HLT 0xf4
#define RESET_VECTOR 0xfff0

_Static_assert(FXT_SAMPLE_DEPTH_MAX == GP_SAMPLER_DEPTH_MAX, "one depth limit");

/* The ends of stacks and the states of vCPUs go into records as they are. */
_Static_assert((int)STACK_END_ROOT == FXT_STACK_END_ROOT &&
		       (int)STACK_END_DEPTH_LIMIT == FXT_STACK_END_DEPTH &&
		       (int)STACK_END_NOT_PRESENT == FXT_STACK_END_NOT_PRESENT &&
		       (int)STACK_END_BAD_POINTER == FXT_STACK_END_BAD_POINTER &&
		       (int)STACK_END_OUTSIDE_MEMORY == FXT_STACK_END_OUTSIDE &&
		       (int)STACK_END_NO_RULE == FXT_STACK_END_NO_RULE,
	       "one numbering of stack ends");
_Static_assert((int)SAMPLER_VCPU_HALTED == FXT_MODE_HALTED &&
		       (int)SAMPLER_VCPU_NOT_STARTED == FXT_MODE_NOT_STARTED &&
		       (int)SAMPLER_VCPU_IN_VMM == FXT_MODE_IN_VMM,
	       "one numbering of states");

/* What one stop found, shared by all sessions that are due. */
struct stop {
	const struct guest_cpu *cpu; /* NULL: not known */
	const struct guest_memory *memory;
	enum sampler_vcpu_state state;
	struct unwind_stack stack;
	uint64_t mode;
	uint64_t addressing;
	struct guest_knowledge *knowledge; /* NULL: nothing is known of the guest's kernel (yet) */
	struct translation_cache cache;    /* of its own page tables */
	bool task_known;                   /* which task runs, without doubt */
	bool other_tables;                 /* the page tables in use are another task's */
	bool kernel_whole;                 /* the kernel's frames are all there */
	struct linux_task task;
	uint64_t pcs[GP_SAMPLER_DEPTH_MAX];
};

static enum fxt_addressing addressing_value(const struct guest_cpu *cpu)
{
	static const enum fxt_addressing values[][2] = {
		[ADDRESSING_REAL] = {FXT_ADDRESSING_REAL, FXT_ADDRESSING_REAL},
		[ADDRESSING_PROTECTED] = {FXT_ADDRESSING_PROTECTED_UNPAGED,
					  FXT_ADDRESSING_PROTECTED_UNPAGED},
		[ADDRESSING_32_BIT] = {FXT_ADDRESSING_PAGED_32, FXT_ADDRESSING_PAGED_32},
		[ADDRESSING_PAE] = {FXT_ADDRESSING_PAE, FXT_ADDRESSING_PAE},
		[ADDRESSING_4_LEVEL] = {FXT_ADDRESSING_COMPATIBILITY_4, FXT_ADDRESSING_LONG_4},
		[ADDRESSING_5_LEVEL] = {FXT_ADDRESSING_COMPATIBILITY_5, FXT_ADDRESSING_LONG_5},
	};

	return values[address_space_of(cpu).mode][guest_code_size(cpu) == 64];
}

/* Whether the registers leave open that the vCPU executes nothing at all. */
static bool may_be_idle(const struct guest_cpu *cpu, const struct guest_memory *memory)
{
	struct address_space space = address_space_of(cpu);
	uint8_t opcode;

	if (cpu->cpl)
		return false;
	if (!(cpu->cr0 & X86_CR0_PROTECTED) && cpu->rip == RESET_VECTOR)
		return true;
	return guest_read_virtual(&space, NULL, memory, gva(cpu->cs.base + cpu->rip - 1), &opcode,
				  1) == TRANSLATE_OK &&
	       opcode == OPCODE_HLT;
}

/* Which task runs. One that its page tables contradict is in the middle of a switch, unless the
 * vCPU is on that task's own kernel stack: better none than the wrong one. */
static void identify(unsigned vcpu, struct stop *stop)
{
	struct guest_knowledge *knowledge = stop->knowledge;

	if (!knowledge || !knowledge->tasks_known || vcpu >= knowledge->vcpu_count)
		return;
	translation_cache_clear(&stop->cache);
	if (linux_task_current(&knowledge->tasks, stop->memory, &stop->cache, stop->cpu,
			       &knowledge->vcpus[vcpu].remembered, &stop->task) != LINUX_TASK_FOUND)
		return;
	stop->other_tables = stop->task.check == LINUX_TASK_CONTRADICTED;
	stop->task_known = !stop->other_tables || stop->task.own_stack;
}

/* The stack, by whatever rules are known. A program without any, or whose rules did not suffice, is
 * asked for. */
static void walk(unsigned vcpu, unsigned depth, struct stop *stop)
{
	struct guest_knowledge *knowledge = stop->knowledge;
	uint64_t mm = stop->task_known ? stop->task.mm : 0;
	const struct unwind_program *program = NULL;

	if (mm)
		program = unwind_program_find(knowledge->programs, knowledge->program_count, mm);
	stop->stack = guest_unwind_program(stop->memory, knowledge ? knowledge->unwind : NULL,
					   program, stop->cpu, stop->pcs, depth);
	stop->kernel_whole = stop->stack.user_frame < stop->stack.count;
	/* The program's frames were read through somebody else's tables. */
	if (stop->other_tables && stop->stack.user_frame > 0 && stop->kernel_whole) {
		stop->stack.count = stop->stack.user_frame;
		stop->stack.end = STACK_END_NO_RULE;
	}
	if (mm && stop->stack.user_frame < stop->stack.count &&
	    (!program ||
	     (stop->stack.end != STACK_END_ROOT && stop->stack.end != STACK_END_DEPTH_LIMIT)))
		atomic_store_explicit(&knowledge->vcpus[vcpu].wanted, mm, memory_order_relaxed);
}

/* Whether the vCPU is where its registers say, with a stack to walk. */
static bool has_stack(const struct stop *stop)
{
	return stop->cpu &&
	       (stop->state == SAMPLER_VCPU_RUNNING || stop->state == SAMPLER_VCPU_IN_VMM);
}

static uint64_t mode_value(const struct stop *stop)
{
	if (stop->state != SAMPLER_VCPU_RUNNING)
		return stop->state;
	if (!stop->cpu)
		return FXT_MODE_UNKNOWN;
	return stop->cpu->cpl == 3 ? FXT_MODE_GUEST_USER : FXT_MODE_GUEST_KERNEL;
}

static void capture_look(struct sampler_target *target, unsigned vcpu, unsigned depth,
			 struct stop *stop)
{
	const struct guest_cpu *cpu = stop->cpu;

	/* After entering, in the one order that publish() relies on. */
	stop->knowledge = atomic_load(&target->knowledge);
	stop->task_known = stop->other_tables = stop->kernel_whole = false;
	stop->stack = (struct unwind_stack){0};
	if (!cpu) {
		stop->mode = mode_value(stop);
		return;
	}
	stop->addressing = addressing_value(cpu);
	if (stop->state == SAMPLER_VCPU_RUNNING && target->ops->vcpu_state &&
	    may_be_idle(cpu, stop->memory))
		stop->state = target->ops->vcpu_state(target, vcpu);
	stop->mode = mode_value(stop);
	if (stop->state != SAMPLER_VCPU_NOT_STARTED)
		identify(vcpu, stop);
	if (has_stack(stop)) {
		walk(vcpu, depth, stop);
		return;
	}
	stop->pcs[0] = cpu->cs.base + cpu->rip;
	stop->stack = (struct unwind_stack){.count = 1, .user_frame = 1};
}

static bool name_matches(const struct session_filter *filter, const char *name)
{
	for (size_t i = 0; i < filter->name_count; i++)
		if (!memcmp(filter->names[i], name, LINUX_TASK_NAME_SIZE))
			return true;
	return false;
}

static bool id_matches(const uint64_t *ids, size_t count, int32_t id)
{
	for (size_t i = 0; i < count; i++)
		if (ids[i] == (uint64_t)(int64_t)id)
			return true;
	return false;
}

/* Whether the session wants samples of what runs. Who cannot be told is not wanted. */
static bool passes(const struct session_filter *filter, struct stop *stop)
{
	char leader[LINUX_TASK_NAME_SIZE];

	if (!filter->active)
		return true;
	if (!stop->task_known)
		return false;
	return id_matches(filter->processes, filter->process_count, stop->task.pid) ||
	       id_matches(filter->threads, filter->thread_count, stop->task.tid) ||
	       (filter->name_count && (name_matches(filter, stop->task.name) ||
				       (linux_task_name(&stop->knowledge->tasks, stop->memory,
							&stop->cache, stop->task.leader, leader) &&
					name_matches(filter, leader))));
}

static void publish_registers(struct sampler_vcpu *vcpu, const struct guest_cpu *cpu)
{
	if (!cpu ||
	    atomic_load_explicit(&vcpu->snapshot_state, memory_order_acquire) != SNAPSHOT_WANTED)
		return;
	vcpu->snapshot = *cpu;
	atomic_store_explicit(&vcpu->snapshot_state, SNAPSHOT_TAKEN, memory_order_release);
}

/* What is written besides the sample: who the task is, if that is new. */
static void write_names(struct sampler_vcpu *vcpu, struct stop *stop, uint64_t now)
{
	if (stop->task_known)
		task_names_write(&vcpu->names, &vcpu->ring, &stop->knowledge->tasks, stop->memory,
				 &stop->cache, &stop->task, FXT_SAMPLE_WORDS(stop->stack.count),
				 now);
}

/* The last tick's record. */
static void write_sample(struct sampler_vcpu *vcpu, const struct stop *stop,
			 const struct pending_run *last)
{
	unsigned max_depth = vcpu->session->max_depth;
	struct fxt_sample sample = {
		.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU | FXT_SAMPLE_MODE |
			 FXT_SAMPLE_STACK_END,
		.timestamp = last->last,
		.vcpu = vcpu->index,
		/* A vCPU whose VMM was at work is between two guest instructions: its stack is
		 * exact and says what made the VMM work. */
		.mode = last->in_guest || stop->state != SAMPLER_VCPU_RUNNING ? stop->mode
									      : FXT_MODE_IN_VMM,
		.stack_end = has_stack(stop) ? (uint64_t)stop->stack.end : FXT_STACK_END_NOT_WALKED,
	};

	if (stop->cpu) {
		sample.flags |= FXT_SAMPLE_STACK | FXT_SAMPLE_ADDRESS_SPACE | FXT_SAMPLE_ADDRESSING;
		sample.stack = stop->pcs;
		sample.depth = stop->stack.count;
		sample.address_space = stop->cpu->cr3;
		sample.addressing = stop->addressing;
	}
	if (stop->task_known) {
		sample.flags |= FXT_SAMPLE_PROCESS | FXT_SAMPLE_THREAD;
		sample.process = (uint32_t)stop->task.pid;
		sample.thread = (uint32_t)stop->task.tid;
	}
	/* Of a vCPU in user mode the mode says whose frames they are. */
	if (sample.mode != FXT_MODE_GUEST_USER && stop->kernel_whole &&
	    stop->stack.user_frame <= max_depth) {
		sample.flags |= FXT_SAMPLE_KERNEL_FRAMES;
		sample.kernel_frames = stop->stack.user_frame;
	}
	if (sample.depth > max_depth) {
		sample.depth = max_depth;
		sample.stack_end = FXT_STACK_END_DEPTH;
	}
	records_write_full(vcpu, &sample);
}

static void capture_session(struct sampler_vcpu *vcpu, struct stop *stop)
{
	struct pending_run last;

	records_begin(vcpu);
	if (passes(&vcpu->session->filter, stop)) {
		last = records_write_partials(vcpu);
		if (last.count) {
			write_names(vcpu, stop, last.last);
			write_sample(vcpu, stop, &last);
		}
	} else {
		records_filter(vcpu);
	}
	publish_registers(vcpu, stop->cpu);
	records_end(vcpu);
}

/* Keeps sessions from being freed while a tick thread uses them. */
static void enter(struct sampler_target *target)
{
	atomic_fetch_add(&target->capturing, 1);
}

static void leave(struct sampler_target *target)
{
	atomic_fetch_sub(&target->capturing, 1);
}

/* The sessions that wait for a stack of this vCPU. */
static unsigned due_sessions(struct sampler_target *target, unsigned vcpu,
			     struct sampler_vcpu *due[SAMPLER_SESSIONS_MAX])
{
	unsigned found = 0;

	for (unsigned i = 0; i < SAMPLER_SESSIONS_MAX; i++) {
		struct gp_sampler *session = atomic_load(&target->sessions[i]);

		if (session && vcpu < session->vcpu_count && tick_is_pending(&session->vcpus[vcpu]))
			due[found++] = &session->vcpus[vcpu];
	}
	return found;
}

bool sampler_is_due(struct sampler_target *target, unsigned vcpu)
{
	struct sampler_vcpu *due[SAMPLER_SESSIONS_MAX];
	bool any;

	enter(target);
	any = due_sessions(target, vcpu, due) != 0;
	leave(target);
	return any;
}

void sampler_capture(struct sampler_target *target, unsigned vcpu, enum sampler_vcpu_state state,
		     const struct guest_cpu *cpu)
{
	struct sampler_vcpu *due[SAMPLER_SESSIONS_MAX];
	unsigned count_due, depth = 0;
	struct stop stop;

	stop.cpu = cpu;
	stop.state = state;
	stop.memory = target->ops->memory(target);
	enter(target);
	count_due = due_sessions(target, vcpu, due);
	for (unsigned i = 0; i < count_due; i++)
		if (due[i]->session->max_depth > depth)
			depth = due[i]->session->max_depth;
	if (count_due)
		capture_look(target, vcpu, depth, &stop);
	for (unsigned i = 0; i < count_due; i++)
		capture_session(due[i], &stop);
	leave(target);
}

void sampler_vcpu_ended(struct sampler_target *target, unsigned vcpu)
{
	sigset_t all;

	/* From here on no tick is noted on this thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	enter(target);
	for (unsigned i = 0; i < SAMPLER_SESSIONS_MAX; i++) {
		struct gp_sampler *session = atomic_load(&target->sessions[i]);

		if (!session || vcpu >= session->vcpu_count)
			continue;
		/* A session that does not run owes nothing, and its ring is the reader's. Nor does
		 * one without a tick: it may be starting just now, fail to, and be the reader's
		 * again before we are through. Drops it still has to tell are told after stop. */
		if (atomic_load(&session->vcpus[vcpu].armed) &&
		    !atomic_load(&session->vcpus[vcpu].quiet) &&
		    tick_is_pending(&session->vcpus[vcpu]))
			records_finish(&session->vcpus[vcpu]);
		atomic_store_explicit(&session->vcpus[vcpu].ended, true, memory_order_release);
	}
	leave(target);
}
