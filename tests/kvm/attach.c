/* A virtual machine of another process, attached to while it runs: registers, stacks, shares, and
 * that the other process goes on as if nobody were there. The other process is a fork of this one
 * that runs a tiny guest with the machine of vmm/; tests/kvm/attach-qemu.sh has QEMU instead. */
#include "attach/attached_vm.h"
#include "attach/process_state.h"
#include "attach/run_page.h"
#include "attach/vcpu_thread.h"
#include "tests/kvm/guest_machine.h"
#include "tests/kvm/shares.h"

#include <dirent.h>
#include <linux/kvm.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
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

struct foreign {
	pid_t pid;
	struct shared *shared;
	struct guest_machine guest; /* its names only */
	struct attached_vm *vm;
};

static struct shared *signalled; /* in the VMM's process */

static void count_signal(int signal, siginfo_t *info, void *context)
{
	uint64_t expected = atomic_fetch_add(&signalled->signals, 1);

	(void)signal;
	(void)context;
	if ((uint64_t)info->si_value.sival_int != expected)
		atomic_fetch_add(&signalled->out_of_order, 1);
}

/* Makes the VMM one that has not asked for registers, as most are. */
static bool forget_registers(void)
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

static void *run_vmm_machine(void *argument)
{
	struct machine_limits limits = {.timeout_ns = 4 * HANG_LIMIT};

	machine_run(argument, &limits, NULL);
	return NULL;
}

/* The other process. Nothing of Criterion's here. */
static void run_vmm(struct shared *shared, const struct machine_config *config, bool plain)
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
	machine_request_end(machine, MACHINE_SIGNALLED);
	pthread_join(thread, NULL);
	_exit(0);
}

static void foreign_start(struct foreign *foreign, struct guest_setup setup, bool plain)
{
	char path[512], *bytes;
	struct error error = {0};
	size_t size;

	require_kvm();
	guest_path(setup.mode ? setup.mode : "long4", path);
	read_whole_file(path, &bytes, &size);
	*foreign = (struct foreign){0};
	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0},
					&foreign->guest.symbols, &error),
		     GP_OK);
	free(bytes);
	foreign->shared = mmap(NULL, sizeof(*foreign->shared), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq((void *)foreign->shared, MAP_FAILED);
	struct machine_config config = {
		.kernel = path,
		.command_line = setup.command_line,
		.vcpus = setup.vcpus ? setup.vcpus : 1,
		.memory = setup.memory ? setup.memory : 16 * MIB,
		.console_input_fd = -1,
		.console_output_fd = -1,
	};

	foreign->pid = fork();
	cr_assert_geq(foreign->pid, 0);
	if (!foreign->pid)
		run_vmm(foreign->shared, &config, plain);
	for (int i = 0; i < 10000 && !atomic_load(&foreign->shared->runs); i++) {
		cr_assert(!atomic_load(&foreign->shared->failed), "the VMM cannot start");
		sleep_ns(MILLISECOND);
	}
	cr_assert(atomic_load(&foreign->shared->runs));
}

static void foreign_end(struct foreign *foreign)
{
	int status;

	atomic_store(&foreign->shared->end, true);
	cr_assert_eq(waitpid(foreign->pid, &status, 0), foreign->pid);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "the VMM ended with status %#x",
		  (unsigned)status);
	symbol_table_deinit(&foreign->guest.symbols);
}

static void attach(struct foreign *foreign)
{
	struct attach_config config = {.pid = foreign->pid};
	struct error error = {0};
	gp_status_t status = attached_vm_create(&config, &foreign->vm, &error);

	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	cr_assert_eq(status, GP_OK, "%s", error.text);
}

static gp_sampler_t *open_on(struct attached_vm *vm, uint64_t period, uint32_t flags)
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

static void see(void *context, const struct fxt_sample *sample)
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

static void check_tree(struct foreign *foreign, uint64_t duration)
{
	struct seen seen = {.guest = &foreign->guest};
	struct session_data data = {0};
	struct attached_counts counts;
	gp_sampler_t *session;

	attach(foreign);
	session = open_on(foreign->vm, 997 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(attached_vm_wait(foreign->vm, duration), ATTACHED_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &seen);
	attached_vm_counts(foreign->vm, &counts);
	cr_assert_eq(counts.stale, 0, "%llu stops gave no registers",
		     (unsigned long long)counts.stale);
	cr_assert_gt(seen.in_tree, 100);
	for (int i = 0; i < LEAVES; i++)
		check_share(leaf_names[i], seen.leaves[i], seen.in_tree, leaf_instructions[i]);
	gp_sampler_close(session);
	attached_vm_destroy(foreign->vm);
	free(data.bytes);
}

/* The word that was written, as it is now. */
static uint64_t asked_registers(const struct foreign *foreign)
{
	int pidfd = (int)syscall(SYS_pidfd_open, foreign->pid, 0), fd;
	struct vm_process process;
	struct kvm_run *run;
	uint64_t valid;

	cr_assert_geq(pidfd, 0);
	cr_assert_eq(vm_process_init(&process, "/proc", foreign->pid, NULL), GP_OK);
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

Test(attach, stacks_and_shares_are_exact_and_the_page_is_as_before)
{
	struct foreign foreign;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	check_tree(&foreign, 4 * SECOND);
	cr_assert_eq(asked_registers(&foreign), 0);
	foreign_end(&foreign);
}

Test(attach, a_vmm_that_has_asked_for_registers_itself_keeps_them)
{
	struct foreign foreign;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, false);
	check_tree(&foreign, 2 * SECOND);
	cr_assert_eq(asked_registers(&foreign), KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS);
	foreign_end(&foreign);
}

Test(attach, each_vcpu_is_sampled_where_it_is)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct foreign foreign;
	gp_sampler_t *session;

	foreign_start(&foreign,
		      (struct guest_setup){.command_line = "run=smp cpus=3 rounds=0", .vcpus = 3},
		      true);
	attach(&foreign);
	cr_assert_eq(attached_vm_info(foreign.vm)->process->vcpu_count, 3);
	cr_assert_eq(attached_vm_info(foreign.vm)->memory_bytes, 16 * MIB);
	seen.guest = &foreign.guest;
	session = open_on(foreign.vm, 997 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	attached_vm_wait(foreign.vm, 2 * SECOND);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 3, &data, see, &seen);
	for (int i = 0; i < 3; i++)
		cr_assert_gt(seen.right_work[i], 20, "vCPU %d", i);
	gp_sampler_close(session);
	attached_vm_destroy(foreign.vm);
	foreign_end(&foreign);
	free(data.bytes);
}

static uint64_t status_field(pid_t pid, pid_t thread, const char *name)
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

/* The thread called "vcpu N". */
static pid_t vcpu_thread(pid_t pid, unsigned vcpu)
{
	char path[300], wanted[32];
	struct dirent *entry;
	pid_t found = 0;
	DIR *directory;

	snprintf(wanted, sizeof(wanted), "vcpu %u\n", vcpu);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	cr_assert(directory);
	while ((entry = readdir(directory))) {
		char name[64] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, wanted))
			found = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(directory);
	cr_assert(found, "no thread %s", wanted);
	return found;
}

Test(attach, a_vcpu_that_sleeps_is_halted_and_is_not_woken)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct foreign foreign;
	gp_sampler_t *session;
	uint64_t woken;
	pid_t thread;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=idle"}, true);
	thread = vcpu_thread(foreign.pid, 0);
	attach(&foreign); /* wakes it for its proof */
	seen.guest = &foreign.guest;
	session = open_on(foreign.vm, 997 * MICROSECOND, 0);
	woken = status_field(foreign.pid, thread, "voluntary_ctxt_switches:");
	cr_assert_gt(woken, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	attached_vm_wait(foreign.vm, SECOND);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(status_field(foreign.pid, thread, "voluntary_ctxt_switches:"), woken);
	check_session(session, 1, &data, see, &seen);
	cr_assert_gt(seen.halted, 10);
	gp_sampler_close(session);
	attached_vm_destroy(foreign.vm);
	foreign_end(&foreign);
	free(data.bytes);
}

struct flood {
	pid_t process;
	pid_t thread;
	_Atomic bool end;
	uint64_t sent;
};

static void *send_signals(void *argument)
{
	struct flood *flood = argument;

	while (!atomic_load(&flood->end)) {
		siginfo_t info = {.si_signo = VMM_SIGNAL, .si_code = SI_QUEUE};

		info.si_value.sival_int = (int)flood->sent;
		/* Full queue: again. */
		if (!syscall(SYS_rt_tgsigqueueinfo, flood->process, flood->thread, VMM_SIGNAL,
			     &info))
			flood->sent++;
	}
	return NULL;
}

/* Queued signals to the very thread that is stopped again and again: all arrive, in order, also
 * those that come between seizing it and its stop, which are then ours to pass on. */
Test(attach, the_vmms_own_signals_arrive)
{
	enum { PASSED_ON = 3, STOPS_MAX = 3000000 };
	struct flood flood = {0};
	struct foreign foreign;
	unsigned passed_on = 0;
	pthread_t sender;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	flood.process = foreign.pid;
	flood.thread = vcpu_thread(foreign.pid, 0);
	cr_assert_eq(pthread_create(&sender, NULL, send_signals, &flood), 0);
	for (int i = 0; i < STOPS_MAX && passed_on < PASSED_ON; i++) {
		struct vcpu_stopped stopped;
		enum vcpu_stop stop = vcpu_thread_stop(flood.thread, -1, &stopped);

		cr_assert(stop == VCPU_STOPPED_IN_RUN || stop == VCPU_STOPPED_IN_VMM);
		cr_assert(!stopped.signal || stopped.signal == VMM_SIGNAL);
		passed_on += stopped.signal != 0;
		vcpu_thread_release(&stopped);
	}
	atomic_store(&flood.end, true);
	pthread_join(sender, NULL);
	for (int i = 0; i < 10000 && atomic_load(&foreign.shared->signals) < flood.sent; i++)
		sleep_ns(MILLISECOND);
	cr_assert_eq(passed_on, PASSED_ON, "%u", passed_on);
	cr_assert_eq(atomic_load(&foreign.shared->signals), flood.sent, "%llu of %llu",
		     (unsigned long long)atomic_load(&foreign.shared->signals),
		     (unsigned long long)flood.sent);
	cr_assert_eq(atomic_load(&foreign.shared->out_of_order), 0);
	foreign_end(&foreign);
}

/* One that samples as fast as it can and is killed in the middle of it, again and again. */
Test(attach, killing_us_leaves_the_guest_running)
{
	enum { KILLS = 8 };
	struct foreign foreign;
	pid_t thread;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	thread = vcpu_thread(foreign.pid, 0);
	for (int i = 0; i < KILLS; i++) {
		pid_t profiler = fork();

		cr_assert_geq(profiler, 0);
		if (!profiler) {
			struct attach_config config = {.pid = foreign.pid};
			gp_sampler_config_t sampling = {.size = sizeof(sampling),
							.period_ns = 20 * MICROSECOND,
							.max_depth = 64};
			gp_sampler_t *session;

			if (attached_vm_create(&config, &foreign.vm, NULL) ||
			    gp_sampler_create(attached_vm_target(foreign.vm), 0, &sampling,
					      &session) ||
			    gp_sampler_start(session, 0))
				_exit(1);
			pause();
			_exit(2);
		}
		sleep_ns(300 * MILLISECOND + (uint64_t)i * 137 * MICROSECOND);
		cr_assert_eq(waitpid(profiler, NULL, WNOHANG), 0, "it could not attach");
		kill(profiler, SIGKILL);
		waitpid(profiler, NULL, 0);
		cr_assert_eq(status_field(foreign.pid, thread, "TracerPid:"), 0);
	}
	check_tree(&foreign, 2 * SECOND);
	foreign_end(&foreign);
}

struct killed {
	struct seen seen;
	bool memory_gone[2];
};

/* The last sample of a vCPU may have been taken while its VMM died, and its memory with it. */
static void see_killed(void *context, const struct fxt_sample *sample)
{
	struct killed *killed = context;

	cr_assert(!killed->memory_gone[sample->vcpu & 1], "a sample behind the end of memory");
	killed->memory_gone[sample->vcpu & 1] = sample->stack_end == FXT_STACK_END_OUTSIDE;
	if (!killed->memory_gone[sample->vcpu & 1])
		see(&killed->seen, sample);
}

Test(attach, a_vmm_that_is_killed_ends_the_session)
{
	struct session_data data = {0};
	struct killed killed = {0};
	struct foreign foreign;
	gp_sampler_t *session;

	foreign_start(&foreign,
		      (struct guest_setup){.command_line = "run=smp cpus=2 rounds=0", .vcpus = 2},
		      true);
	attach(&foreign);
	killed.seen.guest = &foreign.guest;
	session = open_on(foreign.vm, 200 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(attached_vm_wait(foreign.vm, 300 * MILLISECOND), ATTACHED_DURATION);
	kill(foreign.pid, SIGKILL);
	gp_sampler_stop(session, 0);
	check_session(session, 2, &data, see_killed, &killed);
	gp_sampler_close(session);
	attached_vm_destroy(foreign.vm);
	waitpid(foreign.pid, NULL, 0);
	symbol_table_deinit(&foreign.guest.symbols);
	free(data.bytes);
}

static void end_of(enum attached_end end, void (*cause)(struct foreign *foreign))
{
	struct foreign foreign;
	gp_sampler_t *session;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	attach(&foreign);
	session = open_on(foreign.vm, MILLISECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cause(&foreign);
	cr_assert_eq(attached_vm_wait(foreign.vm, HANG_LIMIT), end);
	gp_sampler_close(session);
	attached_vm_destroy(foreign.vm);
	waitpid(foreign.pid, NULL, 0);
	symbol_table_deinit(&foreign.guest.symbols);
}

static void kill_vmm(struct foreign *foreign)
{
	kill(foreign->pid, SIGKILL);
}

static void end_vmm(struct foreign *foreign)
{
	atomic_store(&foreign->shared->end, true);
}

Test(attach, a_vmm_that_is_killed_is_told_from_one_that_exits)
{
	end_of(ATTACHED_VMM_KILLED, kill_vmm);
	end_of(ATTACHED_VMM_EXITED, end_vmm);
}

struct told {
	unsigned events;
	char last[256];
};

static void note_event(void *context, const char *text)
{
	struct told *told = context;

	told->events++;
	snprintf(told->last, sizeof(told->last), "%s", text);
}

Test(attach, a_stopped_vmm_is_told_and_so_is_that_it_goes_on)
{
	struct told told = {0};
	struct attach_config config = {.on_event = note_event, .context = &told};
	struct foreign foreign;
	struct seen seen = {.guest = &foreign.guest};
	struct session_data data = {0};
	gp_sampler_t *session;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	config.pid = foreign.pid;
	cr_assert_eq(attached_vm_create(&config, &foreign.vm, NULL), GP_OK);
	session = open_on(foreign.vm, MILLISECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	kill(foreign.pid, SIGSTOP);
	attached_vm_wait(foreign.vm, 2 * SECOND);
	cr_assert_eq(told.events, 1);
	cr_assert(strstr(told.last, "paused"));
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	kill(foreign.pid, SIGCONT);
	check_session(session, 1, &data, see, &seen);
	/* Its threads stand in KVM_RUN, but no guest chose to wait. One that sleeps there for a
	 * lock, on its way to being stopped, cannot be told from one that is halted. */
	cr_assert_lt(seen.halted, 10, "%llu", (unsigned long long)seen.halted);
	cr_assert_gt(seen.in_vmm, 1000);
	gp_sampler_close(session);
	attached_vm_destroy(foreign.vm);
	foreign_end(&foreign);
}

Test(attach, a_machine_that_somebody_else_traces_is_refused_where_no_other_kick_is_known)
{
	struct attach_config config = {0};
	struct error error = {0};
	struct foreign foreign;
	pid_t tracer;
	int status;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	config.pid = foreign.pid;
	tracer = fork();
	if (!tracer) {
		ptrace(PTRACE_SEIZE, foreign.pid, NULL, NULL);
		pause();
		_exit(0);
	}
	for (int i = 0; i < 5000 && !status_field(foreign.pid, foreign.pid, "TracerPid:"); i++)
		sleep_ns(MILLISECOND);
	cr_assert_eq(attached_vm_create(&config, &foreign.vm, &error), GP_ERR_NOT_SUPPORTED);
	cr_assert(strstr(error.text, "is traced by"), "%s", error.text);
	kill(tracer, SIGKILL);
	waitpid(tracer, &status, 0);
	foreign_end(&foreign);
}

/* A vCPU of our own, its descriptor taken as from another process. */
Test(attach, a_page_that_its_vmm_uses_for_more_is_refused)
{
	int kvm, vm, vcpu, pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct run_page page;
	struct error error = {0};
	struct kvm_run *run;

	require_kvm();
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	cr_assert(vcpu >= 0 && pidfd >= 0);
	run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	cr_assert_neq((void *)run, MAP_FAILED);
	run->kvm_valid_regs = KVM_SYNC_X86_REGS;
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, &error), GP_ERR_NOT_SUPPORTED);
	cr_assert(strstr(error.text, "itself"), "%s", error.text);
	run->kvm_valid_regs = 0;
	run->kvm_dirty_regs = KVM_SYNC_X86_REGS;
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, &error), GP_ERR_NOT_SUPPORTED);
	cr_assert_eq(run->kvm_dirty_regs, KVM_SYNC_X86_REGS);
	run->kvm_dirty_regs = 0;
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, &error), GP_OK);
	run_page_arm(&page);
	cr_assert_eq(run->kvm_valid_regs, KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS);
	run_page_deinit(&page);
	cr_assert_eq(run->kvm_valid_regs, 0);
}

Test(attach, registers_that_were_not_stored_are_not_used)
{
	int kvm, vm, vcpu, pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct guest_cpu cpu;
	struct run_page page;
	struct kvm_run *run;

	require_kvm();
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	cr_assert_neq((void *)run, MAP_FAILED);
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, NULL), GP_OK);
	run_page_arm(&page);
	cr_assert(!run_page_registers(&page, &cpu));
	/* As KVM stores them: one after the other. */
	run_page_poison(&page);
	cr_assert(!run_page_read_fresh(&page, &cpu));
	memset(&run->s.regs.regs, 0, sizeof(run->s.regs.regs));
	cr_assert(!run_page_read_fresh(&page, &cpu), "the special registers are still to come");
	memset(&run->s.regs.sregs, 0, sizeof(run->s.regs.sregs));
	run->s.regs.regs.rip = 0x1234;
	cr_assert(run_page_read_fresh(&page, &cpu));
	cr_assert_eq(cpu.rip, 0x1234);
	cr_assert(run_page_registers(&page, &cpu));
	/* The VMM takes its page back. */
	run->kvm_valid_regs = 0;
	cr_assert(!run_page_registers(&page, &cpu));
	run_page_deinit(&page);
}

/* Samples that come while `vm` is waited for. */
static uint64_t stacks_of(struct foreign *foreign, gp_sampler_t *session)
{
	struct session_data data = {0};
	struct seen seen = {.guest = &foreign->guest};

	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(attached_vm_wait(foreign->vm, SECOND), ATTACHED_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &seen);
	free(data.bytes);
	return seen.in_tree;
}

/* The first one ends while the second one still samples. */
Test(attach, two_at_one_machine_do_not_disturb_each_other)
{
	struct foreign first, second;
	struct attached_counts counts;
	gp_sampler_t *one, *other;

	foreign_start(&first, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	attach(&first);
	one = open_on(first.vm, 997 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(one, 0), GP_OK);
	second = first;
	attach(&second);
	other = open_on(second.vm, 991 * MICROSECOND, 0);
	gp_sampler_close(one);
	attached_vm_destroy(first.vm);
	cr_assert_eq(asked_registers(&first), 0, "the first one leaves the page as it found it");
	cr_assert_gt(stacks_of(&second, other), 100);
	attached_vm_counts(second.vm, &counts);
	/* Until the vCPU has run once since they were asked for; else there are never any. */
	cr_assert_leq(counts.stale, 50, "%llu stops gave no registers",
		      (unsigned long long)counts.stale);
	gp_sampler_close(other);
	attached_vm_destroy(second.vm);
	cr_assert_eq(asked_registers(&first), 0);
	foreign_end(&first);
}

/* After a pause a guest makes up for time, so that shares say nothing. */
static void is_sampled(struct foreign *foreign)
{
	gp_sampler_t *session;

	attach(foreign);
	session = open_on(foreign->vm, 997 * MICROSECOND, 0);
	cr_assert_gt(stacks_of(foreign, session), 20);
	gp_sampler_close(session);
	attached_vm_destroy(foreign->vm);
}

/* Attaching fails, soon, and says why. */
static void refused(struct foreign *foreign, gp_status_t status, const char *why)
{
	struct attach_config config = {.pid = foreign->pid};
	struct error error = {0};

	cr_assert_eq(attached_vm_create(&config, &foreign->vm, &error), status, "%s", error.text);
	cr_assert(strstr(error.text, why), "%s", error.text);
}

Test(attach, a_vmm_that_is_stopped_is_refused_until_it_goes_on)
{
	struct foreign foreign;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	kill(foreign.pid, SIGSTOP);
	for (int i = 0; i < 5000 && process_state("/proc", foreign.pid) != PROCESS_STOPPED; i++)
		sleep_ns(MILLISECOND);
	refused(&foreign, GP_ERR_BAD_STATE, "is stopped (SIGSTOP)");
	cr_assert_eq(process_state("/proc", foreign.pid), PROCESS_STOPPED);
	kill(foreign.pid, SIGCONT);
	is_sampled(&foreign);
	foreign_end(&foreign);
}

Test(attach, a_vmm_that_a_debugger_holds_is_refused_with_the_debugger)
{
	struct foreign foreign;
	char wanted[64];
	pid_t debugger;
	int status;

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	debugger = fork();
	if (!debugger) {
		ptrace(PTRACE_SEIZE, foreign.pid, NULL, NULL);
		ptrace(PTRACE_INTERRUPT, foreign.pid, NULL, NULL);
		pause();
		_exit(0);
	}
	for (int i = 0; i < 5000 && process_state("/proc", foreign.pid) != PROCESS_HELD; i++)
		sleep_ns(MILLISECOND);
	snprintf(wanted, sizeof(wanted), "held by who traces it, process %d", (int)debugger);
	refused(&foreign, GP_ERR_BAD_STATE, wanted);
	kill(debugger, SIGKILL);
	waitpid(debugger, &status, 0);
	is_sampled(&foreign);
	foreign_end(&foreign);
}

/* A control group with a freezer; false: there is none that we may make. */
static bool make_freezer(const char *root, const char *file, char group[static 128])
{
	char path[160];

	snprintf(group, 128, "%s/guestprof-test-%d", root, (int)getpid());
	if (mkdir(group, 0755))
		return false;
	snprintf(path, sizeof(path), "%s/%s", group, file);
	if (!access(path, W_OK))
		return true;
	rmdir(group);
	return false;
}

static void write_to(const char *group, const char *file, const char *text)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
	close(fd);
}

static void move_to(const char *group, pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", (int)pid);
	write_to(group, "cgroup.procs", text);
}

/* What is frozen cannot even be killed: nothing is asserted before it has been thawed. */
static void freeze(const char *root, const char *file, const char *on, const char *off)
{
	struct told told = {0};
	struct attach_config config = {.on_event = note_event, .context = &told};
	struct error error = {0};
	struct foreign foreign;
	gp_sampler_t *session;
	gp_status_t status;
	char group[128];

	foreign_start(&foreign, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	config.pid = foreign.pid;
	cr_assert(make_freezer(root, file, group));
	move_to(group, foreign.pid);
	write_to(group, file, on);
	for (int i = 0; i < 5000 && process_state("/proc", foreign.pid) != PROCESS_FROZEN; i++)
		sleep_ns(MILLISECOND);
	status = attached_vm_create(&config, &foreign.vm, &error);
	write_to(group, file, off);
	cr_assert_eq(status, GP_ERR_BAD_STATE, "%s", error.text);
	cr_assert(strstr(error.text, "is frozen"), "%s", error.text);
	is_sampled(&foreign);

	/* While it is sampled. */
	cr_assert_eq(attached_vm_create(&config, &foreign.vm, NULL), GP_OK);
	session = open_on(foreign.vm, MILLISECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	write_to(group, file, on);
	attached_vm_wait(foreign.vm, 2 * SECOND);
	write_to(group, file, off);
	cr_assert_eq(told.events, 1, "%u", told.events);
	cr_assert(strstr(told.last, "its VMM is frozen"), "%s", told.last);
	gp_sampler_close(session);
	attached_vm_destroy(foreign.vm);
	cr_assert_eq(asked_registers(&foreign), 0);
	move_to(root, foreign.pid);
	rmdir(group);
	foreign_end(&foreign);
}

Test(attach, a_vmm_whose_cgroup_is_frozen_is_refused_and_told)
{
	static const struct {
		const char *root, *file, *on, *off;
	} freezers[] = {
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
		{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
		{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
	};
	char group[128];
	unsigned found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(freezers); i++)
		if (make_freezer(freezers[i].root, freezers[i].file, group)) {
			found++;
			rmdir(group);
			freeze(freezers[i].root, freezers[i].file, freezers[i].on, freezers[i].off);
		}
	if (!found)
		cr_skip_test("no control group with a freezer can be made here");
}
