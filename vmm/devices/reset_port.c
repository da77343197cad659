#include "vmm/devices/reset_port.h"

#include <string.h>

#define RESET_CPU 0x04 /* the rest of the register only chooses the kind of reset */
#define KEPT_BITS 0x0e

void reset_port_init(struct reset_port *port, const struct machine_end_request *end)
{
	port->end = *end;
	atomic_init(&port->value, 0);
}

static void port_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct reset_port *port = device;

	(void)offset;
	memset(data, 0xff, size);
	*(uint8_t *)data = atomic_load(&port->value);
}

static void port_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct reset_port *port = device;
	uint8_t value = *(const uint8_t *)data & KEPT_BITS;
	uint8_t before = atomic_exchange(&port->value, value);

	(void)offset;
	(void)size;
	if ((value & RESET_CPU) && !(before & RESET_CPU))
		machine_end_request(&port->end, MACHINE_RESET);
}

gp_status_t reset_port_attach(struct reset_port *port, struct io_bus *ports, struct error *error)
{
	return io_bus_add(ports, &(struct io_region){RESET_PORT, 1, port, port_read, port_write},
			  error);
}
