/* Keyboard controller, clock, power and reset registers, over the port bus. */
#include "vmm/devices/cmos.h"
#include "vmm/devices/i8042.h"
#include "vmm/devices/power.h"

#include <criterion/criterion.h>

static struct io_bus bus;
static struct guest_end_event end;

static void out(uint16_t port, uint8_t value)
{
	io_bus_write(&bus, port, &value, 1);
}

static uint8_t in(uint16_t port)
{
	uint8_t value = 0xaa;

	io_bus_read(&bus, port, &value, 1);
	return value;
}

static void setup(void)
{
	bus.count = 0;
	end = (struct guest_end_event){.fd = -1};
}

TestSuite(i8042, .init = setup);
TestSuite(reset_port, .init = setup);
TestSuite(cmos, .init = setup);
TestSuite(acpi_power, .init = setup);

static struct i8042 *make_i8042(void)
{
	static struct i8042 controller;

	i8042_init(&controller, &end);
	cr_assert_eq(i8042_attach(&controller, &bus, NULL), GP_OK);
	return &controller;
}

static uint8_t i8042_ask(uint8_t command)
{
	out(0x64, command);
	cr_assert_eq(in(0x64) & 0x03, 0x01, "no answer to %#x", command);
	return in(0x60);
}

Test(i8042, pulsing_the_reset_line_resets)
{
	make_i8042();
	out(0x64, 0xff);
	cr_assert_eq(end.end, GUEST_RUNNING);
	out(0x64, 0xfe);
	cr_assert_eq(end.end, GUEST_RESET);
}

Test(i8042, the_output_port_resets_too)
{
	make_i8042();
	out(0x64, 0xd1);
	out(0x60, 0x03);
	cr_assert_eq(end.end, GUEST_RUNNING);
	out(0x64, 0xd1);
	out(0x60, 0x02);
	cr_assert_eq(end.end, GUEST_RESET);
}

Test(i8042, a_probe_never_waits_for_an_answer)
{
	make_i8042();
	cr_assert_eq(in(0x64), 0x14, "idle, nothing to read");
	cr_assert_eq(i8042_ask(0xaa), 0x55);
	cr_assert_eq(i8042_ask(0xab), 0x00);
	cr_assert_neq(i8042_ask(0xa9), 0x00, "no second port");
	out(0x64, 0x60);
	out(0x60, 0x47);
	cr_assert_eq(i8042_ask(0x20), 0x47);
	out(0x64, 0xd3);
	out(0x60, 0x5a);
	cr_assert_eq(in(0x64) & 0x21, 0x01, "the loop answers, but not as a second port");
	cr_assert_eq(in(0x60), 0x5a);
	cr_assert_eq(in(0x64) & 0x01, 0);
	out(0x60, 0xf2); /* to a keyboard that is not there */
	cr_assert_eq(in(0x64) & 0x01, 0);
	cr_assert_eq(end.end, GUEST_RUNNING);
}

Test(reset_port, only_the_rising_reset_bit_resets)
{
	struct power power;

	power_init(&power, &end);
	cr_assert_eq(power_attach(&power, &bus, NULL), GP_OK);
	out(POWER_RESET_CONTROL_PORT, 0x02);
	cr_assert_eq(end.end, GUEST_RUNNING);
	cr_assert_eq(in(POWER_RESET_CONTROL_PORT), 0x02);
	out(POWER_RESET_CONTROL_PORT, 0x06);
	cr_assert_eq(end.end, GUEST_RESET);
	end.end = GUEST_RUNNING;
	out(POWER_RESET_CONTROL_PORT, 0x06);
	cr_assert_eq(end.end, GUEST_RUNNING);
}

static time_t clock_now;

static time_t test_clock(void)
{
	return clock_now;
}

static uint8_t cmos_read(uint8_t index)
{
	out(CMOS_INDEX_PORT, index);
	return in(CMOS_DATA_PORT);
}

static void make_cmos(time_t now)
{
	static struct cmos cmos;

	clock_now = now;
	cmos_init(&cmos, test_clock);
	cr_assert_eq(cmos_attach(&cmos, &bus, NULL), GP_OK);
}

Test(cmos, tells_the_time_in_bcd)
{
	make_cmos(1709251199); /* Thu 2024-02-29 23:59:59 UTC */
	cr_assert_eq(cmos_read(0x0a) & 0x80, 0, "no update in progress");
	cr_assert_eq(cmos_read(0x00), 0x59);
	cr_assert_eq(cmos_read(0x02), 0x59);
	cr_assert_eq(cmos_read(0x04), 0x23);
	cr_assert_eq(cmos_read(0x06), 5);
	cr_assert_eq(cmos_read(0x07), 0x29);
	cr_assert_eq(cmos_read(0x08), 0x02);
	cr_assert_eq(cmos_read(0x09), 0x24);
	cr_assert_eq(cmos_read(0x32), 0x20);
	cr_assert_eq(cmos_read(0x0b), 0x02);
	cr_assert_eq(cmos_read(0x0d), 0x80);
	cr_assert_eq(cmos_read(0x80 | 0x07), 0x29, "the NMI bit is not part of the index");
}

Test(cmos, binary_and_twelve_hours_on_request)
{
	make_cmos(1709251199);
	out(CMOS_INDEX_PORT, 0x0b);
	out(CMOS_DATA_PORT, 0x04);
	cr_assert_eq(cmos_read(0x00), 59);
	cr_assert_eq(cmos_read(0x04), 0x80 | 11);
}

Test(cmos, midnight_and_noon_are_twelve)
{
	make_cmos(1709251200); /* 00:00:00 */
	out(CMOS_INDEX_PORT, 0x0b);
	out(CMOS_DATA_PORT, 0x00);
	cr_assert_eq(cmos_read(0x00), 0);
	cr_assert_eq(cmos_read(0x04), 0x12);
	clock_now += 12 * 3600;
	cr_assert_eq(cmos_read(0x04), 0x92);
}

Test(cmos, a_read_does_not_tear_at_a_second)
{
	make_cmos(1709251199);
	cr_assert_eq(cmos_read(0x0a), 0x26);
	clock_now++; /* the next day and month */
	cr_assert_eq(cmos_read(0x08), 0x02);
	cr_assert_eq(cmos_read(0x07), 0x29);
	cr_assert_eq(cmos_read(0x00), 0x00);
	cr_assert_eq(cmos_read(0x07), 0x01);
	cr_assert_eq(cmos_read(0x08), 0x03);
	/* Without ever looking at the seconds a guest still sees time pass. */
	clock_now += 86400;
	cr_assert_eq(cmos_read(0x07), 0x02);
}

Test(cmos, ram_keeps_what_is_written_and_the_clock_does_not)
{
	make_cmos(1709251199);
	out(CMOS_INDEX_PORT, 0x7f);
	out(CMOS_DATA_PORT, 0x5a);
	cr_assert_eq(cmos_read(0x7f), 0x5a);
	out(CMOS_INDEX_PORT, 0x00);
	out(CMOS_DATA_PORT, 0x11);
	cr_assert_eq(cmos_read(0x00), 0x59);
}

Test(acpi_power, sleep_state_five_powers_off)
{
	struct power power;

	power_init(&power, &end);
	cr_assert_eq(power_attach(&power, &bus, NULL), GP_OK);
	out(POWER_SLEEP_STATUS_PORT, 0x80);
	out(POWER_SLEEP_CONTROL_PORT, 5 << 2); /* the type alone does nothing */
	out(POWER_SLEEP_CONTROL_PORT, 3 << 2 | 0x20);
	cr_assert_eq(end.end, GUEST_RUNNING);
	cr_assert_eq(in(POWER_SLEEP_STATUS_PORT), 0);
	out(POWER_SLEEP_CONTROL_PORT, 5 << 2 | 0x20);
	cr_assert_eq(end.end, GUEST_POWERED_OFF);
	end.end = GUEST_RUNNING;
	out(POWER_RESET_PORT, 1);
	cr_assert_eq(end.end, GUEST_RESET);
}
