/* The chipset's reset control register at port 0xcf9.
 *
 * Bit 1 chooses a hard reset, bit 2 going from 0 to 1 does it: MACHINE_RESET. Any thread.
 */
#ifndef VMM_DEVICES_RESET_PORT_H
#define VMM_DEVICES_RESET_PORT_H

#include "vmm/devices/io_bus.h"
#include "vmm/devices/machine_end.h"

#include <stdatomic.h>
#include <stdint.h>

#define RESET_PORT 0xcf9

struct reset_port {
	struct machine_end_request end;
	_Atomic uint8_t value;
};

void reset_port_init(struct reset_port *port, const struct machine_end_request *end);
gp_status_t reset_port_attach(struct reset_port *port, struct io_bus *ports, struct error *error);

#endif
