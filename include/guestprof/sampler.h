/* The sampler API: periodic call stacks of the vCPUs of a target, as FXT records.
 *
 * The shape is that of Fuchsia's RFC-0274 (zx_sampler_create, _start, _stop, _read). A session
 * owns one timer and one ring per vCPU. Every tick of the timer stops that vCPU for a few
 * microseconds; its registers and call stack become one record in its ring.
 *
 * Nothing is lost in silence. After gp_sampler_stop(), for each vCPU:
 *
 *     ticks = full + partial + dropped
 *
 * A full record has a stack or says why it has none. A partial record stands for a tick that was
 * followed by another before the vCPU could be stopped; the next full record completes it. A
 * dropped tick found the ring full.
 *
 * Threads: any thread may call any function, and may read while another starts or stops. Closing
 * must be the last call. Statuses are those of guestprof/status.h.
 */
#ifndef GUESTPROF_SAMPLER_H
#define GUESTPROF_SAMPLER_H

#include <guestprof/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can be sampled: the vCPUs of a virtual machine monitor. */
typedef struct sampler_target gp_target_t;

/* A session. */
typedef struct gp_sampler gp_sampler_t;

/* The session may run beside others on its target. Without this flag it is exclusive. */
#define GP_SAMPLER_SHARED (UINT32_C(1) << 0)

#define GP_SAMPLER_PERIOD_MIN_NS UINT64_C(10000)
#define GP_SAMPLER_PERIOD_MAX_NS UINT64_C(3600000000000)
#define GP_SAMPLER_DEPTH_MAX 1024
#define GP_SAMPLER_JITTER_MAX 90

/* What makes a vCPU tick. */
typedef enum gp_tick_source {
	/* A CLOCK_MONOTONIC timer: time, also while the vCPU is halted or off the host's CPUs. */
	GP_TICK_TIMER = 0,
	/* A perf event on the vCPU's thread (perf_event_open(2)): the time in which the thread runs
	 * on a host CPU. A halted vCPU does not tick. */
	GP_TICK_CPU_CLOCK = 1,
	/* Hardware events of the vCPU's thread while it is in guest mode; they need a host with a
	 * performance monitoring unit. */
	GP_TICK_CYCLES = 2,
	GP_TICK_INSTRUCTIONS = 3,
} gp_tick_source_t;

typedef struct gp_sampler_config {
	size_t size;         /* sizeof(gp_sampler_config_t): later versions add fields at the
			      * end. Missing fields count as zero; unknown ones must be zero */
	uint64_t period_ns;  /* between two ticks of a vCPU; see the limits above. For hardware
			      * events the number of events instead, within the same limits */
	uint32_t max_depth;  /* frames per stack, 1..GP_SAMPLER_DEPTH_MAX */
	uint32_t flags;      /* GP_SAMPLER_SHARED or 0 */
	uint64_t ring_bytes; /* per vCPU, a power of two from 4096; 0: holds at least one second
			      * of samples of up to 64 frames */
	uint32_t source;     /* gp_tick_source_t */
	/* GP_TICK_TIMER only: each tick comes earlier or later at random, by up to half this many
	 * percent of the period, so that ticks do not fall in step with the guest's own timers.
	 * The mean rate stays the same. 0..GP_SAMPLER_JITTER_MAX. */
	uint32_t jitter_percent;
	/* Which vCPUs to sample; NULL and 0: all. Copied. */
	const uint32_t *vcpus;
	size_t vcpu_count;
	/* Which guest processes and threads to sample, by id (in the guest's first pid namespace)
	 * or by name (of the thread or its process, as the guest's kernel has it: 15 bytes);
	 * any match is enough. NULL and 0: all. At most 256 of a kind. Copied. The current task is
	 * known once gp_sampler_learn_guest() has learned enough; an unknown task matches nothing.
	 */
	const uint64_t *processes;
	size_t process_count;
	const uint64_t *threads;
	size_t thread_count;
	const char *const *names; /* of processes or threads */
	size_t name_count;
} gp_sampler_config_t;

typedef struct gp_sampler_totals {
	uint64_t ticks;    /* timer expirations while the session ran */
	uint64_t full;     /* records with a stack, or that say why there is none */
	uint64_t partial;  /* records that a later one completes */
	uint64_t dropped;  /* ticks whose record found the ring full */
	uint64_t filtered; /* ticks of tasks that the session's filter leaves out; 0 without such
			    * a filter. ticks = full + partial + dropped + filtered */
} gp_sampler_totals_t;

/* Opens a session on `target`. `options` must be 0. All memory is mapped, touched and locked now;
 * nothing is allocated later.
 * GP_ERR_INVALID_ARGS: options, or config outside its limits. GP_ERR_ALREADY_EXISTS: another
 * session is exclusive, or this one wants to be and there are others. GP_ERR_NO_MEMORY,
 * GP_ERR_NO_RESOURCES (8 sessions per target).
 * `*out` is set on GP_OK only. */
GP_EXPORT gp_status_t gp_sampler_create(gp_target_t *target, uint32_t options,
					const gp_sampler_config_t *config, gp_sampler_t **out);

/* Starts the tick sources. `options` must be 0. GP_ERR_BAD_STATE: already started.
 * GP_ERR_NO_RESOURCES: no timers or signals left (ulimit -i), or no descriptors for events (ulimit
 * -n). With events also GP_ERR_ACCESS_DENIED: this user may not count them (perf_event_paranoid),
 * and GP_ERR_NOT_SUPPORTED: this host does not count them. After a failure the session is stopped
 * as before and may be started again. */
GP_EXPORT gp_status_t gp_sampler_start(gp_sampler_t *sampler, uint32_t options);

/* Stops the tick sources. Afterwards nothing is added to the rings and the totals are exact. The
 * session may be started again; its clock goes on. GP_ERR_BAD_STATE: not started. */
GP_EXPORT gp_status_t gp_sampler_stop(gp_sampler_t *sampler, uint32_t options);

/* Moves all data available now to `buffer` as whole FXT records. All reads of a session, one after
 * the other, are a valid trace. `*actual` is the number of bytes.
 * `buffer` NULL (and `size` 0): only asks for the size, GP_OK. A buffer that is too small:
 * GP_ERR_INVALID_ARGS, `*actual` is the size needed, nothing is consumed. More data may arrive
 * after the question: leave some room. Also valid after stop. Allocates nothing. */
GP_EXPORT gp_status_t gp_sampler_read(gp_sampler_t *sampler, uint32_t options, void *buffer,
				      size_t size, size_t *actual);

/* The counts of `vcpu` so far. GP_ERR_OUT_OF_RANGE: no such vCPU. */
GP_EXPORT gp_status_t gp_sampler_totals(const gp_sampler_t *sampler, uint32_t vcpu,
					gp_sampler_totals_t *out);

/* Learns from the memory of a running guest which process and thread a vCPU runs, and how to unwind
 * the stacks of a kernel without frame pointers. Samples say more from then on. `options` must be
 * 0. The guest takes no part in it; only Linux is known. Call it again and again (every 20 to 100
 * ms) while the guest runs, from a thread that nothing waits for: it is mostly cheap, but some
 * steps take tens of milliseconds. Allocates. All sessions of a target share what was learned.
 * GP_OK: all that can be learned has been (later calls notice modules that come and go). Otherwise
 * `why` (may be NULL with `size` 0) says in one line what is missing so far. GP_ERR_NOT_FOUND: no
 * Linux kernel (yet), or it has no symbols or types; GP_ERR_NO_MEMORY; and others. */
GP_EXPORT gp_status_t gp_sampler_learn_guest(gp_sampler_t *sampler, uint32_t options, char *why,
					     size_t size);

/* Ends the session, stopping it first if it runs. NULL is ignored. */
GP_EXPORT void gp_sampler_close(gp_sampler_t *sampler);

#ifdef __cplusplus
}
#endif

#endif
