/* A virtual machine of another process, attached to while it runs: registers, stacks, shares, and
 * that the other process goes on as if nobody were there. States that it can be in:
 * attach_states.c; tests/kvm/attach-qemu.sh has QEMU instead. */
#include "attach/attached_vm.h"

#include "attach/vcpu_thread.h"
#include "tests/kvm/remote_vmm.h"

#include <dirent.h>

static void check_tree(struct remote_vmm *vmm, uint64_t duration)
{
	struct seen seen = {.guest = &vmm->guest};
	struct session_data data = {0};
	struct attached_counts counts;
	gp_sampler_t *session;

	attach(vmm);
	session = open_on(vmm->vm, 997 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(attached_vm_wait(vmm->vm, duration), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &seen);
	attached_vm_counts(vmm->vm, &counts);
	cr_assert_eq(counts.stale, 0, "%llu stops gave no registers",
		     (unsigned long long)counts.stale);
	cr_assert_gt(seen.in_tree, 100);
	for (int i = 0; i < LEAVES; i++)
		check_share(leaf_names[i], seen.leaves[i], seen.in_tree, leaf_instructions[i]);
	gp_sampler_close(session);
	attached_vm_destroy(vmm->vm);
	free(data.bytes);
}

Test(attach, stacks_and_shares_are_exact_and_the_page_is_as_before)
{
	struct remote_vmm vmm;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	check_tree(&vmm, 4 * SECOND);
	cr_assert_eq(asked_registers(&vmm), 0);
	remote_vmm_end(&vmm);
}

Test(attach, a_vmm_that_has_asked_for_registers_itself_keeps_them)
{
	struct remote_vmm vmm;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, false);
	check_tree(&vmm, 2 * SECOND);
	cr_assert_eq(asked_registers(&vmm), KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS);
	remote_vmm_end(&vmm);
}

Test(attach, each_vcpu_is_sampled_where_it_is)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct remote_vmm vmm;
	gp_sampler_t *session;

	remote_vmm_start(
		&vmm, (struct guest_setup){.command_line = "run=smp cpus=3 rounds=0", .vcpus = 3},
		true);
	attach(&vmm);
	cr_assert_eq(attached_vm_info(vmm.vm)->process->vcpu_count, 3);
	cr_assert_eq(attached_vm_info(vmm.vm)->memory_bytes, 16 * MIB);
	seen.guest = &vmm.guest;
	session = open_on(vmm.vm, 997 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	attached_vm_wait(vmm.vm, 2 * SECOND);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 3, &data, see, &seen);
	for (int i = 0; i < 3; i++)
		cr_assert_gt(seen.right_work[i], 20, "vCPU %d", i);
	gp_sampler_close(session);
	attached_vm_destroy(vmm.vm);
	remote_vmm_end(&vmm);
	free(data.bytes);
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
	struct remote_vmm vmm;
	gp_sampler_t *session;
	uint64_t woken;
	pid_t thread;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=idle"}, true);
	thread = vcpu_thread(vmm.pid, 0);
	attach(&vmm); /* wakes it for its proof */
	seen.guest = &vmm.guest;
	session = open_on(vmm.vm, 997 * MICROSECOND, 0);
	woken = status_field(vmm.pid, thread, "voluntary_ctxt_switches:");
	cr_assert_gt(woken, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	attached_vm_wait(vmm.vm, SECOND);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(status_field(vmm.pid, thread, "voluntary_ctxt_switches:"), woken);
	check_session(session, 1, &data, see, &seen);
	cr_assert_gt(seen.halted, 10);
	gp_sampler_close(session);
	attached_vm_destroy(vmm.vm);
	remote_vmm_end(&vmm);
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
	struct remote_vmm vmm;
	unsigned passed_on = 0;
	pthread_t sender;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	flood.process = vmm.pid;
	flood.thread = vcpu_thread(vmm.pid, 0);
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
	for (int i = 0; i < 10000 && atomic_load(&vmm.shared->signals) < flood.sent; i++)
		sleep_ns(MILLISECOND);
	cr_assert_eq(passed_on, PASSED_ON, "%u", passed_on);
	cr_assert_eq(atomic_load(&vmm.shared->signals), flood.sent, "%llu of %llu",
		     (unsigned long long)atomic_load(&vmm.shared->signals),
		     (unsigned long long)flood.sent);
	cr_assert_eq(atomic_load(&vmm.shared->out_of_order), 0);
	remote_vmm_end(&vmm);
}

/* One that samples as fast as it can and is killed in the middle of it, again and again. */
Test(attach, killing_us_leaves_the_guest_running)
{
	enum { KILLS = 8 };
	struct remote_vmm vmm;
	pid_t thread;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	thread = vcpu_thread(vmm.pid, 0);
	for (int i = 0; i < KILLS; i++) {
		pid_t profiler = fork();

		cr_assert_geq(profiler, 0);
		if (!profiler) {
			struct attach_config config = {.pid = vmm.pid};
			gp_sampler_config_t sampling = {.size = sizeof(sampling),
							.period_ns = 20 * MICROSECOND,
							.max_depth = 64};
			gp_sampler_t *session;

			if (attached_vm_create(&config, &vmm.vm, NULL) ||
			    gp_sampler_create(attached_vm_target(vmm.vm), 0, &sampling, &session) ||
			    gp_sampler_start(session, 0))
				_exit(1);
			pause();
			_exit(2);
		}
		sleep_ns(300 * MILLISECOND + (uint64_t)i * 137 * MICROSECOND);
		cr_assert_eq(waitpid(profiler, NULL, WNOHANG), 0, "it could not attach");
		kill(profiler, SIGKILL);
		waitpid(profiler, NULL, 0);
		cr_assert_eq(status_field(vmm.pid, thread, "TracerPid:"), 0);
	}
	check_tree(&vmm, 2 * SECOND);
	remote_vmm_end(&vmm);
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
	struct remote_vmm vmm;
	gp_sampler_t *session;

	remote_vmm_start(
		&vmm, (struct guest_setup){.command_line = "run=smp cpus=2 rounds=0", .vcpus = 2},
		true);
	attach(&vmm);
	killed.seen.guest = &vmm.guest;
	session = open_on(vmm.vm, 200 * MICROSECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(attached_vm_wait(vmm.vm, 300 * MILLISECOND), GUEST_DURATION);
	kill(vmm.pid, SIGKILL);
	gp_sampler_stop(session, 0);
	check_session(session, 2, &data, see_killed, &killed);
	gp_sampler_close(session);
	attached_vm_destroy(vmm.vm);
	waitpid(vmm.pid, NULL, 0);
	symbol_table_deinit(&vmm.guest.symbols);
	free(data.bytes);
}

static void end_of(enum guest_end end, void (*cause)(struct remote_vmm *vmm))
{
	struct remote_vmm vmm;
	gp_sampler_t *session;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	attach(&vmm);
	session = open_on(vmm.vm, MILLISECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cause(&vmm);
	cr_assert_eq(attached_vm_wait(vmm.vm, HANG_LIMIT), end);
	gp_sampler_close(session);
	attached_vm_destroy(vmm.vm);
	waitpid(vmm.pid, NULL, 0);
	symbol_table_deinit(&vmm.guest.symbols);
}

static void kill_vmm(struct remote_vmm *vmm)
{
	kill(vmm->pid, SIGKILL);
}

static void end_vmm(struct remote_vmm *vmm)
{
	atomic_store(&vmm->shared->end, true);
}

Test(attach, a_vmm_that_is_killed_is_told_from_one_that_exits)
{
	end_of(GUEST_VMM_KILLED, kill_vmm);
	end_of(GUEST_VMM_EXITED, end_vmm);
}

/* The first one ends while the second one still samples. */
Test(attach, two_at_one_machine_do_not_disturb_each_other)
{
	struct remote_vmm first, second;
	struct attached_counts counts;
	gp_sampler_t *one, *other;

	remote_vmm_start(&first, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
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
	remote_vmm_end(&first);
}
