/* Virtio over mmio: negotiation, queues, the block and entropy devices, hostile drivers. */
#include "tests/unit/virtio_driver.h"
#include "vmm/devices/virtio_block.h"
#include "vmm/devices/virtio_rng.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RAM_SIZE (4 << 20)
#define SECTORS 64
#define NEEDS_RESET 64
#define RUNNING 15

#define HEADER DRIVER_DATA
#define DATA (DRIVER_DATA + 0x1000)
#define STATUS (DRIVER_DATA + 0x100)

static struct guest_ram ram;
static struct io_bus bus;
static struct event_loop loop;
static struct virtio_mmio transport;
static struct virtio_block block;
static struct disk_image disk;
static struct driver driver;
static char disk_path[] = "/tmp/disk-XXXXXX";

static void make_disk_file(off_t size)
{
	int fd;

	memcpy(disk_path, "/tmp/disk-XXXXXX", sizeof(disk_path));
	fd = mkstemp(disk_path);
	cr_assert_geq(fd, 0);
	for (off_t at = 0; at + 512 <= size; at += 512) {
		char sector[512];

		memset(sector, (int)('A' + at / 512 % 26), sizeof(sector));
		cr_assert_eq(write(fd, sector, sizeof(sector)), 512);
	}
	cr_assert_eq(ftruncate(fd, size), 0);
	close(fd);
}

static void make_machine(const struct virtio_device *device)
{
	struct interrupt_line line = {eventfd(0, EFD_NONBLOCK), virtio_mmio_slot_gsi(0)};

	bus.count = 0;
	cr_assert_eq(guest_ram_init(&ram, RAM_SIZE, NULL), GP_OK);
	cr_assert_eq(event_loop_init(&loop, NULL), GP_OK);
	cr_assert_eq(virtio_mmio_init(&transport, 0, device, &ram, &line, NULL), GP_OK);
	cr_assert_eq(virtio_mmio_attach(&transport, &bus, &loop, NULL), GP_OK);
	driver = (struct driver){.bus = &bus, .ram = &ram, .base = virtio_mmio_slot_gpa(0)};
}

static void make_block(bool read_only)
{
	struct virtio_device device;
	struct error error;

	make_disk_file(SECTORS * 512);
	cr_assert_eq(disk_image_open(&disk, disk_path, read_only, &error), GP_OK, "%s", error.text);
	virtio_block_init(&block, &disk, &device);
	make_machine(&device);
}

static void setup_block(void)
{
	make_block(false);
}

static void setup_read_only(void)
{
	make_block(true);
}

static void setup_rng(void)
{
	struct virtio_device device;

	disk.fd = -1;
	virtio_rng_init(&device);
	make_machine(&device);
}

static void teardown(void)
{
	close(transport.interrupt.event_fd);
	virtio_mmio_deinit(&transport);
	event_loop_deinit(&loop);
	guest_ram_deinit(&ram);
	if (disk.fd >= 0)
		unlink(disk_path);
	disk_image_close(&disk);
}

TestSuite(virtio, .init = setup_block, .fini = teardown);
TestSuite(virtio_block, .init = setup_block, .fini = teardown);
TestSuite(virtio_block_read_only, .init = setup_read_only, .fini = teardown);
TestSuite(virtio_rng, .init = setup_rng, .fini = teardown);

static uint64_t interrupts(void)
{
	uint64_t count = 0;

	return read(transport.interrupt.event_fd, &count, sizeof(count)) < 0 ? 0 : count;
}

static uint8_t *at(uint64_t address)
{
	return guest_ram_at(&ram, gpa(address), 1);
}

static void put_header(uint32_t type, uint64_t sector)
{
	memset(at(HEADER), 0, 16);
	memcpy(at(HEADER), &type, 4);
	memcpy(at(HEADER + 8), &sector, 8);
	*at(STATUS) = 0xee;
}

/* Header, data (when size > 0), status; returns the status byte. */
static uint8_t request(uint32_t type, uint64_t sector, uint32_t size, bool device_writes)
{
	uint16_t before = driver_used_index(&driver);
	unsigned head;

	put_header(type, sector);
	head = driver_add(&driver, HEADER, 16, false, true);
	if (size > 0)
		driver_add(&driver, DATA, size, device_writes, true);
	driver_add(&driver, STATUS, 1, true, false);
	driver_publish(&driver, head);
	virtio_mmio_process(&transport, 0);
	cr_assert_eq((uint16_t)(driver_used_index(&driver) - before), 1, "request not used");
	return *at(STATUS);
}

/* ---- transport ---- */

Test(virtio, identifies_itself)
{
	cr_assert_eq(driver_read(&driver, 0x00), 0x74726976);
	cr_assert_eq(driver_read(&driver, 0x04), 2);
	cr_assert_eq(driver_read(&driver, 0x08), 2);
	cr_assert_eq(driver_read(&driver, 0x34), VIRTIO_QUEUE_SIZE_MAX);
	driver_write(&driver, 0x30, 1);
	cr_assert_eq(driver_read(&driver, 0x34), 0, "there is no second queue");
	cr_assert(driver_features(&driver) & DRIVER_FEATURE_VERSION_1);
}

Test(virtio, slots_have_interrupts_of_their_own)
{
	for (unsigned a = 0; a < VIRTIO_MMIO_SLOTS_MAX; a++) {
		uint32_t gsi = virtio_mmio_slot_gsi(a);

		cr_assert(gsi >= 5 && gsi < 24 && gsi != 8 && gsi != 9);
		for (unsigned b = 0; b < a; b++)
			cr_assert_neq(gsi, virtio_mmio_slot_gsi(b));
	}
}

Test(virtio, negotiation_refuses_what_was_not_offered)
{
	uint64_t offered = driver_features(&driver);

	cr_assert_eq(driver_negotiate(&driver, offered), 11);
	cr_assert_eq(driver_negotiate(&driver, 0), 3, "a driver without VERSION_1");
	cr_assert_eq(driver_negotiate(&driver, offered | UINT64_C(1) << 63), 3);
	cr_assert_eq(driver_negotiate(&driver, offered | 1), 3);
	/* DRIVER_OK without FEATURES_OK does not start it. */
	driver_write(&driver, 0x70, 7);
	cr_assert_eq(driver_read(&driver, 0x70) & 4, 0);
}

Test(virtio, features_are_frozen_and_status_only_grows)
{
	cr_assert_eq(driver_start(&driver, 0), RUNNING);
	driver_write(&driver, 0x24, 0);
	driver_write(&driver, 0x20, 0xffffffff);
	cr_assert_eq(transport.driver_features, DRIVER_FEATURE_VERSION_1);
	driver_write(&driver, 0x70, 1);
	cr_assert_eq(driver_read(&driver, 0x70), RUNNING);
	driver_write(&driver, 0x70, 0);
	cr_assert_eq(driver_read(&driver, 0x70), 0);
	cr_assert_eq(driver_read(&driver, 0x44), 0, "queues are reset, too");
}

Test(virtio, bad_queue_addresses_demand_a_reset)
{
	static const struct {
		uint32_t size;
		uint64_t descriptors, available, used;
	} bad[] = {
		{0, 0x1000, 0x2000, 0x3000},          {3, 0x1000, 0x2000, 0x3000},
		{512, 0x1000, 0x2000, 0x3000},        {65536 + 16, 0x1000, 0x2000, 0x3000},
		{16, 0x1008, 0x2000, 0x3000},         {16, 0x1000, 0x2001, 0x3000},
		{16, 0x1000, 0x2000, 0x3002},         {16, RAM_SIZE - 16, 0x2000, 0x3000},
		{16, 0x1000, RAM_SIZE, 0x3000},       {16, 0x1000, 0x2000, RAM_SIZE - 8},
		{16, 0x1000, 0x2000, UINT64_MAX - 3}, {16, UINT64_MAX - 15, 0x2000, 0x3000},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		driver_negotiate(&driver, DRIVER_FEATURE_VERSION_1);
		driver_set_queue(&driver, bad[i].size, bad[i].descriptors, bad[i].available,
				 bad[i].used);
		cr_expect_eq(driver_read(&driver, 0x44), 0, "case %zu", i);
		cr_expect_eq(driver_read(&driver, 0x70) & NEEDS_RESET, NEEDS_RESET, "case %zu", i);
	}
	/* A reset heals it. */
	cr_assert_eq(driver_start(&driver, 0), RUNNING);
	cr_assert_eq(request(0, 0, 512, true), 0);
}

Test(virtio, notification_reaches_the_event_loop)
{
	uint64_t count = 0;

	driver_write(&driver, 0x50, 7); /* no such queue */
	cr_assert_lt(read(transport.notify_fds[0], &count, 8), 0);
	driver_write(&driver, 0x50, 0);
	cr_assert_eq(read(transport.notify_fds[0], &count, 8), 8);
	cr_assert_eq(loop.watches[0].fd, transport.notify_fds[0]);
}

Test(virtio, interrupt_status_is_set_and_acknowledged)
{
	driver_start(&driver, 0);
	cr_assert_eq(request(0, 0, 512, true), 0);
	cr_assert_eq(interrupts(), 1);
	cr_assert_eq(driver_read(&driver, 0x60), 1);
	driver_write(&driver, 0x64, 1);
	cr_assert_eq(driver_read(&driver, 0x60), 0);
}

Test(virtio, a_driver_may_ask_for_no_interrupts)
{
	uint16_t no_interrupt = 1;

	driver_start(&driver, 0);
	guest_ram_write(&ram, gpa(DRIVER_AVAILABLE), &no_interrupt, 2);
	cr_assert_eq(request(0, 0, 512, true), 0);
	cr_assert_eq(interrupts(), 0);
}

Test(virtio, event_index_interrupts_at_the_index_asked_for)
{
	uint16_t event = 1; /* when the second request is used */

	driver_start(&driver, DRIVER_FEATURE_EVENT_INDEX);
	guest_ram_write(&ram, gpa(DRIVER_AVAILABLE + 4 + 2 * DRIVER_QUEUE_SIZE), &event, 2);
	request(0, 0, 512, true);
	cr_assert_eq(interrupts(), 0);
	request(0, 0, 512, true);
	cr_assert_eq(interrupts(), 1);
	request(0, 0, 512, true);
	cr_assert_eq(interrupts(), 0);
	/* And the device asks for a notification at the next request. */
	guest_ram_read(&ram, gpa(DRIVER_USED + 4 + 8 * DRIVER_QUEUE_SIZE), &event, 2);
	cr_assert_eq(event, 3);
}

Test(virtio, nothing_is_done_before_driver_ok)
{
	unsigned head;

	driver_negotiate(&driver, DRIVER_FEATURE_VERSION_1);
	driver_set_queue(&driver, DRIVER_QUEUE_SIZE, DRIVER_DESCRIPTORS, DRIVER_AVAILABLE,
			 DRIVER_USED);
	put_header(4, 0);
	head = driver_add(&driver, HEADER, 16, false, true);
	driver_add(&driver, STATUS, 1, true, false);
	driver_publish(&driver, head);
	virtio_mmio_process(&transport, 0);
	cr_assert_eq(driver_used_index(&driver), 0);
	driver_write(&driver, 0x70, 15);
	virtio_mmio_process(&transport, 0);
	cr_assert_eq(driver_used_index(&driver), 1);
}

Test(virtio, odd_register_accesses_are_harmless)
{
	uint64_t wide = UINT64_MAX;
	uint8_t byte = 0xaa;

	io_bus_read(&bus, driver.base, &byte, 1);
	cr_assert_eq(byte, 0);
	io_bus_write(&bus, driver.base + 0x70, &wide, 8);
	io_bus_write(&bus, driver.base + 0x71, &wide, 4);
	io_bus_write(&bus, driver.base + 0x100, &wide, 4);
	cr_assert_eq(driver_read(&driver, 0x70), 0);
	io_bus_read(&bus, driver.base + 0xffc, &wide, 4);
	io_bus_read(&bus, driver.base + 0x1fc, &wide, 8);
	/* Eight bytes of configuration at once: the capacity. */
	io_bus_read(&bus, driver.base + 0x100, &wide, 8);
	cr_assert_eq(wide, SECTORS);
}

/* ---- hostile queues: each ends in DEVICE_NEEDS_RESET and nothing worse ---- */

static void expect_needs_reset(const char *what)
{
	interrupts();
	virtio_mmio_process(&transport, 0);
	cr_expect_eq(driver_read(&driver, 0x70), RUNNING | NEEDS_RESET, "%s", what);
	cr_expect_eq(driver_read(&driver, 0x60) & 2, 2, "%s: not told", what);
	cr_expect_eq(interrupts(), 1, "%s", what);
	cr_expect_eq(driver_used_index(&driver), 0, "%s", what);
	/* Stays so, silently. */
	virtio_mmio_process(&transport, 0);
	cr_expect_eq(interrupts(), 0, "%s", what);
}

Test(virtio, hostile_rings_demand_a_reset)
{
	driver_start(&driver, 0);
	driver_set_available_index(&driver, DRIVER_QUEUE_SIZE + 1);
	expect_needs_reset("index jump");

	driver_start(&driver, 0);
	driver_publish(&driver, DRIVER_QUEUE_SIZE);
	expect_needs_reset("head outside the table");

	driver_start(&driver, 0);
	driver_put_descriptor(&driver, DRIVER_DESCRIPTORS, 0, DATA, 1, DRIVER_NEXT, 0);
	driver_publish(&driver, 0);
	expect_needs_reset("a loop");

	driver_start(&driver, 0);
	driver_put_descriptor(&driver, DRIVER_DESCRIPTORS, 0, DATA, 1, DRIVER_NEXT, 99);
	driver_publish(&driver, 0);
	expect_needs_reset("next outside the table");

	driver_start(&driver, 0);
	driver_publish(&driver, driver_add(&driver, RAM_SIZE - 4, 5, true, false));
	expect_needs_reset("a buffer across the end of RAM");

	driver_start(&driver, 0);
	driver_publish(&driver, driver_add(&driver, UINT64_MAX - 3, 8, true, false));
	expect_needs_reset("a buffer that wraps around");

	driver_start(&driver, 0);
	driver_add(&driver, DATA, 1, true, true);
	driver_add(&driver, DATA, 16, false, false);
	driver_publish(&driver, 0);
	expect_needs_reset("readable after writable");

	driver_start(&driver, 0);
	driver_put_descriptor(&driver, DRIVER_DESCRIPTORS, 0, DATA, 16, DRIVER_INDIRECT, 0);
	driver_publish(&driver, 0);
	expect_needs_reset("indirect, but not agreed on");
}

static void start_indirect(uint64_t table, uint32_t size, uint16_t more_flags)
{
	driver_start(&driver, DRIVER_FEATURE_INDIRECT);
	driver_put_descriptor(&driver, DRIVER_DESCRIPTORS, 0, table, size,
			      DRIVER_INDIRECT | more_flags, 0);
	driver_publish(&driver, 0);
}

Test(virtio, hostile_indirect_tables_demand_a_reset)
{
	const uint64_t table = DRIVER_DATA + 0x8000;

	start_indirect(table, 0, 0);
	expect_needs_reset("empty table");
	start_indirect(table, 17, 0);
	expect_needs_reset("half a descriptor");
	start_indirect(RAM_SIZE, 32, 0);
	expect_needs_reset("table outside RAM");
	start_indirect(table, 16, DRIVER_NEXT);
	expect_needs_reset("indirect and next");

	driver_put_descriptor(&driver, table, 0, table, 16, DRIVER_INDIRECT, 0);
	start_indirect(table, 16, 0);
	expect_needs_reset("table within a table");

	/* A table of 64 in a queue of 16: the chain is longer than the queue. */
	for (unsigned i = 0; i < 64; i++)
		driver_put_descriptor(&driver, table, i, DATA, 1, DRIVER_NEXT, (uint16_t)(i + 1));
	start_indirect(table, 64 * 16, 0);
	expect_needs_reset("a long chain");
}

Test(virtio, an_indirect_request_is_worked_off)
{
	const uint64_t table = DRIVER_DATA + 0x8000;

	put_header(0, 1);
	driver_put_descriptor(&driver, table, 0, HEADER, 16, DRIVER_NEXT, 2);
	driver_put_descriptor(&driver, table, 2, DATA, 512, DRIVER_NEXT | DRIVER_WRITE, 1);
	driver_put_descriptor(&driver, table, 1, STATUS, 1, DRIVER_WRITE, 0);
	start_indirect(table, 48, 0);
	virtio_mmio_process(&transport, 0);
	cr_assert_eq(*at(STATUS), 0);
	cr_assert_eq(*at(DATA + 511), 'B');
	cr_assert_eq(driver_used_length(&driver, 0), 513);
}

/* ---- block ---- */

Test(virtio_block, reads_and_writes_sectors)
{
	driver_start(&driver, 0);
	cr_assert_eq(request(0, 3, 1024, true), 0);
	cr_assert_eq(*at(DATA), 'D');
	cr_assert_eq(*at(DATA + 1023), 'E');
	cr_assert_eq(driver_used_length(&driver, 0), 1025);
	memset(at(DATA), 'x', 1024);
	cr_assert_eq(request(1, 10, 1024, false), 0);
	cr_assert_eq(driver_used_length(&driver, 1), 1);
	cr_assert_eq(request(4, 0, 0, false), 0);
	memset(at(DATA), 0, 4096);
	cr_assert_eq(request(0, 9, 2048, true), 0);
	cr_assert_eq(*at(DATA + 511), 'J');
	cr_assert_eq(*at(DATA + 512), 'x');
	cr_assert_eq(*at(DATA + 1535), 'x');
	cr_assert_eq(*at(DATA + 1536), 'M');
}

Test(virtio_block, data_and_header_may_be_in_pieces)
{
	unsigned head;

	driver_start(&driver, 0);
	put_header(0, 2);
	head = driver_add(&driver, HEADER, 5, false, true);
	driver_add(&driver, HEADER + 5, 11, false, true);
	driver_add(&driver, DATA, 1, true, true);
	driver_add(&driver, DATA + 1, 510, true, true);
	/* The status shares a descriptor with the last byte of data. */
	driver_add(&driver, DATA + 511, 2, true, false);
	driver_publish(&driver, head);
	*at(DATA + 512) = 0xee;
	virtio_mmio_process(&transport, 0);
	for (unsigned i = 0; i < 512; i++)
		cr_assert_eq(*at(DATA + i), 'C');
	cr_assert_eq(*at(DATA + 512), 0);
}

Test(virtio_block, what_is_out_of_range_fails_with_ioerr)
{
	driver_start(&driver, 0);
	cr_assert_eq(request(0, SECTORS - 1, 512, true), 0);
	cr_assert_eq(request(0, SECTORS - 1, 1024, true), 1);
	cr_assert_eq(request(0, SECTORS, 512, true), 1);
	cr_assert_eq(request(0, UINT64_MAX, 512, true), 1);
	cr_assert_eq(request(1, UINT64_MAX / 512 + 1, 512, false), 1);
	cr_assert_eq(request(0, 0, 511, true), 1);
	cr_assert_eq(driver_read(&driver, 0x70), RUNNING, "the device goes on");
}

Test(virtio_block, other_requests_are_unsupported)
{
	driver_start(&driver, 0);
	cr_assert_eq(request(2, 0, 0, false), 2);
	cr_assert_eq(request(11, 0, 16, false), 2);
	cr_assert_eq(request(UINT32_MAX, 0, 0, false), 2);
}

Test(virtio_block, tells_its_serial_number)
{
	driver_start(&driver, 0);
	memset(at(DATA), 0xee, 32);
	cr_assert_eq(request(8, 0, 20, true), 0);
	cr_assert_arr_eq(at(DATA), disk.serial, strlen(disk.serial));
	cr_assert_gt(strlen(disk.serial), 2);
	cr_assert_eq(*at(DATA + 20), 0xee);
	cr_assert_eq(request(8, 0, 19, true), 1, "no room for it");
}

Test(virtio_block, requests_without_room_for_an_answer_are_given_back)
{
	driver_start(&driver, 0);
	put_header(0, 0);
	driver_publish(&driver, driver_add(&driver, HEADER, 16, false, false));
	driver_publish(&driver, driver_add(&driver, HEADER, 16, false, false));
	virtio_mmio_process(&transport, 0);
	cr_assert_eq(driver_used_index(&driver), 2);
	/* A header that is cut short. */
	unsigned head = driver_add(&driver, HEADER, 15, false, true);

	driver_add(&driver, STATUS, 1, true, false);
	driver_publish(&driver, head);
	virtio_mmio_process(&transport, 0);
	cr_assert_eq(*at(STATUS), 1);
}

Test(virtio_block, a_failed_read_of_the_host_is_an_ioerr)
{
	driver_start(&driver, 0);
	/* Somebody truncates the image under the machine. */
	cr_assert_eq(truncate(disk_path, 512), 0);
	cr_assert_eq(request(0, 8, 512, true), 1);
	cr_assert_eq(request(0, 0, 512, true), 0);
}

Test(virtio_block_read_only, says_so_and_refuses_writes)
{
	cr_assert(driver_features(&driver) & 1 << 5);
	driver_start(&driver, 1 << 5);
	cr_assert_eq(request(1, 0, 512, false), 1);
	cr_assert_eq(request(0, 0, 512, true), 0);
	cr_assert_eq(*at(DATA), 'A');
	cr_assert_eq(request(4, 0, 0, false), 0);
}

/* ---- entropy ---- */

Test(virtio_rng, fills_what_it_is_given_up_to_its_bound)
{
	unsigned zeros = 0;

	cr_assert_eq(driver_read(&driver, 0x08), 4);
	driver_start(&driver, 0);
	driver_publish(&driver, driver_add(&driver, DATA, 64, true, false));
	driver_publish(&driver, driver_add(&driver, DATA + 0x1000, 1 << 20, true, false));
	virtio_mmio_process(&transport, 0);
	cr_assert_eq(driver_used_length(&driver, 0), 64);
	cr_assert_eq(driver_used_length(&driver, 1), VIRTIO_RNG_REQUEST_MAX);
	for (unsigned i = 0; i < 64; i++)
		zeros += *at(DATA + i) == 0;
	cr_assert_lt(zeros, 16);
	cr_assert_eq(*at(DATA + 64), 0);
	cr_assert_eq(*at(DATA + 0x1000 + VIRTIO_RNG_REQUEST_MAX), 0);
}

/* ---- disk images ---- */

static gp_status_t try_open(const char *path, bool read_only, struct error *error)
{
	struct disk_image opened = {.fd = -1};
	gp_status_t status = disk_image_open(&opened, path, read_only, error);

	disk_image_close(&opened);
	return status;
}

Test(disk_image, bad_images_are_refused_in_words)
{
	struct error error;

	cr_assert_eq(try_open("/nonexistent/disk", false, &error), GP_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(error.text, "/nonexistent/disk"));
	cr_assert_eq(try_open("/tmp", true, &error), GP_ERR_INVALID_ARGS);
	cr_assert_eq(try_open("/dev/null", false, &error), GP_ERR_INVALID_ARGS);
	make_disk_file(0);
	cr_assert_eq(try_open(disk_path, false, &error), GP_ERR_INVALID_ARGS);
	cr_assert_not_null(strstr(error.text, "empty"));
	unlink(disk_path);
	make_disk_file(1000);
	cr_assert_eq(try_open(disk_path, false, &error), GP_ERR_INVALID_ARGS);
	cr_assert_not_null(strstr(error.text, "truncate -s %512"), "%s", error.text);
	unlink(disk_path);
}

Test(disk_image, an_image_in_use_is_refused)
{
	struct disk_image writer, reader;
	struct error error;

	make_disk_file(512);
	cr_assert_eq(disk_image_open(&writer, disk_path, false, &error), GP_OK);
	cr_assert_eq(try_open(disk_path, false, &error), GP_ERR_UNAVAILABLE);
	cr_assert_not_null(strstr(error.text, "in use"));
	cr_assert_eq(try_open(disk_path, true, &error), GP_ERR_UNAVAILABLE);
	disk_image_close(&writer);
	cr_assert_eq(disk_image_open(&reader, disk_path, true, &error), GP_OK);
	cr_assert_eq(try_open(disk_path, true, &error), GP_OK, "readers share");
	cr_assert_eq(try_open(disk_path, false, &error), GP_ERR_UNAVAILABLE);
	disk_image_close(&reader);
	cr_assert_eq(try_open(disk_path, false, &error), GP_OK);
	unlink(disk_path);
}
