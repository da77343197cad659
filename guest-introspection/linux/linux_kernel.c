#include "guest-introspection/linux/linux_kernel.h"

#include "guest-introspection/linux/linux_reader.h"

#include <stdlib.h>
#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst: the kernel image lives in the 1 GiB from here on (512 MiB
 * without KASLR); modules follow. One table of 2 MiB entries covers it. */
#define KERNEL_MAP UINT64_C(0xffffffff80000000)
#define KERNEL_MAP_SIZE (UINT64_C(1) << 30)
#define MAP_ENTRIES 512
#define LARGE_PAGE (UINT64_C(1) << 21)
#define SMALL_PAGE UINT64_C(4096)
#define ENTRY_PRESENT UINT64_C(1)
#define ENTRY_LARGE UINT64_C(0x80)

#define EXCEPTION_VECTORS 32
#define BTF_ATTEMPTS 8
#define SMALLEST_RUN 2 /* 4 MiB: no kernel of ours is smaller */

struct kernel_map {
	struct address_space space;
	unsigned first; /* index of the first 2 MiB entry of the run */
	unsigned length;
};

static bool in_kernel_map(uint64_t address)
{
	return address >= KERNEL_MAP && address - KERNEL_MAP < KERNEL_MAP_SIZE;
}

/* Reads the 512 entries that map the kernel's 1 GiB. */
static bool read_kernel_entries(const struct guest_memory *memory,
				const struct address_space *space,
				uint64_t entries[static MAP_ENTRIES])
{
	unsigned levels = space->mode == ADDRESSING_5_LEVEL ? 5 : 4;
	uint64_t table = space->root;

	for (unsigned level = levels; level > 2; level--) {
		unsigned index = KERNEL_MAP >> (12 + 9 * (level - 1)) & 0x1ff;
		uint64_t entry;

		if (!guest_memory_read(memory, gpa(table + index * 8), &entry, sizeof(entry)) ||
		    !(entry & ENTRY_PRESENT) || (entry & ENTRY_LARGE))
			return false;
		table = entry & X86_TABLE_ADDRESS;
	}
	return guest_memory_read(memory, gpa(table), entries, MAP_ENTRIES * sizeof(*entries));
}

/* A linear address inside the kernel image as this vCPU knows it, 0 when it knows none. */
static uint64_t find_anchor(const struct guest_memory *memory, const struct address_space *space,
			    const struct guest_cpu *cpu)
{
	for (unsigned vector = 0; vector < EXCEPTION_VECTORS; vector++) {
		uint8_t gate[16]; /* Intel SDM vol. 3, figure 6-8 */
		uint16_t low;
		uint16_t middle;
		uint32_t high;
		uint64_t handler;

		if (vector * sizeof(gate) + sizeof(gate) - 1 > cpu->idt_limit)
			break;
		if (guest_read_virtual(space, NULL, memory,
				       gva(cpu->idt_base + vector * sizeof(gate)), gate,
				       sizeof(gate)) != TRANSLATE_OK)
			break;
		memcpy(&low, gate, sizeof(low));
		memcpy(&middle, gate + 6, sizeof(middle));
		memcpy(&high, gate + 8, sizeof(high));
		handler = (uint64_t)high << 32 | (uint32_t)middle << 16 | low;
		if ((gate[5] & 0x80) && in_kernel_map(handler))
			return handler;
	}
	return in_kernel_map(cpu->rip) ? cpu->rip : 0;
}

/* Looks at one page-table root of one vCPU; keeps it in `best` when its run is longer. */
static void try_root(const struct guest_memory *memory, const struct guest_cpu *cpu, uint64_t root,
		     struct kernel_map *best)
{
	struct address_space space = address_space_of(cpu);
	uint64_t entries[MAP_ENTRIES];
	uint64_t anchor;
	unsigned first;
	unsigned end;

	space.root = root;
	if (!read_kernel_entries(memory, &space, entries))
		return;
	anchor = find_anchor(memory, &space, cpu);
	if (!anchor)
		return;
	first = end = (unsigned)((anchor - KERNEL_MAP) / LARGE_PAGE);
	while (end < MAP_ENTRIES && (entries[end] & ENTRY_PRESENT))
		end++;
	while (first > 0 && first < end && (entries[first - 1] & ENTRY_PRESENT))
		first--;
	if (end - first > best->length)
		*best = (struct kernel_map){.space = space, .first = first, .length = end - first};
}

static uint64_t find_text_end(const struct guest_memory *memory, const struct address_space *space,
			      uint64_t base, uint64_t end)
{
	struct translation translation;
	uint64_t at = base;

	while (at < end && guest_translate(space, memory, gva(at), &translation) == TRANSLATE_OK &&
	       translation.executable)
		at += translation.page_size - (at & (translation.page_size - 1));
	return at < end ? at : end;
}

/* Copies the banner at `address` when a whole one is there. */
static bool read_banner(struct linux_reader *reader, uint64_t address, struct linux_kernel *out)
{
	char text[sizeof(out->banner)];
	size_t length = 0;

	if (!linux_read(reader, address, text, sizeof(text)))
		return false;
	while (length < sizeof(text) - 1 && text[length] >= 0x20 && text[length] < 0x7f)
		length++;
	if (text[length] != '\n' && text[length] != 0 && length < sizeof(text) - 1)
		return false;
	memcpy(out->banner, text, length);
	out->banner[length] = 0;
	return true;
}

/* Searches [begin, end) for linux_banner, page by page: the image has holes. Newer kernels hold a
 * weak one without a build number ("# SMP", init/version.c) besides the one that counts
 * (init/version-timestamp.c); it is taken when there is no other. */
static bool find_banner(const struct guest_memory *memory, const struct address_space *space,
			uint64_t begin, uint64_t end, struct linux_kernel *out)
{
	static const char prefix[] = "Linux version ";
	const size_t length = sizeof(prefix) - 1;
	struct linux_scan scan;

	linux_scan_init(&scan, memory, space, begin, end, sizeof(prefix) - 1);
	while (linux_scan_next(&scan)) {
		const uint8_t *at = scan.bytes, *last = scan.bytes + scan.size;

		for (; (at = memmem(at, (size_t)(last - at), prefix, length)) != NULL; at++)
			if (at + length < last && at[length] >= '1' && at[length] <= '9' &&
			    read_banner(&scan.reader, scan.address + (uint64_t)(at - scan.bytes),
					out) &&
			    !strstr(out->banner, "# "))
				return true;
	}
	return out->banner[0] != 0;
}

/* swapper_pg_dir: the page of the image whose entry for the kernel's own addresses is the one in
 * use. early_top_pgt has it too until boot is over, but maps less. */
static uint64_t find_swapper(const struct guest_memory *memory, const struct address_space *space,
			     uint64_t begin, uint64_t end)
{
	enum { ENTRIES = 512, UPPER = 256 };
	struct translation_cache cache;
	uint64_t wanted;
	uint64_t root = space->root;
	unsigned best = 0;

	if (!guest_memory_read(memory, gpa(space->root + (ENTRIES - 1) * 8), &wanted,
			       sizeof(wanted)))
		return root;
	translation_cache_clear(&cache);
	for (uint64_t page = begin; page < end; page += SMALL_PAGE) {
		struct translation translation;
		uint64_t entries[ENTRIES];
		uint64_t last;
		unsigned present = 0;

		if (guest_translate_cached(space, &cache, memory, gva(page), &translation) !=
			    TRANSLATE_OK ||
		    !guest_memory_read(memory, gpa(translation.gpa.value + (ENTRIES - 1) * 8),
				       &last, sizeof(last)) ||
		    ((last ^ wanted) & (X86_TABLE_ADDRESS | ENTRY_PRESENT)) ||
		    !guest_memory_read(memory, translation.gpa, entries, sizeof(entries)))
			continue;
		for (unsigned i = UPPER; i < ENTRIES; i++)
			present += entries[i] & ENTRY_PRESENT;
		if (present > best) {
			best = present;
			root = translation.gpa.value;
		}
	}
	return root;
}

gp_status_t linux_kernel_find(const struct guest_memory *memory, const struct guest_cpu *cpus,
			      unsigned count, struct linux_kernel *out, struct error *error)
{
	struct kernel_map best = {0};
	struct linux_kernel found = {0};

	for (unsigned i = 0; i < count; i++) {
		struct address_space space = address_space_of(&cpus[i]);

		if (space.mode != ADDRESSING_4_LEVEL && space.mode != ADDRESSING_5_LEVEL)
			continue;
		try_root(memory, &cpus[i], space.root, &best);
		if (space.root & X86_ISOLATION_BIT)
			try_root(memory, &cpus[i], space.root & ~X86_ISOLATION_BIT, &best);
	}
	if (best.length < SMALLEST_RUN)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "no Linux kernel in the page tables of %u vCPU%s (yet)", count,
				 count == 1 ? "" : "s");
	found.space = best.space;
	found.text_base = KERNEL_MAP + best.first * LARGE_PAGE;
	found.image_end = found.text_base + best.length * LARGE_PAGE;
	found.text_end = find_text_end(memory, &found.space, found.text_base, found.image_end);
	/* The banner is read-only data, which follows the text; before the kernel has protected
	 * its data, everything counts as text. */
	if (!find_banner(memory, &found.space, found.text_end, found.image_end, &found) &&
	    !find_banner(memory, &found.space, found.text_base, found.text_end, &found))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "a kernel at 0x%llx, but no \"Linux version\" in it",
				 (unsigned long long)found.text_base);
	found.space.root = find_swapper(memory, &found.space, found.text_base, found.image_end);
	*out = found;
	return GP_OK;
}

/* Copies and parses the BTF in [start, end), linear addresses. */
static gp_status_t read_btf(const struct guest_memory *memory, const struct linux_kernel *kernel,
			    uint64_t start, uint64_t end, struct btf **out, struct error *error)
{
	struct linux_reader reader = linux_reader_of(memory, &kernel->space);
	uint8_t *bytes;

	if (start < kernel->text_base || end > kernel->image_end || start >= end ||
	    end - start > BTF_LIMIT)
		return error_set(error, GP_ERR_NOT_FOUND, "no BTF can be from 0x%llx to 0x%llx",
				 (unsigned long long)start, (unsigned long long)end);
	bytes = malloc(end - start);
	if (!bytes)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to copy the guest's BTF");
	if (!linux_read(&reader, start, bytes, end - start)) {
		free(bytes);
		return error_set(error, GP_ERR_NOT_FOUND, "the BTF at 0x%llx cannot be read",
				 (unsigned long long)start);
	}
	return btf_adopt(bytes, end - start, out, error);
}

/* Goes through the image for a BTF header and tries what it finds. */
static gp_status_t search_btf(const struct guest_memory *memory, const struct linux_kernel *kernel,
			      struct btf **out, struct error *error)
{
	static const uint8_t magic[] = {0x9f, 0xeb, 1, 0};
	struct linux_scan scan;
	unsigned attempts = 0;

	linux_scan_init(&scan, memory, &kernel->space, kernel->text_base, kernel->image_end,
			BTF_HEADER_SIZE - 1);
	while (linux_scan_next(&scan)) {
		const uint8_t *at = scan.bytes, *end = scan.bytes + scan.size;

		for (; (at = memmem(at, (size_t)(end - at), magic, sizeof(magic))) != NULL &&
		       end - at >= BTF_HEADER_SIZE;
		     at++) {
			uint64_t start = scan.address + (uint64_t)(at - scan.bytes);
			size_t size = btf_blob_size(at);
			gp_status_t status;

			if (size == 0)
				continue;
			if (++attempts > BTF_ATTEMPTS)
				return error_set(error, GP_ERR_NOT_FOUND,
						 "too much in the kernel looks like BTF and is "
						 "none");
			status = read_btf(memory, kernel, start, start + size, out, NULL);
			if (status == GP_OK)
				return status;
			if (status == GP_ERR_NO_MEMORY)
				return error_set(error, status, "no memory to read BTF");
		}
	}
	return error_set(error, GP_ERR_NOT_FOUND,
			 "no BTF in the kernel at 0x%llx: built without CONFIG_DEBUG_INFO_BTF?",
			 (unsigned long long)kernel->text_base);
}

gp_status_t linux_btf_read(const struct guest_memory *memory, const struct linux_kernel *kernel,
			   const struct symbol_table *symbols, struct btf **out,
			   struct error *error)
{
	uint64_t start = symbols ? linux_symbol_address(symbols, "__start_BTF") : 0;
	uint64_t stop = symbols ? linux_symbol_address(symbols, "__stop_BTF") : 0;

	return start && stop ? read_btf(memory, kernel, start, stop, out, error)
			     : search_btf(memory, kernel, out, error);
}
