/* Section and table numbers are those of the PC16550D data sheet (National Semiconductor,
 * June 1995). */
#include "vmm/devices/serial.h"

#include <string.h>

enum serial_register {
	DATA = 0,             /* RBR, THR; DLL while LCR_DIVISOR_LATCH */
	INTERRUPT_ENABLE = 1, /* DLM while LCR_DIVISOR_LATCH */
	INTERRUPT_ID = 2,     /* FCR when written */
	LINE_CONTROL = 3,
	MODEM_CONTROL = 4,
	LINE_STATUS = 5,
	MODEM_STATUS = 6,
	SCRATCH = 7,
};

#define IER_RECEIVED 0x01
#define IER_TRANSMITTER_EMPTY 0x02
#define IER_LINE_STATUS 0x04
#define IER_MODEM_STATUS 0x08
#define IER_BITS 0x0f

/* Table III. */
#define IIR_NONE 0x01
#define IIR_LINE_STATUS 0x06
#define IIR_RECEIVED 0x04
#define IIR_TIMEOUT 0x0c
#define IIR_TRANSMITTER_EMPTY 0x02
#define IIR_MODEM_STATUS 0x00
#define IIR_FIFO_ENABLED 0xc0

#define FCR_ENABLE 0x01
#define FCR_CLEAR_RECEIVER 0x02

#define LCR_DIVISOR_LATCH 0x80

#define MCR_DTR 0x01
#define MCR_RTS 0x02
#define MCR_OUT1 0x04
#define MCR_OUT2 0x08
#define MCR_LOOP 0x10
#define MCR_BITS 0x1f

#define LSR_DATA_READY 0x01
#define LSR_OVERRUN 0x02
#define LSR_TRANSMITTER_EMPTY 0x60 /* holding register and shift register */

#define MSR_CTS 0x10
#define MSR_DSR 0x20
#define MSR_RI 0x40
#define MSR_DCD 0x80

void serial_init(struct serial *serial, const struct serial_output *output,
		 const struct interrupt_line *interrupt)
{
	*serial = (struct serial){
		.interrupt = *interrupt,
		.output = *output,
		.divisor = 12, /* 9600 Bd; no effect */
		.trigger_level = 1,
	};
	pthread_mutex_init(&serial->lock, NULL);
}

void serial_deinit(struct serial *serial)
{
	pthread_mutex_destroy(&serial->lock);
}

void serial_set_input(struct serial *serial, const struct serial_input *input)
{
	serial->input = *input;
}

/* The pending interrupt of the highest priority (table III). The receiver's time-out of
 * four character times is taken to be over as soon as bytes stop coming. */
static uint8_t pending_interrupt(const struct serial *serial)
{
	uint8_t enabled = serial->interrupt_enable;

	if ((enabled & IER_LINE_STATUS) && serial->overrun)
		return IIR_LINE_STATUS;
	if ((enabled & IER_RECEIVED) && serial->received_count > 0) {
		if (!serial->fifo_enabled || serial->received_count >= serial->trigger_level)
			return IIR_RECEIVED;
		return IIR_TIMEOUT;
	}
	if ((enabled & IER_TRANSMITTER_EMPTY) && serial->transmitter_empty_pending)
		return IIR_TRANSMITTER_EMPTY;
	if ((enabled & IER_MODEM_STATUS) && serial->modem_delta)
		return IIR_MODEM_STATUS;
	return IIR_NONE;
}

/* On a PC the interrupt pin reaches the controller through a gate that OUT2 opens; in
 * loopback OUT2 is inactive (8.6.4). The controller sees edges: one per rise. A cause that comes
 * while the line is high needs no edge of its own, for a handler reads the interrupt
 * register until nothing is pending. */
static void update_interrupt(struct serial *serial)
{
	bool asserted = (serial->modem_control & (MCR_OUT2 | MCR_LOOP)) == MCR_OUT2 &&
			pending_interrupt(serial) != IIR_NONE;

	if (asserted && !serial->interrupt_asserted)
		interrupt_line_raise(&serial->interrupt);
	serial->interrupt_asserted = asserted;
}

static unsigned receive_capacity(const struct serial *serial)
{
	return serial->fifo_enabled ? SERIAL_FIFO_SIZE : 1;
}

/* Whether the guest is ready for input, as the sender sees it: RTS, or the interrupt for it.
 * A driver clears the FIFO while it starts; input piped into the machine that came before
 * would be lost. In loopback the receiver is not connected. */
static bool receiver_is_open(const struct serial *serial)
{
	return !(serial->modem_control & MCR_LOOP) &&
	       ((serial->modem_control & MCR_RTS) || (serial->interrupt_enable & IER_RECEIVED));
}

/* Waits for an empty FIFO, so that one call fills it again. */
static void tell_room(struct serial *serial)
{
	if (!serial->input_is_waiting || serial->received_count > 0 || !receiver_is_open(serial))
		return;
	serial->input_is_waiting = false;
	if (serial->input.room)
		serial->input.room(serial->input.context);
}

static void receive_byte(struct serial *serial, uint8_t byte)
{
	unsigned at = (serial->received_first + serial->received_count) % SERIAL_FIFO_SIZE;

	if (serial->received_count >= receive_capacity(serial)) {
		serial->overrun = true;
		return;
	}
	serial->received[at] = byte;
	serial->received_count++;
}

static uint8_t take_received(struct serial *serial)
{
	uint8_t byte;

	if (serial->received_count == 0)
		return 0;
	byte = serial->received[serial->received_first];
	serial->received_first = (serial->received_first + 1) % SERIAL_FIFO_SIZE;
	serial->received_count--;
	return byte;
}

size_t serial_receive(struct serial *serial, const uint8_t *bytes, size_t size)
{
	size_t taken = 0;

	pthread_mutex_lock(&serial->lock);
	while (taken < size && receiver_is_open(serial) &&
	       serial->received_count < receive_capacity(serial))
		receive_byte(serial, bytes[taken++]);
	serial->input_is_waiting = taken < size;
	update_interrupt(serial);
	pthread_mutex_unlock(&serial->lock);
	return taken;
}

/* The terminal is always there and ready; in loopback the port's own outputs (8.6.4). */
static uint8_t modem_lines(const struct serial *serial)
{
	uint8_t control = serial->modem_control;

	if (!(control & MCR_LOOP))
		return MSR_CTS | MSR_DSR | MSR_DCD;
	return (control & MCR_RTS ? MSR_CTS : 0) | (control & MCR_DTR ? MSR_DSR : 0) |
	       (control & MCR_OUT1 ? MSR_RI : 0) | (control & MCR_OUT2 ? MSR_DCD : 0);
}

static void write_modem_control(struct serial *serial, uint8_t value)
{
	uint8_t before = modem_lines(serial);
	uint8_t changed;

	serial->modem_control = value & MCR_BITS;
	changed = before ^ modem_lines(serial);
	/* The ring indicator's delta bit is set by its trailing edge only (8.7). */
	if ((changed & MSR_RI) && !(before & MSR_RI))
		changed &= (uint8_t)~MSR_RI;
	serial->modem_delta |= changed >> 4;
}

static void write_fifo_control(struct serial *serial, uint8_t value)
{
	static const uint8_t trigger_levels[] = {1, 4, 8, 14}; /* 8.4 */
	bool enable = value & FCR_ENABLE;

	if (enable != serial->fifo_enabled || (value & FCR_CLEAR_RECEIVER))
		serial->received_first = serial->received_count = 0;
	serial->fifo_enabled = enable;
	serial->trigger_level = trigger_levels[value >> 6];
}

static void serial_write_register(struct serial *serial, enum serial_register where, uint8_t value)
{
	bool latch = serial->line_control & LCR_DIVISOR_LATCH;
	uint8_t enabled_newly;

	switch (where) {
	case DATA:
		if (latch) {
			serial->divisor = (serial->divisor & 0xff00) | value;
			break;
		}
		if (serial->modem_control & MCR_LOOP)
			receive_byte(serial, value);
		else
			serial->output.write(serial->output.context, &value, 1);
		serial->transmitter_empty_pending = true;
		break;
	case INTERRUPT_ENABLE:
		if (latch) {
			serial->divisor = (uint16_t)(value << 8 | (serial->divisor & 0xff));
			break;
		}
		/* Enabling the interrupt while the transmitter is empty raises it. */
		enabled_newly = value & ~serial->interrupt_enable;
		if (enabled_newly & IER_TRANSMITTER_EMPTY)
			serial->transmitter_empty_pending = true;
		serial->interrupt_enable = value & IER_BITS;
		break;
	case INTERRUPT_ID:
		write_fifo_control(serial, value);
		break;
	case LINE_CONTROL:
		serial->line_control = value;
		break;
	case MODEM_CONTROL:
		write_modem_control(serial, value);
		break;
	case SCRATCH:
		serial->scratch = value;
		break;
	case LINE_STATUS:
	case MODEM_STATUS:
		break; /* read-only; writing is for factory tests */
	}
}

static uint8_t serial_read_register(struct serial *serial, enum serial_register where)
{
	bool latch = serial->line_control & LCR_DIVISOR_LATCH;
	uint8_t value = 0xff;

	switch (where) {
	case DATA:
		value = latch ? serial->divisor & 0xff : take_received(serial);
		break;
	case INTERRUPT_ENABLE:
		value = latch ? serial->divisor >> 8 : serial->interrupt_enable;
		break;
	case INTERRUPT_ID:
		value = pending_interrupt(serial);
		/* Reading it is what resets this one interrupt (table III). */
		if (value == IIR_TRANSMITTER_EMPTY)
			serial->transmitter_empty_pending = false;
		if (serial->fifo_enabled)
			value |= IIR_FIFO_ENABLED;
		break;
	case LINE_CONTROL:
		value = serial->line_control;
		break;
	case MODEM_CONTROL:
		value = serial->modem_control;
		break;
	case LINE_STATUS:
		value = LSR_TRANSMITTER_EMPTY;
		if (serial->received_count > 0)
			value |= LSR_DATA_READY;
		if (serial->overrun)
			value |= LSR_OVERRUN;
		serial->overrun = false;
		break;
	case MODEM_STATUS:
		value = modem_lines(serial) | serial->modem_delta;
		serial->modem_delta = 0;
		break;
	case SCRATCH:
		value = serial->scratch;
		break;
	}
	return value;
}

static void serial_bus_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct serial *serial = device;

	memset(data, 0xff, size);
	pthread_mutex_lock(&serial->lock);
	*(uint8_t *)data = serial_read_register(serial, (enum serial_register)offset);
	update_interrupt(serial);
	tell_room(serial);
	pthread_mutex_unlock(&serial->lock);
}

static void serial_bus_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct serial *serial = device;

	(void)size; /* an eight-bit port: a wider write's first byte counts */
	pthread_mutex_lock(&serial->lock);
	serial_write_register(serial, (enum serial_register)offset, *(const uint8_t *)data);
	update_interrupt(serial);
	tell_room(serial);
	pthread_mutex_unlock(&serial->lock);
}

gp_status_t serial_attach(struct serial *serial, struct io_bus *ports, uint16_t base,
			  struct error *error)
{
	return io_bus_add(
		ports,
		&(struct io_region){base, SERIAL_PORTS, serial, serial_bus_read, serial_bus_write},
		error);
}
