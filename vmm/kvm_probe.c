#include "vmm/kvm_probe.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* One page of guest memory, at the address where the code is linked to run. */
#define GUEST_ADDRESS 0x1000
#define GUEST_SIZE 0x1000

/* The loop ends in a HLT every so often, so that the clock can be looked at without a
 * signal: the probe may run in a process whose signals are not its to take. */
#define LOOP_ROUND 10000u
#define LOOP_ROUNDS 100u
#define LOOP_NANOSECONDS_MAX 500000000u

/* 32-bit code, paging off. */
static const uint8_t loop_code[] = {
	0xb9,
	LOOP_ROUND & 0xff,
	LOOP_ROUND >> 8,
	0,
	0,    /* again: mov $10000, %ecx */
	0x49, /* next: dec %ecx */
	0x75,
	0xfd, /* jnz next */
	0xf4, /* hlt */
	0xeb,
	0xf5, /* jmp again */
};
static const uint8_t sse_code[] = {
	0x0f, 0x57, 0xc0, /* xorps %xmm0, %xmm0: not in arch/x86/kvm/emulate.c as of 6.12 */
	0xf4,             /* hlt */
};

struct guest {
	int vm, vcpu;
	uint8_t *memory;
	struct kvm_run *run;
	size_t run_size;
};

static void guest_deinit(struct guest *guest)
{
	if (guest->run)
		munmap(guest->run, guest->run_size);
	close_fd(&guest->vcpu);
	close_fd(&guest->vm);
	if (guest->memory)
		munmap(guest->memory, GUEST_SIZE);
}

/* Flat 32-bit protected mode. */
static bool set_registers(int vcpu)
{
	struct kvm_regs registers = {.rip = GUEST_ADDRESS, .rflags = 2};
	struct kvm_sregs special;
	struct kvm_segment code = {.limit = 0xffffffff,
				   .selector = 8,
				   .type = 11,
				   .present = 1,
				   .db = 1,
				   .s = 1,
				   .g = 1};
	struct kvm_segment data = code;

	data.selector = 16;
	data.type = 3;
	if (ioctl(vcpu, KVM_GET_SREGS, &special) < 0)
		return false;
	special.cs = code;
	special.ds = special.es = special.fs = special.gs = special.ss = data;
	special.cr0 = 1 | 1 << 4; /* PE, ET */
	special.cr4 = 3 << 9;     /* OSFXSR, OSXMMEXCPT */
	return ioctl(vcpu, KVM_SET_SREGS, &special) == 0 &&
	       ioctl(vcpu, KVM_SET_REGS, &registers) == 0;
}

/* Sets errno when it fails. */
static bool guest_init(struct guest *guest, int kvm, const uint8_t *code, size_t size)
{
	struct kvm_userspace_memory_region region = {.guest_phys_addr = GUEST_ADDRESS,
						     .memory_size = GUEST_SIZE};
	uint64_t identity_map = 0xfffbc000;
	int run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	void *mapped;

	*guest = (struct guest){.vm = -1, .vcpu = -1};
	if (run_size < (int)sizeof(struct kvm_run))
		return false;
	guest->run_size = (size_t)run_size;
	mapped = mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		return false;
	guest->memory = mapped;
	memcpy(guest->memory, code, size);
	guest->vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (guest->vm < 0)
		return false;
	/* Old Intel CPUs need these to run a guest without paging; others do not mind. */
	ioctl(guest->vm, KVM_SET_IDENTITY_MAP_ADDR, &identity_map);
	ioctl(guest->vm, KVM_SET_TSS_ADDR, 0xfffbd000);
	region.userspace_addr = (uintptr_t)guest->memory;
	if (ioctl(guest->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return false;
	guest->vcpu = ioctl(guest->vm, KVM_CREATE_VCPU, 0);
	if (guest->vcpu < 0)
		return false;
	mapped = mmap(NULL, guest->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, guest->vcpu, 0);
	if (mapped == MAP_FAILED)
		return false;
	guest->run = mapped;
	return set_registers(guest->vcpu);
}

/* Runs until the guest's next HLT; false when it ends in any other way. */
static bool run_to_halt(struct guest *guest)
{
	for (int attempt = 0; attempt < 1000; attempt++) {
		if (ioctl(guest->vcpu, KVM_RUN, 0) == 0)
			return guest->run->exit_reason == KVM_EXIT_HLT;
		if (errno != EINTR && errno != EAGAIN)
			return false;
	}
	return false;
}

static bool time_loop(struct kvm_probe *probe, int kvm)
{
	struct guest guest;
	bool ran = guest_init(&guest, kvm, loop_code, sizeof(loop_code));

	if (!ran)
		probe->error_number = errno;
	/* The first round pays for page faults and caches. */
	ran = ran && run_to_halt(&guest);
	if (ran) {
		uint64_t begin = monotonic_ns();

		for (unsigned i = 0; i < LOOP_ROUNDS && ran; i++) {
			ran = run_to_halt(&guest);
			probe->loop_iterations += ran ? LOOP_ROUND : 0;
			probe->loop_nanoseconds = monotonic_ns() - begin;
			if (probe->loop_nanoseconds > LOOP_NANOSECONDS_MAX)
				break;
		}
	}
	guest_deinit(&guest);
	return ran;
}

static bool try_sse(int kvm)
{
	struct guest guest;
	bool ran = guest_init(&guest, kvm, sse_code, sizeof(sse_code)) && run_to_halt(&guest);

	guest_deinit(&guest);
	return ran;
}

static void check_capabilities(struct kvm_probe *probe, int kvm)
{
	static const struct {
		const char *name;
		int number, wanted;
		bool bits;
	} list[] = {
		{"USER_MEMORY", KVM_CAP_USER_MEMORY, 1, false},
		{"IRQCHIP", KVM_CAP_IRQCHIP, 1, false},
		{"PIT2", KVM_CAP_PIT2, 1, false},
		{"EXT_CPUID", KVM_CAP_EXT_CPUID, 1, false},
		{"SET_TSS_ADDR", KVM_CAP_SET_TSS_ADDR, 1, false},
		{"SET_IDENTITY_MAP_ADDR", KVM_CAP_SET_IDENTITY_MAP_ADDR, 1, false},
		{"MP_STATE", KVM_CAP_MP_STATE, 1, false},
		{"ADJUST_CLOCK", KVM_CAP_ADJUST_CLOCK, 1, false},
		{"IRQFD", KVM_CAP_IRQFD, 1, false},
		{"IOEVENTFD", KVM_CAP_IOEVENTFD, 1, false},
		{"IMMEDIATE_EXIT", KVM_CAP_IMMEDIATE_EXIT, 1, false},
		{"SYNC_REGS", KVM_CAP_SYNC_REGS, KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS, true},
		{"NR_VCPUS", KVM_CAP_NR_VCPUS, 1, false},
		{"NR_MEMSLOTS", KVM_CAP_NR_MEMSLOTS, 8, false},
	};

	_Static_assert(ARRAY_SIZE(list) == KVM_PROBE_CAPABILITIES, "one entry each");
	probe->all_capabilities = true;
	for (unsigned i = 0; i < ARRAY_SIZE(list); i++) {
		int value = ioctl(kvm, KVM_CHECK_EXTENSION, list[i].number);
		bool enough = list[i].bits ? value > 0 && (value & list[i].wanted) == list[i].wanted
					   : value >= list[i].wanted;

		probe->capabilities[i] = (struct kvm_probe_capability){
			.name = list[i].name,
			.value = value < 0 ? 0 : value,
			.wanted = list[i].wanted,
			.enough = enough,
		};
		probe->all_capabilities &= enough;
	}
	probe->capability_count = ARRAY_SIZE(list);
}

/* Is the word in the first "flags" line of /proc/cpuinfo? */
static void read_cpu_flags(struct kvm_probe *probe)
{
	AUTO_FCLOSE FILE *file = fopen("/proc/cpuinfo", "re");
	AUTO_FREE char *line = NULL;
	size_t size = 0;

	/* Far fewer lines than this come before it. */
	for (int i = 0; file && i < 100 && getline(&line, &size, file) > 0; i++) {
		char *rest = line, *word;

		if (strncmp(line, "flags", 5))
			continue;
		while ((word = strsep(&rest, " \t\n"))) {
			probe->flag_vmx |= !strcmp(word, "vmx");
			probe->flag_svm |= !strcmp(word, "svm");
		}
		return;
	}
}

void kvm_probe(struct kvm_probe *probe)
{
	AUTO_CLOSE int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int open_error = errno;

	*probe = (struct kvm_probe){.kind = KVM_NONE, .reason = ""};
	read_cpu_flags(probe);
	if (kvm < 0) {
		probe->error_number = open_error;
		if (open_error == EACCES || open_error == EPERM) {
			probe->kind = KVM_NO_PERMISSION;
			probe->reason = "this user may not open /dev/kvm";
		} else {
			probe->reason = "/dev/kvm does not open";
		}
		return;
	}
	probe->api_version = ioctl(kvm, KVM_GET_API_VERSION, 0);
	if (probe->api_version != KVM_API_VERSION) {
		probe->reason = "/dev/kvm does not speak version 12 of the KVM API";
		return;
	}
	check_capabilities(probe, kvm);
	if (!time_loop(probe, kvm)) {
		probe->reason = "/dev/kvm does not run a loop of three instructions";
		return;
	}
	probe->runs_sse = try_sse(kvm);
	probe->kind = probe->runs_sse ? KVM_NATIVE : KVM_EMULATED;
	if (!probe->runs_sse)
		probe->reason = "/dev/kvm emulates guests in software and has no SSE, which "
				"stock kernels use";
}

const char *kvm_kind_name(enum kvm_kind kind)
{
	static const char *const names[] = {
		[KVM_NONE] = "none",
		[KVM_NO_PERMISSION] = "no permission",
		[KVM_EMULATED] = "emulated",
		[KVM_NATIVE] = "native",
	};

	return (unsigned)kind < ARRAY_SIZE(names) ? names[kind] : "none";
}
