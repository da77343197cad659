/* A stopped vCPU: its pending ticks become records. Nothing here allocates, takes a lock or
 * makes a system call (vcpu_state() may, for a vCPU that is not running anyway). */
#include "sampler/session.h"

#include "base/clock.h"
#include "fxt/record.h"
#include "guest-introspection/x86/translate.h"
#include "guest-introspection/unwind/unwind.h"
#include "guest-introspection/linux/linux_guest.h"

#include <signal.h>

#define OPCODE_HLT 0xf4
#define RESET_VECTOR 0xfff0
#define CONTINUATION_VCPU_SHIFT 48

_Static_assert(FXT_SAMPLE_DEPTH_MAX == GP_SAMPLER_DEPTH_MAX, "one depth limit");

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

static enum fxt_stack_end stack_end_value(enum stack_end end)
{
	switch (end) {
	case STACK_END_ROOT:
		return FXT_STACK_END_ROOT;
	case STACK_END_DEPTH_LIMIT:
		return FXT_STACK_END_DEPTH;
	case STACK_END_NOT_PRESENT:
		return FXT_STACK_END_NOT_PRESENT;
	case STACK_END_BAD_POINTER:
		return FXT_STACK_END_BAD_POINTER;
	case STACK_END_OUTSIDE_MEMORY:
		return FXT_STACK_END_OUTSIDE;
	case STACK_END_NO_RULE:
		return FXT_STACK_END_NO_RULE;
	}
	return FXT_STACK_END_UNKNOWN;
}

static enum fxt_addressing addressing_value(const struct guest_cpu *cpu)
{
	bool compatibility = guest_code_size(cpu) != 64;

	switch (address_space_of(cpu).mode) {
	case ADDRESSING_REAL:
		return FXT_ADDRESSING_REAL;
	case ADDRESSING_PROTECTED:
		return FXT_ADDRESSING_PROTECTED_UNPAGED;
	case ADDRESSING_32_BIT:
		return FXT_ADDRESSING_PAGED_32;
	case ADDRESSING_PAE:
		return FXT_ADDRESSING_PAE;
	case ADDRESSING_4_LEVEL:
		return compatibility ? FXT_ADDRESSING_COMPATIBILITY_4 : FXT_ADDRESSING_LONG_4;
	case ADDRESSING_5_LEVEL:
		return compatibility ? FXT_ADDRESSING_COMPATIBILITY_5 : FXT_ADDRESSING_LONG_5;
	}
	return FXT_ADDRESSING_UNKNOWN;
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
	switch (stop->state) {
	case SAMPLER_VCPU_RUNNING:
		if (!stop->cpu)
			break;
		return stop->cpu->cpl == 3 ? FXT_MODE_GUEST_USER : FXT_MODE_GUEST_KERNEL;
	case SAMPLER_VCPU_HALTED:
		return FXT_MODE_HALTED;
	case SAMPLER_VCPU_NOT_STARTED:
		return FXT_MODE_NOT_STARTED;
	case SAMPLER_VCPU_IN_VMM:
		return FXT_MODE_IN_VMM;
	}
	return FXT_MODE_UNKNOWN;
}

static void look(struct sampler_target *target, unsigned vcpu, unsigned depth, struct stop *stop)
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

static void count(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

static bool encode_and_write(struct sampler_vcpu *vcpu, const struct fxt_sample *sample,
			     uint64_t now)
{
	uint64_t words[FXT_SAMPLE_WORDS(GP_SAMPLER_DEPTH_MAX)];
	size_t used = fxt_sample_encode(sample, words, sizeof(words) / sizeof(words[0]));

	return fxt_ring_write(&vcpu->ring, words, used, now);
}

/* Writes the record of one tick and counts it as `counter`, or as dropped. */
static bool write_record(struct sampler_vcpu *vcpu, const struct fxt_sample *sample,
			 _Atomic uint64_t *counter)
{
	bool written = encode_and_write(vcpu, sample, sample->timestamp);

	count(written ? counter : &vcpu->dropped, 1);
	return written;
}

/* Writes a record that completes the partial ones before it. One that found the ring full
 * leaves that to the next. */
static void write_full(struct sampler_vcpu *vcpu, struct fxt_sample *sample)
{
	if (vcpu->open_continuation) {
		sample->flags |= FXT_SAMPLE_COMPLETION;
		sample->completion = vcpu->open_continuation;
	}
	if (write_record(vcpu, sample, &vcpu->full))
		vcpu->open_continuation = 0;
}

/* The ids of one vCPU: its number + 1 in the high bits, so that no two vCPUs share any. */
static uint64_t take_continuation(struct sampler_vcpu *vcpu)
{
	return (uint64_t)(vcpu->index + 1) << CONTINUATION_VCPU_SHIFT | vcpu->next_continuation++;
}

/* A tick without a stack of its own. */
static bool write_partial(struct sampler_vcpu *vcpu, uint64_t timestamp, bool in_guest)
{
	struct fxt_sample sample = {
		.flags = FXT_SAMPLE_CONTINUATION | FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
			 FXT_SAMPLE_MODE | FXT_SAMPLE_STACK_END,
		.continuation = vcpu->open_continuation,
		.timestamp = timestamp,
		.vcpu = vcpu->index,
		.mode = in_guest ? FXT_MODE_UNKNOWN : FXT_MODE_IN_VMM,
		.stack_end = FXT_STACK_END_NOT_WALKED,
	};

	return write_record(vcpu, &sample, &vcpu->partial);
}

/* Ticks that have no room at all: counted, and told by the next drop record. */
static void drop_ticks(struct sampler_vcpu *vcpu, uint64_t ticks, uint64_t first, uint64_t last)
{
	count(&vcpu->dropped, ticks);
	fxt_ring_count_drops(&vcpu->ring, ticks, first, last);
}

/* The runs that are there now are about to be read: the handler leaves them alone. Returns their
 * end. */
static unsigned begin_reading(struct sampler_vcpu *vcpu)
{
	unsigned head = vcpu->head;

	vcpu->read_head = head;
	atomic_signal_fence(memory_order_seq_cst);
	return head;
}

/* Writes all pending ticks but the very last as partial records of the open continuation (opened
 * when the first one is needed). Returns the last run; its count is 0 when nothing was pending. The
 * time it takes is bounded by the ring's size: once it is full the rest is counted at once. */
static struct pending_run write_partials(struct sampler_vcpu *vcpu)
{
	uint64_t period = vcpu->session->period_ns;
	uint64_t overflowed = vcpu->overflowed;
	struct pending_run last = {0};
	unsigned head = begin_reading(vcpu);

	while (vcpu->tail != head) {
		struct pending_run run = vcpu->runs[vcpu->tail];
		bool is_last = (vcpu->tail + 1) % PENDING_RUNS == head;
		uint64_t partials = run.count - (is_last ? 1 : 0);
		uint64_t first = run.last - (run.count - 1) * period;

		vcpu->tail = (vcpu->tail + 1) % PENDING_RUNS;
		for (uint64_t i = 0; i < partials; i++) {
			bool opens = !vcpu->open_continuation;

			if (opens)
				vcpu->open_continuation = take_continuation(vcpu);
			if (write_partial(vcpu, first + i * period, run.in_guest))
				continue;
			/* An id that nothing in the trace has: there is nothing to complete. */
			if (opens)
				vcpu->open_continuation = 0;
			if (i + 1 < partials)
				drop_ticks(vcpu, partials - i - 1, first + (i + 1) * period,
					   run.last);
			break;
		}
		last = run;
	}
	if (overflowed != vcpu->overflowed_counted) {
		drop_ticks(vcpu, overflowed - vcpu->overflowed_counted, vcpu->overflowed_last,
			   vcpu->overflowed_last);
		vcpu->overflowed_counted = overflowed;
	}
	return last;
}

void capture_settle(struct sampler_vcpu *vcpu)
{
	struct fxt_sample close = {
		.flags = FXT_SAMPLE_COMPLETION | FXT_SAMPLE_VCPU | FXT_SAMPLE_STACK_END,
		.completion = vcpu->open_continuation,
		.vcpu = vcpu->index,
		.stack_end = FXT_STACK_END_NOT_WALKED,
	};

	/* The account of drops comes first, so that the closing record cannot become a drop. */
	if (fxt_ring_flush_drops(&vcpu->ring) && vcpu->open_continuation &&
	    vcpu->ring.size - fxt_ring_size_available(&vcpu->ring) >= FXT_SAMPLE_WORDS(0) * 8 &&
	    encode_and_write(vcpu, &close, boot_ns()))
		vcpu->open_continuation = 0;
}

/* Ticks that the session does not want, because of what runs. */
static void pass_over(struct sampler_vcpu *vcpu)
{
	uint64_t overflowed = vcpu->overflowed, passed = overflowed - vcpu->overflowed_counted;
	unsigned head = begin_reading(vcpu);

	while (vcpu->tail != head) {
		passed += vcpu->runs[vcpu->tail].count;
		vcpu->tail = (vcpu->tail + 1) % PENDING_RUNS;
	}
	vcpu->overflowed_counted = overflowed;
	count(&vcpu->filtered, passed);
}

/* Closes what is pending; producing. */
static void finish(struct sampler_vcpu *vcpu)
{
	struct pending_run last = {0};

	if (vcpu->session->filter.active)
		pass_over(vcpu);
	else
		last = write_partials(vcpu);
	if (last.count) {
		/* The session ends before this tick's stop: the record closes what is open and
		 * says that nobody looked. */
		struct fxt_sample sample = {
			.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU | FXT_SAMPLE_MODE |
				 FXT_SAMPLE_STACK_END,
			.timestamp = last.last,
			.vcpu = vcpu->index,
			.mode = last.in_guest ? FXT_MODE_UNKNOWN : FXT_MODE_IN_VMM,
			.stack_end = FXT_STACK_END_NOT_WALKED,
		};

		write_full(vcpu, &sample);
	}
	capture_settle(vcpu);
	atomic_store_explicit(&vcpu->quiet, true, memory_order_release);
}

void capture_finish(struct sampler_vcpu *vcpu)
{
	vcpu->producing = true;
	atomic_signal_fence(memory_order_seq_cst);
	finish(vcpu);
	atomic_signal_fence(memory_order_seq_cst);
	vcpu->producing = false;
}

/* Ends producing. The last signal of a stopping session may come while the handler finds us
 * producing, and then leaves its work to us; or just behind that, and then does it itself. It must
 * be done once: after it the ring belongs to the reader. */
static void stop_producing(struct sampler_vcpu *vcpu)
{
	for (;;) {
		atomic_signal_fence(memory_order_seq_cst);
		vcpu->producing = false;
		atomic_signal_fence(memory_order_seq_cst);
		if (!atomic_load_explicit(&vcpu->stopping, memory_order_acquire) ||
		    atomic_load_explicit(&vcpu->quiet, memory_order_relaxed))
			return;
		vcpu->producing = true;
		atomic_signal_fence(memory_order_seq_cst);
		/* Once more: the handler may have finished in between, and the session may have
		 * been started anew since, so that it is not quiet and not to be. From here on
		 * the handler leaves it to us, and whoever stops the session waits. */
		if (atomic_load_explicit(&vcpu->stopping, memory_order_acquire) &&
		    !atomic_load_explicit(&vcpu->quiet, memory_order_relaxed))
			finish(vcpu);
	}
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

static void capture_session(struct sampler_vcpu *vcpu, struct stop *stop)
{
	unsigned max_depth = vcpu->session->max_depth;
	struct pending_run last;
	struct fxt_sample sample;

	vcpu->producing = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (!passes(&vcpu->session->filter, stop)) {
		pass_over(vcpu);
		publish_registers(vcpu, stop->cpu);
		stop_producing(vcpu);
		return;
	}
	last = write_partials(vcpu);
	if (last.count) {
		write_names(vcpu, stop, last.last);
		sample = (struct fxt_sample){
			.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU | FXT_SAMPLE_MODE |
				 FXT_SAMPLE_STACK_END,
			.timestamp = last.last,
			.vcpu = vcpu->index,
			/* A vCPU whose VMM was at work is between two guest instructions: its
			 * stack is exact and says what made the VMM work. */
			.mode = last.in_guest || stop->state != SAMPLER_VCPU_RUNNING
					? stop->mode
					: FXT_MODE_IN_VMM,
			.stack_end = has_stack(stop) ? stack_end_value(stop->stack.end)
						     : FXT_STACK_END_NOT_WALKED,
		};
		if (stop->cpu) {
			sample.flags |=
				FXT_SAMPLE_STACK | FXT_SAMPLE_ADDRESS_SPACE | FXT_SAMPLE_ADDRESSING;
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
		/* Whose frames they are says the mode of a vCPU in user mode, if it is told. */
		if (sample.mode != FXT_MODE_GUEST_USER && stop->kernel_whole &&
		    stop->stack.user_frame <= max_depth) {
			sample.flags |= FXT_SAMPLE_KERNEL_FRAMES;
			sample.kernel_frames = stop->stack.user_frame;
		}
		if (sample.depth > max_depth) {
			sample.depth = max_depth;
			sample.stack_end = FXT_STACK_END_DEPTH;
		}
		write_full(vcpu, &sample);
		publish_registers(vcpu, stop->cpu);
	}
	stop_producing(vcpu);
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

void sampler_capture(struct sampler_target *target, unsigned vcpu, const struct guest_cpu *cpu)
{
	sampler_capture_in_state(target, vcpu, SAMPLER_VCPU_RUNNING, cpu);
}

void sampler_capture_in_state(struct sampler_target *target, unsigned vcpu,
			      enum sampler_vcpu_state state, const struct guest_cpu *cpu)
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
		look(target, vcpu, depth, &stop);
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
			capture_finish(&session->vcpus[vcpu]);
		atomic_store_explicit(&session->vcpus[vcpu].ended, true, memory_order_release);
	}
	leave(target);
}

bool session_registers(struct gp_sampler *session, unsigned vcpu, struct guest_cpu *cpu)
{
	struct sampler_vcpu *from = &session->vcpus[vcpu];
	int state = atomic_load_explicit(&from->snapshot_state, memory_order_acquire);

	if (state == SNAPSHOT_TAKEN)
		*cpu = from->snapshot;
	if (state != SNAPSHOT_WANTED)
		atomic_store_explicit(&from->snapshot_state, SNAPSHOT_WANTED, memory_order_release);
	return state == SNAPSHOT_TAKEN;
}
