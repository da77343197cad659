/* The serial port as a driver sees it: identification, interrupts, FIFO, loopback. */
#include "vmm/devices/serial.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define COM SERIAL_COM1_PORT

static struct serial serial;
static struct io_bus bus;
static char output[256];
static size_t output_size;
static unsigned room_calls;

static void collect(void *context, const uint8_t *bytes, size_t size)
{
	(void)context;
	cr_assert_leq(output_size + size, sizeof(output));
	memcpy(output + output_size, bytes, size);
	output_size += size;
}

static void count_room(void *context)
{
	(void)context;
	room_calls++;
}

static void setup(void)
{
	struct interrupt_line line = {eventfd(0, EFD_NONBLOCK), SERIAL_COM1_GSI};

	serial_init(&serial, &(struct serial_output){collect, NULL}, &line);
	serial_set_input(&serial, &(struct serial_input){count_room, NULL});
	bus.count = 0;
	output_size = room_calls = 0;
	cr_assert_eq(serial_attach(&serial, &bus, COM, NULL), GP_OK);
}

static void teardown(void)
{
	close(serial.interrupt.event_fd);
	serial_deinit(&serial);
}

TestSuite(serial, .init = setup, .fini = teardown);

static void out(unsigned where, uint8_t value)
{
	io_bus_write(&bus, COM + where, &value, 1);
}

static uint8_t in(unsigned where)
{
	uint8_t value = 0xaa;

	io_bus_read(&bus, COM + where, &value, 1);
	return value;
}

/* Edges since the last call. */
static uint64_t edges(void)
{
	uint64_t count = 0;

	if (read(serial.interrupt.event_fd, &count, sizeof(count)) < 0)
		return 0;
	return count;
}

/* FIFOs, terminal ready, interrupts through OUT2. */
static void start_driver(uint8_t interrupts)
{
	out(2, 0xc1); /* FIFO, trigger level 14 */
	out(4, 0x0b);
	out(1, interrupts);
}

Test(serial, looks_like_a_16550a_to_a_probe)
{
	/* The steps of Linux's autoconfig(): IER keeps four bits, ... */
	out(1, 0);
	cr_assert_eq(in(1) & 0x0f, 0);
	out(1, 0xff);
	cr_assert_eq(in(1), 0x0f);
	out(1, 0);
	/* ... loopback shows OUT2 and RTS as DCD and CTS, ... */
	out(4, 0x1a);
	cr_assert_eq(in(6) & 0xf0, 0x90);
	out(4, 0);
	/* ... and both FIFO bits mean a 16550A; no 64-byte FIFO. */
	out(2, 0x01);
	cr_assert_eq(in(2) >> 6, 3);
	out(2, 0x21);
	cr_assert_eq(in(2) & 0x20, 0);
	out(2, 0);
	cr_assert_eq(in(2) >> 6, 0);
	out(7, 0x5a);
	cr_assert_eq(in(7), 0x5a);
}

Test(serial, divisor_latch_hides_data_and_interrupt_enable)
{
	out(1, 0x05);
	out(3, 0x83);
	out(0, 0x34);
	out(1, 0x12);
	cr_assert_eq(in(0), 0x34);
	cr_assert_eq(in(1), 0x12);
	out(3, 0x03);
	cr_assert_eq(in(1), 0x05);
	cr_assert_eq(output_size, 0);
}

Test(serial, output_reaches_the_sink_and_the_transmitter_stays_empty)
{
	for (const char *c = "hi\n"; *c; c++) {
		cr_assert_eq(in(5) & 0x60, 0x60);
		out(0, (uint8_t)*c);
	}
	cr_assert_eq(output_size, 3);
	cr_assert_arr_eq(output, "hi\n", 3);
}

Test(serial, enabling_the_transmitter_interrupt_raises_it_each_time)
{
	start_driver(0);
	for (int i = 0; i < 2; i++) {
		out(1, 0x02);
		cr_assert_eq(edges(), 1);
		cr_assert_eq(in(2), 0xc2);
		cr_assert_eq(in(2), 0xc1, "reading the register resets it");
		out(1, 0);
	}
}

Test(serial, a_burst_of_output_costs_one_interrupt)
{
	start_driver(0x02);
	edges();
	cr_assert_eq(in(2), 0xc2);
	for (int i = 0; i < 16; i++)
		out(0, 'x');
	cr_assert_eq(edges(), 1);
	cr_assert_eq(in(2), 0xc2);
}

Test(serial, no_interrupt_reaches_the_cpu_without_out2)
{
	out(4, 0x03);
	out(1, 0x02);
	cr_assert_eq(edges(), 0);
	out(4, 0x0b);
	cr_assert_eq(edges(), 1);
}

Test(serial, input_interrupts_and_is_read_in_order)
{
	start_driver(0x01);
	cr_assert_eq(serial_receive(&serial, (const uint8_t *)"abc", 3), 3);
	cr_assert_eq(edges(), 1);
	cr_assert_eq(in(2), 0xcc, "below the trigger level: time-out");
	cr_assert_eq(in(5) & 0x01, 0x01);
	cr_assert_eq(in(0), 'a');
	cr_assert_eq(in(0), 'b');
	cr_assert_eq(in(0), 'c');
	cr_assert_eq(in(5) & 0x01, 0);
	cr_assert_eq(in(2), 0xc1);
	cr_assert_eq(serial_receive(&serial, (const uint8_t *)"0123456789abcd", 14), 14);
	cr_assert_eq(edges(), 1, "a new edge after the line fell");
	cr_assert_eq(in(2), 0xc4, "trigger level reached");
}

Test(serial, input_beyond_the_fifo_waits_and_is_called_for_again)
{
	const uint8_t *text = (const uint8_t *)"0123456789abcdefghij";

	start_driver(0x01);
	cr_assert_eq(serial_receive(&serial, text, 20), 16);
	for (int i = 0; i < 15; i++)
		cr_assert_eq(in(0), text[i]);
	cr_assert_eq(room_calls, 0);
	cr_assert_eq(in(0), 'f');
	cr_assert_eq(room_calls, 1);
	cr_assert_eq(serial_receive(&serial, text + 16, 4), 4);
	cr_assert_eq(in(0), 'g');
	cr_assert_eq(room_calls, 1);
}

Test(serial, input_waits_until_the_guest_is_ready_for_it)
{
	cr_assert_eq(serial_receive(&serial, (const uint8_t *)"x", 1), 0);
	/* Neither a probe in loopback nor clearing the FIFO loses it. */
	out(4, 0x1a);
	cr_assert_eq(room_calls, 0);
	out(4, 0);
	out(2, 0x07);
	cr_assert_eq(room_calls, 0);
	out(4, 0x0b);
	cr_assert_eq(room_calls, 1);
	cr_assert_eq(serial_receive(&serial, (const uint8_t *)"x", 1), 1);
}

Test(serial, loopback_returns_what_is_sent_and_overruns)
{
	out(4, 0x13);
	out(1, 0x04);
	out(0, 'a');
	cr_assert_eq(output_size, 0);
	out(0, 'b'); /* without FIFO there is room for one */
	cr_assert_eq(in(2), 0x06);
	cr_assert_eq(in(5) & 0x03, 0x03);
	cr_assert_eq(in(5) & 0x03, 0x01, "reading the register resets the overrun");
	cr_assert_eq(in(0), 'a');
}

Test(serial, modem_status_shows_a_ready_terminal_and_changes)
{
	cr_assert_eq(in(6), 0xb0);
	out(4, 0x10); /* loopback: all outputs low */
	cr_assert_eq(in(6), 0x0b);
	cr_assert_eq(in(6), 0x00, "reading the register resets the changes");
}

Test(serial, wide_and_odd_accesses_are_harmless)
{
	uint64_t wide = 0x4141414141414141;

	io_bus_write(&bus, COM, &wide, 8);
	cr_assert_eq(output_size, 1);
	io_bus_read(&bus, COM + 1, &wide, 4);
	cr_assert_eq(wide >> 8 & 0xffffff, 0xffffff);
	cr_assert_eq(serial_receive(&serial, NULL, 0), 0);
}
