/* What attaching costs a virtual machine of another process, on whatever /dev/kvm there is, as
 * ratios within one run. The other process is a fork of this one that runs tests/guests/long4.
 *
 * stop     how long a vCPU's thread is held, from the moment that we see it stopped until it is let
 *          go: for the registers alone and with stacks of 4 and 16 frames; beside it the same
 *          registers by calls injected into the thread (KVM_GET_REGS, KVM_GET_SREGS), as tools
 *          do that cannot share its page. "whole" is from asking for the stop on. Letting go of a
 *          thread whose CPU has fallen idle, as it does in a stop that is not short, means waking
 *          that CPU, which takes most of the time where the host is itself a virtual machine: so
 *          the same once more with both threads on one CPU, where nothing has to be woken
 * others   the same registers of a guest of QEMU's, where there is one: by us, by its gdbstub (the
 *          machine stands still from the stop reply until it is continued) and by its monitor
 *
 * What it costs the guest in all: attach_slowdown.c.
 */
#include "attach/attached_vm.h"
#include "attach/remote_memory.h"
#include "attach/run_page.h"
#include "attach/vcpu_thread.h"
#include "attach/vm_process.h"
#include "guest-introspection/unwind/unwind.h"
#include "sampler/target.h"
#include "tests/bench/remote.h"

#include <guestprof/sampler.h>
#include <linux/kvm.h>
#include <poll.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>

enum { STOPS = 3000 };

static char guest_path[512];

/* The VMM. Its guest's memory is its own or, as QEMU's with memory-backend-memfd, a file's: the
 * linker puts this in front of the C library's mmap() (--wrap, tests/tests.mk). */

static bool memory_of_a_file;

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	/* vmm/devices/guest_ram.c */
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

static void use_file(void)
{
	memory_of_a_file = true;
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
	remote_memory_stop_begins();
	guest_unwind(target->ops->memory(target), NULL, &cpu, pcs, depth);
	remote_memory_stop_ends();
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

	bench->fd = attached_vm_info(bench->vm)->process->vcpus[0].fd;
	if (pidfd < 0 || run_page_init(&bench->page, pidfd, bench->fd, &error))
		return false;
	close(pidfd);
	bench->thread = thread_called(pid, wanted);
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
		for (int way = 0; way < ways; way++) {
			/* As samples come: right behind another, a stop finds all awake. */
			usleep(1000);
			stop_once(bench, (enum way)way, process, &stops[way]);
		}
	}
}

/* Stops of one guest: `anywhere` for each of `ways`, `one_cpu` for those without calls. False: not
 * measured. */
static bool take_stops(void (*prepare)(void), int ways, struct stops *anywhere,
		       struct stops *one_cpu)
{
	struct bench bench = {.page = {.fd = -1}};
	struct attach_config config = {0};
	struct error error;
	struct vmm vmm;
	bool taken = false;

	if (!start_vmm(&vmm, guest_path, "run=nested depth=40 rounds=0", prepare)) {
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
	end_vmm(&vmm);
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

	if (!take_stops(NULL, WAYS, stops, near) ||
	    !take_stops(use_file, CALLS, from_file, near_file))
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

int main(void)
{
	if (!find_guest(guest_path, sizeof(guest_path)))
		return 0;
	measure_stops();
	measure_others();
	return 0;
}
