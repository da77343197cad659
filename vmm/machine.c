#include "vmm/machine.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "vmm/acpi.h"
#include "vmm/boot.h"
#include "vmm/cmos.h"
#include "vmm/console.h"
#include "vmm/cpuid.h"
#include "vmm/disk_image.h"
#include "vmm/event_loop.h"
#include "vmm/guest_ram.h"
#include "vmm/i8042.h"
#include "vmm/reset_port.h"
#include "vmm/sandbox.h"
#include "vmm/serial.h"
#include "vmm/vcpu.h"
#include "vmm/virtio_block.h"
#include "vmm/virtio_mmio.h"
#include "vmm/virtio_rng.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Intel hosts without unrestricted guest keep a TSS and an identity map for real mode in
 * guest-physical memory; below the local APIC and above our devices nothing else lies. */
#define IDENTITY_MAP_ADDRESS UINT64_C(0xfffbc000)
#define TSS_ADDRESS UINT64_C(0xfffbd000)

#define KVM_API_VERSION_WANTED 12

struct machine {
	struct sampler_target target;

	int kvm_fd;
	int vm_fd;
	size_t run_size;
	bool sandbox;

	struct boot_files files;
	uint64_t kernel_start;
	uint64_t kernel_end;
	struct guest_ram ram;
	bool has_ram;

	struct io_bus ports;
	struct io_bus memory_bus;
	struct event_loop loop;
	bool has_loop;
	int interrupt_fds[24];

	struct console *console;
	struct serial serial;
	struct i8042 keyboard;
	struct cmos clock;
	struct reset_port reset_port;
	struct acpi_power power;

	unsigned disk_count; /* opened */
	unsigned slot_count; /* initialised */
	struct disk_image disks[MACHINE_DISKS_MAX];
	struct virtio_block blocks[MACHINE_DISKS_MAX];
	struct virtio_mmio slots[VIRTIO_MMIO_SLOTS_MAX];

	struct vcpu_environment environment;
	unsigned vcpu_count;
	unsigned vcpus_made;
	unsigned vcpus_started;
	struct vcpu vcpus[MACHINE_VCPUS_MAX];
	struct vcpu_gate gate;

	pthread_t loop_thread;
	bool loop_runs;
	struct error loop_error;

	int end_fd; /* eventfd: an end was requested */
	_Atomic int end;
};

const char *machine_end_string(enum machine_end end)
{
	switch (end) {
	case MACHINE_RUNNING:
		return "running";
	case MACHINE_POWERED_OFF:
		return "powered off";
	case MACHINE_RESET:
		return "reset";
	case MACHINE_TRIPLE_FAULT:
		return "triple fault";
	case MACHINE_TEXT_SEEN:
		return "text seen";
	case MACHINE_DURATION:
		return "duration over";
	case MACHINE_TIMED_OUT:
		return "timed out";
	case MACHINE_USER_QUIT:
		return "quit by the user";
	case MACHINE_SIGNALLED:
		return "ended by a signal";
	case MACHINE_ERROR:
		return "error";
	}
	return "unknown";
}

void machine_request_end(struct machine *machine, enum machine_end end)
{
	int running = MACHINE_RUNNING;
	uint64_t one = 1;

	if (!atomic_compare_exchange_strong(&machine->end, &running, end))
		return;
	/* Cannot fail but by a full counter, which wakes the waiter as well. */
	ssize_t written = write(machine->end_fd, &one, sizeof(one));
	(void)written;
}

static void request_end(void *context, enum machine_end end)
{
	machine_request_end(context, end);
}

/* The sampler's view of us. */

static struct machine *machine_of(const struct sampler_target *target)
{
	return container_of((struct sampler_target *)(uintptr_t)target, struct machine, target);
}

static unsigned target_vcpu_count(const struct sampler_target *target)
{
	return machine_of(target)->vcpu_count;
}

static pid_t target_tick_thread(const struct sampler_target *target, unsigned vcpu)
{
	return atomic_load(&machine_of(target)->vcpus[vcpu].thread_id);
}

static bool target_kick(struct sampler_target *target, unsigned vcpu)
{
	return vcpu_kick(&machine_of(target)->vcpus[vcpu]);
}

static const struct guest_memory *target_memory(const struct sampler_target *target)
{
	return &machine_of(target)->ram.memory;
}

static enum sampler_vcpu_state target_vcpu_state(struct sampler_target *target, unsigned vcpu)
{
	struct kvm_mp_state state;

	if (ioctl(machine_of(target)->vcpus[vcpu].fd, KVM_GET_MP_STATE, &state))
		return SAMPLER_VCPU_RUNNING;
	switch (state.mp_state) {
	case KVM_MP_STATE_HALTED:
	case KVM_MP_STATE_AP_RESET_HOLD:
		return SAMPLER_VCPU_HALTED;
	case KVM_MP_STATE_UNINITIALIZED:
	case KVM_MP_STATE_INIT_RECEIVED:
	case KVM_MP_STATE_SIPI_RECEIVED:
		return SAMPLER_VCPU_NOT_STARTED;
	default:
		return SAMPLER_VCPU_RUNNING;
	}
}

static const struct sampler_target_ops target_ops = {
	.vcpu_count = target_vcpu_count,
	.tick_thread = target_tick_thread,
	.kick = target_kick,
	.memory = target_memory,
	.vcpu_state = target_vcpu_state,
};

static void on_stop(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;
	struct guest_cpu cpu;

	if (!sampler_is_due(&machine->target, vcpu->index))
		return;
	vcpu_registers(vcpu, &cpu);
	sampler_capture(&machine->target, vcpu->index, &cpu);
}

static void on_end(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;

	sampler_vcpu_ended(&machine->target, vcpu->index);
}

static gp_status_t on_thread_start(void *context, struct vcpu *vcpu, struct error *error)
{
	const struct machine *machine = context;
	struct sandbox_fds fds = {.vcpu_fd = vcpu->fd};

	if (!machine->sandbox)
		return GP_OK;
	return sandbox_enter_thread(SANDBOX_VCPU, &fds, error);
}

/* Opening KVM. */

static gp_status_t open_kvm(struct machine *machine, const char *path, struct error *error)
{
	static const struct {
		int capability;
		const char *name;
	} needed[] = {
		{KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP"},
		{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
		{KVM_CAP_SET_TSS_ADDR, "KVM_CAP_SET_TSS_ADDR"},
		{KVM_CAP_SET_IDENTITY_MAP_ADDR, "KVM_CAP_SET_IDENTITY_MAP_ADDR"},
		{KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"},
		{KVM_CAP_IRQFD, "KVM_CAP_IRQFD"},
		{KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD"},
		{KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE"},
		{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"},
		{KVM_CAP_PIT2, "KVM_CAP_PIT2"},
	};
	int version, size;

	machine->kvm_fd = open(path, O_RDWR | O_CLOEXEC);
	if (machine->kvm_fd < 0) {
		int why = errno;

		if (why == EACCES || why == EPERM)
			return error_set_errno(
				error, why,
				"cannot open %s: add this user to its group (usually "
				"'adduser USER kvm', then log in again)",
				path);
		if (why == ENOENT || why == ENODEV || why == ENXIO)
			return error_set_errno(
				error, why,
				"cannot open %s: this machine has no KVM ('modprobe "
				"kvm_intel' or 'kvm_amd' loads it where the CPU can); "
				"'guestprof lab' runs the same command on an emulated "
				"one",
				path);
		return error_set_errno(error, why, "cannot open %s", path);
	}
	version = ioctl(machine->kvm_fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION_WANTED)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s is not KVM, or not one of API version %d", path,
				 KVM_API_VERSION_WANTED);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (ioctl(machine->kvm_fd, KVM_CHECK_EXTENSION, needed[i].capability) <= 0)
			return error_set(error, GP_ERR_NOT_SUPPORTED,
					 "this host's KVM lacks %s; Linux 5.10 or newer has it",
					 needed[i].name);
	size = ioctl(machine->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (size < (int)sizeof(struct kvm_run))
		return error_set_errno(error, errno, "KVM does not tell the size of its run page");
	machine->run_size = (size_t)size;
	return GP_OK;
}

static gp_status_t check_vcpu_count(const struct machine *machine, unsigned count,
				    struct error *error)
{
	int most = ioctl(machine->kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);

	if (most <= 0)
		most = ioctl(machine->kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_NR_VCPUS);
	if (most <= 0 || most > MACHINE_VCPUS_MAX)
		most = MACHINE_VCPUS_MAX;
	if (count < 1 || count > (unsigned)most)
		return error_set(error, GP_ERR_OUT_OF_RANGE, "%u vCPUs: give 1 to %d with -c",
				 count, most);
	return GP_OK;
}

static gp_status_t create_vm(struct machine *machine, struct error *error)
{
	uint64_t identity_map = IDENTITY_MAP_ADDRESS;
	struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};

	do
		machine->vm_fd = ioctl(machine->kvm_fd, KVM_CREATE_VM, 0);
	while (machine->vm_fd < 0 && errno == EINTR);
	if (machine->vm_fd < 0)
		return error_set_errno(error, errno, "KVM cannot create a virtual machine");
	if (ioctl(machine->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map) ||
	    ioctl(machine->vm_fd, KVM_SET_TSS_ADDR, TSS_ADDRESS) ||
	    ioctl(machine->vm_fd, KVM_CREATE_IRQCHIP, 0) ||
	    ioctl(machine->vm_fd, KVM_CREATE_PIT2, &pit))
		return error_set_errno(error, errno, "KVM cannot create the interrupt controller");
	for (unsigned i = 0; i < machine->ram.region_count; i++) {
		const struct guest_ram_region *ram = &machine->ram.regions[i];
		struct kvm_userspace_memory_region region = {
			.slot = i,
			.guest_phys_addr = ram->gpa,
			.memory_size = ram->size,
			.userspace_addr = (uintptr_t)ram->host,
		};

		if (ioctl(machine->vm_fd, KVM_SET_USER_MEMORY_REGION, &region))
			return error_set_errno(error, errno,
					       "KVM refuses the guest's memory at %#llx",
					       (unsigned long long)ram->gpa);
	}
	return GP_OK;
}

/* Devices. */

static gp_status_t connect_interrupt(struct machine *machine, uint32_t gsi,
				     struct interrupt_line *line, struct error *error)
{
	struct kvm_irqfd request = {.gsi = gsi};

	if (gsi >= ARRAY_SIZE(machine->interrupt_fds) || machine->interrupt_fds[gsi] >= 0)
		return error_set(error, GP_ERR_INTERNAL, "interrupt %u cannot be given out", gsi);
	machine->interrupt_fds[gsi] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (machine->interrupt_fds[gsi] < 0)
		return error_set_errno(error, errno, "cannot create an eventfd for interrupt %u",
				       gsi);
	request.fd = (uint32_t)machine->interrupt_fds[gsi];
	if (ioctl(machine->vm_fd, KVM_IRQFD, &request))
		return error_set_errno(error, errno, "KVM refuses interrupt %u", gsi);
	*line = (struct interrupt_line){.event_fd = machine->interrupt_fds[gsi], .gsi = gsi};
	return GP_OK;
}

static gp_status_t add_legacy_devices(struct machine *machine, const struct machine_config *config,
				      const struct machine_end_request *end, struct error *error)
{
	struct console_config console = {
		.input_fd = config->console_input_fd,
		.output_fd = config->console_output_fd,
		.until = config->until,
		.until_size = config->until_size,
		.end = *end,
		.line = config->console_line,
		.line_context = config->console_line_context,
	};
	struct interrupt_line line;
	struct serial_output output;
	gp_status_t status;

	status = console_create(&console, &machine->console, error);
	if (!status)
		status = connect_interrupt(machine, SERIAL_COM1_GSI, &line, error);
	if (status)
		return status;
	output = console_output(machine->console);
	serial_init(&machine->serial, &output, &line);
	i8042_init(&machine->keyboard, end);
	cmos_init(&machine->clock, NULL);
	reset_port_init(&machine->reset_port, end);
	acpi_power_init(&machine->power, end);
	status = serial_attach(&machine->serial, &machine->ports, SERIAL_COM1_PORT, error);
	if (!status)
		status = i8042_attach(&machine->keyboard, &machine->ports, error);
	if (!status)
		status = cmos_attach(&machine->clock, &machine->ports, error);
	if (!status)
		status = reset_port_attach(&machine->reset_port, &machine->ports, error);
	if (!status)
		status = acpi_power_attach(&machine->power, &machine->ports, error);
	if (!status)
		status = console_connect(machine->console, &machine->serial, &machine->loop, error);
	return status;
}

static gp_status_t add_virtio_device(struct machine *machine, const struct virtio_device *device,
				     struct error *error)
{
	unsigned slot = machine->slot_count;
	struct virtio_mmio *transport = &machine->slots[slot];
	struct interrupt_line line;
	gp_status_t status;

	status = connect_interrupt(machine, virtio_mmio_slot_gsi(slot), &line, error);
	if (!status)
		status = virtio_mmio_init(transport, slot, device, &machine->ram, &line, error);
	if (status)
		return status;
	machine->slot_count++;
	for (unsigned queue = 0; queue < device->queue_count; queue++) {
		struct kvm_ioeventfd request = {
			.datamatch = queue,
			.addr = virtio_mmio_notify_gpa(slot),
			.len = 4,
			.fd = transport->notify_fds[queue],
			.flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
		};

		if (ioctl(machine->vm_fd, KVM_IOEVENTFD, &request))
			return error_set_errno(error, errno,
					       "KVM refuses the notification of slot %u", slot);
	}
	return virtio_mmio_attach(transport, &machine->memory_bus, &machine->loop, error);
}

static gp_status_t add_virtio_devices(struct machine *machine, struct error *error)
{
	struct virtio_device device;
	gp_status_t status;

	/* Disks come first, so that /dev/vda is the first -d whatever else there is. */
	for (unsigned i = 0; i < machine->disk_count; i++) {
		virtio_block_init(&machine->blocks[i], &machine->disks[i], &device);
		status = add_virtio_device(machine, &device, error);
		if (status)
			return status;
	}
	virtio_rng_init(&device);
	return add_virtio_device(machine, &device, error);
}

static gp_status_t write_acpi_tables(struct machine *machine, struct error *error)
{
	struct acpi_config config = {
		.vcpu_count = machine->vcpu_count,
		.serial_port = SERIAL_COM1_PORT,
		.serial_gsi = SERIAL_COM1_GSI,
		.device_count = machine->slot_count,
	};
	size_t room = ACPI_TABLES_END - ACPI_TABLES_BASE, used;
	AUTO_FREE uint8_t *tables = calloc(1, room);
	gp_status_t status;

	if (!tables)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the ACPI tables");
	for (unsigned i = 0; i < machine->slot_count; i++)
		config.devices[i] = (struct acpi_device){
			.gpa = virtio_mmio_slot_gpa(i),
			.size = VIRTIO_MMIO_SLOT_SIZE,
			.gsi = virtio_mmio_slot_gsi(i),
		};
	status = acpi_build(&config, ACPI_TABLES_BASE, tables, room, &used, error);
	if (!status && !guest_ram_write(&machine->ram, gpa(ACPI_TABLES_BASE), tables, used))
		status = error_set(error, GP_ERR_NO_MEMORY,
				   "the guest's memory has no room for the ACPI tables");
	return status;
}

static gp_status_t add_vcpus(struct machine *machine, const struct boot_state *state,
			     struct error *error)
{
	int sync = ioctl(machine->kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_SYNC_REGS);
	bool has_sync = sync > 0 && (sync & KVM_SYNC_X86_REGS) && (sync & KVM_SYNC_X86_SREGS);
	bool tsc_deadline =
		ioctl(machine->kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
	AUTO_FREE struct cpuid_table *supported = malloc(sizeof(*supported));
	AUTO_FREE struct cpuid_table *own = malloc(sizeof(*own));
	gp_status_t status;

	if (!supported || !own)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for CPUID tables");
	status = cpuid_supported(machine->kvm_fd, supported, error);
	for (unsigned i = 0; !status && i < machine->vcpu_count; i++) {
		*own = *supported;
		status = cpuid_for_vcpu(own, i, machine->vcpu_count, tsc_deadline, error);
		if (!status)
			status = vcpu_init(&machine->vcpus[i], machine->vm_fd, i, machine->run_size,
					   has_sync, own, state, &machine->environment, error);
		if (!status)
			machine->vcpus_made++;
	}
	return status;
}

static gp_status_t open_files(struct machine *machine, const struct machine_config *config,
			      struct error *error)
{
	gp_status_t status;

	if (config->memory < MACHINE_MEMORY_MIN || config->memory % 4096)
		return error_set(error, GP_ERR_OUT_OF_RANGE,
				 "%llu bytes of guest memory: give a multiple of 4 KiB, at least 1 "
				 "MiB, with -m",
				 (unsigned long long)config->memory);
	status = boot_files_open(config->kernel, config->initrd, config->command_line,
				 config->memory, &machine->files, error);
	for (unsigned i = 0; !status && i < config->disk_count; i++) {
		status = disk_image_open(&machine->disks[i], config->disks[i].path,
					 config->disks[i].read_only, error);
		if (!status)
			machine->disk_count++;
	}
	return status;
}

static gp_status_t build(struct machine *machine, const struct machine_config *config,
			 enum machine_fault *fault, struct error *error)
{
	struct machine_end_request end = {request_end, machine};
	struct boot_state state;
	gp_status_t status;

	/* Bad input is told before anything of a VM exists. */
	*fault = MACHINE_FAULT_INPUT;
	status = open_files(machine, config, error);
	if (status)
		return status;
	*fault = MACHINE_FAULT_HOST;
	status = open_kvm(machine, config->kvm_path ? config->kvm_path : "/dev/kvm", error);
	if (status)
		return status;
	*fault = MACHINE_FAULT_INPUT;
	status = check_vcpu_count(machine, config->vcpus, error);
	if (status)
		return status;
	*fault = MACHINE_FAULT_HOST;
	machine->vcpu_count = config->vcpus;
	machine->environment = (struct vcpu_environment){
		.ports = &machine->ports,
		.memory = &machine->memory_bus,
		.guest_memory = &machine->ram.memory,
		.end = end,
		.callbacks = {on_stop, on_end, on_thread_start, machine},
	};
	machine->end_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (machine->end_fd < 0)
		return error_set_errno(error, errno, "cannot create an eventfd");
	status = guest_ram_init(&machine->ram, config->memory, error);
	if (status)
		return status;
	machine->has_ram = true;
	status = event_loop_init(&machine->loop, error);
	if (status)
		return status;
	machine->has_loop = true;
	status = create_vm(machine, error);
	if (!status)
		status = add_legacy_devices(machine, config, &end, error);
	if (!status)
		status = add_virtio_devices(machine, error);
	if (!status)
		status = write_acpi_tables(machine, error);
	if (!status)
		status = boot_load(&machine->files, &machine->ram, ACPI_TABLES_BASE, &state, error);
	if (status)
		return status;
	machine->kernel_start = machine->files.kernel.start;
	machine->kernel_end = machine->files.kernel.end;
	boot_files_close(&machine->files);
	return add_vcpus(machine, &state, error);
}

gp_status_t machine_create(const struct machine_config *config, struct machine **out,
			   enum machine_fault *fault, struct error *error)
{
	enum machine_fault whose = MACHINE_FAULT_HOST;
	struct machine *machine = calloc(1, sizeof(*machine));
	gp_status_t status;

	if (!machine)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a machine");
	machine->kvm_fd = machine->vm_fd = machine->end_fd = -1;
	machine->files.initrd_fd = -1;
	machine->sandbox = config->sandbox;
	for (size_t i = 0; i < ARRAY_SIZE(machine->interrupt_fds); i++)
		machine->interrupt_fds[i] = -1;
	vcpu_gate_init(&machine->gate);
	sampler_target_init(&machine->target, &target_ops);
	status = build(machine, config, &whose, error);
	if (status) {
		machine_destroy(machine);
		if (fault)
			*fault = whose;
		return status;
	}
	*out = machine;
	return GP_OK;
}

/* Ends every thread; all vCPUs have left the guest afterwards. */
static void stop_threads(struct machine *machine)
{
	for (unsigned i = 0; i < machine->vcpus_started; i++)
		atomic_store(&machine->vcpus[i].stop_requested, true);
	vcpu_gate_open(&machine->gate); /* those that still wait there see the request */
	for (unsigned i = 0; i < machine->vcpus_started; i++)
		vcpu_stop(&machine->vcpus[i]);
	machine->vcpus_started = 0;
	if (machine->loop_runs) {
		event_loop_stop(&machine->loop);
		pthread_join(machine->loop_thread, NULL);
		machine->loop_runs = false;
	}
	if (machine->console)
		console_finish(machine->console);
}

void machine_destroy(struct machine *machine)
{
	if (!machine)
		return;
	stop_threads(machine);
	for (unsigned i = 0; i < machine->vcpus_made; i++)
		vcpu_deinit(&machine->vcpus[i]);
	for (unsigned i = 0; i < machine->slot_count; i++)
		virtio_mmio_deinit(&machine->slots[i]);
	for (unsigned i = 0; i < machine->disk_count; i++)
		disk_image_close(&machine->disks[i]);
	console_destroy(machine->console);
	if (machine->has_loop)
		event_loop_deinit(&machine->loop);
	for (size_t i = 0; i < ARRAY_SIZE(machine->interrupt_fds); i++)
		if (machine->interrupt_fds[i] >= 0)
			close(machine->interrupt_fds[i]);
	if (machine->vm_fd >= 0)
		close(machine->vm_fd);
	if (machine->kvm_fd >= 0)
		close(machine->kvm_fd);
	if (machine->end_fd >= 0)
		close(machine->end_fd);
	if (machine->has_ram)
		guest_ram_deinit(&machine->ram);
	boot_files_close(&machine->files);
	sampler_target_deinit(&machine->target);
	vcpu_gate_deinit(&machine->gate);
	free(machine);
}

static void *loop_main(void *argument)
{
	struct machine *machine = argument;
	gp_status_t status = GP_OK;

	pthread_setname_np(pthread_self(), "devices");
	if (machine->sandbox)
		status = sandbox_enter_thread(SANDBOX_EVENT_LOOP, NULL, &machine->loop_error);
	if (!status)
		status = event_loop_run(&machine->loop, &machine->loop_error);
	if (status)
		machine_request_end(machine, MACHINE_ERROR);
	return NULL;
}

gp_status_t machine_start(struct machine *machine, struct error *error)
{
	gp_status_t status = GP_OK;
	sigset_t all, old;
	int failed;

	while (!status && machine->vcpus_started < machine->vcpu_count) {
		status = vcpu_start(&machine->vcpus[machine->vcpus_started], &machine->gate, error);
		if (!status)
			machine->vcpus_started++;
	}
	if (status)
		return status;
	/* Signals are the caller's business: the device thread gets none. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&machine->loop_thread, NULL, loop_main, machine);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed)
		return error_set_errno(error, failed, "cannot start the device thread");
	machine->loop_runs = true;
	return GP_OK;
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Waits until something ends the machine. */
static void wait_for_end(struct machine *machine, const struct machine_limits *limits)
{
	uint64_t start = monotonic_ns(), limit = 0;
	enum machine_end at_limit = MACHINE_RUNNING;
	struct pollfd requested = {.fd = machine->end_fd, .events = POLLIN};

	if (limits->duration_ns) {
		limit = limits->duration_ns;
		at_limit = MACHINE_DURATION;
	}
	if (limits->timeout_ns && (!limit || limits->timeout_ns < limit)) {
		limit = limits->timeout_ns;
		at_limit = MACHINE_TIMED_OUT;
	}
	while (atomic_load(&machine->end) == MACHINE_RUNNING) {
		struct timespec left, *timeout = NULL;

		if (limit) {
			uint64_t passed = monotonic_ns() - start;
			uint64_t rest = passed < limit ? limit - passed : 0;

			left.tv_sec = (time_t)(rest / UINT64_C(1000000000));
			left.tv_nsec = (long)(rest % UINT64_C(1000000000));
			timeout = &left;
			if (!rest) {
				machine_request_end(machine, at_limit);
				break;
			}
		}
		ppoll(&requested, 1, timeout, NULL);
	}
}

enum machine_end machine_run(struct machine *machine, const struct machine_limits *limits,
			     struct error *error)
{
	enum machine_end end;

	vcpu_gate_open(&machine->gate);
	wait_for_end(machine, limits);
	stop_threads(machine);
	end = (enum machine_end)atomic_load(&machine->end);
	if (end == MACHINE_ERROR && error) {
		*error = machine->loop_error;
		for (unsigned i = 0; i < machine->vcpu_count && !error->status; i++)
			*error = machine->vcpus[i].error;
	}
	return end;
}

struct sampler_target *machine_target(struct machine *machine)
{
	return &machine->target;
}

void machine_kernel_range(const struct machine *machine, uint64_t *start, uint64_t *end)
{
	*start = machine->kernel_start;
	*end = machine->kernel_end;
}

uint64_t machine_console_dropped(const struct machine *machine)
{
	return console_dropped_bytes(machine->console);
}
