#include "vmm/devices/io_bus.h"

#include <string.h>

gp_status_t io_bus_add(struct io_bus *bus, const struct io_region *region, struct error *error)
{
	if (bus->count == IO_BUS_REGIONS_MAX)
		return error_set(error, GP_ERR_NO_RESOURCES,
				 "too many devices: the machine has room for %d regions",
				 IO_BUS_REGIONS_MAX);
	for (unsigned i = 0; i < bus->count; i++) {
		const struct io_region *other = &bus->regions[i];

		if (region->base < other->base + other->size &&
		    other->base < region->base + region->size)
			return error_set(
				error, GP_ERR_INTERNAL, "device regions at %#llx and %#llx overlap",
				(unsigned long long)region->base, (unsigned long long)other->base);
	}
	bus->regions[bus->count++] = *region;
	return GP_OK;
}

static const struct io_region *find_region(const struct io_bus *bus, uint64_t address,
					   unsigned size)
{
	for (unsigned i = 0; i < bus->count; i++) {
		const struct io_region *region = &bus->regions[i];
		uint64_t offset = address - region->base;

		if (offset < region->size && size <= region->size - offset)
			return region;
	}
	return NULL;
}

void io_bus_read(const struct io_bus *bus, uint64_t address, void *data, unsigned size)
{
	const struct io_region *region = find_region(bus, address, size);

	if (region)
		region->read(region->device, address - region->base, data, size);
	else
		memset(data, 0xff, size);
}

void io_bus_write(const struct io_bus *bus, uint64_t address, const void *data, unsigned size)
{
	const struct io_region *region = find_region(bus, address, size);

	if (region)
		region->write(region->device, address - region->base, data, size);
}
