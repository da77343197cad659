#include "attach/memory_layout.h"

#include "base/container.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/x86/translate.h"

#include <string.h>

#define GIB (UINT64_C(1) << 30)
#define HOLE_END (4 * GIB)
#define LARGE_PAGE (UINT64_C(1) << 21)

/* Where RAM below 4 GiB ends in a guest that has more:
 * QEMU `pc` 3 GiB (hw/i386/pc_piix.c), `q35` 2 GiB or 2.75 GiB (hw/i386/pc_q35.c), both up to
 * 3.5 GiB when the guest just fits; guestprof and cloud-hypervisor (arch/x86_64/layout.rs) 3 GiB;
 * Firecracker (arch/x86_64/layout.rs) 3 or 3.25 GiB, crosvm (x86_64/src/lib.rs) 3.25 GiB. */
static const uint64_t holes[] = {
	3 * GIB, 2 * GIB, UINT64_C(0xb0000000), UINT64_C(0xd0000000), UINT64_C(0xe0000000),
};

/* Areas that are tried, the largest ones; and pairs of them. */
#define SINGLE_AREAS 8
#define PAIRED_AREAS 4

struct piece {
	const struct remote_area *area;
	uint64_t skip; /* bytes at its start that are something else */
};

static bool memory_layout_add_region(struct remote_layout *layout, uint64_t address_in_guest,
				     const struct piece *piece, uint64_t offset, uint64_t size)
{
	if (layout->count == REMOTE_REGIONS_MAX)
		return false;
	offset += piece->skip;
	layout->regions[layout->count++] = (struct remote_region){
		.gpa = address_in_guest,
		.size = size,
		.address = piece->area->area.start + offset,
		.host = piece->area->host ? piece->area->host + offset : NULL,
	};
	return true;
}

/* Pieces one after the other from 0 on; from `hole` to 4 GiB there is none. */
static bool lay_out(const struct piece *pieces, unsigned count, uint64_t hole,
		    struct remote_layout *out)
{
	uint64_t at = 0, total = 0;

	*out = (struct remote_layout){0};
	for (unsigned i = 0; i < count; i++)
		total += pieces[i].area->area.size - pieces[i].skip;
	/* A hole that nothing reaches is not one to try. */
	if (hole ? total <= hole : total > HOLE_END)
		return false;
	for (unsigned i = 0; i < count; i++) {
		uint64_t size = pieces[i].area->area.size - pieces[i].skip, done = 0;

		if (hole && at < hole && size > hole - at) {
			done = hole - at;
			if (!memory_layout_add_region(out, at, &pieces[i], 0, done))
				return false;
			at = HOLE_END;
		}
		if (!memory_layout_add_region(out, at, &pieces[i], done, size - done))
			return false;
		at += size - done;
		if (hole && at == hole)
			at = HOLE_END;
	}
	return true;
}

/* The same with each end of the RAM below 4 GiB; `index` counts those that are possible. */
static bool with_hole(const struct piece *pieces, unsigned count, uint64_t likely, unsigned *index,
		      struct remote_layout *out)
{
	if (lay_out(pieces, count, 0, out) && !(*index)--)
		return true;
	if (likely && lay_out(pieces, count, likely, out) && !(*index)--)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(holes); i++)
		if (lay_out(pieces, count, holes[i], out) && !(*index)--)
			return true;
	return false;
}

/* Bytes of an area before its first large page: a neighbour of the RAM that the kernel has merged
 * with it. */
static uint64_t unaligned_bytes(const struct remote_area *area)
{
	return -area->area.start & (LARGE_PAGE - 1);
}

bool memory_layout_guess(const struct remote_memory *memory, uint64_t hole, unsigned index,
			 struct remote_layout *out)
{
	struct piece pieces[2] = {0};

	for (unsigned i = 0; i < memory->area_count && i < SINGLE_AREAS; i++) {
		pieces[0].area = &memory->areas[i];
		if (with_hole(pieces, 1, hole, &index, out))
			return true;
	}
	for (unsigned i = 0; i < memory->area_count && i < PAIRED_AREAS; i++) {
		for (unsigned j = 0; j < memory->area_count && j < PAIRED_AREAS; j++) {
			if (i == j)
				continue;
			pieces[0].area = &memory->areas[i];
			pieces[1].area = &memory->areas[j];
			if (with_hole(pieces, 2, hole, &index, out))
				return true;
		}
	}
	for (unsigned i = 0; i < memory->area_count && i < SINGLE_AREAS; i++) {
		pieces[0].area = &memory->areas[i];
		pieces[0].skip = unaligned_bytes(&memory->areas[i]);
		if (pieces[0].skip && pieces[0].skip < memory->areas[i].area.size &&
		    with_hole(pieces, 1, hole, &index, out))
			return true;
	}
	return false;
}

static bool uses_page_tables(const struct guest_cpu *cpu)
{
	return (cpu->cr0 & X86_CR0_PROTECTED) && (cpu->cr0 & X86_CR0_PAGING);
}

static bool agrees(const struct guest_memory *memory, const struct guest_cpu *cpu)
{
	struct address_space space = address_space_of(cpu);
	struct translation translation;
	uint64_t address = guest_code_size(cpu) == 64 ? cpu->rip : cpu->cs.base + cpu->rip;
	uint8_t byte;

	if (guest_code_size(cpu) != 64)
		address &= UINT32_MAX;
	return guest_translate(&space, memory, gva(address), &translation) == TRANSLATE_OK &&
	       translation.executable && (cpu->cpl != 3 || translation.user) &&
	       guest_memory_read(memory, translation.gpa, &byte, 1);
}

/* Linux maps all of its memory, and of the hole nothing, in one piece somewhere in the kernel's
 * half (Documentation/arch/x86/x86_64/mm.rst, "direct mapping"), at a multiple of 1 GiB. Where the
 * first bytes of memory are found twice, any of them does. 0: not found. */
static uint64_t find_direct_map(const struct address_space *space,
				const struct guest_memory *memory)
{
	unsigned levels = space->mode == ADDRESSING_5_LEVEL ? 5 : 4;
	for (unsigned top = 256; top < 512; top++) {
		uint64_t entry, address = top * (UINT64_C(1) << (12 + 9 * (levels - 1)));

		if (!guest_memory_read(memory, gpa(space->root + top * 8), &entry, sizeof(entry)) ||
		    !(entry & 1))
			continue;
		if (levels == 4)
			address |= UINT64_C(0xffff) << 48;
		else
			address |= UINT64_C(0x7f) << 57;
		for (unsigned gib = 0; gib < 512; gib++) {
			struct translation translation;
			uint64_t at = address + gib * GIB + LARGE_PAGE;

			if (guest_translate(space, memory, gva(at), &translation) == TRANSLATE_OK &&
			    translation.gpa.value == LARGE_PAGE)
				return address + gib * GIB;
		}
	}
	return 0;
}

/* A guest of more memory than fits below the hole: what the kernel has mapped on both sides of the
 * hole's beginning. Its last megabytes below may be the firmware's. */
static bool hole_agrees(const struct linux_kernel *kernel, const struct guest_memory *memory,
			const struct remote_layout *layout)
{
	const uint64_t margin = 64 << 20;
	struct translation translation;
	uint64_t map, hole = 0;

	for (unsigned i = 0; i < layout->count; i++)
		if (layout->regions[i].gpa < HOLE_END)
			hole = layout->regions[i].gpa + layout->regions[i].size;
	if (layout->count < 2 || hole >= HOLE_END)
		return true;
	map = find_direct_map(&kernel->space, memory);
	return !map || (guest_translate(&kernel->space, memory, gva(map + hole - margin),
					&translation) == TRANSLATE_OK &&
			guest_translate(&kernel->space, memory, gva(map + hole + margin),
					&translation) != TRANSLATE_OK);
}

bool memory_layout_is_proven(const struct remote_memory *memory, const struct guest_cpu *cpus,
			     unsigned count, char *banner)
{
	struct linux_kernel kernel;
	unsigned agreeing = 0;

	for (unsigned i = 0; i < count; i++) {
		if (!uses_page_tables(&cpus[i]))
			continue;
		if (!agrees(&memory->memory, &cpus[i]))
			return false;
		agreeing++;
	}
	if (!agreeing)
		return false;
	*banner = 0;
	if (linux_kernel_find(&memory->memory, cpus, count, &kernel, NULL))
		return true;
	memcpy(banner, kernel.banner, sizeof(kernel.banner));
	return hole_agrees(&kernel, &memory->memory, &memory->layout);
}

gp_status_t memory_layout_find(struct remote_memory *memory, uint64_t hole,
			       const struct guest_cpu *cpus, unsigned count, char *banner,
			       struct error *error)
{
	const struct remote_layout none = {0};
	struct remote_layout layout, proven = {0};
	char found[256];
	bool paged = false;

	for (unsigned i = 0; i < count; i++)
		paged = paged || uses_page_tables(&cpus[i]);
	if (!paged)
		return error_set(error, GP_ERR_TIMED_OUT,
				 "no vCPU of its guest uses page tables, without which its memory "
				 "cannot be found; one that is still in its firmware "
				 "will soon");
	for (unsigned i = 0; memory_layout_guess(memory, hole, i, &layout); i++) {
		remote_memory_set_layout(memory, &layout);
		if (!memory_layout_is_proven(memory, cpus, count, found))
			continue;
		/* The kernel's banner is more than page tables: they may all lie below a hole
		 * whose beginning is then still open. */
		if (!proven.count || *found) {
			proven = layout;
			memcpy(banner, found, sizeof(found));
		}
		if (*found)
			break;
	}
	remote_memory_set_layout(memory, proven.count ? &proven : &none);
	if (proven.count)
		return GP_OK;
	return error_set(error, GP_ERR_NOT_FOUND,
			 "its guest's memory cannot be told from the VMM's: no layout agrees with "
			 "the page tables of its vCPUs");
}
