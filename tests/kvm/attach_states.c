/* A VMM that is stopped, frozen, or held by somebody else: refused with the reason, and told when
 * it happens while its machine is sampled. */
#include "attach/process_state.h"

#include "tests/kvm/remote_vmm.h"

#include <sys/ptrace.h>

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

/* After a pause a guest makes up for time, so that shares say nothing. */
static void is_sampled(struct remote_vmm *vmm)
{
	gp_sampler_t *session;

	attach(vmm);
	session = open_on(vmm->vm, 997 * MICROSECOND, 0);
	cr_assert_gt(stacks_of(vmm, session), 20);
	gp_sampler_close(session);
	attached_vm_destroy(vmm->vm);
}

Test(attach_states, a_stopped_vmm_is_told_and_so_is_that_it_goes_on)
{
	struct told told = {0};
	struct attach_config config = {.on_event = note_event, .context = &told};
	struct remote_vmm vmm;
	struct seen seen = {.guest = &vmm.guest};
	struct session_data data = {0};
	gp_sampler_t *session;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	config.pid = vmm.pid;
	cr_assert_eq(attached_vm_create(&config, &vmm.vm, NULL), GP_OK);
	session = open_on(vmm.vm, MILLISECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	kill(vmm.pid, SIGSTOP);
	attached_vm_wait(vmm.vm, 2 * SECOND);
	cr_assert_eq(told.events, 1);
	cr_assert(strstr(told.last, "paused"));
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	kill(vmm.pid, SIGCONT);
	check_session(session, 1, &data, see, &seen);
	/* Its threads stand in KVM_RUN, but no guest chose to wait. One that sleeps there for a
	 * lock, on its way to being stopped, cannot be told from one that is halted. */
	cr_assert_lt(seen.halted, 10, "%llu", (unsigned long long)seen.halted);
	cr_assert_gt(seen.in_vmm, 1000);
	gp_sampler_close(session);
	attached_vm_destroy(vmm.vm);
	remote_vmm_end(&vmm);
}

Test(attach_states, a_machine_that_somebody_else_traces_is_refused_where_no_other_kick_is_known)
{
	struct attach_config config = {0};
	struct error error = {0};
	struct remote_vmm vmm;
	pid_t tracer;
	int status;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	config.pid = vmm.pid;
	tracer = fork();
	if (!tracer) {
		ptrace(PTRACE_SEIZE, vmm.pid, NULL, NULL);
		pause();
		_exit(0);
	}
	for (int i = 0; i < 5000 && !status_field(vmm.pid, vmm.pid, "TracerPid:"); i++)
		sleep_ns(MILLISECOND);
	cr_assert_eq(attached_vm_create(&config, &vmm.vm, &error), GP_ERR_NOT_SUPPORTED);
	cr_assert(strstr(error.text, "is traced by"), "%s", error.text);
	kill(tracer, SIGKILL);
	waitpid(tracer, &status, 0);
	remote_vmm_end(&vmm);
}

/* Attaching fails, soon, and says why. */
static void refused(struct remote_vmm *vmm, gp_status_t status, const char *why)
{
	struct attach_config config = {.pid = vmm->pid};
	struct error error = {0};

	cr_assert_eq(attached_vm_create(&config, &vmm->vm, &error), status, "%s", error.text);
	cr_assert(strstr(error.text, why), "%s", error.text);
}

Test(attach_states, a_vmm_that_is_stopped_is_refused_until_it_goes_on)
{
	struct remote_vmm vmm;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	kill(vmm.pid, SIGSTOP);
	for (int i = 0; i < 5000 && process_state("/proc", vmm.pid) != PROCESS_STOPPED; i++)
		sleep_ns(MILLISECOND);
	refused(&vmm, GP_ERR_BAD_STATE, "is stopped (SIGSTOP)");
	cr_assert_eq(process_state("/proc", vmm.pid), PROCESS_STOPPED);
	kill(vmm.pid, SIGCONT);
	is_sampled(&vmm);
	remote_vmm_end(&vmm);
}

Test(attach_states, a_vmm_that_a_debugger_holds_is_refused_with_the_debugger)
{
	struct remote_vmm vmm;
	char wanted[64];
	pid_t debugger;
	int status;

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	debugger = fork();
	if (!debugger) {
		ptrace(PTRACE_SEIZE, vmm.pid, NULL, NULL);
		ptrace(PTRACE_INTERRUPT, vmm.pid, NULL, NULL);
		pause();
		_exit(0);
	}
	for (int i = 0; i < 5000 && process_state("/proc", vmm.pid) != PROCESS_HELD; i++)
		sleep_ns(MILLISECOND);
	snprintf(wanted, sizeof(wanted), "held by its tracer, process %d", (int)debugger);
	refused(&vmm, GP_ERR_BAD_STATE, wanted);
	kill(debugger, SIGKILL);
	waitpid(debugger, &status, 0);
	is_sampled(&vmm);
	remote_vmm_end(&vmm);
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
	struct remote_vmm vmm;
	gp_sampler_t *session;
	gp_status_t status;
	char group[128];

	remote_vmm_start(&vmm, (struct guest_setup){.command_line = "run=tree rounds=0"}, true);
	config.pid = vmm.pid;
	cr_assert(make_freezer(root, file, group));
	move_to(group, vmm.pid);
	write_to(group, file, on);
	for (int i = 0; i < 5000 && process_state("/proc", vmm.pid) != PROCESS_FROZEN; i++)
		sleep_ns(MILLISECOND);
	status = attached_vm_create(&config, &vmm.vm, &error);
	write_to(group, file, off);
	cr_assert_eq(status, GP_ERR_BAD_STATE, "%s", error.text);
	cr_assert(strstr(error.text, "is frozen"), "%s", error.text);
	is_sampled(&vmm);

	/* While it is sampled. */
	cr_assert_eq(attached_vm_create(&config, &vmm.vm, NULL), GP_OK);
	session = open_on(vmm.vm, MILLISECOND, 0);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	write_to(group, file, on);
	attached_vm_wait(vmm.vm, 2 * SECOND);
	write_to(group, file, off);
	cr_assert_eq(told.events, 1, "%u", told.events);
	cr_assert(strstr(told.last, "its VMM is frozen"), "%s", told.last);
	gp_sampler_close(session);
	attached_vm_destroy(vmm.vm);
	cr_assert_eq(asked_registers(&vmm), 0);
	move_to(root, vmm.pid);
	rmdir(group);
	remote_vmm_end(&vmm);
}

Test(attach_states, a_vmm_whose_cgroup_is_frozen_is_refused_and_told)
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
