/* A QEMU whose vCPU somebody else traces: it is attached to by the signal that QEMU kicks its vCPUs
 * with, and the tracer goes on tracing. */
#include "attach/attached_vm.h"
#include "tests/kvm/guest_machine.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static pid_t start_qemu(const char *guest, const char *console)
{
	char serial[128];
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(serial, sizeof(serial), "file:%s", console);
	/* Some KVMs offer IA32_ARCH_CAPABILITIES and do not take it: QEMU ends itself then. */
	execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "kvm", "-cpu",
	       "host,arch-capabilities=off", "-m", "64M", "-display", "none", "-no-user-config",
	       "-monitor", "none", "-kernel", guest, "-append", "run=tree rounds=0", "-serial",
	       serial, "-name", "guest=traced,debug-threads=on", (char *)NULL);
	_exit(127);
}

static void skip_qemu(const char *console)
{
	unlink(console);
	cr_skip_test("QEMU ends itself with this /dev/kvm");
}

static bool has_started(const char *console)
{
	char text[256] = "";
	FILE *file = fopen(console, "re");
	bool started;

	if (!file)
		return false;
	started = fread(text, 1, sizeof(text) - 1, file) > 0 && strstr(text, "guest started");
	fclose(file);
	return started;
}

static pid_t vcpu_thread(pid_t pid)
{
	char path[300];
	struct dirent *entry;
	pid_t found = 0;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	cr_assert(directory);
	while ((entry = readdir(directory))) {
		char name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "CPU 0/KVM\n"))
			found = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(directory);
	return found;
}

/* As a debugger or strace does: passes on what comes. */
static pid_t start_tracer(pid_t thread, int ready)
{
	pid_t pid = fork();
	int status;

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) || write(ready, "", 1) != 1)
		_exit(1);
	while (waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status))
		ptrace(PTRACE_CONT, thread, NULL,
		       (void *)(intptr_t)(status >> 16 ? 0 : WSTOPSIG(status)));
	_exit(0);
}

struct seen {
	struct guest_machine guest;
	uint64_t in_leaves;
	uint64_t all;
};

static void see(void *context, const struct fxt_sample *sample)
{
	struct seen *seen = context;

	if (!(sample->flags & FXT_SAMPLE_STACK))
		return;
	seen->all++;
	/* The program counter is exact; the stack is read while the guest runs on. */
	seen->in_leaves += !strncmp(frame_name(&seen->guest, sample, 0), "leaf_", 5);
}

Test(attach_traced, the_vmms_own_signal_kicks_and_no_register_is_stale)
{
	char console[] = "/tmp/guestprof-traced.XXXXXX", guest[512], *bytes, byte;
	struct attach_config config = {0};
	gp_sampler_config_t sampling = {
		.size = sizeof(sampling), .period_ns = MILLISECOND, .max_depth = 64};
	struct session_data data = {0};
	struct seen seen = {0};
	struct error error = {0};
	struct attached_vm *vm;
	gp_sampler_t *session;
	int console_fd = mkstemp(console), ready[2];
	pid_t qemu, tracer;
	size_t size;

	require_kvm();
	if (system("command -v qemu-system-x86_64 >/dev/null"))
		cr_skip_test("there is no qemu-system-x86_64 here");
	guest_path("long4", guest);
	read_whole_file(guest, &bytes, &size);
	cr_assert_eq(symbols_file_parse(bytes, size, (struct symbols_base){0}, &seen.guest.symbols,
					&error),
		     GP_OK);
	free(bytes);
	cr_assert(console_fd >= 0 && !pipe(ready));
	qemu = start_qemu(guest, console);
	for (int i = 0; i < 600 && !has_started(console); i++) {
		if (waitpid(qemu, NULL, WNOHANG))
			skip_qemu(console);
		sleep_ns(50 * MILLISECOND);
	}
	cr_assert(has_started(console), "QEMU does not run the guest");
	tracer = start_tracer(vcpu_thread(qemu), ready[1]);
	cr_assert_eq(read(ready[0], &byte, 1), 1);

	config.pid = qemu;
	cr_assert_eq(attached_vm_create(&config, &vm, &error), GP_OK, "%s", error.text);
	cr_assert_eq(attached_vm_info(vm)->process->tracer, tracer);
	cr_assert(strstr(attached_vm_info(vm)->method, "kicked by signal"), "%s",
		  attached_vm_info(vm)->method);
	cr_assert_eq(gp_sampler_create(attached_vm_target(vm), 0, &sampling, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	attached_vm_wait(vm, 2 * SECOND);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &seen);
	cr_assert_gt(seen.all, 100);
	/* Nearly all of the time is in the leaves; a register of another time or half stored would
	 * be anywhere. */
	cr_assert_gt(seen.in_leaves * 100, seen.all * 90, "%llu of %llu",
		     (unsigned long long)seen.in_leaves, (unsigned long long)seen.all);
	cr_assert_eq(waitpid(tracer, NULL, WNOHANG), 0, "the tracer is gone");
	cr_assert_eq(waitpid(qemu, NULL, WNOHANG), 0, "QEMU is gone");
	gp_sampler_close(session);
	attached_vm_destroy(vm);
	kill(tracer, SIGKILL);
	kill(qemu, SIGKILL);
	waitpid(tracer, NULL, 0);
	waitpid(qemu, NULL, 0);
	symbol_table_deinit(&seen.guest.symbols);
	unlink(console);
	free(data.bytes);
}
