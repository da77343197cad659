/* The sampler API: periodic call stacks of the vCPUs of a target, as FXT records.
 *
 * The shape is that of Fuchsia's RFC-0274 (zx_sampler_create, _start, _stop, _read). A session
 * owns one timer and one ring per vCPU. Every period the timer's tick stops that vCPU for a few
 * microseconds; its registers and call stack become one record in its ring.
 *
 * Nothing vanishes: for each vCPU, at rest after gp_sampler_stop(),
 *
 *     ticks = full + partial + dropped
 *
 * where full records hold a stack, a partial record stands for a tick that another tick's stack
 * completes (several ticks before one stop), and dropped ones found their ring full.
 *
 * Threads: all functions may be called from any thread, reading also while another thread
 * starts or stops; closing must be the last call. Statuses are those of guestprof/status.h.
 */
#ifndef GUESTPROF_SAMPLER_H
#define GUESTPROF_SAMPLER_H

#include <guestprof/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can be sampled; made by a virtual machine monitor. */
typedef struct sampler_target gp_target_t;

/* A session. */
typedef struct gp_sampler gp_sampler_t;

/* The session runs beside others on its target. Without it a session is exclusive. */
#define GP_SAMPLER_SHARED (UINT32_C(1) << 0)

#define GP_SAMPLER_PERIOD_MIN_NS UINT64_C(10000)
#define GP_SAMPLER_PERIOD_MAX_NS UINT64_C(3600000000000)
#define GP_SAMPLER_DEPTH_MAX 1024

typedef struct gp_sampler_config {
	size_t size;         /* sizeof(gp_sampler_config_t): later versions add fields */
	uint64_t period_ns;  /* between two ticks of a vCPU; see the limits above */
	uint32_t max_depth;  /* frames per stack, 1..GP_SAMPLER_DEPTH_MAX */
	uint32_t flags;      /* GP_SAMPLER_SHARED or 0 */
	uint64_t ring_bytes; /* per vCPU, a power of two from 4096; 0: holds at least one second
			      * of samples of up to 64 frames */
} gp_sampler_config_t;

typedef struct gp_sampler_totals {
	uint64_t ticks;   /* timer expirations while the session ran */
	uint64_t full;    /* records with a stack, or that say why there is none */
	uint64_t partial; /* records completed by a later one */
	uint64_t dropped; /* ticks whose record found the ring full */
} gp_sampler_totals_t;

/* Opens a session on `target`. `options` must be 0. Memory is mapped, touched and locked now, so
 * that nothing is allocated later.
 * GP_ERR_INVALID_ARGS: options, or config outside its limits. GP_ERR_ALREADY_EXISTS: another
 * session is exclusive, or this one wants to be and there are others. GP_ERR_NO_MEMORY,
 * GP_ERR_NO_RESOURCES. `*out` is set on GP_OK only. */
GP_EXPORT gp_status_t gp_sampler_create(gp_target_t *target, uint32_t options,
					const gp_sampler_config_t *config, gp_sampler_t **out);

/* Starts the timers. `options` must be 0. GP_ERR_BAD_STATE: already started. GP_ERR_NO_RESOURCES:
 * no timers left (ulimit -i); the session is then stopped as before. */
GP_EXPORT gp_status_t gp_sampler_start(gp_sampler_t *sampler, uint32_t options);

/* Stops the timers. Afterwards nothing is added to the rings and the totals are exact. May be
 * started again; time goes on. GP_ERR_BAD_STATE: not started. */
GP_EXPORT gp_status_t gp_sampler_stop(gp_sampler_t *sampler, uint32_t options);

/* Moves all data available now to `buffer` as whole FXT records; the concatenation of all reads
 * of a session is a valid trace. `*actual` is the number of bytes.
 * `buffer` NULL (and `size` 0): only tells the size, GP_OK. A buffer too small:
 * GP_ERR_INVALID_ARGS, `*actual` is the size needed, nothing is consumed. Between a question and
 * the read more may have come: give some room. Also valid after stop. */
GP_EXPORT gp_status_t gp_sampler_read(gp_sampler_t *sampler, uint32_t options, void *buffer,
				      size_t size, size_t *actual);

/* What happened on `vcpu` so far. GP_ERR_OUT_OF_RANGE: no such vCPU. */
GP_EXPORT gp_status_t gp_sampler_totals(const gp_sampler_t *sampler, uint32_t vcpu,
					gp_sampler_totals_t *out);

/* Ends the session, stopping it first if it runs. NULL is ignored. */
GP_EXPORT void gp_sampler_close(gp_sampler_t *sampler);

#ifdef __cplusplus
}
#endif

#endif
