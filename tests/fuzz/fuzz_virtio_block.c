/* A hostile guest against the virtio transport, queue and block device: the input is a
 * program of register accesses, memory writes and notifications. Nothing it does may
 * crash, hang, write outside RAM or end the device's use after a reset. */
#include "tests/unit/virtio_driver.h"
#include "vmm/devices/virtio_block.h"

#include "base/cursor.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM_SIZE (1 << 20)
#define DISK_SIZE (64 * 512)
#define STEPS_MAX 4096

static struct guest_ram ram;
static struct disk_image disk;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void set_up_once(void)
{
	if (ram.size > 0)
		return;
	disk = (struct disk_image){memfd_create("disk", 0), DISK_SIZE, false, "fuzz"};
	if (guest_ram_init(&ram, RAM_SIZE, NULL) || disk.fd < 0 || ftruncate(disk.fd, DISK_SIZE))
		abort();
}

/* A well-formed read of one sector has to work, whatever happened before. */
static void check_alive(struct driver *driver, struct virtio_mmio *transport)
{
	uint8_t header[16] = {0}, status = 0xee;
	unsigned head;

	if (driver_start(driver, 0) != 15)
		abort();
	guest_ram_write(&ram, gpa(DRIVER_DATA), header, sizeof(header));
	guest_ram_write(&ram, gpa(DRIVER_DATA + 16), &status, 1);
	head = driver_add(driver, DRIVER_DATA, sizeof(header), false, true);
	driver_add(driver, DRIVER_DATA + 512, 512, true, true);
	driver_add(driver, DRIVER_DATA + 16, 1, true, false);
	driver_publish(driver, head);
	virtio_mmio_process(transport, 0);
	guest_ram_read(&ram, gpa(DRIVER_DATA + 16), &status, 1);
	if (status != 0 || driver_used_index(driver) != 1)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor input = cursor_over(data, size);
	struct virtio_device device;
	static struct virtio_block block;
	static struct virtio_mmio transport;
	struct io_bus bus = {.count = 0};
	struct event_loop loop;
	struct driver driver = {.bus = &bus, .ram = &ram, .base = virtio_mmio_slot_gpa(0)};

	set_up_once();
	memset(guest_ram_at(&ram, gpa(0), 0x14000), 0, 0x14000);
	virtio_block_init(&block, &disk, &device);
	if (event_loop_init(&loop, NULL) ||
	    virtio_mmio_init(&transport, 0, &device, &ram, &(struct interrupt_line){.event_fd = -1},
			     NULL) ||
	    virtio_mmio_attach(&transport, &bus, &loop, NULL))
		abort();
	/* Most inputs would never get past the negotiation. */
	if (cursor_u8(&input) & 1)
		driver_start(&driver, DRIVER_FEATURE_INDIRECT | DRIVER_FEATURE_EVENT_INDEX);
	for (unsigned step = 0; step < STEPS_MAX && cursor_left(&input) > 0; step++) {
		uint8_t what = cursor_u8(&input);
		uint16_t where = cursor_u16(&input);
		uint64_t value = cursor_u64(&input);
		unsigned width = 1u << (what >> 4 & 3);

		switch (what & 7) {
		case 0:
			io_bus_read(&bus, driver.base + (where & 0xfff), &value, width);
			break;
		case 1:
			driver_write(&driver, where & 0xfc, (uint32_t)value);
			break;
		case 2:
			io_bus_write(&bus, driver.base + (where & 0xfff), &value, width);
			break;
		case 3:
			guest_ram_write(&ram, gpa(0x1000 + (where & 0x3fff)), &value, width);
			break;
		case 4:
			driver_put_descriptor(&driver, DRIVER_DESCRIPTORS, where & 15,
					      value & 0xfffff, (uint32_t)(value >> 32) & 0xfffff,
					      where >> 4 & 7, where >> 8 & 31);
			break;
		case 5:
			driver_publish(&driver, where & 31);
			break;
		case 6:
			guest_ram_write(&ram, gpa(DRIVER_DATA + (where & 0xfff)), &value, width);
			break;
		default:
			virtio_mmio_process(&transport, where & 1);
			break;
		}
	}
	virtio_mmio_process(&transport, 0);
	check_alive(&driver, &transport);
	virtio_mmio_deinit(&transport);
	event_loop_deinit(&loop);
	return 0;
}
