/* What attaching costs a virtual machine of another process, on whatever /dev/kvm there is, as
 * ratios within one run. The other process is a fork of this one that runs tests/guests/long4.
 *
 * stop     how long a vCPU's thread is held, from the moment that we see it stopped until it is let
 *          go: for the registers alone and with stacks of 4 and 16 frames; beside it the same
 *          registers by calls injected into the thread (KVM_GET_REGS, KVM_GET_SREGS), as tools
 *          do that cannot share its page. "whole" is from asking for the stop on. Letting go of a
 *          thread whose CPU has fallen idle means waking that CPU, which takes most of the time
 *          where the host is itself a virtual machine: so the same once more with both threads
 *          on one CPU, where nothing has to be woken
 * others   the same registers of a guest of QEMU's, where there is one: by us, by its gdbstub (the
 *          machine stands still from the stop reply until it is continued) and by its monitor
 * slowdown CPU time of the VMM for the guest's work, attached at several rates
 * first    from attaching to the first stack
 */
#include "attach/attached_vm.h"
#include "attach/foreign_memory.h"
#include "attach/run_page.h"
#include "attach/vcpu_thread.h"
#include "attach/vm_process.h"
#include "guest-introspection/unwind.h"
#include "tests/bench/progress.h"
#include "vmm/machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <guestprof/sampler.h>
#include <linux/kvm.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000ull

enum { STOPS = 3000, ROUNDS = 7, WINDOWS = 60, WINDOW_MS = 100 };

static char guest_path[512];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double at(double *values, size_t count, unsigned percent)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), compare);
	return values[count * percent / 100 < count ? count * percent / 100 : count - 1];
}

/* The VMM. Its guest's memory is its own or, as QEMU's with memory-backend-memfd, a file's: the
 * linker puts this in front of the C library's mmap() (--wrap, tests/tests.mk). */

enum backing { PRIVATE_MEMORY, MEMFD };

static bool memory_of_a_file;

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	/* vmm/guest_ram.c */
	if (memory_of_a_file && (flags & MAP_NORESERVE)) {
		int file = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		/* As QEMU seals it: else others could not rely on its pages. */
		if (file < 0 || ftruncate(file, (off_t)size) ||
		    fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK))
			return MAP_FAILED;
		return __real_mmap(address, size, protection, MAP_SHARED, file, 0);
	}
	return __real_mmap(address, size, protection, flags, fd, offset);
}

struct vmm {
	pid_t pid;
	_Atomic bool *runs;
};

static bool start_vmm(struct vmm *vmm, const char *command_line, enum backing backing)
{
	struct machine_config config = {.kernel = guest_path,
					.command_line = command_line,
					.vcpus = 1,
					.memory = 16 << 20,
					.console_input_fd = -1,
					.console_output_fd = -1};
	struct machine_limits limits = {.timeout_ns = 120 * NS_PER_SECOND};
	struct machine *machine;

	vmm->runs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (vmm->runs == MAP_FAILED)
		return false;
	fflush(stdout);
	vmm->pid = fork();
	if (!vmm->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory_of_a_file = backing == MEMFD;
		if (machine_create(&config, &machine, NULL, NULL) || machine_start(machine, NULL))
			_exit(1);
		atomic_store(vmm->runs, true);
		machine_run(machine, &limits, NULL);
		_exit(0);
	}
	for (int i = 0; vmm->pid > 0 && i < 5000 && !atomic_load(vmm->runs); i++)
		usleep(1000);
	return vmm->pid > 0 && atomic_load(vmm->runs);
}

/* Waits for its end, or makes it; gives its CPU time. */
static double end_vmm(struct vmm *vmm, bool at_once)
{
	struct rusage usage = {0};

	if (at_once)
		kill(vmm->pid, SIGKILL);
	wait4(vmm->pid, NULL, 0, &usage);
	munmap(vmm->runs, 4096);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

/* Stops. */

struct stops {
	double held[STOPS];
	double whole[STOPS];
	size_t count;
};

struct bench {
	pid_t thread;
	int fd;
	struct run_page page;
	struct attached_vm *vm;
};

static void look_at_page(struct bench *bench, unsigned depth)
{
	static uint64_t pcs[GP_SAMPLER_DEPTH_MAX];
	struct sampler_target *target = attached_vm_target(bench->vm);
	struct guest_cpu cpu;

	if (!run_page_registers(&bench->page, &cpu) || !depth)
		return;
	foreign_memory_stop_begins();
	guest_unwind(target->ops->memory(target), NULL, &cpu, pcs, depth);
	foreign_memory_stop_ends();
}

/* One system call of the VMM's thread: it stands behind a `syscall`, so that two bytes back are
 * one. */
static bool inject(pid_t thread, const struct user_regs_struct *saved, unsigned long request,
		   int fd, uint64_t buffer)
{
	struct user_regs_struct registers = *saved;
	int status;

	registers.rip -= 2;
	registers.rax = SYS_ioctl;
	registers.orig_rax = (unsigned long long)-1; /* no call is to be started again */
	registers.rdi = (unsigned)fd;
	registers.rsi = request;
	registers.rdx = buffer;
	return !ptrace(PTRACE_SETREGS, thread, NULL, &registers) &&
	       !ptrace(PTRACE_SINGLESTEP, thread, NULL, NULL) &&
	       waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status);
}

static bool look_by_calls(struct bench *bench, pid_t process)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	struct user_regs_struct saved;
	struct iovec here[] = {{&regs, sizeof(regs)}, {&sregs, sizeof(sregs)}}, there[2];
	bool done;

	if (ptrace(PTRACE_GETREGS, bench->thread, NULL, &saved))
		return false;
	/* Below its stack and what a function may use there without asking. */
	there[0] = (struct iovec){(void *)(uintptr_t)(saved.rsp - 8192), sizeof(regs)};
	there[1] = (struct iovec){(void *)(uintptr_t)(saved.rsp - 4096), sizeof(sregs)};
	done = inject(bench->thread, &saved, KVM_GET_REGS, bench->fd, saved.rsp - 8192) &&
	       inject(bench->thread, &saved, KVM_GET_SREGS, bench->fd, saved.rsp - 4096) &&
	       process_vm_readv(process, here, 2, there, 2, 0) ==
		       (ssize_t)(sizeof(regs) + sizeof(sregs)) &&
	       regs.rip;
	ptrace(PTRACE_SETREGS, bench->thread, NULL, &saved);
	return done;
}

enum way { REGISTERS, STACK_4, STACK_16, CALLS, WAYS };
static const char *const way_names[WAYS] = {"registers", "4 frames", "16 frames",
					    "injected calls, registers"};

static void stop_once(struct bench *bench, enum way way, pid_t process, struct stops *stops)
{
	static const unsigned depths[WAYS] = {0, 4, 16, 0};
	uint64_t asked = now_ns(), seen, released;
	struct vcpu_stopped stopped;
	enum vcpu_stop stop = vcpu_thread_stop(bench->thread, bench->fd, &stopped);

	seen = now_ns();
	if (stop != VCPU_STOPPED_IN_RUN && stop != VCPU_STOPPED_IN_VMM)
		return;
	if (stop == VCPU_STOPPED_IN_RUN) {
		if (way == CALLS)
			look_by_calls(bench, process);
		else
			look_at_page(bench, depths[way]);
	}
	vcpu_thread_release(&stopped);
	released = now_ns();
	if (stop != VCPU_STOPPED_IN_RUN || stops->count == STOPS)
		return;
	stops->held[stops->count] = (double)(released - seen);
	stops->whole[stops->count++] = (double)(released - asked);
}

/* The first vCPU's thread, by name, and the page, as attached_vm has them to itself. */
static bool find_thread(struct bench *bench, pid_t pid, const char *wanted)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct error error;
	char path[300];
	struct dirent *entry;
	DIR *directory;

	bench->fd = attached_vm_info(bench->vm)->process->vcpus[0].fd;
	if (pidfd < 0 || run_page_init(&bench->page, pidfd, bench->fd, &error))
		return false;
	close(pidfd);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		char name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, wanted))
			bench->thread = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	if (directory)
		closedir(directory);
	return bench->thread != 0;
}

/* Keeps this thread and the vCPU's on the CPU that this one runs on, or lets both go again. */
static bool share_cpu(pid_t thread, bool share)
{
	static cpu_set_t before;
	cpu_set_t one, *cpus = share ? &one : &before;
	int cpu = sched_getcpu();

	if (cpu < 0 || (share && sched_getaffinity(0, sizeof(before), &before)))
		return false;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return !sched_setaffinity(0, sizeof(*cpus), cpus) &&
	       !sched_setaffinity(thread, sizeof(*cpus), cpus);
}

/* `ways` of stopping it, in turns. */
static void take_turns(struct bench *bench, pid_t process, int ways, struct stops *stops)
{
	for (int i = 0; i < STOPS; i++) {
		for (int way = 0; way < ways; way++)
			/* Taking turns at being the first after the pause. */
			stop_once(bench, (enum way)((way + i) % ways), process,
				  &stops[(way + i) % ways]);
		usleep(200);
	}
}

/* Stops of one guest: `anywhere` for each of `ways`, `one_cpu` for those without calls. False: not
 * measured. */
static bool take_stops(enum backing backing, int ways, struct stops *anywhere,
		       struct stops *one_cpu)
{
	struct bench bench = {.page = {.fd = -1}};
	struct attach_config config = {0};
	struct error error;
	struct vmm vmm;
	bool taken = false;

	if (!start_vmm(&vmm, "run=nested depth=40 rounds=0", backing)) {
		puts("not measured: no machine");
		return false;
	}
	config.pid = vmm.pid;
	if (attached_vm_create(&config, &bench.vm, &error)) {
		printf("not measured: %s\n", error.text);
	} else if (find_thread(&bench, vmm.pid, "vcpu 0\n")) {
		printf("%s\n", attached_vm_info(bench.vm)->method);
		run_page_arm(&bench.page);
		take_turns(&bench, vmm.pid, ways, anywhere);
		if (share_cpu(bench.thread, true))
			take_turns(&bench, vmm.pid, CALLS, one_cpu);
		share_cpu(bench.thread, false);
		taken = true;
	}
	run_page_deinit(&bench.page);
	attached_vm_destroy(bench.vm);
	end_vmm(&vmm, true);
	return taken;
}

static void print_stops(const char *name, struct stops *stops)
{
	printf("%-32s %8zu %9.2f us %9.2f us %9.2f us\n", name, stops->count,
	       at(stops->held, stops->count, 50) / 1e3, at(stops->held, stops->count, 99) / 1e3,
	       at(stops->whole, stops->count, 50) / 1e3);
}

static void measure_stops(void)
{
	static struct stops stops[WAYS], from_file[CALLS], near[CALLS], near_file[CALLS];
	double plain, calls;

	if (!take_stops(PRIVATE_MEMORY, WAYS, stops, near) ||
	    !take_stops(MEMFD, CALLS, from_file, near_file))
		return;
	printf("%-32s %8s %12s %12s %12s\n", "stop", "stops", "held p50", "held p99", "whole p50");
	for (int way = 0; way < WAYS; way++)
		print_stops(way_names[way], &stops[way]);
	print_stops("4 frames, memfd", &from_file[STACK_4]);
	print_stops("16 frames, memfd", &from_file[STACK_16]);
	print_stops("one CPU: registers", &near[REGISTERS]);
	print_stops("one CPU: 4 frames", &near[STACK_4]);
	print_stops("one CPU: 16 frames", &near[STACK_16]);
	print_stops("one CPU: 4 frames, memfd", &near_file[STACK_4]);
	print_stops("one CPU: 16 frames, memfd", &near_file[STACK_16]);
	plain = at(stops[REGISTERS].held, stops[REGISTERS].count, 50);
	calls = at(stops[CALLS].held, stops[CALLS].count, 50);
	if (plain > 0)
		printf("injected calls / shared page: %.1f times as long\n", calls / plain);
	printf("goals (native): held p50 <= 2 us, with 16 frames <= 6 us; injected calls >= 10 "
	       "times\n");
}

/* Against what QEMU itself offers. */

enum { ASKS = 300 };

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	for (int i = 0; i < 100; i++) {
		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		usleep(50000);
	}
	close(fd);
	return -1;
}

/* Sends `text` and reads until `until` has come. */
static bool ask(int fd, const char *text, const char *until)
{
	static char answer[1 << 16];
	size_t used = 0;

	if (*text && write(fd, text, strlen(text)) < 0)
		return false;
	answer[0] = 0;
	while (!strstr(answer, until)) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		ssize_t got;

		if (used + 1 >= sizeof(answer) || poll(&ready, 1, 2000) <= 0)
			return false;
		got = read(fd, answer + used, sizeof(answer) - 1 - used);
		if (got <= 0)
			return false;
		used += (size_t)got;
		answer[used] = 0;
	}
	return true;
}

/* GDB's remote protocol: ^C, the stop reply, all registers, continue; each acknowledged. */
static size_t by_gdbstub(int fd, double *held)
{
	size_t count = 0;

	for (int i = 0; i < ASKS; i++) {
		uint64_t stopped;

		if (!ask(fd, "\x03", "$T02"))
			break;
		stopped = now_ns();
		if (!ask(fd, "+$g#67", "#") || !ask(fd, "+$c#63", "+"))
			break;
		held[count++] = (double)(now_ns() - stopped);
		usleep(2000);
	}
	return count;
}

static size_t by_monitor(int fd, double *held)
{
	static const char command[] = "{\"execute\":\"human-monitor-command\",\"arguments\":"
				      "{\"command-line\":\"info registers\"}}\n";
	size_t count = 0;

	if (!ask(fd, "", "QMP") || !ask(fd, "{\"execute\":\"qmp_capabilities\"}\n", "return"))
		return 0;
	for (int i = 0; i < ASKS; i++) {
		uint64_t begin = now_ns();

		if (!ask(fd, command, "\"return\""))
			break;
		held[count++] = (double)(now_ns() - begin);
		usleep(2000);
	}
	return count;
}

static pid_t start_qemu(const char *directory)
{
	char gdb[512], monitor[512];
	pid_t pid;

	snprintf(gdb, sizeof(gdb), "unix:%s/gdb,server=on,wait=off", directory);
	snprintf(monitor, sizeof(monitor), "unix:%s/qmp,server=on,wait=off", directory);
	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* As in tests/kvm/attach_traced.c. */
	execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "kvm", "-cpu",
	       "host,arch-capabilities=off", "-m", "64M", "-display", "none", "-no-user-config",
	       "-kernel", guest_path, "-append", "run=nested depth=40 rounds=0", "-name",
	       "guest=bench,debug-threads=on", "-gdb", gdb, "-qmp", monitor, (char *)NULL);
	_exit(127);
}

static bool attach_to_qemu(pid_t pid, struct bench *bench)
{
	struct attach_config config = {.pid = pid};

	/* Its firmware comes first. */
	for (int i = 0; i < 20; i++) {
		if (!attached_vm_create(&config, &bench->vm, NULL))
			return true;
		if (waitpid(pid, NULL, WNOHANG))
			return false;
		usleep(500000);
	}
	return false;
}

static void measure_others(void)
{
	static struct stops stops;
	double gdbstub[ASKS], monitor[ASKS], ours;
	struct bench bench = {.page = {.fd = -1}};
	char directory[] = "/tmp/guestprof-bench.XXXXXX", path[64];
	int gdb = -1, qmp = -1;
	size_t gdb_count = 0, qmp_count = 0;
	pid_t pid;

	if (!mkdtemp(directory))
		return;
	pid = start_qemu(directory);
	if (!attach_to_qemu(pid, &bench) || !find_thread(&bench, pid, "CPU 0/KVM\n")) {
		puts("\nQEMU: not measured, it is not there or does not run the guest");
		goto out;
	}
	run_page_arm(&bench.page);
	for (int i = 0; i < ASKS * 3; i++) {
		stop_once(&bench, REGISTERS, pid, &stops);
		usleep(2000);
	}
	snprintf(path, sizeof(path), "%s/qmp", directory);
	qmp = connect_to(path);
	if (qmp >= 0)
		qmp_count = by_monitor(qmp, monitor);
	snprintf(path, sizeof(path), "%s/gdb", directory);
	gdb = connect_to(path);
	/* Connecting stops the machine. */
	if (gdb >= 0 && ask(gdb, "$?#3f", "#") && ask(gdb, "+$c#63", "+"))
		gdb_count = by_gdbstub(gdb, gdbstub);
	ours = at(stops.held, stops.count, 50);
	printf("\nregisters of QEMU's guest, p50: %.2f us held by us", ours / 1e3);
	if (gdb_count && ours > 0)
		printf("; gdbstub %.1f us stopped, %.0f times as long (goal: 20)",
		       at(gdbstub, gdb_count, 50) / 1e3, at(gdbstub, gdb_count, 50) / ours);
	if (qmp_count && ours > 0)
		printf("; monitor %.1f us, %.0f times (goal: 50)", at(monitor, qmp_count, 50) / 1e3,
		       at(monitor, qmp_count, 50) / ours);
	putchar('\n');
out:
	if (gdb >= 0)
		close(gdb);
	if (qmp >= 0)
		close(qmp);
	run_page_deinit(&bench.page);
	attached_vm_destroy(bench.vm);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	snprintf(path, sizeof(path), "%s/qmp", directory);
	unlink(path);
	snprintf(path, sizeof(path), "%s/gdb", directory);
	unlink(path);
	rmdir(directory);
}

/* Slowdown. */

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

static void measure_slowdown(void)
{
	static const struct progress_way ways[] = {
		{"99 Hz", "<= 1.005", begin_sampling, end_sampling, NS_PER_SECOND / 99},
		{"997 Hz", "<= 1.03", begin_sampling, end_sampling, NS_PER_SECOND / 997},
		{"3989 Hz", "", begin_sampling, end_sampling, NS_PER_SECOND / 3989},
	};
	enum { RATES = sizeof(ways) / sizeof(ways[0]) };
	static struct progress_result results[RATES];
	struct attach_config config = {0};
	struct slowed slowed = {0};
	struct progress_guest guest;
	struct vmm vmm;

	if (!start_vmm(&vmm, "run=count depth=13", PRIVATE_MEMORY))
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
		if (progress_measure(&guest, ways, RATES, &slowed, WINDOWS, WINDOW_MS, results)) {
			printf("\nslowdown: CPU time of the VMM for the guest's work, %d windows "
			       "of %d ms each\n",
			       WINDOWS, WINDOW_MS);
			progress_print(ways, RATES, results);
		} else {
			puts("not measured: no session, or the guest does not count");
		}
	}
	attached_vm_destroy(slowed.vm);
	end_vmm(&vmm, true);
}

static void measure_first_stack(void)
{
	double times[ROUNDS];
	struct vmm vmm;
	size_t count = 0;

	if (!start_vmm(&vmm, "run=tree rounds=0", PRIVATE_MEMORY))
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
	end_vmm(&vmm, true);
	printf("\nfrom attaching to the first stack: %.1f ms (goal: 1 s, with names)\n",
	       at(times, count, 50) / 1e6);
}

int main(void)
{
	char own[400];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (length <= 0)
		return 1;
	own[length] = 0;
	for (int up = 0; up < 2; up++)
		*strrchr(own, '/') = 0;
	snprintf(guest_path, sizeof(guest_path), "%s/guests/long4", own);
	if (access("/dev/kvm", R_OK | W_OK) || access(guest_path, R_OK)) {
		printf("not measured: /dev/kvm or %s cannot be opened\n", guest_path);
		return 0;
	}
	measure_stops();
	measure_others();
	measure_slowdown();
	measure_first_stack();
	return 0;
}
