/* What a sample adds to a vCPU's stop, without a machine: sampler_capture() of a stack of 1, 4, 16
 * and 64 frames by frame pointers, in a buffer; from the registers as a value to the record in the
 * ring. That and a bare kick's stop (kick.c) are the whole stop. Once with all that it touches in
 * the CPU's caches, and once after something else has gone through half a MiB, as a guest does
 * between two ticks.
 */
#include "sampler/capture.h"
#include "sampler/sampler_vcpu.h"
#include "tests/bench/framed_guest.h"

#include <stdio.h>
#include <time.h>

#define CAPTURES 20000u
#define READ_EVERY 1000u
#define RING_BYTES (16u << 20)
#define POLLUTION (512u << 10)
#define COPY_SIZE (1u << 20)
#define PERIOD_NS 1000000u

static struct framed_guest guest;

static unsigned vcpu_count(const struct sampler_target *target)
{
	(void)target;
	return 1;
}

/* Nobody sends ticks: they are put there. */
static pid_t tick_thread(const struct sampler_target *target, unsigned vcpu)
{
	(void)target;
	(void)vcpu;
	return 0;
}

static bool kick(struct sampler_target *target, unsigned vcpu)
{
	(void)target;
	(void)vcpu;
	return true;
}

static const struct guest_memory *memory_of(const struct sampler_target *target)
{
	(void)target;
	return &guest.memory.memory;
}

static const struct sampler_target_ops ops = {
	.vcpu_count = vcpu_count, .tick_thread = tick_thread, .kick = kick, .memory = memory_of};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return a < b ? -1 : a > b;
}

static void pollute(void)
{
	static volatile uint8_t bytes[POLLUTION];

	for (size_t i = 0; i < POLLUTION; i += 64)
		bytes[i]++;
}

/* Nanoseconds to copy 1 MiB, the yardstick. */
static double measure_copy(void)
{
	static uint8_t from[COPY_SIZE], to[COPY_SIZE];
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < 50; i++) {
		uint64_t begin = now(), took;

		memcpy(to, from, COPY_SIZE);
		__asm__ volatile("" : : "r"(to) : "memory");
		took = now() - begin;
		best = took < best ? took : best;
	}
	return (double)best;
}

static void measure(unsigned frames, bool cold, double copy)
{
	gp_sampler_config_t config = {.size = sizeof(config),
				      .period_ns = PERIOD_NS,
				      .max_depth = frames,
				      .ring_bytes = RING_BYTES};
	static uint8_t buffer[RING_BYTES];
	static uint32_t times[CAPTURES];
	struct sampler_target target;
	struct sampler_vcpu *vcpu;
	gp_sampler_totals_t totals;
	gp_sampler_t *session;
	size_t size;

	/* Two frames more than are wanted: the depth limit ends the walk. */
	framed_guest_init(&guest, frames + 2);
	sampler_target_init(&target, &ops);
	if (gp_sampler_create(&target, 0, &config, &session)) {
		printf("not measured: no session\n");
		free(guest.bytes);
		return;
	}
	vcpu = &session->vcpus[0];
	for (unsigned i = 0; i < CAPTURES; i++) {
		uint64_t begin;

		vcpu->runs[vcpu->head] = (struct pending_run){i, 1, true};
		vcpu->head = (vcpu->head + 1) % PENDING_RUNS;
		if (cold)
			pollute();
		begin = now();
		sampler_capture(&target, 0, SAMPLER_VCPU_RUNNING, &guest.cpu);
		times[i] = (uint32_t)(now() - begin);
		if (i % READ_EVERY == 0)
			gp_sampler_read(session, 0, buffer, sizeof(buffer), &size);
	}
	qsort(times, CAPTURES, sizeof(times[0]), compare);
	gp_sampler_totals(session, 0, &totals);
	printf("%2u frames, caches %s  median %5u ns, p99 %5u ns, %.4f of copying 1 MiB%s\n",
	       frames, cold ? "used by others" : "warm          ", times[CAPTURES / 2],
	       times[CAPTURES * 99 / 100], times[CAPTURES / 2] / copy,
	       totals.full == CAPTURES ? "" : "; NOT all of them were full");
	gp_sampler_close(session);
	sampler_target_deinit(&target);
	free(guest.bytes);
}

int main(void)
{
	static const unsigned depths[] = {1, 4, 16, 64};
	double copy = measure_copy();

	for (int cold = 0; cold < 2; cold++)
		for (unsigned i = 0; i < sizeof(depths) / sizeof(depths[0]); i++)
			measure(depths[i], cold, copy);
	return 0;
}
