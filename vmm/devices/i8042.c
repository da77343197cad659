/* Commands as in the Intel 8042 of the IBM PC AT (Technical Reference, 1985) and the second
 * port that the PS/2 added. */
#include "vmm/devices/i8042.h"

#include <string.h>

#define STATUS_OUTPUT_FULL 0x01
#define STATUS_SYSTEM 0x04
#define STATUS_NOT_LOCKED 0x10

#define CONFIGURATION_SYSTEM 0x04 /* shown in the status register */
#define CONFIGURATION_KEYBOARD_OFF 0x10
#define CONFIGURATION_AUXILIARY_OFF 0x20

#define OUTPUT_PORT_RESET 0x01 /* low resets the CPU */
#define OUTPUT_PORT_A20 0x02

enum i8042_command {
	READ_CONFIGURATION = 0x20,
	WRITE_CONFIGURATION = 0x60,
	AUXILIARY_DISABLE = 0xa7,
	AUXILIARY_ENABLE = 0xa8,
	AUXILIARY_TEST = 0xa9,
	SELF_TEST = 0xaa,
	KEYBOARD_TEST = 0xab,
	KEYBOARD_DISABLE = 0xad,
	KEYBOARD_ENABLE = 0xae,
	READ_OUTPUT_PORT = 0xd0,
	WRITE_OUTPUT_PORT = 0xd1,
	KEYBOARD_LOOP = 0xd2,
	AUXILIARY_LOOP = 0xd3,
	AUXILIARY_WRITE = 0xd4,
	PULSE_FIRST = 0xf0,
};

#define SELF_TEST_PASSED 0x55
#define KEYBOARD_TEST_PASSED 0x00
#define AUXILIARY_TEST_CLOCK_STUCK 0x01

void i8042_init(struct i8042 *controller, struct guest_end_event *end)
{
	*controller =
		(struct i8042){.end = end,
			       .configuration = CONFIGURATION_SYSTEM | CONFIGURATION_KEYBOARD_OFF |
						CONFIGURATION_AUXILIARY_OFF};
	pthread_mutex_init(&controller->lock, NULL);
}

void i8042_deinit(struct i8042 *controller)
{
	pthread_mutex_destroy(&controller->lock);
}

static void answer(struct i8042 *controller, uint8_t byte)
{
	controller->output = byte;
	controller->output_full = true;
}

static void write_command(struct i8042 *controller, uint8_t command)
{
	controller->command = 0;
	switch (command) {
	case READ_CONFIGURATION:
		answer(controller, controller->configuration);
		break;
	case SELF_TEST:
		answer(controller, SELF_TEST_PASSED);
		break;
	case KEYBOARD_TEST:
		answer(controller, KEYBOARD_TEST_PASSED);
		break;
	case AUXILIARY_TEST:
		/* A failed test is how a driver learns that there is no second port. */
		answer(controller, AUXILIARY_TEST_CLOCK_STUCK);
		break;
	case AUXILIARY_DISABLE:
		controller->configuration |= CONFIGURATION_AUXILIARY_OFF;
		break;
	case AUXILIARY_ENABLE:
		controller->configuration &= (uint8_t)~CONFIGURATION_AUXILIARY_OFF;
		break;
	case KEYBOARD_DISABLE:
		controller->configuration |= CONFIGURATION_KEYBOARD_OFF;
		break;
	case KEYBOARD_ENABLE:
		controller->configuration &= (uint8_t)~CONFIGURATION_KEYBOARD_OFF;
		break;
	case READ_OUTPUT_PORT:
		answer(controller, OUTPUT_PORT_RESET | OUTPUT_PORT_A20);
		break;
	case WRITE_CONFIGURATION:
	case WRITE_OUTPUT_PORT:
	case KEYBOARD_LOOP:
	case AUXILIARY_LOOP:
	case AUXILIARY_WRITE:
		controller->command = command;
		break;
	default:
		/* 0xf0 up: lines of the output port whose bit is 0 are pulsed low. */
		if (command >= PULSE_FIRST && !(command & OUTPUT_PORT_RESET))
			guest_end_request(controller->end, GUEST_RESET);
		break;
	}
}

static void write_data(struct i8042 *controller, uint8_t byte)
{
	uint8_t command = controller->command;

	controller->command = 0;
	switch (command) {
	case WRITE_CONFIGURATION:
		controller->configuration = byte;
		break;
	case WRITE_OUTPUT_PORT:
		if (!(byte & OUTPUT_PORT_RESET))
			guest_end_request(controller->end, GUEST_RESET);
		break;
	case KEYBOARD_LOOP:
	case AUXILIARY_LOOP:
		/* Both come back as the keyboard's: a controller without a second port does not
		 * mark the byte as auxiliary, and a driver sees that at once. */
		answer(controller, byte);
		break;
	default:
		break; /* for a keyboard or mouse that is not there */
	}
}

static void data_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct i8042 *controller = device;

	(void)offset;
	(void)size;
	pthread_mutex_lock(&controller->lock);
	write_data(controller, *(const uint8_t *)data);
	pthread_mutex_unlock(&controller->lock);
}

static void data_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct i8042 *controller = device;

	(void)offset;
	memset(data, 0xff, size);
	pthread_mutex_lock(&controller->lock);
	*(uint8_t *)data = controller->output;
	controller->output_full = false;
	pthread_mutex_unlock(&controller->lock);
}

static void command_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct i8042 *controller = device;

	(void)offset;
	(void)size;
	pthread_mutex_lock(&controller->lock);
	write_command(controller, *(const uint8_t *)data);
	pthread_mutex_unlock(&controller->lock);
}

static void status_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct i8042 *controller = device;
	uint8_t status = STATUS_NOT_LOCKED;

	(void)offset;
	memset(data, 0xff, size);
	pthread_mutex_lock(&controller->lock);
	if (controller->output_full)
		status |= STATUS_OUTPUT_FULL;
	if (controller->configuration & CONFIGURATION_SYSTEM)
		status |= STATUS_SYSTEM;
	*(uint8_t *)data = status;
	pthread_mutex_unlock(&controller->lock);
}

gp_status_t i8042_attach(struct i8042 *controller, struct io_bus *ports, struct error *error)
{
	gp_status_t status;

	/* Two regions: port 0x61 between them is the speaker's, which KVM's PIT claims. */
	status = io_bus_add(
		ports, &(struct io_region){I8042_DATA_PORT, 1, controller, data_read, data_write},
		error);
	if (status)
		return status;
	return io_bus_add(
		ports,
		&(struct io_region){I8042_COMMAND_PORT, 1, controller, status_read, command_write},
		error);
}
