/* What attaching costs the guest of another process, on whatever /dev/kvm there is.
 *
 * slowdown CPU time of the VMM for the guest's work, attached at several rates; beside it stops of
 *          which nobody makes anything, which is what the host and its KVM take for their part
 * first    from attaching to the first stack
 */
#include "attach/attached_vm.h"
#include "attach/vcpu_thread.h"
#include "sampler/target.h"
#include "tests/bench/remote.h"
#include "tests/bench/progress.h"

#include <guestprof/sampler.h>
#include <pthread.h>

enum { ROUNDS = 7, WINDOWS = 60, WINDOW_MS = 100 };

static char guest_path[512];

static gp_sampler_t *sample(struct attached_vm *vm, uint64_t period)
{
	gp_sampler_config_t config = {.size = sizeof(config), .period_ns = period, .max_depth = 64};
	gp_sampler_t *session = NULL;
	gp_status_t status = gp_sampler_create(attached_vm_target(vm), 0, &config, &session);

	if (!status)
		status = gp_sampler_start(session, 0);
	if (!status)
		return session;
	printf("no session: %s\n", gp_status_string(status));
	gp_sampler_close(session);
	return NULL;
}

struct slowed {
	struct attached_vm *vm;
	gp_sampler_t *session;
	pid_t vcpu;
	pthread_t stopper;
	_Atomic bool stopper_ends;
};

static bool begin_sampling(const struct progress_way *way, void *context)
{
	struct slowed *slowed = context;

	slowed->session = sample(slowed->vm, way->period_ns);
	return slowed->session != NULL;
}

static void end_sampling(const struct progress_way *way, void *context)
{
	struct slowed *slowed = context;

	(void)way;
	gp_sampler_close(slowed->session);
	slowed->session = NULL;
}

/* What the host takes for the stop alone: nothing is looked at, nothing decided. */
static void *stop_only(void *argument)
{
	struct slowed *slowed = argument;
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!atomic_load(&slowed->stopper_ends)) {
		struct vcpu_stopped stopped;
		enum vcpu_stop stop;

		next.tv_nsec += NS_PER_SECOND / 997;
		if (next.tv_nsec >= (long)NS_PER_SECOND) {
			next.tv_nsec -= (long)NS_PER_SECOND;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		stop = vcpu_thread_stop(slowed->vcpu, -1, &stopped);
		if (stop == VCPU_STOPPED_IN_RUN || stop == VCPU_STOPPED_IN_VMM)
			vcpu_thread_release(&stopped);
	}
	return NULL;
}

static bool begin_stops(const struct progress_way *way, void *context)
{
	struct slowed *slowed = context;

	(void)way;
	atomic_store(&slowed->stopper_ends, false);
	return !pthread_create(&slowed->stopper, NULL, stop_only, slowed);
}

static void end_stops(const struct progress_way *way, void *context)
{
	struct slowed *slowed = context;

	(void)way;
	atomic_store(&slowed->stopper_ends, true);
	pthread_join(slowed->stopper, NULL);
}

static void measure_slowdown(void)
{
	static const struct progress_way ways[] = {
		{"99 Hz", "<= 1.005", begin_sampling, end_sampling, NS_PER_SECOND / 99},
		{"997 Hz", "<= 1.03", begin_sampling, end_sampling, NS_PER_SECOND / 997},
		{"997 Hz, stops alone", "", begin_stops, end_stops, 0},
		{"3989 Hz", "", begin_sampling, end_sampling, NS_PER_SECOND / 3989},
	};
	enum { RATES = sizeof(ways) / sizeof(ways[0]) };
	static struct progress_result results[RATES];
	struct attach_config config = {0};
	struct slowed slowed = {0};
	struct progress_guest guest;
	struct vmm vmm;

	if (!start_vmm(&vmm, guest_path, "run=count depth=13", NULL))
		return;
	usleep(100000);
	config.pid = vmm.pid;
	/* Attached all the time: what costs is looking, not being ready to look. */
	if (attached_vm_create(&config, &slowed.vm, NULL)) {
		puts("not measured: cannot attach");
	} else {
		struct sampler_target *target = attached_vm_target(slowed.vm);

		guest.memory = target->ops->memory(target);
		clock_getcpuclockid(vmm.pid, &guest.cpu);
		slowed.vcpu = thread_called(vmm.pid, "vcpu 0\n");
		if (progress_measure(&guest, ways, RATES, &slowed, WINDOWS, WINDOW_MS, results)) {
			printf("slowdown: CPU time of the VMM for the guest's work, %d windows "
			       "of %d ms each\n",
			       WINDOWS, WINDOW_MS);
			progress_print(ways, RATES, results);
		} else {
			puts("not measured: no session, or the guest does not count");
		}
	}
	attached_vm_destroy(slowed.vm);
	end_vmm(&vmm);
}

static void measure_first_stack(void)
{
	double times[ROUNDS];
	struct vmm vmm;
	size_t count = 0;

	if (!start_vmm(&vmm, guest_path, "run=tree rounds=0", NULL))
		return;
	for (int round = 0; round < ROUNDS; round++) {
		struct attach_config config = {.pid = vmm.pid};
		uint64_t begin = now_ns();
		gp_sampler_totals_t totals = {0};
		struct attached_vm *vm;
		gp_sampler_t *session;

		if (attached_vm_create(&config, &vm, NULL))
			break;
		session = sample(vm, NS_PER_SECOND / 997);
		for (int i = 0; session && i < 50000 && !totals.full; i++) {
			usleep(100);
			gp_sampler_totals(session, 0, &totals);
		}
		if (totals.full)
			times[count++] = (double)(now_ns() - begin);
		gp_sampler_close(session);
		attached_vm_destroy(vm);
	}
	end_vmm(&vmm);
	printf("\nfrom attaching to the first stack: %.1f ms (goal: 1 s, with names)\n",
	       at(times, count, 50) / 1e6);
}

int main(void)
{
	if (!find_guest(guest_path, sizeof(guest_path)))
		return 0;
	measure_slowdown();
	measure_first_stack();
	return 0;
}
