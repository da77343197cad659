/* A sampler session as its own parts see it. Private to sampler/.
 *
 * session.c   the API: create, start, stop, read, close
 * tick.c      timers and the signal handler: ticks become pending
 * capture.c   a stopped vCPU: pending ticks become records
 */
#ifndef SAMPLER_SESSION_H
#define SAMPLER_SESSION_H

#include "fxt/ring.h"
#include "fxt/sample.h"
#include "sampler/target.h"

#include <guestprof/sampler.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Ticks that came between two stops of a vCPU, as runs: `count` ticks, `period` apart, the
 * last one at `last`. More runs than this before one stop are counted as dropped. */
#define PENDING_RUNS 32

struct pending_run {
	uint64_t last; /* ns */
	uint64_t count;
	bool in_guest; /* the vCPU was executing the guest */
};

/* A copy of registers asked for by another thread. */
enum snapshot_state {
	SNAPSHOT_NONE,
	SNAPSHOT_WANTED, /* set by who wants it */
	SNAPSHOT_TAKEN,  /* set by the tick thread; the copy is valid */
};

struct sampler_vcpu {
	struct fxt_ring ring; /* producer: the tick thread */

	struct gp_sampler *session;
	unsigned index;
	timer_t timer;
	bool has_timer;
	uint64_t tick_value; /* what the timer's signal carries */

	/* Tick thread and its signal handler only. The handler writes runs[head], capture reads
	 * from tail; both on one thread, so that compiler fences suffice. */
	struct pending_run runs[PENDING_RUNS];
	volatile unsigned head;
	volatile unsigned tail;
	volatile bool producing; /* the ring is being written: the handler must not */
	uint64_t next_continuation;
	uint64_t unread_drops; /* ticks that found no room in `runs` */

	/* Tick thread writes, any thread reads. */
	_Atomic uint64_t ticks;
	_Atomic uint64_t full;
	_Atomic uint64_t partial;
	_Atomic uint64_t dropped;

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

	pthread_mutex_t state_lock; /* start, stop */
	bool running;

	pthread_mutex_t read_lock;
	uint64_t preamble[64]; /* the trace's first records, given by the first read */
	size_t preamble_bytes;
	bool preamble_read;

	unsigned vcpu_count;
	struct sampler_vcpu *vcpus;
};

/* tick.c */

/* Arms the vCPU's timer. GP_ERR_NO_RESOURCES when there is none left. */
gp_status_t tick_start(struct sampler_vcpu *vcpu);

/* Disarms it and waits until its tick thread has written all that is pending. */
void tick_stop(struct sampler_vcpu *vcpu);

/* Nanoseconds of CLOCK_BOOTTIME. Async-signal-safe, no system call where there is a vDSO. */
uint64_t boot_time_ns(void);

static inline bool tick_is_pending(const struct sampler_vcpu *vcpu)
{
	return vcpu->head != vcpu->tail || vcpu->unread_drops;
}

/* capture.c */

/* Writes what is pending without a stack, and what the ring owes; then the vCPU is quiet. On its
 * tick thread, or on any once that has ended. */
void capture_finish(struct sampler_vcpu *vcpu);

/* Any thread: a recent copy of the vCPU's registers, if a sample was taken since the last call
 * (which asks for the next one). */
bool session_registers(struct gp_sampler *session, unsigned vcpu, struct guest_cpu *cpu);

#endif
