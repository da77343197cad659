/* Dispatches guest accesses to devices; one bus for ports, one for memory-mapped I/O.
 *
 * Regions are added while the machine is put together and never change afterwards, so that
 * vCPU threads look them up without a lock. A device locks its own state: its functions
 * are called from every vCPU thread.
 */
#ifndef VMM_DEVICES_IO_BUS_H
#define VMM_DEVICES_IO_BUS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define IO_BUS_REGIONS_MAX 64

struct io_region {
	uint64_t base;
	uint64_t size;
	void *device;
	/* Required. `offset` is from base and offset + size <= region size; size is 1..8. A read
	 * fills all `size` bytes of `data`. Never fails: a guest's nonsense reads as ones or
	 * zeros and writes to nowhere, as hardware would have it. */
	void (*read)(void *device, uint64_t offset, void *data, unsigned size);
	void (*write)(void *device, uint64_t offset, const void *data, unsigned size);
};

struct io_bus {
	struct io_region regions[IO_BUS_REGIONS_MAX];
	unsigned count;
};

/* Adds a region that overlaps no other. */
gp_status_t io_bus_add(struct io_bus *bus, const struct io_region *region, struct error *error);

/* Guest access of `size` (1..8) bytes. What no device claims reads as all ones. */
void io_bus_read(const struct io_bus *bus, uint64_t address, void *data, unsigned size);
void io_bus_write(const struct io_bus *bus, uint64_t address, const void *data, unsigned size);

#endif
