#include "vmm/machine.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "sampler/capture.h"
#include "vmm/boot/boot.h"
#include "vmm/cpuid.h"
#include "vmm/devices/guest_ram.h"
#include "vmm/kvm.h"
#include "vmm/machine_devices.h"
#include "vmm/sandbox.h"
#include "vmm/vcpu.h"

#include <errno.h>
#include <linux/kvm.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

struct machine {
	struct sampler_target target;
	bool sandbox;

	struct kvm kvm;
	int vm_fd;
	struct boot_files files;
	uint64_t kernel_start;
	uint64_t kernel_end;
	struct guest_ram ram;
	bool has_ram;
	struct machine_devices devices;

	struct vcpu_environment environment;
	unsigned vcpu_count;
	unsigned vcpus_made;
	unsigned vcpus_started;
	struct vcpu vcpus[MACHINE_VCPUS_MAX];
	struct vcpu_gate gate;

	pthread_t loop_thread;
	bool loop_runs;
	struct error loop_error;

	struct guest_end_event end;
};

void machine_request_end(struct machine *machine, enum guest_end end)
{
	guest_end_request(&machine->end, end);
}

/* The sampler's view of us. */

static struct machine *machine_of(const struct sampler_target *target)
{
	return container_of((struct sampler_target *)(uintptr_t)target, struct machine, target);
}

static unsigned machine_vcpu_count(const struct sampler_target *target)
{
	return machine_of(target)->vcpu_count;
}

static pid_t machine_tick_thread(const struct sampler_target *target, unsigned vcpu)
{
	return atomic_load(&machine_of(target)->vcpus[vcpu].thread_id);
}

static bool machine_kick(struct sampler_target *target, unsigned vcpu)
{
	return vcpu_kick(&machine_of(target)->vcpus[vcpu]);
}

static const struct guest_memory *machine_memory(const struct sampler_target *target)
{
	return &machine_of(target)->ram.memory;
}

static enum sampler_vcpu_state machine_vcpu_state(struct sampler_target *target, unsigned vcpu)
{
	struct kvm_mp_state state;

	if (ioctl(machine_of(target)->vcpus[vcpu].fd, KVM_GET_MP_STATE, &state))
		return SAMPLER_VCPU_RUNNING;
	switch (state.mp_state) {
	case KVM_MP_STATE_HALTED:
	case KVM_MP_STATE_AP_RESET_HOLD:
		return SAMPLER_VCPU_HALTED;
	case KVM_MP_STATE_UNINITIALIZED:
	case KVM_MP_STATE_INIT_RECEIVED:
	case KVM_MP_STATE_SIPI_RECEIVED:
		return SAMPLER_VCPU_NOT_STARTED;
	default:
		return SAMPLER_VCPU_RUNNING;
	}
}

static const struct sampler_target_ops target_ops = {
	.vcpu_count = machine_vcpu_count,
	.tick_thread = machine_tick_thread,
	.kick = machine_kick,
	.memory = machine_memory,
	.vcpu_state = machine_vcpu_state,
};

static void on_stop(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;
	struct guest_cpu cpu;

	if (!sampler_is_due(&machine->target, vcpu->index))
		return;
	vcpu_registers(vcpu, &cpu);
	sampler_capture(&machine->target, vcpu->index, SAMPLER_VCPU_RUNNING, &cpu);
}

static void on_end(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;

	sampler_vcpu_ended(&machine->target, vcpu->index);
}

static gp_status_t on_thread_start(void *context, struct vcpu *vcpu, struct error *error)
{
	const struct machine *machine = context;
	struct sandbox_fds fds = {.vcpu_fd = vcpu->fd};

	if (!machine->sandbox)
		return GP_OK;
	return sandbox_enter_thread(SANDBOX_VCPU, &fds, error);
}

static gp_status_t machine_add_vcpus(struct machine *machine, const struct boot_state *state,
				     struct error *error)
{
	const struct kvm *kvm = &machine->kvm;
	AUTO_FREE struct cpuid_table *supported = malloc(sizeof(*supported));
	AUTO_FREE struct cpuid_table *own = malloc(sizeof(*own));
	gp_status_t status;

	if (!supported || !own)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for CPUID tables");
	status = cpuid_supported(kvm->fd, supported, error);
	for (unsigned i = 0; !status && i < machine->vcpu_count; i++) {
		*own = *supported;
		status = cpuid_for_vcpu(own, i, machine->vcpu_count, kvm->tsc_deadline, error);
		if (!status)
			status = vcpu_init(&machine->vcpus[i], machine->vm_fd, i, kvm->run_size,
					   kvm->sync_registers, own, state, &machine->environment,
					   error);
		if (!status)
			machine->vcpus_made++;
	}
	return status;
}

static gp_status_t open_files(struct machine *machine, const struct machine_config *config,
			      struct error *error)
{
	gp_status_t status;

	if (config->memory < MACHINE_MEMORY_MIN || config->memory % 4096)
		return error_set(error, GP_ERR_OUT_OF_RANGE,
				 "%llu bytes of guest memory: give a multiple of 4 KiB, at least 1 "
				 "MiB, with -m",
				 (unsigned long long)config->memory);
	status = boot_files_open(config->kernel, config->initrd, config->command_line,
				 config->memory, &machine->files, error);
	if (!status)
		status = machine_devices_init(&machine->devices, config, error);
	return status;
}

static gp_status_t build(struct machine *machine, const struct machine_config *config,
			 enum machine_fault *fault, struct error *error)
{
	struct boot_state state;
	gp_status_t status;
	unsigned most;

	/* Bad input is told before anything of a VM exists. */
	*fault = MACHINE_FAULT_INPUT;
	status = open_files(machine, config, error);
	if (status)
		return status;
	*fault = MACHINE_FAULT_HOST;
	status = kvm_open(config->kvm_path ? config->kvm_path : "/dev/kvm", &machine->kvm, error);
	if (status)
		return status;
	*fault = MACHINE_FAULT_INPUT;
	most = machine->kvm.vcpus_max < MACHINE_VCPUS_MAX ? machine->kvm.vcpus_max
							  : MACHINE_VCPUS_MAX;
	if (config->vcpus < 1 || config->vcpus > most)
		return error_set(error, GP_ERR_OUT_OF_RANGE, "%u vCPUs: give 1 to %u with -c",
				 config->vcpus, most);
	*fault = MACHINE_FAULT_HOST;
	machine->vcpu_count = config->vcpus;
	machine->environment = (struct vcpu_environment){
		.ports = &machine->devices.ports,
		.memory = &machine->devices.memory,
		.guest_memory = &machine->ram.memory,
		.end = &machine->end,
		.callbacks = {on_stop, on_end, on_thread_start, machine},
	};
	status = guest_end_init(&machine->end, error);
	if (!status)
		status = guest_ram_init(&machine->ram, config->memory, error);
	if (status)
		return status;
	machine->has_ram = true;
	status = kvm_create_vm(&machine->kvm, &machine->ram, &machine->vm_fd, error);
	if (!status)
		status = machine_devices_add(&machine->devices, config, machine->vm_fd,
					     &machine->ram, &machine->end, error);
	if (!status)
		status = boot_load(&machine->files, &machine->ram, ACPI_TABLES_BASE, &state, error);
	if (status)
		return status;
	machine->kernel_start = machine->files.kernel.start;
	machine->kernel_end = machine->files.kernel.end;
	boot_files_close(&machine->files);
	return machine_add_vcpus(machine, &state, error);
}

gp_status_t machine_create(const struct machine_config *config, struct machine **out,
			   enum machine_fault *fault, struct error *error)
{
	enum machine_fault whose = MACHINE_FAULT_HOST;
	struct machine *machine = calloc(1, sizeof(*machine));
	gp_status_t status;

	if (!machine)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a machine");
	machine->kvm.fd = machine->vm_fd = machine->end.fd = -1;
	machine->files.initrd_fd = -1;
	machine->sandbox = config->sandbox;
	vcpu_gate_init(&machine->gate);
	sampler_target_init(&machine->target, &target_ops);
	status = build(machine, config, &whose, error);
	if (status) {
		machine_destroy(machine);
		if (fault)
			*fault = whose;
		return status;
	}
	*out = machine;
	return GP_OK;
}

/* Ends every thread; all vCPUs have left the guest afterwards. */
static void stop_threads(struct machine *machine)
{
	for (unsigned i = 0; i < machine->vcpus_started; i++)
		atomic_store(&machine->vcpus[i].stop_requested, true);
	vcpu_gate_open(&machine->gate); /* those that still wait there see the request */
	for (unsigned i = 0; i < machine->vcpus_started; i++)
		vcpu_stop(&machine->vcpus[i]);
	machine->vcpus_started = 0;
	if (machine->loop_runs) {
		event_loop_stop(&machine->devices.loop);
		pthread_join(machine->loop_thread, NULL);
		machine->loop_runs = false;
	}
	if (machine->devices.console)
		console_finish(machine->devices.console);
}

void machine_destroy(struct machine *machine)
{
	if (!machine)
		return;
	stop_threads(machine);
	for (unsigned i = 0; i < machine->vcpus_made; i++)
		vcpu_deinit(&machine->vcpus[i]);
	machine_devices_deinit(&machine->devices);
	close_fd(&machine->vm_fd);
	kvm_close(&machine->kvm);
	guest_end_deinit(&machine->end);
	if (machine->has_ram)
		guest_ram_deinit(&machine->ram);
	boot_files_close(&machine->files);
	sampler_target_deinit(&machine->target);
	vcpu_gate_deinit(&machine->gate);
	free(machine);
}

static void *loop_main(void *argument)
{
	struct machine *machine = argument;
	gp_status_t status = GP_OK;

	pthread_setname_np(pthread_self(), "devices");
	if (machine->sandbox)
		status = sandbox_enter_thread(SANDBOX_EVENT_LOOP, NULL, &machine->loop_error);
	if (!status)
		status = event_loop_run(&machine->devices.loop, &machine->loop_error);
	if (status)
		machine_request_end(machine, GUEST_ERROR);
	return NULL;
}

gp_status_t machine_start(struct machine *machine, struct error *error)
{
	gp_status_t status = GP_OK;
	sigset_t all, old;
	int failed;

	while (!status && machine->vcpus_started < machine->vcpu_count) {
		status = vcpu_start(&machine->vcpus[machine->vcpus_started], &machine->gate, error);
		if (!status)
			machine->vcpus_started++;
	}
	if (status)
		return status;
	/* Signals are the caller's business: the device thread gets none. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&machine->loop_thread, NULL, loop_main, machine);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed)
		return error_set_errno(error, failed, "cannot start the device thread");
	machine->loop_runs = true;
	return GP_OK;
}

/* Waits until something ends the machine. */
static void wait_for_end(struct machine *machine, const struct machine_limits *limits)
{
	uint64_t start = monotonic_ns(), limit = 0, next_watch = limits->watch_ns;
	enum guest_end at_limit = GUEST_RUNNING;
	struct pollfd requested = {.fd = machine->end.fd, .events = POLLIN};

	if (limits->duration_ns) {
		limit = limits->duration_ns;
		at_limit = GUEST_DURATION;
	}
	if (limits->timeout_ns && (!limit || limits->timeout_ns < limit)) {
		limit = limits->timeout_ns;
		at_limit = GUEST_TIMED_OUT;
	}
	while (guest_end_of(&machine->end) == GUEST_RUNNING) {
		uint64_t passed = monotonic_ns() - start, rest = UINT64_MAX;
		struct timespec left;

		if (limit && passed >= limit) {
			machine_request_end(machine, at_limit);
			break;
		}
		if (limits->watch && passed >= next_watch) {
			limits->watch(limits->watch_context);
			next_watch = passed + limits->watch_ns;
		}
		if (limit)
			rest = limit - passed;
		if (limits->watch && next_watch - passed < rest)
			rest = next_watch - passed;
		left = timespec_of(rest);
		ppoll(&requested, 1, rest < UINT64_MAX ? &left : NULL, NULL);
	}
}

enum guest_end machine_run(struct machine *machine, const struct machine_limits *limits,
			   struct error *error)
{
	enum guest_end end;

	vcpu_gate_open(&machine->gate);
	wait_for_end(machine, limits);
	stop_threads(machine);
	end = guest_end_of(&machine->end);
	if (end == GUEST_ERROR && error) {
		*error = machine->loop_error;
		for (unsigned i = 0; i < machine->vcpu_count && !error->status; i++)
			*error = machine->vcpus[i].error;
	}
	return end;
}

struct sampler_target *machine_target(struct machine *machine)
{
	return &machine->target;
}

void machine_kernel_range(const struct machine *machine, uint64_t *start, uint64_t *end)
{
	*start = machine->kernel_start;
	*end = machine->kernel_end;
}

uint64_t machine_console_dropped(const struct machine *machine)
{
	return console_dropped_bytes(machine->devices.console);
}
