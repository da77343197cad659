#include "guest-introspection/linux/linux_page_cache.h"

#include "guest-introspection/linux/linux_reader.h"

#define PAGE_SIZE 4096u
/* Chunks of 16 (CONFIG_BASE_SMALL) or 64 slots. */
#define CHUNK_SHIFT_MAX 6u
/* 64 bits of index, at 4 each at least. */
#define DEPTH_LIMIT 16u
/* The largest folio that is believed, in pages: 1 GiB. */
#define FOLIO_LIMIT (UINT64_C(1) << 18)
#define FRAME_LIMIT (UINT64_C(1) << 40)

/* include/linux/xarray.h: an entry with the low bits 10 is internal, a small one a sibling. */
#define ENTRY_VALUE 1u
#define ENTRY_KIND 3u
#define ENTRY_INTERNAL 2u
#define ENTRY_NODE_MIN 4096u

gp_status_t linux_page_cache_init(const struct guest_memory *memory,
				  const struct linux_kernel *kernel,
				  const struct symbol_table *symbols, const struct btf *btf,
				  struct linux_page_cache *out, struct error *error)
{
#define FIELD(name) offsetof(struct linux_page_cache, name)
	static const struct linux_member members[] = {
		{"address_space", "i_pages.xa_head", 8, LINUX_REQUIRED, FIELD(mapping_head)},
		{"xa_node", "shift", 1, LINUX_REQUIRED, FIELD(node_shift)},
		{"xa_node", "slots", 0, LINUX_REQUIRED, FIELD(node_slots)},
		/* What a page says of itself went from struct page to struct folio (5.16). */
		{"folio", "index", 8, LINUX_OPTIONAL, FIELD(page_index)},
		{"page", "index", 8, LINUX_REQUIRED, FIELD(page_index)},
		{"folio", "mapping", 8, LINUX_OPTIONAL, FIELD(page_mapping)},
		{"page", "mapping", 8, LINUX_REQUIRED, FIELD(page_mapping)},
	};
#undef FIELD
	struct linux_page_cache cache = {.memory = memory, .space = kernel->space};
	struct btf_member slots;
	gp_status_t status = linux_find_members(btf, members, ARRAY_SIZE(members), &cache, error);

	if (status != GP_OK)
		return status;
	if (!btf_find_size(btf, "page", &cache.page_size) || cache.page_size < 32 ||
	    cache.page_size > 256 || !btf_find_member(btf, "xa_node", "slots", &slots) ||
	    slots.elements < 2 || slots.elements > 1u << CHUNK_SHIFT_MAX ||
	    slots.elements & (slots.elements - 1) || slots.size != slots.elements * 8)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel's page cache is not as expected");
	cache.chunk_shift = (uint32_t)__builtin_ctz(slots.elements);
	cache.page_array_address = linux_symbol_address(symbols, "vmemmap_base");
	if (!linux_page_cache_refresh(&cache))
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel's vmemmap_base is not readable");
	*out = cache;
	return GP_OK;
}

bool linux_page_cache_refresh(struct linux_page_cache *cache)
{
	struct linux_reader reader = linux_reader_of(cache->memory, &cache->space);

	/* With KASLR a variable; without, a constant of arch/x86/include/asm/pgtable_64_types.h. */
	if (cache->page_array_address)
		return linux_read_u64(&reader, cache->page_array_address, &cache->page_array);
	cache->page_array = cache->space.mode == ADDRESSING_5_LEVEL ? UINT64_C(0xffd4000000000000)
								    : UINT64_C(0xffffea0000000000);
	return true;
}

/* One use of the above. */
struct walk {
	const struct linux_page_cache *cache;
	struct linux_reader reader;
};

static struct walk walk_begin(const struct linux_page_cache *cache)
{
	return (struct walk){.cache = cache,
			     .reader = linux_reader_of(cache->memory, &cache->space)};
}

static bool is_node(uint64_t entry)
{
	return (entry & ENTRY_KIND) == ENTRY_INTERNAL && entry > ENTRY_NODE_MIN;
}

/* The entry of `index`: the address of a struct page, the first of its folio. */
static bool find_entry(struct walk *self, uint64_t mapping, uint64_t index, uint64_t *page)
{
	const struct linux_page_cache *cache = self->cache;
	uint64_t slots = UINT64_C(1) << cache->chunk_shift;
	unsigned above = 64; /* shift of the node above */
	uint64_t entry;

	if (!linux_read_u64(&self->reader, mapping + cache->mapping_head, &entry))
		return false;
	/* A single entry at the head is that of page 0. */
	if (!is_node(entry) && index > 0)
		return false;
	for (unsigned depth = 0; is_node(entry); depth++) {
		uint64_t node = entry - ENTRY_INTERNAL;
		uint64_t slot;
		uint8_t shift;

		if (depth == DEPTH_LIMIT ||
		    !linux_read(&self->reader, node + cache->node_shift, &shift, 1) ||
		    shift >= above)
			return false;
		slot = index >> shift;
		if (depth == 0 && slot >= slots)
			return false; /* behind what the tree reaches */
		slot &= slots - 1;
		above = shift;
		if (!linux_read_u64(&self->reader, node + cache->node_slots + slot * 8, &entry))
			return false;
		/* A sibling says in which slot the entry is that covers this one too. */
		if ((entry & ENTRY_KIND) == ENTRY_INTERNAL && entry < slots << 2) {
			slot = entry >> 2;
			if (!linux_read_u64(&self->reader, node + cache->node_slots + slot * 8,
					    &entry) ||
			    is_node(entry))
				return false;
		}
	}
	/* Values are what is left of a page that is gone (workingset) or on swap. */
	if (!entry || entry & ENTRY_KIND)
		return false;
	*page = entry;
	return true;
}

/* Whether `page` is the first of a folio of this file that has page `index`, and which of it. */
static bool folio_holds(struct walk *self, uint64_t page, uint64_t mapping, uint64_t index,
			uint64_t *within)
{
	uint64_t claimed_mapping;
	uint64_t first;

	if (!linux_read_u64(&self->reader, page + self->cache->page_mapping, &claimed_mapping) ||
	    !linux_read_u64(&self->reader, page + self->cache->page_index, &first) ||
	    claimed_mapping != mapping || first > index || index - first >= FOLIO_LIMIT)
		return false;
	*within = index - first;
	return true;
}

static bool find_page(struct walk *self, uint64_t mapping, uint64_t index, uint64_t *folio,
		      gpa_t *page)
{
	const struct linux_page_cache *cache = self->cache;
	uint64_t distance;
	uint64_t frame;
	uint64_t within;

	if (!find_entry(self, mapping, index, folio) || *folio < cache->page_array ||
	    !folio_holds(self, *folio, mapping, index, &within))
		return false;
	distance = *folio - cache->page_array;
	frame = distance / cache->page_size;
	if (distance % cache->page_size || frame >= FRAME_LIMIT)
		return false;
	*page = gpa((frame + within) * PAGE_SIZE);
	return true;
}

bool linux_page_cache_find(const struct linux_page_cache *cache, uint64_t mapping, uint64_t index,
			   gpa_t *page)
{
	struct walk walk = walk_begin(cache);
	uint64_t folio;

	return find_page(&walk, mapping, index, &folio, page);
}

static size_t cached_file_read(const struct file_source *source, uint64_t offset, void *buffer,
			       size_t size)
{
	const struct linux_cached_file *self = container_of((struct file_source *)(uintptr_t)source,
							    struct linux_cached_file, source);
	struct walk walk = walk_begin(self->cache);
	size_t done = 0;

	if (offset >= self->size)
		return 0;
	if (size > self->size - offset)
		size = (size_t)(self->size - offset);
	while (done < size) {
		uint64_t at = offset + done;
		size_t step = PAGE_SIZE - (size_t)(at % PAGE_SIZE);
		uint64_t folio;
		uint64_t within;
		gpa_t page;

		if (step > size - done)
			step = size - done;
		if (!find_page(&walk, self->mapping, at / PAGE_SIZE, &folio, &page) ||
		    !guest_memory_read(self->cache->memory, gpa(page.value + at % PAGE_SIZE),
				       (char *)buffer + done, step) ||
		    !folio_holds(&walk, folio, self->mapping, at / PAGE_SIZE, &within))
			break;
		done += step;
	}
	return done;
}

void linux_cached_file_init(struct linux_cached_file *self, const struct linux_page_cache *cache,
			    const struct linux_file *file)
{
	*self = (struct linux_cached_file){.source = {.read = cached_file_read},
					   .cache = cache,
					   .mapping = file->mapping,
					   .size = file->size};
}
