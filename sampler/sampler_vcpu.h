/* One vCPU of a session, and the session it belongs to: what the parts of sampler/ share. Data
 * only.
 *
 *   target.c      what can be sampled: its sessions, what is known of its guest
 *   session.c     the API: create, start, stop, read, close
 *   tick.c        the signal handler: ticks become pending
 *   tick_timer.c  where ticks come from: POSIX timers
 *   tick_perf.c   where ticks come from: perf events
 *   capture.c     a stopped vCPU: what it runs, and its stack
 *   records.c     pending ticks become records in the vCPU's ring
 *   task_names.c  and the names of the tasks they are of
 */
#ifndef SAMPLER_SAMPLER_VCPU_H
#define SAMPLER_SAMPLER_VCPU_H

#include "fxt/ring.h"
#include "sampler/target.h"
#include "sampler/task_names.h"

#include <guestprof/sampler.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Ticks that came between two stops of a vCPU, as runs: `count` ticks, `period` apart, the
 * last one at `last`. A ring with one free place. Neighbours that are alike become one run, so
 * that it fills only when a vCPU goes in and out of the guest often without ever stopping,
 * which a pending kick forbids; what finds it full nevertheless is counted as dropped. */
#define PENDING_RUNS 32

struct pending_run {
	uint64_t last; /* ns */
	uint64_t count;
	bool in_guest; /* the vCPU was executing the guest */
};

/* A copy of registers asked for by another thread. */
enum snapshot_state {
	SNAPSHOT_NONE,
	SNAPSHOT_WANTED, /* set by the thread that asks */
	SNAPSHOT_TAKEN,  /* set by the tick thread; the copy is valid */
};

/* Which tasks a session samples: any of these. */
struct session_filter {
	bool active;
	uint64_t *processes;
	size_t process_count;
	uint64_t *threads;
	size_t thread_count;
	char (*names)[LINUX_TASK_NAME_SIZE]; /* as the kernel has them: cut, the rest zero */
	size_t name_count;
};

struct sampler_vcpu {
	struct fxt_ring ring; /* producer: the tick thread */

	struct gp_sampler *session;
	unsigned index;

	/* The tick source: start and stop; its handler on the tick thread. */
	_Atomic bool armed;  /* between tick_start() and tick_stop() */
	bool excluded;       /* by the session's filter */
	uint64_t tick_value; /* the slot that a signal finds us by; see tick.c */
	timer_t timer;
	int perf_fd;
	uint64_t next_tick_ns; /* jitter: the next tick's nominal time, CLOCK_MONOTONIC */
	uint64_t random;       /* jitter: state of the generator */

	/* Tick thread and its signal handler only. The handler writes runs[head], capture reads
	 * from tail; both on one thread, so that compiler fences suffice. */
	struct pending_run runs[PENDING_RUNS];
	volatile unsigned head;
	volatile unsigned tail;
	volatile unsigned read_head; /* where the last reading of runs ends, or ended */
	volatile bool producing;     /* the ring is being written: the handler must not */
	uint64_t next_continuation;
	uint64_t open_continuation; /* partial records wait for its completion; 0: none do */
	/* Ticks that found no room in `runs`: the handler only adds, capture only looks, so that a
	 * tick that comes while capture counts is not lost. */
	volatile uint64_t overflowed;
	volatile uint64_t overflowed_last; /* ns */
	uint64_t overflowed_counted;
	struct task_names names; /* that this ring was given */

	/* Tick thread writes, any thread reads. */
	_Atomic uint64_t ticks;
	_Atomic uint64_t full;
	_Atomic uint64_t partial;
	_Atomic uint64_t dropped;
	_Atomic uint64_t filtered;

	/* Stopping: set by gp_sampler_stop(), answered by the tick thread. */
	_Atomic bool stopping;
	_Atomic bool quiet;
	_Atomic bool ended; /* the tick thread is gone; it has written all it owed */

	_Atomic int snapshot_state;
	struct guest_cpu snapshot;
};

struct gp_sampler {
	struct sampler_target *target;
	uint64_t period_ns;
	unsigned max_depth;
	uint32_t flags;
	const struct tick_source *source;
	enum gp_tick_source kind;
	unsigned jitter_percent;
	struct session_filter filter;

	pthread_mutex_t state_lock; /* start, stop */
	bool running;

	pthread_mutex_t read_lock;
	uint64_t preamble[64]; /* the trace's first records, given by the first read */
	size_t preamble_bytes;
	bool preamble_read;
	size_t *available; /* scratch of a read: what each ring holds */

	unsigned vcpu_count;
	struct sampler_vcpu *vcpus;

	/* The latest registers of each vCPU, for learning. */
	pthread_mutex_t learn_lock;
	struct guest_cpu *cpus;
	bool *cpu_known;
};

/* Where ticks come from: signals (TICK_SIGNAL) to the vCPU's tick thread. */
struct tick_source {
	/* Required. Lets signals come. `thread` is the tick thread. Statuses of
	 * gp_sampler_start(). */
	gp_status_t (*start)(struct sampler_vcpu *vcpu, pid_t thread);
	/* Required. One more signal, now, and none after it. */
	void (*last)(struct sampler_vcpu *vcpu);
	/* Required. Gives back what start() took. */
	void (*stop)(struct sampler_vcpu *vcpu);
	/* Required. In the signal handler: how many ticks the signal stands for, at least 1. Sees
	 * to the next one where the source does not repeat by itself. */
	uint64_t (*signalled)(struct sampler_vcpu *vcpu, const siginfo_t *info);
};

static inline bool tick_is_pending(const struct sampler_vcpu *vcpu)
{
	return vcpu->head != vcpu->tail || vcpu->overflowed != vcpu->overflowed_counted;
}

#endif
