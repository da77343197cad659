#include "vmm/machine_devices.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "vmm/devices/virtio_rng.h"

#include <errno.h>
#include <linux/kvm.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

static gp_status_t connect_interrupt(struct machine_devices *devices, int vm_fd, uint32_t gsi,
				     struct interrupt_line *line, struct error *error)
{
	struct kvm_irqfd request = {.gsi = gsi};

	if (gsi >= ARRAY_SIZE(devices->interrupt_fds) || devices->interrupt_fds[gsi] >= 0)
		return error_set(error, GP_ERR_INTERNAL, "interrupt %u cannot be given out", gsi);
	devices->interrupt_fds[gsi] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (devices->interrupt_fds[gsi] < 0)
		return error_set_errno(error, errno, "cannot create an eventfd for interrupt %u",
				       gsi);
	request.fd = (uint32_t)devices->interrupt_fds[gsi];
	if (ioctl(vm_fd, KVM_IRQFD, &request))
		return error_set_errno(error, errno, "KVM refuses interrupt %u", gsi);
	*line = (struct interrupt_line){.event_fd = devices->interrupt_fds[gsi], .gsi = gsi};
	return GP_OK;
}

static gp_status_t add_legacy_devices(struct machine_devices *devices,
				      const struct machine_config *config, int vm_fd,
				      struct guest_end_event *end, struct error *error)
{
	struct console_config console = {
		.input_fd = config->console_input_fd,
		.output_fd = config->console_output_fd,
		.until = config->until,
		.until_size = config->until_size,
		.end = end,
		.line = config->console_line,
		.line_context = config->console_line_context,
		.status = config->console_status,
		.status_context = config->console_status_context,
	};
	struct interrupt_line line;
	struct serial_output output;
	gp_status_t status;

	status = console_create(&console, &devices->console, error);
	if (!status)
		status = connect_interrupt(devices, vm_fd, SERIAL_COM1_GSI, &line, error);
	if (status)
		return status;
	output = console_output(devices->console);
	serial_init(&devices->serial, &output, &line);
	i8042_init(&devices->keyboard, end);
	cmos_init(&devices->clock, NULL);
	power_init(&devices->power, end);
	status = serial_attach(&devices->serial, &devices->ports, SERIAL_COM1_PORT, error);
	if (!status)
		status = i8042_attach(&devices->keyboard, &devices->ports, error);
	if (!status)
		status = cmos_attach(&devices->clock, &devices->ports, error);
	if (!status)
		status = power_attach(&devices->power, &devices->ports, error);
	if (!status)
		status = console_connect(devices->console, &devices->serial, &devices->loop, error);
	return status;
}

static gp_status_t add_virtio_device(struct machine_devices *devices,
				     const struct virtio_device *device, int vm_fd,
				     const struct guest_ram *ram, struct error *error)
{
	unsigned slot = devices->slot_count;
	struct virtio_mmio *transport = &devices->slots[slot];
	struct interrupt_line line;
	gp_status_t status;

	status = connect_interrupt(devices, vm_fd, virtio_mmio_slot_gsi(slot), &line, error);
	if (!status)
		status = virtio_mmio_init(transport, slot, device, ram, &line, error);
	if (status)
		return status;
	devices->slot_count++;
	for (unsigned queue = 0; queue < device->queue_count; queue++) {
		struct kvm_ioeventfd request = {
			.datamatch = queue,
			.addr = virtio_mmio_notify_gpa(slot),
			.len = 4,
			.fd = transport->notify_fds[queue],
			.flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
		};

		if (ioctl(vm_fd, KVM_IOEVENTFD, &request))
			return error_set_errno(error, errno,
					       "KVM refuses the notification of slot %u", slot);
	}
	return virtio_mmio_attach(transport, &devices->memory, &devices->loop, error);
}

static gp_status_t add_virtio_devices(struct machine_devices *devices, int vm_fd,
				      const struct guest_ram *ram, struct error *error)
{
	struct virtio_device device;
	gp_status_t status;

	/* Disks come first, so that /dev/vda is the first -d whatever else there is. */
	for (unsigned i = 0; i < devices->disk_count; i++) {
		virtio_block_init(&devices->blocks[i], &devices->disks[i], &device);
		status = add_virtio_device(devices, &device, vm_fd, ram, error);
		if (status)
			return status;
	}
	virtio_rng_init(&device);
	return add_virtio_device(devices, &device, vm_fd, ram, error);
}

static gp_status_t write_acpi_tables(const struct machine_devices *devices,
				     const struct machine_config *config,
				     const struct guest_ram *ram, struct error *error)
{
	struct acpi_config tables_config = {
		.vcpu_count = config->vcpus,
		.serial_port = SERIAL_COM1_PORT,
		.serial_gsi = SERIAL_COM1_GSI,
		.device_count = devices->slot_count,
	};
	size_t room = ACPI_TABLES_END - ACPI_TABLES_BASE, used;
	AUTO_FREE uint8_t *tables = calloc(1, room);
	gp_status_t status;

	if (!tables)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the ACPI tables");
	for (unsigned i = 0; i < devices->slot_count; i++)
		tables_config.devices[i] = (struct acpi_device){
			.gpa = virtio_mmio_slot_gpa(i),
			.size = VIRTIO_MMIO_SLOT_SIZE,
			.gsi = virtio_mmio_slot_gsi(i),
		};
	status = acpi_build(&tables_config, ACPI_TABLES_BASE, tables, room, &used, error);
	if (!status && !guest_ram_write(ram, gpa(ACPI_TABLES_BASE), tables, used))
		status = error_set(error, GP_ERR_NO_MEMORY,
				   "the guest's memory has no room for the ACPI tables");
	return status;
}

gp_status_t machine_devices_init(struct machine_devices *devices,
				 const struct machine_config *config, struct error *error)
{
	gp_status_t status = GP_OK;

	*devices = (struct machine_devices){0};
	for (unsigned i = 0; !status && i < config->disk_count; i++) {
		status = disk_image_open(&devices->disks[i], config->disks[i].path,
					 config->disks[i].read_only, error);
		if (!status)
			devices->disk_count++;
	}
	return status;
}

gp_status_t machine_devices_add(struct machine_devices *devices,
				const struct machine_config *config, int vm_fd,
				const struct guest_ram *ram, struct guest_end_event *end,
				struct error *error)
{
	gp_status_t status = event_loop_init(&devices->loop, error);

	for (size_t i = 0; i < ARRAY_SIZE(devices->interrupt_fds); i++)
		devices->interrupt_fds[i] = -1;
	if (status)
		return status;
	devices->has_loop = true;
	status = add_legacy_devices(devices, config, vm_fd, end, error);
	if (!status)
		status = add_virtio_devices(devices, vm_fd, ram, error);
	if (!status)
		status = write_acpi_tables(devices, config, ram, error);
	return status;
}

void machine_devices_deinit(struct machine_devices *devices)
{
	for (unsigned i = 0; i < devices->slot_count; i++)
		virtio_mmio_deinit(&devices->slots[i]);
	for (unsigned i = 0; i < devices->disk_count; i++)
		disk_image_close(&devices->disks[i]);
	console_destroy(devices->console);
	if (!devices->has_loop)
		return; /* machine_devices_add() was not called, or did not get far */
	event_loop_deinit(&devices->loop);
	for (size_t i = 0; i < ARRAY_SIZE(devices->interrupt_fds); i++)
		close_fd(&devices->interrupt_fds[i]);
}
