/* A 16550A serial port: the guest's console.
 *
 * Registers as in National Semiconductor's PC16550D data sheet: sixteen-byte receive
 * FIFO, interrupts for received data, FIFO timeout, line status, transmitter empty and
 * modem status, loopback. The transmitter is infinitely fast: a byte written is handed to
 * the output at once and the transmitter is empty again.
 *
 * Threads: every function may be called from any thread; the port has its own lock, which
 * is held while `output.write` runs. Each byte the guest sends costs a VM exit, so `write`
 * has to be short and must not block.
 */
#ifndef VMM_DEVICES_SERIAL_H
#define VMM_DEVICES_SERIAL_H

#include "vmm/devices/interrupt_line.h"
#include "vmm/devices/io_bus.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERIAL_COM1_PORT 0x3f8
#define SERIAL_COM1_GSI 4
#define SERIAL_PORTS 8
#define SERIAL_FIFO_SIZE 16

/* Where the guest's output goes. */
struct serial_output {
	/* Required. The port's lock is held; do not call back into the port. */
	void (*write)(void *context, const uint8_t *bytes, size_t size);
	void *context;
};

/* Who feeds the port's input. */
struct serial_input {
	/* Optional. A serial_receive() before took less than it was given and there is room
	 * again. On a vCPU's thread with the port's lock held: only signal, do not call back. */
	void (*room)(void *context);
	void *context;
};

struct serial {
	pthread_mutex_t lock;
	struct interrupt_line interrupt;
	struct serial_output output;
	struct serial_input input;
	uint16_t divisor;
	uint8_t interrupt_enable;
	uint8_t line_control;
	uint8_t modem_control;
	uint8_t modem_delta; /* low four bits of the modem status register */
	uint8_t scratch;
	uint8_t trigger_level; /* bytes in the FIFO that raise "data available" */
	bool fifo_enabled;
	bool overrun;
	bool transmitter_empty_pending;
	bool input_is_waiting;
	bool interrupt_asserted;
	unsigned received_first;
	unsigned received_count;
	uint8_t received[SERIAL_FIFO_SIZE];
};

/* `output` and `interrupt` are copied. */
void serial_init(struct serial *serial, const struct serial_output *output,
		 const struct interrupt_line *interrupt);
void serial_deinit(struct serial *serial);

/* Before the machine runs. */
void serial_set_input(struct serial *serial, const struct serial_input *input);

/* Claims the eight ports at `base`. */
gp_status_t serial_attach(struct serial *serial, struct io_bus *ports, uint16_t base,
			  struct error *error);

/* Gives input to the guest; returns how many of `size` bytes were taken (0..size). When
 * that is fewer, input.room is called once there is room. */
size_t serial_receive(struct serial *serial, const uint8_t *bytes, size_t size);

#endif
