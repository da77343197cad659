/* A virtual machine of another process: a fork of the test that runs a tiny guest with the machine
 * of vmm/, and does not know that it is attached to. */
#ifndef TESTS_KVM_REMOTE_VMM_H
#define TESTS_KVM_REMOTE_VMM_H

#include "attach/attached_vm.h"
#include "tests/kvm/guest_machine.h"
#include "tests/kvm/shares.h"

#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define VMM_SIGNAL (SIGRTMIN + 4)

/* What the VMM's process and the test share. */
struct shared {
	_Atomic bool runs;
	_Atomic bool end;
	_Atomic int failed; /* line */
	_Atomic uint64_t signals;
	_Atomic uint64_t out_of_order;
};

struct remote_vmm {
	pid_t pid;
	struct shared *shared;
	struct guest_machine guest; /* its names only */
	struct attached_vm *vm;
};

static struct shared *signalled; /* in the VMM's process */

static inline void count_signal(int signal, siginfo_t *info, void *context)
{
	uint64_t expected = atomic_fetch_add(&signalled->signals, 1);

	(void)signal;
	(void)context;
	if ((uint64_t)info->si_value.sival_int != expected)
		atomic_fetch_add(&signalled->out_of_order, 1);
}

/* Makes the VMM one that has not asked for registers, as most are. */
static inline bool forget_registers(void)
{
	for (int fd = 3; fd < 256; fd++) {
		char path[64], link[64] = "";
		struct kvm_run *run;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, link, sizeof(link) - 1) < 0 ||
		    strncmp(link, "anon_inode:kvm-vcpu:", 20))
			continue;
		run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (run == MAP_FAILED)
			return false;
		run->kvm_valid_regs = 0;
		munmap(run, 4096);
	}
	return true;
}

static inline void *run_vmm_machine(void *argument)
{
	struct machine_limits limits = {.timeout_ns = 4 * HANG_LIMIT};

	machine_run(argument, &limits, NULL);
	return NULL;
}

/* The other process. Nothing of Criterion's here. */
static inline void run_vmm(struct shared *shared, const struct machine_config *config, bool plain)
{
	struct sigaction action = {.sa_sigaction = count_signal, .sa_flags = SA_SIGINFO};
	struct machine *machine;
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signalled = shared;
	sigaction(VMM_SIGNAL, &action, NULL);
	if (machine_create(config, &machine, NULL, NULL) || machine_start(machine, NULL) ||
	    (plain && !forget_registers()) ||
	    pthread_create(&thread, NULL, run_vmm_machine, machine)) {
		atomic_store(&shared->failed, __LINE__);
		_exit(1);
	}
	atomic_store(&shared->runs, true);
	while (!atomic_load(&shared->end))
		usleep(2000);
	machine_request_end(machine, GUEST_SIGNALLED);
	pthread_join(thread, NULL);
	_exit(0);
}

static inline void remote_vmm_start(struct remote_vmm *vmm, struct guest_setup setup, bool plain)
{
	char path[512], *bytes;
	struct error error = {0};
	size_t size;

	require_kvm();
	guest_path(setup.mode ? setup.mode : "long4", path);
	read_whole_file(path, &bytes, &size);
	*vmm = (struct remote_vmm){0};
	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0}, &vmm->guest.symbols,
					&error),
		     GP_OK);
	free(bytes);
	vmm->shared = mmap(NULL, sizeof(*vmm->shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq((void *)vmm->shared, MAP_FAILED);
	struct machine_config config = {
		.kernel = path,
		.command_line = setup.command_line,
		.vcpus = setup.vcpus ? setup.vcpus : 1,
		.memory = setup.memory ? setup.memory : 16 * MIB,
		.console_input_fd = -1,
		.console_output_fd = -1,
	};

	vmm->pid = fork();
	cr_assert_geq(vmm->pid, 0);
	if (!vmm->pid)
		run_vmm(vmm->shared, &config, plain);
	for (int i = 0; i < 10000 && !atomic_load(&vmm->shared->runs); i++) {
		cr_assert(!atomic_load(&vmm->shared->failed), "the VMM cannot start");
		sleep_ns(MILLISECOND);
	}
	cr_assert(atomic_load(&vmm->shared->runs));
}

static inline void remote_vmm_end(struct remote_vmm *vmm)
{
	int status;

	atomic_store(&vmm->shared->end, true);
	cr_assert_eq(waitpid(vmm->pid, &status, 0), vmm->pid);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "the VMM ended with status %#x",
		  (unsigned)status);
	symbol_table_deinit(&vmm->guest.symbols);
}

static inline void attach(struct remote_vmm *vmm)
{
	struct attach_config config = {.pid = vmm->pid};
	struct error error = {0};
	gp_status_t status = attached_vm_create(&config, &vmm->vm, &error);

	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	cr_assert_eq(status, GP_OK, "%s", error.text);
}

static inline gp_sampler_t *open_on(struct attached_vm *vm, uint64_t period, uint32_t flags)
{
	gp_sampler_config_t config = {
		.size = sizeof(config), .period_ns = period, .max_depth = 64, .flags = flags};
	gp_sampler_t *session = NULL;

	cr_assert_eq(gp_sampler_create(attached_vm_target(vm), 0, &config, &session), GP_OK);
	return session;
}

struct seen {
	const struct guest_machine *guest;
	uint64_t in_tree;
	uint64_t leaves[LEAVES];
	uint64_t right_work[4];
	uint64_t halted;
	uint64_t in_vmm;
};

static inline void see(void *context, const struct fxt_sample *sample)
{
	struct seen *seen = context;
	const char *leaf;

	seen->halted += sample->mode == FXT_MODE_HALTED;
	seen->in_vmm += sample->mode == FXT_MODE_IN_VMM;
	if (!(sample->flags & FXT_SAMPLE_STACK) || sample->mode == FXT_MODE_HALTED)
		return;
	assert_exact_stack(seen->guest, sample);
	leaf = frame_name(seen->guest, sample, 0);
	seen->in_tree += stack_has(seen->guest, sample, "run_tree");
	for (int i = 0; i < LEAVES; i++)
		seen->leaves[i] += !strcmp(leaf, leaf_names[i]);
	if (!strncmp(leaf, "cpu_work_", 9))
		seen->right_work[sample->vcpu & 3] += (uint64_t)(leaf[9] - '0') == sample->vcpu;
}

/* The word that was written, as it is now. */
static inline uint64_t asked_registers(const struct remote_vmm *vmm)
{
	int pidfd = (int)syscall(SYS_pidfd_open, vmm->pid, 0), fd;
	struct vm_process process;
	struct kvm_run *run;
	uint64_t valid;

	cr_assert_geq(pidfd, 0);
	cr_assert_eq(vm_process_init(&process, "/proc", vmm->pid, NULL), GP_OK);
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, process.vcpus[0].fd, 0);
	run = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq((void *)run, MAP_FAILED);
	valid = run->kvm_valid_regs;
	munmap(run, 4096);
	close(fd);
	close(pidfd);
	vm_process_deinit(&process);
	return valid;
}

static inline uint64_t status_field(pid_t pid, pid_t thread, const char *name)
{
	char path[64], line[256];
	uint64_t value = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)thread);
	file = fopen(path, "re");
	cr_assert(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name) + 1, NULL, 10);
	fclose(file);
	return value;
}

/* Samples that come while `vm` is waited for. */
static inline uint64_t stacks_of(struct remote_vmm *vmm, gp_sampler_t *session)
{
	struct session_data data = {0};
	struct seen seen = {.guest = &vmm->guest};

	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(attached_vm_wait(vmm->vm, SECOND), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &seen);
	free(data.bytes);
	return seen.in_tree;
}

#endif
