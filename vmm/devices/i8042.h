/* The PC keyboard controller, as far as a machine without a keyboard needs it.
 *
 * Ports 0x60 (data) and 0x64 (status and command). Answers the self test and the interface
 * tests so that a guest that looks for a keyboard finds in microseconds that none is
 * there (nothing ever answers behind the ports). Command 0xfe pulses the CPU's reset line:
 * GUEST_RESET. Raises no interrupts. Any thread.
 */
#ifndef VMM_DEVICES_I8042_H
#define VMM_DEVICES_I8042_H

#include "vmm/devices/io_bus.h"
#include "kvm/guest_end.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define I8042_DATA_PORT 0x60
#define I8042_COMMAND_PORT 0x64

struct i8042 {
	pthread_mutex_t lock;
	struct guest_end_event *end;
	uint8_t configuration; /* the "command byte" */
	uint8_t command;       /* whose parameter is awaited at the data port; 0: none */
	uint8_t output;        /* the byte the guest reads at the data port next */
	bool output_full;
};

void i8042_init(struct i8042 *controller, struct guest_end_event *end);
void i8042_deinit(struct i8042 *controller);
gp_status_t i8042_attach(struct i8042 *controller, struct io_bus *ports, struct error *error);

#endif
