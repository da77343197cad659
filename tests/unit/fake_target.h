/* A sampler target without a machine: threads that play vCPUs. Each runs until it is kicked, then
 * gives its registers, as the contract in sampler/target.h asks. Shared by the unit tests and the
 * program for ThreadSanitizer. */
#ifndef TESTS_UNIT_FAKE_TARGET_H
#define TESTS_UNIT_FAKE_TARGET_H

#include "base/container.h"
#include "fxt/metadata.h"
#include "fxt/reader.h"
#include "fxt/sample.h"
#include "sampler/capture.h"

#include <guestprof/sampler.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAKE_VCPUS_MAX 4
#define FAKE_PC UINT64_C(0x401000)

struct fake_vcpu {
	struct fake_target *target;
	unsigned index;
	pthread_t thread;
	_Atomic pid_t thread_id;
	_Atomic bool kicked;
	_Atomic bool end;
	_Atomic uint64_t stops;
};

struct fake_target {
	struct sampler_target target;
	struct guest_memory memory;
	unsigned count;
	bool in_guest; /* what a kick answers */
	/* What a stop says of its vCPU, and whether it has registers for it. */
	enum sampler_vcpu_state state;
	bool without_registers;
	/* A guest that stands still: its memory, and the registers of as many vCPUs. NULL: none. */
	const struct guest_memory *image;
	const struct guest_cpu *cpus;
	struct fake_vcpu vcpus[FAKE_VCPUS_MAX];
};

static inline struct fake_target *fake_of(const struct sampler_target *target)
{
	return container_of((struct sampler_target *)(uintptr_t)target, struct fake_target, target);
}

static inline unsigned fake_count(const struct sampler_target *target)
{
	return fake_of(target)->count;
}

static inline pid_t fake_thread(const struct sampler_target *target, unsigned vcpu)
{
	return atomic_load(&fake_of(target)->vcpus[vcpu].thread_id);
}

static inline bool fake_kick(struct sampler_target *target, unsigned vcpu)
{
	atomic_store(&fake_of(target)->vcpus[vcpu].kicked, true);
	return fake_of(target)->in_guest;
}

static inline bool fake_read(const struct guest_memory *memory, gpa_t address, void *buffer,
			     size_t size)
{
	(void)memory;
	(void)address;
	(void)buffer;
	(void)size;
	return false;
}

static inline const struct guest_memory *fake_memory(const struct sampler_target *target)
{
	const struct fake_target *fake = fake_of(target);

	return fake->image ? fake->image : &fake->memory;
}

static const struct sampler_target_ops fake_ops = {
	.vcpu_count = fake_count,
	.tick_thread = fake_thread,
	.kick = fake_kick,
	.memory = fake_memory,
};

static inline void *fake_run(void *argument)
{
	struct fake_vcpu *vcpu = argument;
	struct guest_cpu cpu = {.rip = FAKE_PC, .cr0 = 1, .cs = {.default_size = 1}};

	atomic_store(&vcpu->thread_id, gettid());
	while (!atomic_load(&vcpu->end)) {
		if (!atomic_exchange(&vcpu->kicked, false)) {
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* or a signal */
			continue;
		}
		if (!sampler_is_due(&vcpu->target->target, vcpu->index))
			continue;
		cpu.rip++;
		atomic_fetch_add(&vcpu->stops, 1);
		sampler_capture(&vcpu->target->target, vcpu->index, vcpu->target->state,
				vcpu->target->without_registers ? NULL
				: vcpu->target->cpus            ? &vcpu->target->cpus[vcpu->index]
								: &cpu);
	}
	sampler_vcpu_ended(&vcpu->target->target, vcpu->index);
	atomic_store(&vcpu->thread_id, 0);
	return NULL;
}

static inline void fake_target_init(struct fake_target *fake, unsigned count)
{
	memset(fake, 0, sizeof(*fake));
	fake->count = count;
	fake->in_guest = true;
	fake->memory.read = fake_read;
	sampler_target_init(&fake->target, &fake_ops);
	for (unsigned i = 0; i < count; i++) {
		fake->vcpus[i].target = fake;
		fake->vcpus[i].index = i;
		if (pthread_create(&fake->vcpus[i].thread, NULL, fake_run, &fake->vcpus[i]))
			abort();
		while (!atomic_load(&fake->vcpus[i].thread_id))
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
}

static inline void fake_vcpu_end(struct fake_vcpu *vcpu)
{
	atomic_store(&vcpu->end, true);
	pthread_join(vcpu->thread, NULL);
}

static inline void fake_target_deinit(struct fake_target *fake)
{
	for (unsigned i = 0; i < fake->count; i++)
		if (!atomic_load(&fake->vcpus[i].end))
			fake_vcpu_end(&fake->vcpus[i]);
	sampler_target_deinit(&fake->target);
}

/* What a session's data holds. */
struct fake_counts {
	uint64_t full, partial, dropped, orphans; /* orphans: a completion without its partial */
};

static inline const char *fake_count_records(gp_sampler_t *session, struct fake_counts *counts)
{
	struct fxt_reader reader;
	struct fxt_record record;
	uint64_t open[FAKE_VCPUS_MAX] = {0};
	uint8_t *data;
	size_t size;
	const char *wrong = NULL;

	if (gp_sampler_read(session, 0, NULL, 0, &size))
		return "cannot ask for the size";
	size += 65536;
	data = malloc(size);
	if (!data || gp_sampler_read(session, 0, data, size, &size))
		wrong = "cannot read";
	else if (fxt_reader_init(&reader, data, size, NULL))
		wrong = "not a trace";
	if (wrong) {
		free(data);
		return wrong;
	}
	while (fxt_reader_next(&reader, &record)) {
		struct fxt_sample sample;
		struct fxt_drops drops;

		if (record.kind == FXT_KIND_EVENT && fxt_event_is_drops(&record.event, &drops))
			counts->dropped += drops.records;
		if (record.kind != FXT_KIND_BLOB || !fxt_blob_is_sample(&record.blob) ||
		    fxt_sample_decode(&record.blob, &sample) || sample.vcpu >= FAKE_VCPUS_MAX)
			continue;
		if (sample.flags & FXT_SAMPLE_CONTINUATION) {
			counts->partial++;
			open[sample.vcpu] = sample.continuation;
			continue;
		}
		if (sample.flags & FXT_SAMPLE_TIMESTAMP)
			counts->full++; /* without a time it only closes */
		if ((sample.flags & FXT_SAMPLE_COMPLETION) &&
		    open[sample.vcpu] != sample.completion)
			counts->orphans++;
	}
	if (reader.cut || reader.broken || reader.bad_records)
		wrong = "damaged data";
	fxt_reader_deinit(&reader);
	free(data);
	return wrong;
}

static inline bool fake_totals_add_up(const gp_sampler_t *session, unsigned vcpus,
				      gp_sampler_totals_t *sum)
{
	*sum = (gp_sampler_totals_t){0};
	for (unsigned i = 0; i < vcpus; i++) {
		gp_sampler_totals_t totals;

		if (gp_sampler_totals(session, i, &totals) ||
		    totals.ticks != totals.full + totals.partial + totals.dropped)
			return false;
		sum->ticks += totals.ticks;
		sum->full += totals.full;
		sum->partial += totals.partial;
		sum->dropped += totals.dropped;
	}
	return true;
}

/* Sessions that come, start, stop and go on a target whose vCPUs tick fast. NULL, or what is wrong.
 */
static inline const char *fake_stress(unsigned rounds, uint64_t *ticks)
{
	static struct fake_target fake;
	const char *wrong = NULL;

	fake_target_init(&fake, 3);
	for (unsigned round = 0; round < rounds && !wrong; round++) {
		gp_sampler_config_t config = {.size = sizeof(config),
					      .period_ns = 50000 + round % 3 * 40000,
					      .max_depth = 8,
					      .flags = GP_SAMPLER_SHARED,
					      .ring_bytes = round % 2 ? 4096 : 1 << 20};
		gp_sampler_t *sessions[2] = {NULL, NULL};
		struct fake_counts counts = {0};
		gp_sampler_totals_t sum;

		for (int i = 0; i < 2 && !wrong; i++)
			if (gp_sampler_create(&fake.target, 0, &config, &sessions[i]) ||
			    gp_sampler_start(sessions[i], 0))
				wrong = "cannot start";
		nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
		if (!wrong && gp_sampler_stop(sessions[0], 0))
			wrong = "cannot stop";
		if (!wrong && !fake_totals_add_up(sessions[0], 3, &sum))
			wrong = "ticks are not full + partial + dropped";
		if (!wrong)
			wrong = fake_count_records(sessions[0], &counts);
		if (!wrong && (counts.full != sum.full || counts.partial != sum.partial))
			wrong = "the data holds other records than were counted";
		if (!wrong && counts.dropped > sum.dropped)
			wrong = "more drops in the data than happened";
		*ticks += wrong ? 0 : sum.ticks;
		gp_sampler_close(sessions[1]); /* still running */
		gp_sampler_close(sessions[0]);
	}
	fake_target_deinit(&fake);
	return wrong;
}

#endif
