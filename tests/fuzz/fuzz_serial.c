/* Any sequence of port accesses and input: the serial port must take no more than it has
 * room for, and come back to work when it is programmed anew. */
#include "vmm/devices/serial.h"

#include <stdlib.h>
#include <string.h>

static size_t written;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(void *context, const uint8_t *bytes, size_t size)
{
	(void)context;
	(void)bytes;
	written += size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t start[][2] = {{3, 0x03}, {4, 0x0b}, {2, 0x07}, {1, 0x01}};
	struct serial serial;
	struct io_bus bus = {.count = 0};
	uint8_t byte;

	serial_init(&serial, &(struct serial_output){count, NULL},
		    &(struct interrupt_line){.event_fd = -1});
	if (serial_attach(&serial, &bus, SERIAL_COM1_PORT, NULL))
		abort();
	for (size_t i = 0; i + 1 < size; i += 2) {
		uint64_t value = data[i + 1];
		uint16_t port = SERIAL_COM1_PORT + (data[i] & 7);

		if (data[i] & 0x40)
			serial_receive(&serial, data + i, data[i + 1] % (size - i));
		else if (data[i] & 0x80)
			io_bus_write(&bus, port, &value, 1u << (data[i] >> 4 & 3));
		else
			io_bus_read(&bus, port, &value, 1u << (data[i] >> 4 & 3));
		if (serial.received_count > SERIAL_FIFO_SIZE)
			abort();
	}
	for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++)
		io_bus_write(&bus, SERIAL_COM1_PORT + start[i][0], &start[i][1], 1);
	written = 0;
	io_bus_write(&bus, SERIAL_COM1_PORT, "x", 1);
	if (written != 1 || serial_receive(&serial, (const uint8_t *)"y", 1) != 1)
		abort();
	io_bus_read(&bus, SERIAL_COM1_PORT, &byte, 1);
	if (byte != 'y')
		abort();
	serial_deinit(&serial);
	return 0;
}
