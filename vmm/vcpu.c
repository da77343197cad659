#include "vmm/vcpu.h"

#include "base/cleanup.h"
#include "guest-introspection/x86/translate.h"
#include "kvm/registers.h"

#include <asm/kvm.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Wakes a vCPU thread that is to end. Ticks use another signal; this one needs no queueing. */
#define STOP_SIGNAL SIGUSR1

enum {
	GUEST_CODE_SELECTOR = 0x10,
	GUEST_DATA_SELECTOR = 0x18,
	SEGMENT_CODE = 0xb,     /* execute, read, accessed */
	SEGMENT_DATA = 0x3,     /* read, write, accessed */
	SEGMENT_BUSY_TSS = 0xb, /* 32-bit or 64-bit, by mode */
	SEGMENT_LDT = 0x2,
};

#define CR0_EXTENSION_TYPE (UINT64_C(1) << 4)
#define EFER_LONG_MODE_ENABLE (UINT64_C(1) << 8)
#define RFLAGS_FIXED UINT64_C(2)

/* Intel SDM volume 3A, "Memory Cache Control": enable, default type write-back. */
#define MSR_MTRR_DEFAULT_TYPE 0x2ff
#define MTRR_ENABLE_WRITE_BACK ((1u << 11) | 6u)
#define MSR_MISC_ENABLE 0x1a0
#define MISC_ENABLE_FAST_STRINGS 1u

static __thread struct vcpu *current_vcpu;

static void handle_stop_signal(int signal)
{
	(void)signal;
	if (current_vcpu)
		vcpu_kick(current_vcpu);
}

bool vcpu_kick(struct vcpu *vcpu)
{
	/* The kernel reads this on its way into the guest; one byte, no ordering needed on the
	 * same thread. */
	*(volatile uint8_t *)&vcpu->run->immediate_exit = 1;
	return vcpu->in_guest;
}

static struct kvm_segment flat_segment(uint16_t selector, uint8_t type, bool long_mode)
{
	bool code = type == SEGMENT_CODE;

	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = selector,
		.type = type,
		.present = 1,
		.s = 1,
		.g = 1,
		.l = code && long_mode,
		.db = !(code && long_mode),
	};
}

static void set_boot_registers(const struct boot_state *state, struct kvm_regs *regs,
			       struct kvm_sregs *sregs)
{
	bool long_mode = state->mode == BOOT_LONG_MODE;
	struct kvm_segment data = flat_segment(GUEST_DATA_SELECTOR, SEGMENT_DATA, long_mode);

	*regs = (struct kvm_regs){
		.rip = state->rip,
		.rsp = state->rsp,
		.rax = state->rax,
		.rbx = state->rbx,
		.rsi = state->rsi,
		.rflags = RFLAGS_FIXED,
	};
	sregs->cs = flat_segment(GUEST_CODE_SELECTOR, SEGMENT_CODE, long_mode);
	sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
	sregs->tr = (struct kvm_segment){.limit = 0x67, .type = SEGMENT_BUSY_TSS, .present = 1};
	sregs->ldt = (struct kvm_segment){.type = SEGMENT_LDT, .unusable = 1};
	sregs->gdt = (struct kvm_dtable){.base = state->gdt, .limit = 4 * 8 - 1};
	sregs->idt = (struct kvm_dtable){0};
	sregs->cr0 = X86_CR0_PROTECTED | CR0_EXTENSION_TYPE;
	if (long_mode) {
		sregs->cr0 |= X86_CR0_PAGING;
		sregs->cr3 = state->page_tables;
		sregs->cr4 = X86_CR4_PAE;
		sregs->efer = EFER_LONG_MODE_ENABLE | X86_EFER_LONG_MODE_ACTIVE;
	}
}

static gp_status_t set_model_registers(const struct vcpu *vcpu, struct error *error)
{
	/* A struct kvm_msrs with room for its entries. */
	struct {
		uint32_t count;
		uint32_t padding;
		struct kvm_msr_entry entries[2];
	} registers = {
		.count = 2,
		.entries = {{.index = MSR_MTRR_DEFAULT_TYPE, .data = MTRR_ENABLE_WRITE_BACK},
			    {.index = MSR_MISC_ENABLE, .data = MISC_ENABLE_FAST_STRINGS}},
	};

	/* AMD has no MISC_ENABLE: the call sets those before it and says how many. */
	if (ioctl(vcpu->fd, KVM_SET_MSRS, &registers) < 1)
		return error_set_errno(error, errno, "KVM refuses vCPU %u's MTRRs", vcpu->index);
	return GP_OK;
}

static gp_status_t set_first_registers(const struct vcpu *vcpu, const struct boot_state *state,
				       struct error *error)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	if (ioctl(vcpu->fd, KVM_GET_SREGS, &sregs))
		return error_set_errno(error, errno, "cannot read a vCPU's registers from KVM");
	set_boot_registers(state, &regs, &sregs);
	if (ioctl(vcpu->fd, KVM_SET_SREGS, &sregs) || ioctl(vcpu->fd, KVM_SET_REGS, &regs))
		return error_set_errno(error, errno, "KVM refuses the first vCPU's registers");
	return GP_OK;
}

gp_status_t vcpu_init(struct vcpu *vcpu, int vm_fd, unsigned index, size_t run_size,
		      bool has_sync_registers, const struct cpuid_table *cpuid,
		      const struct boot_state *state, const struct vcpu_environment *environment,
		      struct error *error)
{
	gp_status_t status;

	*vcpu = (struct vcpu){
		.index = index,
		.fd = -1,
		.run_size = run_size,
		.has_sync_registers = has_sync_registers,
		.environment = environment,
	};
	vcpu->fd = ioctl(vm_fd, KVM_CREATE_VCPU, index);
	if (vcpu->fd < 0)
		return error_set_errno(error, errno, "KVM cannot create vCPU %u", index);
	vcpu->run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (vcpu->run == MAP_FAILED) {
		vcpu->run = NULL;
		status = error_set_errno(error, errno, "cannot map vCPU %u's run page", index);
	} else if (ioctl(vcpu->fd, KVM_SET_CPUID2, cpuid)) {
		status = error_set_errno(error, errno, "KVM refuses vCPU %u's CPUID", index);
	} else {
		status = set_model_registers(vcpu, error);
		if (!status && index == 0)
			status = set_first_registers(vcpu, state, error);
	}
	if (status)
		vcpu_deinit(vcpu);
	else if (has_sync_registers)
		vcpu->run->kvm_valid_regs = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS;
	return status;
}

void vcpu_deinit(struct vcpu *vcpu)
{
	if (vcpu->run)
		munmap(vcpu->run, vcpu->run_size);
	close_fd(&vcpu->fd);
	vcpu->run = NULL;
}

void vcpu_registers(const struct vcpu *vcpu, struct guest_cpu *cpu)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	if (vcpu->has_sync_registers) {
		kvm_registers_value(&vcpu->run->s.regs.regs, &vcpu->run->s.regs.sregs, cpu);
		return;
	}
	memset(cpu, 0, sizeof(*cpu));
	if (!ioctl(vcpu->fd, KVM_GET_REGS, &regs) && !ioctl(vcpu->fd, KVM_GET_SREGS, &sregs))
		kvm_registers_value(&regs, &sregs, cpu);
}

/* Ends the machine with an error that shows where the guest was. */
static void vcpu_fail(struct vcpu *vcpu, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void vcpu_fail(struct vcpu *vcpu, const char *format, ...)
{
	enum { BYTES = 15 }; /* the longest x86 instruction */
	char what[200], dump[BYTES * 3 + 1] = "not readable";
	struct guest_cpu cpu = {0};
	struct address_space space;
	uint8_t bytes[BYTES];
	va_list arguments;
	size_t length = 0;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	vcpu_registers(vcpu, &cpu);
	space = address_space_of(&cpu);
	while (length < BYTES && guest_read_virtual(&space, NULL, vcpu->environment->guest_memory,
						    gva(cpu.cs.base + cpu.rip + length),
						    &bytes[length], 1) == TRANSLATE_OK)
		length++;
	for (size_t i = 0; i < length; i++)
		snprintf(dump + i * 3, 4, "%02x ", bytes[i]);
	if (length)
		dump[length * 3 - 1] = 0;
	error_set(&vcpu->error, GP_ERR_IO,
		  "vCPU %u: %s; at RIP %#llx (CS base %#llx, CR0 %#llx), bytes there: %s",
		  vcpu->index, what, (unsigned long long)cpu.rip, (unsigned long long)cpu.cs.base,
		  (unsigned long long)cpu.cr0, dump);
	guest_end_request(vcpu->environment->end, GUEST_ERROR);
}

static void handle_port_exit(const struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;

	/* A string instruction transfers `count` items through one port. */
	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size) {
		if (run->io.direction == KVM_EXIT_IO_OUT)
			io_bus_write(vcpu->environment->ports, run->io.port, data, run->io.size);
		else
			io_bus_read(vcpu->environment->ports, run->io.port, data, run->io.size);
	}
}

static void handle_memory_exit(const struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;

	if (run->mmio.len > sizeof(run->mmio.data))
		return;
	if (run->mmio.is_write)
		io_bus_write(vcpu->environment->memory, run->mmio.phys_addr, run->mmio.data,
			     run->mmio.len);
	else
		io_bus_read(vcpu->environment->memory, run->mmio.phys_addr, run->mmio.data,
			    run->mmio.len);
}

static void handle_system_event(const struct vcpu *vcpu)
{
	enum guest_end end = vcpu->run->system_event.type == KVM_SYSTEM_EVENT_SHUTDOWN
				     ? GUEST_POWERED_OFF
				     : GUEST_RESET;

	guest_end_request(vcpu->environment->end, end);
}

/* Returns whether the vCPU can go on. */
static bool handle_exit(struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;

	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		handle_port_exit(vcpu);
		return true;
	case KVM_EXIT_MMIO:
		handle_memory_exit(vcpu);
		return true;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
	case KVM_EXIT_HLT:
		return true;
	case KVM_EXIT_SHUTDOWN:
		guest_end_request(vcpu->environment->end, GUEST_TRIPLE_FAULT);
		return false;
	case KVM_EXIT_SYSTEM_EVENT:
		handle_system_event(vcpu);
		return false;
	case KVM_EXIT_INTERNAL_ERROR:
		vcpu_fail(vcpu, "KVM internal error, suberror %u%s", run->internal.suberror,
			  run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION
				  ? " (it cannot emulate an instruction)"
				  : "");
		return false;
	case KVM_EXIT_FAIL_ENTRY:
		vcpu_fail(vcpu, "the CPU refuses to enter the guest, hardware reason %#llx",
			  (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
		return false;
	default:
		vcpu_fail(vcpu, "KVM gave exit reason %u, which is not known here",
			  run->exit_reason);
		return false;
	}
}

static void run_loop(struct vcpu *vcpu)
{
	const struct vcpu_callbacks *callbacks = &vcpu->environment->callbacks;

	while (!atomic_load_explicit(&vcpu->stop_requested, memory_order_relaxed)) {
		int result, run_errno;

		vcpu->in_guest = true;
		result = ioctl(vcpu->fd, KVM_RUN, 0);
		run_errno = errno;
		vcpu->in_guest = false;
		atomic_fetch_add_explicit(&vcpu->exits, 1, memory_order_relaxed);
		if (result == 0) {
			/* The guest's state is consistent only after the next KVM_RUN has
			 * completed the access: a kick that came meanwhile makes that one
			 * return at once, with EINTR. */
			if (!handle_exit(vcpu))
				break;
		} else if (run_errno == EINTR) {
			*(volatile uint8_t *)&vcpu->run->immediate_exit = 0;
			atomic_signal_fence(memory_order_seq_cst);
			callbacks->on_stop(callbacks->context, vcpu);
		} else if (run_errno != EAGAIN) {
			vcpu_fail(vcpu, "KVM_RUN failed with errno %d (%s)", run_errno,
				  strerrordesc_np(run_errno));
			break;
		}
	}
}

void vcpu_gate_init(struct vcpu_gate *gate)
{
	*gate = (struct vcpu_gate){.lock = PTHREAD_MUTEX_INITIALIZER,
				   .opened = PTHREAD_COND_INITIALIZER};
}

void vcpu_gate_deinit(struct vcpu_gate *gate)
{
	pthread_cond_destroy(&gate->opened);
	pthread_mutex_destroy(&gate->lock);
}

void vcpu_gate_open(struct vcpu_gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->open = true;
	pthread_cond_broadcast(&gate->opened);
	pthread_mutex_unlock(&gate->lock);
}

static void wait_at(struct vcpu_gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	while (!gate->open)
		pthread_cond_wait(&gate->opened, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
}

struct start {
	struct vcpu *vcpu;
	struct vcpu_gate *gate;
	sem_t ready;
};

static void *vcpu_main(void *argument)
{
	struct start *start = argument;
	struct vcpu_gate *gate = start->gate;
	struct vcpu *vcpu = start->vcpu;
	const struct vcpu_callbacks *callbacks = &vcpu->environment->callbacks;
	char name[16];
	sigset_t none;

	snprintf(name, sizeof(name), "vcpu %u", vcpu->index);
	pthread_setname_np(pthread_self(), name);
	current_vcpu = vcpu;
	/* Signals were blocked while this thread was created; those of the process go to the
	 * main thread, which keeps them blocked for everybody else. */
	sigemptyset(&none);
	for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++)
		sigaddset(&none, signal);
	sigaddset(&none, STOP_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &none, NULL);
	atomic_store(&vcpu->thread_id, gettid());
	if (callbacks->on_thread_start(callbacks->context, vcpu, &vcpu->error)) {
		guest_end_request(vcpu->environment->end, GUEST_ERROR);
		atomic_store(&vcpu->stop_requested, true);
	}
	sem_post(&start->ready); /* `start` is gone from its owner's stack from here on */
	wait_at(gate);
	run_loop(vcpu);
	callbacks->on_end(callbacks->context, vcpu);
	/* Nobody sends ticks to a thread that will not see them. */
	atomic_store(&vcpu->thread_id, 0);
	current_vcpu = NULL;
	return NULL;
}

gp_status_t vcpu_start(struct vcpu *vcpu, struct vcpu_gate *gate, struct error *error)
{
	struct sigaction action = {.sa_handler = handle_stop_signal};
	struct start start = {.vcpu = vcpu, .gate = gate};
	sigset_t all, old;
	int failed;

	sem_init(&start.ready, 0, 0);
	sigaction(STOP_SIGNAL, &action, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&vcpu->thread, NULL, vcpu_main, &start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed) {
		sem_destroy(&start.ready);
		return error_set_errno(error, failed, "cannot start vCPU %u's thread", vcpu->index);
	}
	while (sem_wait(&start.ready))
		; /* EINTR: a signal to this thread */
	sem_destroy(&start.ready);
	return GP_OK;
}

void vcpu_stop(struct vcpu *vcpu)
{
	atomic_store(&vcpu->stop_requested, true);
	pthread_kill(vcpu->thread, STOP_SIGNAL);
	pthread_join(vcpu->thread, NULL);
	atomic_store(&vcpu->thread_id, 0);
}
