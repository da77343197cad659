/* A small virtio driver for tests: negotiates over virtio-mmio and puts chains in a queue.
 *
 * One queue of DRIVER_QUEUE_SIZE; its rings and the buffers lie in the guest RAM given. */
#ifndef TESTS_UNIT_VIRTIO_DRIVER_H
#define TESTS_UNIT_VIRTIO_DRIVER_H

#include "vmm/devices/virtio_mmio.h"

#include <string.h>

#define DRIVER_QUEUE_SIZE 16
#define DRIVER_DESCRIPTORS 0x1000
#define DRIVER_AVAILABLE 0x2000
#define DRIVER_USED 0x3000
#define DRIVER_DATA 0x10000 /* free for buffers */

#define DRIVER_NEXT 1
#define DRIVER_WRITE 2
#define DRIVER_INDIRECT 4

#define DRIVER_FEATURE_INDIRECT (UINT64_C(1) << 28)
#define DRIVER_FEATURE_EVENT_INDEX (UINT64_C(1) << 29)
#define DRIVER_FEATURE_VERSION_1 (UINT64_C(1) << 32)

struct driver {
	struct io_bus *bus;
	struct guest_ram *ram;
	uint64_t base; /* of the registers */
	uint16_t available_index;
	unsigned next_descriptor;
};

static inline uint32_t driver_read(const struct driver *driver, uint32_t where)
{
	uint32_t value;

	io_bus_read(driver->bus, driver->base + where, &value, sizeof(value));
	return value;
}

static inline void driver_write(const struct driver *driver, uint32_t where, uint32_t value)
{
	io_bus_write(driver->bus, driver->base + where, &value, sizeof(value));
}

static inline uint64_t driver_features(const struct driver *driver)
{
	uint64_t features;

	driver_write(driver, 0x14, 1);
	features = (uint64_t)driver_read(driver, 0x10) << 32;
	driver_write(driver, 0x14, 0);
	return features | driver_read(driver, 0x10);
}

/* Up to FEATURES_OK; returns the status then. */
static inline uint32_t driver_negotiate(const struct driver *driver, uint64_t features)
{
	driver_write(driver, 0x70, 0);
	driver_write(driver, 0x70, 1);
	driver_write(driver, 0x70, 3);
	driver_write(driver, 0x24, 0);
	driver_write(driver, 0x20, (uint32_t)features);
	driver_write(driver, 0x24, 1);
	driver_write(driver, 0x20, (uint32_t)(features >> 32));
	driver_write(driver, 0x70, 11);
	return driver_read(driver, 0x70);
}

static inline void driver_set_queue(const struct driver *driver, uint32_t size,
				    uint64_t descriptors, uint64_t available, uint64_t used)
{
	driver_write(driver, 0x30, 0);
	driver_write(driver, 0x38, size);
	driver_write(driver, 0x80, (uint32_t)descriptors);
	driver_write(driver, 0x84, (uint32_t)(descriptors >> 32));
	driver_write(driver, 0x90, (uint32_t)available);
	driver_write(driver, 0x94, (uint32_t)(available >> 32));
	driver_write(driver, 0xa0, (uint32_t)used);
	driver_write(driver, 0xa4, (uint32_t)(used >> 32));
	driver_write(driver, 0x44, 1);
}

/* All of 3.1.1 in Virtio 1.2; returns the final status. */
static inline uint32_t driver_start(struct driver *driver, uint64_t features)
{
	driver->available_index = 0;
	driver->next_descriptor = 0;
	memset(guest_ram_at(driver->ram, gpa(DRIVER_DESCRIPTORS), 0x3000), 0, 0x3000);
	driver_negotiate(driver, features | DRIVER_FEATURE_VERSION_1);
	driver_set_queue(driver, DRIVER_QUEUE_SIZE, DRIVER_DESCRIPTORS, DRIVER_AVAILABLE,
			 DRIVER_USED);
	driver_write(driver, 0x70, 15);
	return driver_read(driver, 0x70);
}

static inline void driver_put_descriptor(const struct driver *driver, uint64_t table,
					 unsigned index, uint64_t address, uint32_t size,
					 uint16_t flags, uint16_t next)
{
	uint64_t at = table + UINT64_C(16) * index;

	guest_ram_write(driver->ram, gpa(at), &address, 8);
	guest_ram_write(driver->ram, gpa(at + 8), &size, 4);
	guest_ram_write(driver->ram, gpa(at + 12), &flags, 2);
	guest_ram_write(driver->ram, gpa(at + 14), &next, 2);
}

/* Appends a descriptor to the chain being made; `more`: another one follows. */
static inline unsigned driver_add(struct driver *driver, uint64_t address, uint32_t size,
				  bool writable, bool more)
{
	unsigned index = driver->next_descriptor++ % DRIVER_QUEUE_SIZE;

	driver_put_descriptor(driver, DRIVER_DESCRIPTORS, index, address, size,
			      (writable ? DRIVER_WRITE : 0) | (more ? DRIVER_NEXT : 0),
			      (uint16_t)((index + 1) % DRIVER_QUEUE_SIZE));
	return index;
}

static inline void driver_set_available_index(const struct driver *driver, uint16_t index)
{
	guest_ram_write(driver->ram, gpa(DRIVER_AVAILABLE + 2), &index, 2);
}

static inline void driver_publish(struct driver *driver, unsigned head)
{
	uint16_t value = (uint16_t)head;

	guest_ram_write(
		driver->ram,
		gpa(DRIVER_AVAILABLE + 4 + 2 * (driver->available_index % DRIVER_QUEUE_SIZE)),
		&value, 2);
	driver_set_available_index(driver, ++driver->available_index);
}

static inline uint16_t driver_used_index(const struct driver *driver)
{
	uint16_t index = 0;

	guest_ram_read(driver->ram, gpa(DRIVER_USED + 2), &index, 2);
	return index;
}

/* The length of the used element `number` (counted from the start). */
static inline uint32_t driver_used_length(const struct driver *driver, unsigned number)
{
	uint32_t length = 0;

	guest_ram_read(driver->ram, gpa(DRIVER_USED + 4 + 8 * (number % DRIVER_QUEUE_SIZE) + 4),
		       &length, 4);
	return length;
}

#endif
