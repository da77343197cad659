#include "attach/attached_vm.h"

#include "attach/attached_vcpu.h"
#include "attach/remote_memory.h"
#include "attach/memory_layout.h"
#include "attach/proc_file.h"
#include "attach/process_rights.h"
#include "attach/process_state.h"
#include "attach/vcpu_thread.h"
#include "attach/vm_threads.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Proof: a look at each vCPU so often until one is seen running. */
#define PEEK_ROUNDS 200
#define PEEK_ROUND_NS 10000000
/* A guest that does nothing is woken for the proof, once per round, after so many without. */
#define PEEK_PATIENCE 50
/* So many looks at all vCPUs, so that the proof is not of one address space only. */
#define PEEK_ENOUGH 3

#define WATCH_MILLISECONDS 500

struct attached_vm {
	struct sampler_target target;
	struct vm_process process;
	struct attached_info info;
	struct remote_memory memory;
	bool has_memory;
	const char *proc;
	int pidfd;
	struct guest_end_event end;
	void (*on_event)(void *context, const char *text);
	void *context;

	/* wait() only. */
	bool paused;
	uint64_t pauses;
	unsigned asleep_rounds;
	unsigned vcpus_told;

	unsigned vcpu_count;
	struct attached_vcpu *vcpus;
};

void attached_vm_request_end(struct attached_vm *vm, enum guest_end end)
{
	guest_end_request(&vm->end, end);
}

/* The sampler's view of us. */

static struct attached_vm *vm_of(const struct sampler_target *target)
{
	return container_of((struct sampler_target *)(uintptr_t)target, struct attached_vm, target);
}

static unsigned attached_vm_vcpu_count(const struct sampler_target *target)
{
	return vm_of(target)->vcpu_count;
}

static pid_t attached_vm_tick_thread(const struct sampler_target *target, unsigned vcpu)
{
	return atomic_load(&vm_of(target)->vcpus[vcpu].tick_thread);
}

/* Whether the vCPU is in the guest shows when it is stopped: sampler_capture(). */
static bool attached_vm_kick(struct sampler_target *target, unsigned vcpu)
{
	vm_of(target)->vcpus[vcpu].kicked = 1;
	return true;
}

static const struct guest_memory *attached_vm_memory(const struct sampler_target *target)
{
	return &vm_of(target)->memory.memory;
}

/* Stopped behind a HLT, but not asleep: KVM polls for a while before it lets the thread sleep
 * (halt_poll_ns). An interrupt would have led elsewhere. */
static enum sampler_vcpu_state attached_vm_vcpu_state(struct sampler_target *target, unsigned vcpu)
{
	(void)target;
	(void)vcpu;
	return SAMPLER_VCPU_HALTED;
}

static const struct sampler_target_ops target_ops = {
	.vcpu_count = attached_vm_vcpu_count,
	.tick_thread = attached_vm_tick_thread,
	.kick = attached_vm_kick,
	.memory = attached_vm_memory,
	.vcpu_state = attached_vm_vcpu_state,
};

/* Attaching. */

static gp_status_t with_rights(const struct attached_vm *vm, gp_status_t status,
			       struct error *error)
{
	char advice[256];

	if (status != GP_ERR_ACCESS_DENIED || !error)
		return status;
	process_rights(vm->proc, vm->process.pid, advice, sizeof(advice));
	return error_set(error, status, "process %d may not be attached to: %s",
			 (int)vm->process.pid, advice);
}

static gp_status_t check_process(struct attached_vm *vm, struct error *error)
{
	const struct vm_process *process = &vm->process;

	if (process->pid == getpid())
		return error_set(error, GP_ERR_INVALID_ARGS, "this is guestprof's own process");
	if (process->vms > 1)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "process %d runs %u virtual machines; one is possible",
				 (int)process->pid, process->vms);
	if (process->is_protected)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "its guest is protected (SEV or TDX): registers and memory are "
				 "encrypted");
	return GP_OK;
}

/* A frozen thread would have to be waited for until it is thawed, however long. */
static gp_status_t check_it_goes_on(struct attached_vm *vm, struct error *error)
{
	pid_t pid = vm->process.pid;
	enum process_state state = process_state(vm->proc, pid);

	vm->process.tracer = vm->process.tracer ? process_lasting_tracer(vm->proc, pid) : 0;
	/* Another guestprof lets go of it at once. */
	if (state == PROCESS_HELD && !vm->process.tracer)
		state = PROCESS_GOES_ON;
	if (state == PROCESS_HELD)
		return error_set(error, GP_ERR_BAD_STATE,
				 "process %d is held by its tracer, process %d: attach when "
				 "that lets it go on",
				 (int)pid, (int)vm->process.tracer);
	if (state != PROCESS_GOES_ON)
		return error_set(error, GP_ERR_BAD_STATE,
				 "process %d is %s: attach when it goes on, as after %s", (int)pid,
				 process_state_name(state),
				 state == PROCESS_STOPPED ? "'kill -CONT'" : "it has been thawed");
	return GP_OK;
}

/* The signal that this kind of VMM kicks its own vCPUs with, so that it does no harm there; 0: not
 * known, or not caught by that thread now. */
static int kick_signal_of(const struct attached_vm *vm, pid_t thread)
{
	uint64_t caught = 0, blocked = ~UINT64_C(0);
	int signal = 0;

	switch (vm->process.kind) {
	case VMM_QEMU: /* SIG_IPI, include/sysemu/cpus.h */
		signal = SIGUSR1;
		break;
	case VMM_FIRECRACKER:
	case VMM_CLOUD_HYPERVISOR:
	case VMM_CROSVM: /* the first real-time signal, as their C library has it */
		signal = SIGRTMIN;
		break;
	case VMM_GUESTPROF:
	case VMM_UNKNOWN:
		return 0;
	}
	proc_thread_field(vm->proc, vm->process.pid, thread, "SigCgt", 16, &caught);
	proc_thread_field(vm->proc, vm->process.pid, thread, "SigBlk", 16, &blocked);
	return caught >> (signal - 1) & ~(blocked >> (signal - 1)) & 1 ? signal : 0;
}

static gp_status_t choose_kick(const struct attached_vm *vm, struct attached_vcpu *vcpu,
			       struct error *error)
{
	vcpu->kick_signal = kick_signal_of(vm, vcpu->vmm_thread);
	if (!vcpu->kick_signal)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "process %d is traced by process %d, and the signal that %s kicks "
				 "its vCPUs with is not known, or blocked now",
				 (int)vm->process.pid, (int)vm->process.tracer,
				 *vm->process.vmm ? vm->process.vmm : "its VMM");
	if (vcpu->page.borrowed)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "process %d is traced by process %d, and its VMM uses the shared "
				 "registers itself",
				 (int)vm->process.pid, (int)vm->process.tracer);
	return GP_OK;
}

static gp_status_t attached_vm_add_vcpus(struct attached_vm *vm, bool by_signal,
					 struct error *error)
{
	const struct vm_process *process = &vm->process;
	AUTO_FREE pid_t *threads = calloc(process->vcpu_count, sizeof(*threads));
	gp_status_t status;

	vm->vcpus = calloc(process->vcpu_count, sizeof(*vm->vcpus));
	if (!threads || !vm->vcpus)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for vCPUs");
	status = vm_threads_find(process, vm->proc, !by_signal, threads, error);
	for (unsigned i = 0; !status && i < process->vcpu_count; i++) {
		struct attached_vcpu *vcpu = &vm->vcpus[i];

		*vcpu = (struct attached_vcpu){
			.target = &vm->target,
			.end = &vm->end,
			.index = i,
			.vmm = process->pid,
			.vmm_thread = threads[i],
			.vmm_fd = process->vcpus[i].fd,
			.activity_fd = vcpu_thread_open(vm->proc, process->pid, threads[i]),
			.stat_fd = vcpu_thread_open_stat(vm->proc, process->pid, threads[i]),
			.page = {.fd = -1},
			.stop_fd = -1,
		};
		vm->vcpu_count++;
		if (vcpu->activity_fd < 0)
			return error_set_errno(error, errno, "cannot look at vCPU %u's thread", i);
		status = run_page_init(&vcpu->page, vm->pidfd, vcpu->vmm_fd, error);
		if (!status && by_signal)
			status = choose_kick(vm, vcpu, error);
	}
	return status;
}

/* Registers of vCPUs that run, for the proof. */
static unsigned peek(struct attached_vm *vm, bool wake, struct guest_cpu *cpus)
{
	unsigned count = 0;

	for (unsigned i = 0; i < vm->vcpu_count; i++)
		count += attached_vcpu_peek(&vm->vcpus[i], wake, &cpus[count]);
	return count;
}

static bool has_ended(const struct attached_vm *vm)
{
	struct pollfd process = {.fd = vm->pidfd, .events = POLLIN};

	return poll(&process, 1, 0) > 0;
}

static gp_status_t prove(struct attached_vm *vm, struct error *error)
{
	AUTO_FREE struct guest_cpu *cpus = calloc(vm->vcpu_count, sizeof(*cpus));
	gp_status_t status = error_set(error, GP_ERR_TIMED_OUT,
				       "no vCPU of process %d is seen running: the machine is "
				       "paused, or its VMM does not answer",
				       (int)vm->process.pid);
	unsigned agreed = 0;

	if (!cpus)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for registers");
	for (unsigned round = 0; round < PEEK_ROUNDS && agreed < PEEK_ENOUGH; round++) {
		if (has_ended(vm))
			return error_set(error, GP_ERR_NOT_FOUND,
					 "process %d ended while it was looked at",
					 (int)vm->process.pid);
		unsigned count = peek(vm, round >= PEEK_PATIENCE, cpus);

		if (agreed && count &&
		    !memory_layout_is_proven(&vm->memory, cpus, count, vm->info.banner)) {
			/* The first ones agreed by chance, or one was just leaving its firmware. */
			agreed = 0;
		} else if (agreed && count) {
			agreed++;
		} else if (count) {
			status = memory_layout_find(&vm->memory, vm->process.hole_start, cpus,
						    count, vm->info.banner, error);
			agreed += !status;
		}
		sleep_ns(PEEK_ROUND_NS);
	}
	/* A guest that sleeps after the first proof needs no second one. */
	return status;
}

static void describe(struct attached_vm *vm)
{
	vm->info.process = &vm->process;
	for (unsigned i = 0; i < vm->memory.layout.count; i++)
		vm->info.memory_bytes += vm->memory.layout.regions[i].size;
	snprintf(vm->info.method, sizeof(vm->info.method),
		 "shared registers, kicked by %s; memory: %s",
		 vm->vcpus[0].kick_signal ? "signal" : "ptrace", remote_memory_method(&vm->memory));
}

static gp_status_t attach(struct attached_vm *vm, const struct attach_config *config,
			  struct error *error)
{
	bool by_signal;
	gp_status_t status = vm_process_init(&vm->process, vm->proc, config->pid, error);

	if (!status)
		status = check_process(vm, error);
	if (!status)
		status = check_it_goes_on(vm, error);
	if (!status)
		status = run_page_check_host(config->kvm_path ? config->kvm_path : "/dev/kvm",
					     error);
	if (status)
		return status;
	by_signal = config->signal_kick || vm->process.tracer;
	vm->vcpus_told = vm->process.vcpu_count;
	vm->pidfd = (int)syscall(SYS_pidfd_open, config->pid, 0);
	if (vm->pidfd < 0)
		return error_set_errno(error, errno, "cannot watch process %d", (int)config->pid);
	status = guest_end_init(&vm->end, error);
	if (status)
		return status;
	status = remote_memory_init(&vm->memory, vm->proc, config->pid, vm->pidfd, error);
	if (status)
		return with_rights(vm, status, error);
	vm->has_memory = true;
	status = attached_vm_add_vcpus(vm, by_signal, error);
	if (status)
		return with_rights(vm, status, error);
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		run_page_arm(&vm->vcpus[i].page);
	status = prove(vm, error);
	if (status)
		return status;
	describe(vm);
	for (unsigned i = 0; !status && i < vm->vcpu_count; i++)
		status = attached_vcpu_start(&vm->vcpus[i], error);
	return status;
}

gp_status_t attached_vm_create(const struct attach_config *config, struct attached_vm **out,
			       struct error *error)
{
	struct attached_vm *vm = calloc(1, sizeof(*vm));
	gp_status_t status;

	if (!vm)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a virtual machine");
	vm->pidfd = vm->end.fd = vm->memory.mem_fd = -1;
	vm->proc = config->proc ? config->proc : "/proc";
	vm->on_event = config->on_event;
	vm->context = config->context;
	sampler_target_init(&vm->target, &target_ops);
	status = attach(vm, config, error);
	if (status) {
		attached_vm_destroy(vm);
		return status;
	}
	*out = vm;
	return GP_OK;
}

void attached_vm_destroy(struct attached_vm *vm)
{
	if (!vm)
		return;
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		attached_vcpu_stop(&vm->vcpus[i]);
	sampler_target_deinit(&vm->target);
	free(vm->vcpus);
	if (vm->has_memory)
		remote_memory_deinit(&vm->memory);
	close_fd(&vm->pidfd);
	guest_end_deinit(&vm->end);
	vm_process_deinit(&vm->process);
	free(vm);
}

struct sampler_target *attached_vm_target(struct attached_vm *vm)
{
	return &vm->target;
}

const struct attached_info *attached_vm_info(const struct attached_vm *vm)
{
	return &vm->info;
}

void attached_vm_counts(const struct attached_vm *vm, struct attached_counts *out)
{
	struct attached_counts counts = {.pauses = vm->pauses};

	for (unsigned i = 0; i < vm->vcpu_count; i++) {
		counts.halted += atomic_load(&vm->vcpus[i].halted);
		counts.in_vmm += atomic_load(&vm->vcpus[i].in_vmm);
		counts.missed += atomic_load(&vm->vcpus[i].missed);
		counts.stale += atomic_load(&vm->vcpus[i].stale);
		counts.signals += atomic_load(&vm->vcpus[i].signals);
	}
	*out = counts;
}

/* Watching. */

static void attached_vm_tell(const struct attached_vm *vm, const char *text)
{
	if (vm->on_event)
		vm->on_event(vm->context, text);
}

/* Its process does not go on, or no vCPU is anywhere near the guest, twice in a row: QEMU's `stop`,
 * the end of a migration. A process that another guestprof holds for a moment does. */
static void watch_for_pause(struct attached_vm *vm)
{
	enum process_state state = process_state(vm->proc, vm->process.pid);
	bool paused = true;
	char text[128];

	for (unsigned i = 0; i < vm->vcpu_count && paused; i++)
		paused = vcpu_thread_activity(vm->vcpus[i].activity_fd, vm->vcpus[i].vmm_fd,
					      NULL) == VCPU_VMM_SLEEPS;
	paused = paused || state != PROCESS_GOES_ON;
	vm->asleep_rounds = paused ? vm->asleep_rounds + 1 : 0;
	paused = vm->asleep_rounds > 1 || state == PROCESS_STOPPED || state == PROCESS_FROZEN;
	if (paused == vm->paused)
		return;
	vm->paused = paused;
	vm->pauses += paused;
	if (paused && state != PROCESS_GOES_ON)
		snprintf(text, sizeof(text), "the machine is paused: its VMM is %s",
			 process_state_name(state));
	else
		snprintf(text, sizeof(text), "the machine %s",
			 paused ? "is paused (by its VMM, or migrated away)" : "runs again");
	attached_vm_tell(vm, text);
}

static void watch_for_vcpus(struct attached_vm *vm)
{
	struct vm_process now;
	char text[128];

	if (vm_process_init(&now, vm->proc, vm->process.pid, NULL))
		return;
	if (now.vcpu_count > vm->vcpus_told) {
		snprintf(text, sizeof(text),
			 "%u vCPU(s) were added; only those that were there before are sampled",
			 now.vcpu_count - vm->vcpus_told);
		vm->vcpus_told = now.vcpu_count;
		attached_vm_tell(vm, text);
	}
	vm_process_deinit(&now);
}

/* struct pidfd_info and PIDFD_GET_INFO of linux/pidfd.h, in Linux 6.15 and later. */
#define PIDFD_EXIT_KNOWN (UINT64_C(1) << 3)
struct process_info {
	uint64_t mask;
	uint64_t cgroup;
	uint32_t ids[11];
	int32_t exit_code; /* as of wait() */
};
_Static_assert(sizeof(struct process_info) == 64, "the first version of struct pidfd_info");
#define GET_PROCESS_INFO _IOWR(0xff, 11, struct process_info)

/* How a process that is not our child ended: while its parent has not asked, its stat file tells
 * (proc_pid_stat(5), exit_code); then its pidfd, with a newer kernel. */
static enum guest_end how_it_ended(const struct attached_vm *vm)
{
	struct process_info info = {.mask = PIDFD_EXIT_KNOWN};
	char text[1024], *last;
	int code = 0;

	proc_read(vm->proc, vm->process.pid, "stat", text, sizeof(text));
	last = strrchr(text, ' ');
	if (last)
		code = atoi(last + 1);
	else if (!ioctl(vm->pidfd, GET_PROCESS_INFO, &info) && (info.mask & PIDFD_EXIT_KNOWN))
		code = info.exit_code;
	return code & 0x7f ? GUEST_VMM_KILLED : GUEST_VMM_EXITED;
}

enum guest_end attached_vm_wait(struct attached_vm *vm, uint64_t duration_ns)
{
	uint64_t end = monotonic_ns() + duration_ns;
	struct pollfd events[] = {{.fd = vm->end.fd, .events = POLLIN},
				  {.fd = vm->pidfd, .events = POLLIN}};

	while (guest_end_of(&vm->end) == GUEST_RUNNING) {
		int timeout = WATCH_MILLISECONDS;

		if (duration_ns) {
			int left = milliseconds_until(end);

			if (!left) {
				attached_vm_request_end(vm, GUEST_DURATION);
				break;
			}
			if (left < timeout)
				timeout = left;
		}
		if (poll(events, ARRAY_SIZE(events), timeout) > 0) {
			if (events[1].revents)
				attached_vm_request_end(vm, how_it_ended(vm));
			continue;
		}
		watch_for_pause(vm);
		watch_for_vcpus(vm);
	}
	return guest_end_of(&vm->end);
}
