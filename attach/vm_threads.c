#include "attach/vm_threads.h"

#include "attach/proc_file.h"
#include "attach/vcpu_thread.h"
#include "base/clock.h"
#include "base/container.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 200
#define ROUND_NS 10000000

struct search {
	const struct vm_process *process;
	const char *proc;
	bool may_stop;
	bool named_only;
	pid_t *threads;
};

bool vm_thread_name_is_vcpu(const char *name, unsigned *id)
{
	/* QEMU, guestprof, Firecracker, cloud-hypervisor, crosvm. */
	static const char *const patterns[] = {
		"CPU %u/KVM%n", "vcpu %u%n", "fc_vcpu %u%n", "vcpu%u%n", "crosvm_vcpu%u%n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		unsigned number;
		int consumed = 0;

		if (sscanf(name, patterns[i], &number, &consumed) != 1 || !consumed ||
		    name[consumed])
			continue;
		*id = number;
		return true;
	}
	return false;
}

static bool name_of(const struct search *search, pid_t thread, unsigned *id)
{
	char file[64], name[64];

	snprintf(file, sizeof(file), "task/%d/comm", (int)thread);
	proc_read(search->proc, search->process->pid, file, name, sizeof(name));
	name[strcspn(name, "\n")] = 0;
	return vm_thread_name_is_vcpu(name, id);
}

static void assign(const struct search *search, int vcpu_fd, pid_t thread)
{
	for (unsigned i = 0; i < search->process->vcpu_count; i++)
		if (search->process->vcpus[i].fd == vcpu_fd)
			search->threads[i] = thread;
}

/* The descriptor of the KVM_RUN that the thread is in; -1: it is in none. */
static int run_descriptor(const struct search *search, pid_t thread)
{
	int file = vcpu_thread_open(search->proc, search->process->pid, thread), fd = -1;
	struct vcpu_stopped stopped;
	enum vcpu_activity activity;
	enum vcpu_stop stop;

	if (file < 0)
		return -1;
	activity = vcpu_thread_activity(file, -1, &fd);
	close(file);
	if (activity == VCPU_SLEEPS)
		return fd;
	if (activity != VCPU_RUNS || !search->may_stop)
		return -1;
	stop = vcpu_thread_stop(thread, -1, &stopped);
	if (stop == VCPU_STOPPED_IN_RUN || stop == VCPU_STOPPED_IN_VMM)
		vcpu_thread_release(&stopped);
	return stop == VCPU_STOPPED_IN_RUN ? stopped.vcpu_fd : -1;
}

static bool is_assigned(const struct search *search, pid_t thread)
{
	for (unsigned i = 0; i < search->process->vcpu_count; i++)
		if (search->threads[i] == thread)
			return true;
	return false;
}

static bool all_assigned(const struct search *search)
{
	return !is_assigned(search, 0);
}

/* One look at every thread that may be a vCPU's. */
static bool vm_threads_look(void *context, pid_t thread)
{
	const struct search *search = context;
	unsigned id;

	if (!is_assigned(search, thread) && (!search->named_only || name_of(search, thread, &id)))
		assign(search, run_descriptor(search, thread), thread);
	return !all_assigned(search);
}

/* What is left, by name: the vCPU of that number. */
static bool believe_name(void *context, pid_t thread)
{
	const struct search *search = context;
	const struct vm_process *process = search->process;
	unsigned id;

	if (is_assigned(search, thread) || !name_of(search, thread, &id))
		return true;
	for (unsigned i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id && !search->threads[i])
			search->threads[i] = thread;
	return !all_assigned(search);
}

gp_status_t vm_threads_find(const struct vm_process *process, const char *proc, bool may_stop,
			    pid_t *threads, struct error *error)
{
	struct search search = {process, proc, may_stop, true, threads};
	unsigned missing = 0;

	memset(threads, 0, process->vcpu_count * sizeof(*threads));
	for (unsigned round = 0; round < ROUNDS && !all_assigned(&search); round++) {
		if (round)
			sleep_ns(ROUND_NS);
		/* Threads with other names are bothered only when those did not suffice. */
		search.named_only = round < ROUNDS / 10;
		proc_each_thread(proc, process->pid, vm_threads_look, &search);
		if (!search.named_only && !all_assigned(&search))
			proc_each_thread(proc, process->pid, believe_name, &search);
	}
	for (unsigned i = 0; i < process->vcpu_count; i++)
		missing += !threads[i];
	if (missing)
		return error_set(error, GP_ERR_TIMED_OUT,
				 "no thread of process %d is seen running %u of its %u vCPUs; try "
				 "again when the guest runs",
				 (int)process->pid, missing, process->vcpu_count);
	return GP_OK;
}
