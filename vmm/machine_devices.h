/* All devices of a machine, wired to its VM: buses, event loop, console, disks, tables.
 *
 * Made once, before any vCPU runs, and not changed afterwards; see docs/devices.md for the
 * addresses. The event loop is to be run by a thread of the machine.
 */
#ifndef VMM_MACHINE_DEVICES_H
#define VMM_MACHINE_DEVICES_H

#include "base/error.h"
#include "vmm/boot/acpi.h"
#include "vmm/devices/cmos.h"
#include "vmm/devices/console.h"
#include "vmm/devices/disk_image.h"
#include "vmm/devices/event_loop.h"
#include "vmm/devices/guest_ram.h"
#include "vmm/devices/i8042.h"
#include "vmm/devices/io_bus.h"
#include "vmm/machine_config.h"
#include "vmm/devices/power.h"
#include "vmm/devices/serial.h"
#include "vmm/devices/virtio_block.h"
#include "vmm/devices/virtio_mmio.h"

#include <stdbool.h>

#define IO_APIC_INPUTS 24

struct machine_devices {
	struct io_bus ports;
	struct io_bus memory;
	struct event_loop loop;
	bool has_loop;
	int interrupt_fds[IO_APIC_INPUTS]; /* -1: free */

	struct console *console;
	struct serial serial;
	struct i8042 keyboard;
	struct cmos clock;
	struct power power;

	unsigned disk_count; /* opened */
	unsigned slot_count; /* initialised */
	struct disk_image disks[MACHINE_DISKS_MAX];
	struct virtio_block blocks[MACHINE_DISKS_MAX];
	struct virtio_mmio slots[VIRTIO_MMIO_SLOTS_MAX];
};

/* Opens and locks the disks; the rest comes with machine_devices_add(). */
gp_status_t machine_devices_init(struct machine_devices *devices,
				 const struct machine_config *config, struct error *error);

/* Makes all devices and writes the ACPI tables to `ram`. `end` is copied. */
gp_status_t machine_devices_add(struct machine_devices *devices,
				const struct machine_config *config, int vm_fd,
				const struct guest_ram *ram, struct guest_end_event *end,
				struct error *error);

/* After any of the above, also when it failed; of a zeroed structure, too. */
void machine_devices_deinit(struct machine_devices *devices);

#endif
