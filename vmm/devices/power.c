#include "vmm/devices/power.h"

#include <string.h>

#define SLEEP_ENABLE 0x20
#define RESET_CPU 0x04 /* the rest of the register only chooses the kind of reset */
#define RESET_CONTROL_BITS 0x0e

void power_init(struct power *power, struct guest_end_event *end)
{
	power->end = end;
	atomic_init(&power->reset_control, 0);
}

static void acpi_read(void *device, uint64_t offset, void *data, unsigned size)
{
	(void)device;
	(void)offset;
	/* SLEEP_STATUS never says "woken": there is no sleep to wake from. */
	memset(data, 0, size);
}

static void acpi_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	const struct power *power = device;
	uint64_t port = POWER_SLEEP_CONTROL_PORT + offset;
	uint8_t value = *(const uint8_t *)data;

	(void)size;
	/* SLEEP_CONTROL (ACPI 6.5, 4.8.3.7): type in bits 2 to 4, bit 5 enters it. */
	if (port == POWER_SLEEP_CONTROL_PORT && (value & SLEEP_ENABLE) &&
	    (value >> 2 & 7) == POWER_SLEEP_TYPE_S5)
		guest_end_request(power->end, GUEST_POWERED_OFF);
	else if (port == POWER_RESET_PORT && value == POWER_RESET_VALUE)
		guest_end_request(power->end, GUEST_RESET);
}

static void control_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct power *power = device;

	(void)offset;
	memset(data, 0xff, size);
	*(uint8_t *)data = atomic_load(&power->reset_control);
}

static void control_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct power *power = device;
	uint8_t value = *(const uint8_t *)data & RESET_CONTROL_BITS;
	uint8_t before = atomic_exchange(&power->reset_control, value);

	(void)offset;
	(void)size;
	if ((value & RESET_CPU) && !(before & RESET_CPU))
		guest_end_request(power->end, GUEST_RESET);
}

gp_status_t power_attach(struct power *power, struct io_bus *ports, struct error *error)
{
	const struct io_region acpi = {POWER_SLEEP_CONTROL_PORT, 3, power, acpi_read, acpi_write};
	const struct io_region control = {POWER_RESET_CONTROL_PORT, 1, power, control_read,
					  control_write};
	gp_status_t status = io_bus_add(ports, &acpi, error);

	return status ? status : io_bus_add(ports, &control, error);
}
