/* The registers by which a guest powers off or resets its machine: ACPI's, and the chipset's reset
 * control register at port 0xcf9. Any thread. */
#ifndef VMM_DEVICES_POWER_H
#define VMM_DEVICES_POWER_H

#include "kvm/guest_end.h"
#include "vmm/devices/io_bus.h"

#include <stdatomic.h>
#include <stdint.h>

/* ACPI's registers, which the FADT announces (vmm/boot/acpi.c). */
#define POWER_SLEEP_CONTROL_PORT 0x600
#define POWER_SLEEP_STATUS_PORT 0x601
#define POWER_RESET_PORT 0x602
#define POWER_RESET_VALUE 1
#define POWER_SLEEP_TYPE_S5 5

/* Bit 1 chooses a hard reset, bit 2 going from 0 to 1 does it. */
#define POWER_RESET_CONTROL_PORT 0xcf9

struct power {
	struct guest_end_event *end; /* GUEST_POWERED_OFF or GUEST_RESET */
	_Atomic uint8_t reset_control;
};

void power_init(struct power *power, struct guest_end_event *end);
gp_status_t power_attach(struct power *power, struct io_bus *ports, struct error *error);

#endif
