#include "vmm/devices/guest_ram.h"

#include "base/container.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

static bool guest_ram_read_memory(const struct guest_memory *memory, gpa_t address, void *buffer,
				  size_t size)
{
	return guest_ram_read(container_of(memory, const struct guest_ram, memory), address, buffer,
			      size);
}

static void guest_ram_add_region(struct guest_ram *ram, uint64_t gpa_start, uint64_t size,
				 uint8_t *host)
{
	ram->regions[ram->region_count++] = (struct guest_ram_region){gpa_start, size, host};
	ram->size += size;
}

/* Address space that begins where a huge page does: guest-physical addresses do, and KVM maps no
 * huge page where the two differ within one. */
static uint8_t *reserve(uint64_t size)
{
	uint64_t wanted = size + HUGE_PAGE;
	uint8_t *host, *aligned;

	if (wanted < size) {
		errno = ENOMEM;
		return NULL;
	}
	host = mmap(NULL, wanted, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (host == MAP_FAILED)
		return NULL;
	aligned = host + (-(uintptr_t)host & (HUGE_PAGE - 1));
	if (aligned != host)
		munmap(host, (size_t)(aligned - host));
	munmap(aligned + size, (size_t)(host + wanted - (aligned + size)));
	return aligned;
}

gp_status_t guest_ram_init(struct guest_ram *ram, uint64_t size, struct error *error)
{
	uint64_t low = size < GUEST_RAM_HOLE_START ? size : GUEST_RAM_HOLE_START;
	uint8_t *host = reserve(size);

	if (!host)
		return error_set_errno(error, errno,
				       "cannot reserve %llu MiB of guest memory; give less with -m",
				       (unsigned long long)(size >> 20));
	/* Fewer and larger nested page faults; a kernel without huge pages ignores it. */
	madvise(host, size, MADV_HUGEPAGE);
	/* No core dump has it; and the kernel does not merge it with what lies beside it, so that
	 * whoever attaches to us finds it as it is. */
	madvise(host, size, MADV_DONTDUMP);
	*ram = (struct guest_ram){.memory.read = guest_ram_read_memory};
	guest_ram_add_region(ram, 0, low, host);
	if (size > low)
		guest_ram_add_region(ram, GUEST_RAM_HOLE_END, size - low, host + low);
	return GP_OK;
}

void guest_ram_deinit(struct guest_ram *ram)
{
	for (unsigned i = 0; i < ram->region_count; i++)
		munmap(ram->regions[i].host, ram->regions[i].size);
	ram->region_count = 0;
	ram->size = 0;
}

void *guest_ram_at(const struct guest_ram *ram, gpa_t address, uint64_t size)
{
	for (unsigned i = 0; i < ram->region_count; i++) {
		const struct guest_ram_region *region = &ram->regions[i];
		uint64_t offset = address.value - region->gpa;

		/* Unsigned wrap-around makes an address below the region fail the first test. */
		if (offset < region->size && size <= region->size - offset)
			return region->host + offset;
	}
	return NULL;
}

bool guest_ram_read(const struct guest_ram *ram, gpa_t address, void *buffer, size_t size)
{
	const void *host = guest_ram_at(ram, address, size);

	if (!host)
		return false;
	guest_memory_copy(buffer, host, size);
	return true;
}

bool guest_ram_write(const struct guest_ram *ram, gpa_t address, const void *buffer, size_t size)
{
	void *host = guest_ram_at(ram, address, size);

	if (!host)
		return false;
	memcpy(host, buffer, size);
	return true;
}
