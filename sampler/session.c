/* The sampler API: the life of a session. */
#include "sampler/session.h"

#include "base/clock.h"
#include "base/container.h"
#include "fxt/writer.h"
#include "guest-introspection/linux/linux_guest.h"
#include "sampler/records.h"
#include "sampler/tick.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A reader may stall this long without loss, with the default size of rings. */
#define RING_SECONDS_NS (NS_PER_SECOND * 5 / 4)
#define RING_DEPTH 64
#define RING_TICKS 5000
#define RING_BYTES_MIN UINT64_C(65536)
#define RING_BYTES_MAX (UINT64_C(1) << 30)
/* The configuration as the first version had it, and more than any will need. */
#define CONFIG_BYTES_FIRST                           \
	(offsetof(gp_sampler_config_t, name_count) + \
	 sizeof(((gp_sampler_config_t *)NULL)->name_count))
#define CONFIG_BYTES_MAX 4096
/* Ids or names of one kind in a filter: looked through at each stop. */
#define FILTER_MAX 256

/* A caller built against another version passes a shorter structure, whose missing fields are zero,
 * or a longer one: its further fields must then be zero, because what they ask for is not known. */
static bool take_config(const gp_sampler_config_t *from, gp_sampler_config_t *config)
{
	const uint8_t *bytes = (const uint8_t *)from;

	if (!from || from->size < CONFIG_BYTES_FIRST || from->size > CONFIG_BYTES_MAX)
		return false;
	for (size_t i = sizeof(*config); i < from->size; i++)
		if (bytes[i])
			return false;
	memset(config, 0, sizeof(*config));
	memcpy(config, from, from->size < sizeof(*config) ? from->size : sizeof(*config));
	return true;
}

static bool config_is_valid(const gp_sampler_config_t *config)
{
	if (config->period_ns < GP_SAMPLER_PERIOD_MIN_NS ||
	    config->period_ns > GP_SAMPLER_PERIOD_MAX_NS)
		return false;
	if (config->max_depth < 1 || config->max_depth > GP_SAMPLER_DEPTH_MAX)
		return false;
	if (config->flags & ~GP_SAMPLER_SHARED)
		return false;
	if (config->source > GP_TICK_INSTRUCTIONS ||
	    config->jitter_percent > GP_SAMPLER_JITTER_MAX ||
	    (config->jitter_percent && config->source != GP_TICK_TIMER))
		return false;
	if (!config->vcpus != !config->vcpu_count || !config->processes != !config->process_count ||
	    !config->threads != !config->thread_count || !config->names != !config->name_count)
		return false;
	if (config->ring_bytes &&
	    (config->ring_bytes < FXT_RING_BYTES_MIN || config->ring_bytes > RING_BYTES_MAX ||
	     (config->ring_bytes & (config->ring_bytes - 1))))
		return false;
	return true;
}

static bool copy_ids(uint64_t **to, size_t *to_count, const uint64_t *ids, size_t count)
{
	if (!count)
		return true;
	*to = calloc(count, sizeof(**to));
	if (!*to)
		return false;
	memcpy(*to, ids, count * sizeof(**to));
	*to_count = count;
	return true;
}

static gp_status_t copy_filter(struct session_filter *filter, const gp_sampler_config_t *config)
{
	if (config->process_count > FILTER_MAX || config->thread_count > FILTER_MAX ||
	    config->name_count > FILTER_MAX)
		return GP_ERR_INVALID_ARGS;
	if (!copy_ids(&filter->processes, &filter->process_count, config->processes,
		      config->process_count) ||
	    !copy_ids(&filter->threads, &filter->thread_count, config->threads,
		      config->thread_count))
		return GP_ERR_NO_MEMORY;
	if (config->name_count) {
		filter->names = calloc(config->name_count, sizeof(*filter->names));
		if (!filter->names)
			return GP_ERR_NO_MEMORY;
	}
	for (size_t i = 0; i < config->name_count; i++) {
		if (!config->names[i] || !*config->names[i])
			return GP_ERR_INVALID_ARGS;
		/* The kernel keeps so much of a name and a zero. */
		memcpy(filter->names[i], config->names[i],
		       strnlen(config->names[i], LINUX_TASK_NAME_SIZE - 1));
	}
	filter->name_count = config->name_count;
	filter->active = filter->process_count || filter->thread_count || filter->name_count;
	return GP_OK;
}

/* Marks the vCPUs the filter leaves out. */
static gp_status_t apply_filter(struct gp_sampler *session, const gp_sampler_config_t *config)
{
	gp_status_t status = copy_filter(&session->filter, config);

	if (status)
		return status;
	for (unsigned i = 0; config->vcpus && i < session->vcpu_count; i++)
		session->vcpus[i].excluded = true;
	for (size_t i = 0; i < config->vcpu_count; i++) {
		if (config->vcpus[i] >= session->vcpu_count)
			return GP_ERR_INVALID_ARGS;
		session->vcpus[config->vcpus[i]].excluded = false;
	}
	return GP_OK;
}

static uint64_t ring_bytes_for(const gp_sampler_config_t *config)
{
	uint64_t depth = config->max_depth < RING_DEPTH ? config->max_depth : RING_DEPTH;
	/* How often a hardware event comes nobody knows before: enough for the promised rate. */
	bool by_time = config->source == GP_TICK_TIMER || config->source == GP_TICK_CPU_CLOCK;
	uint64_t ticks = by_time ? RING_SECONDS_NS / config->period_ns : RING_TICKS;
	uint64_t needed = ticks * FXT_SAMPLE_WORDS(depth) * 8;
	uint64_t bytes = RING_BYTES_MIN;

	if (config->ring_bytes)
		return config->ring_bytes;
	while (bytes < needed && bytes < RING_BYTES_MAX)
		bytes *= 2;
	return bytes;
}

static void destroy(struct gp_sampler *session)
{
	for (unsigned i = 0; session->vcpus && i < session->vcpu_count; i++)
		fxt_ring_deinit(&session->vcpus[i].ring);
	if (session->vcpus)
		munmap(session->vcpus, session->vcpu_count * sizeof(*session->vcpus));
	pthread_mutex_destroy(&session->state_lock);
	pthread_mutex_destroy(&session->read_lock);
	pthread_mutex_destroy(&session->learn_lock);
	free(session->cpus);
	free(session->cpu_known);
	free(session->filter.processes);
	free(session->filter.threads);
	free(session->filter.names);
	free(session->available);
	free(session);
}

static gp_status_t session_prepare(struct gp_sampler *session, const gp_sampler_config_t *config)
{
	uint64_t ring_bytes = ring_bytes_for(config);
	size_t bytes = session->vcpu_count * sizeof(*session->vcpus);

	session->available = calloc(session->vcpu_count, sizeof(*session->available));
	session->cpus = calloc(session->vcpu_count, sizeof(*session->cpus));
	session->cpu_known = calloc(session->vcpu_count, sizeof(*session->cpu_known));
	if (!session->available || !session->cpus || !session->cpu_known)
		return GP_ERR_NO_MEMORY;
	/* Pages of its own: unmapping them is all it takes to unlock them. */
	session->vcpus = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (session->vcpus == MAP_FAILED) {
		session->vcpus = NULL;
		return GP_ERR_NO_MEMORY;
	}
	mlock(session->vcpus, bytes); /* as far as the limit allows; the rings tell */
	for (unsigned i = 0; i < session->vcpu_count; i++) {
		struct sampler_vcpu *vcpu = &session->vcpus[i];
		gp_status_t status = fxt_ring_init(&vcpu->ring, ring_bytes, NULL);

		if (status)
			return status;
		vcpu->ring.drop_process = FXT_VCPU_PROCESS;
		vcpu->ring.drop_thread = fxt_vcpu_thread(i);
		vcpu->session = session;
		vcpu->index = i;
		vcpu->next_continuation = 1;
		/* The first sample's registers: whoever learns need not ask and come back. */
		atomic_store(&vcpu->snapshot_state, SNAPSHOT_WANTED);
		if (!session->target->ops->tick_thread(session->target, i))
			atomic_store(&vcpu->ended, true);
	}
	session->preamble_bytes =
		8 * fxt_write_preamble(session->preamble, ARRAY_SIZE(session->preamble));
	return session->preamble_bytes ? GP_OK : GP_ERR_INTERNAL;
}

/* Puts the session on its target's list, if the others there and its own flags allow. */
static gp_status_t enlist(struct sampler_target *target, struct gp_sampler *session)
{
	gp_status_t status = GP_ERR_NO_RESOURCES;
	int place = -1;

	pthread_mutex_lock(&target->sessions_lock);
	for (int i = 0; i < SAMPLER_SESSIONS_MAX; i++) {
		const struct gp_sampler *other = atomic_load(&target->sessions[i]);

		if (!other) {
			if (place < 0)
				place = i;
		} else if (!(other->flags & GP_SAMPLER_SHARED) ||
			   !(session->flags & GP_SAMPLER_SHARED)) {
			status = GP_ERR_ALREADY_EXISTS;
			place = -1;
			break;
		}
	}
	if (place >= 0) {
		atomic_store(&target->sessions[place], session);
		status = GP_OK;
	}
	pthread_mutex_unlock(&target->sessions_lock);
	return status;
}

gp_status_t gp_sampler_create(gp_target_t *target, uint32_t options,
			      const gp_sampler_config_t *given, gp_sampler_t **out)
{
	gp_sampler_config_t taken;
	const gp_sampler_config_t *config = &taken;
	struct gp_sampler *session;
	gp_status_t status;

	if (!target || !out || options || !take_config(given, &taken) || !config_is_valid(config))
		return GP_ERR_INVALID_ARGS;
	session = calloc(1, sizeof(*session));
	if (!session)
		return GP_ERR_NO_MEMORY;
	session->target = target;
	session->period_ns = config->period_ns;
	session->max_depth = config->max_depth;
	session->flags = config->flags;
	session->kind = (enum gp_tick_source)config->source;
	session->source = config->source == GP_TICK_TIMER ? &tick_timer_source : &tick_perf_source;
	session->jitter_percent = config->jitter_percent;
	session->vcpu_count = target->ops->vcpu_count(target);
	pthread_mutex_init(&session->state_lock, NULL);
	pthread_mutex_init(&session->read_lock, NULL);
	pthread_mutex_init(&session->learn_lock, NULL);
	status = session_prepare(session, config);
	if (!status)
		status = apply_filter(session, config);
	if (!status)
		status = enlist(target, session);
	if (status) {
		destroy(session);
		return status;
	}
	*out = session;
	return GP_OK;
}

gp_status_t gp_sampler_start(gp_sampler_t *session, uint32_t options)
{
	gp_status_t status = GP_OK;

	if (!session || options)
		return GP_ERR_INVALID_ARGS;
	pthread_mutex_lock(&session->state_lock);
	if (session->running)
		status = GP_ERR_BAD_STATE;
	for (unsigned i = 0; !status && i < session->vcpu_count; i++)
		status = tick_start(&session->vcpus[i]);
	if (!status)
		session->running = true;
	else if (status != GP_ERR_BAD_STATE)
		for (unsigned i = 0; i < session->vcpu_count; i++)
			tick_stop(&session->vcpus[i]);
	pthread_mutex_unlock(&session->state_lock);
	return status;
}

gp_status_t gp_sampler_stop(gp_sampler_t *session, uint32_t options)
{
	gp_status_t status = GP_ERR_BAD_STATE;

	if (!session || options)
		return GP_ERR_INVALID_ARGS;
	pthread_mutex_lock(&session->state_lock);
	if (session->running) {
		for (unsigned i = 0; i < session->vcpu_count; i++)
			tick_stop(&session->vcpus[i]);
		session->running = false;
		status = GP_OK;
	}
	pthread_mutex_unlock(&session->state_lock);
	return status;
}

/* After stop the ring has no producer: drops that found no room can be written now. */
static void flush_drops(struct gp_sampler *session)
{
	pthread_mutex_lock(&session->state_lock);
	if (!session->running)
		for (unsigned i = 0; i < session->vcpu_count; i++)
			records_settle(&session->vcpus[i]);
	pthread_mutex_unlock(&session->state_lock);
}

static gp_status_t read_locked(struct gp_sampler *session, uint8_t *buffer, size_t size,
			       size_t *actual)
{
	size_t preamble = session->preamble_read ? 0 : session->preamble_bytes;
	size_t needed = preamble, done = 0;
	size_t *available = session->available;

	for (unsigned i = 0; i < session->vcpu_count; i++) {
		available[i] = fxt_ring_size_available(&session->vcpus[i].ring);
		needed += available[i];
	}
	*actual = needed;
	if (!buffer || size < needed)
		return buffer ? GP_ERR_INVALID_ARGS : GP_OK;
	memcpy(buffer, session->preamble, preamble);
	session->preamble_read = true;
	done = preamble;
	for (unsigned i = 0; i < session->vcpu_count; i++)
		done += fxt_ring_read(&session->vcpus[i].ring, buffer + done, available[i]);
	*actual = done;
	return GP_OK;
}

gp_status_t gp_sampler_read(gp_sampler_t *session, uint32_t options, void *buffer, size_t size,
			    size_t *actual)
{
	gp_status_t status;

	if (!session || options || !actual || (!buffer && size))
		return GP_ERR_INVALID_ARGS;
	pthread_mutex_lock(&session->read_lock);
	flush_drops(session);
	status = read_locked(session, buffer, size, actual);
	pthread_mutex_unlock(&session->read_lock);
	return status;
}

gp_status_t gp_sampler_totals(const gp_sampler_t *session, uint32_t vcpu, gp_sampler_totals_t *out)
{
	const struct sampler_vcpu *from;

	if (!session || !out)
		return GP_ERR_INVALID_ARGS;
	if (vcpu >= session->vcpu_count)
		return GP_ERR_OUT_OF_RANGE;
	from = &session->vcpus[vcpu];
	*out = (gp_sampler_totals_t){
		.ticks = atomic_load(&from->ticks),
		.full = atomic_load(&from->full),
		.partial = atomic_load(&from->partial),
		.dropped = atomic_load(&from->dropped),
		.filtered = atomic_load(&from->filtered),
	};
	return GP_OK;
}

/* A recent copy of the vCPU's registers, if a sample was taken since the last call (which asks for
 * the next one). */
static bool take_registers(struct gp_sampler *session, unsigned vcpu, struct guest_cpu *cpu)
{
	struct sampler_vcpu *from = &session->vcpus[vcpu];
	int state = atomic_load_explicit(&from->snapshot_state, memory_order_acquire);

	if (state == SNAPSHOT_TAKEN)
		*cpu = from->snapshot;
	if (state != SNAPSHOT_WANTED)
		atomic_store_explicit(&from->snapshot_state, SNAPSHOT_WANTED, memory_order_release);
	return state == SNAPSHOT_TAKEN;
}

static void refresh_registers(struct gp_sampler *session)
{
	for (unsigned i = 0; i < session->vcpu_count; i++)
		if (take_registers(session, i, &session->cpus[i]))
			session->cpu_known[i] = true;
}

gp_status_t session_learn(struct gp_sampler *session, struct linux_guest *guest,
			  struct error *error)
{
	gp_status_t status;

	pthread_mutex_lock(&session->learn_lock);
	refresh_registers(session);
	status = linux_guest_learn(guest, session->cpus, session->cpu_known, session->vcpu_count,
				   error);
	pthread_mutex_unlock(&session->learn_lock);
	return status;
}

void session_learn_names(struct gp_sampler *session, struct linux_guest *guest)
{
	pthread_mutex_lock(&session->learn_lock);
	refresh_registers(session);
	linux_guest_learn_names(guest, session->cpus, session->cpu_known, session->vcpu_count);
	pthread_mutex_unlock(&session->learn_lock);
}

gp_status_t gp_sampler_learn_guest(gp_sampler_t *session, uint32_t options, char *why, size_t size)
{
	struct error error = {0};
	struct linux_guest *guest;
	gp_status_t status;

	if (!session || options || (!why && size))
		return GP_ERR_INVALID_ARGS;
	guest = sampler_target_guest(session->target);
	if (!guest)
		return GP_ERR_NO_MEMORY;
	status = session_learn(session, guest, &error);
	if (size)
		snprintf(why, size, "%s", status ? error.text : "");
	return status;
}

void gp_sampler_close(gp_sampler_t *session)
{
	struct sampler_target *target;

	if (!session)
		return;
	target = session->target;
	gp_sampler_stop(session, 0);
	pthread_mutex_lock(&target->sessions_lock);
	for (unsigned i = 0; i < SAMPLER_SESSIONS_MAX; i++)
		if (atomic_load(&target->sessions[i]) == session)
			atomic_store(&target->sessions[i], NULL);
	pthread_mutex_unlock(&target->sessions_lock);
	/* Captures may have found it on the list before. */
	sampler_target_wait(target);
	destroy(session);
}
