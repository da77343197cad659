/* A file's bytes out of a Linux guest's page cache.
 *
 * Pages of a file hang in the xarray of its `struct address_space` (lib/xarray.c), one entry for
 * each page or folio. Read without the guest's locks while it may be running: a page counts only
 * when its struct page says, before and after the bytes were copied, that it is that piece of that
 * file. The bytes themselves may be of two moments when the file is being written. Nothing here
 * allocates or locks, every walk is bounded; any thread; cold: not for a stopped vCPU.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_PAGE_CACHE_H
#define GUEST_INTROSPECTION_LINUX_LINUX_PAGE_CACHE_H

#include "base/address.h"
#include "base/error.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/elf/file_source.h"
#include "guest-introspection/linux/linux_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where things are in this kernel. Read-only once made. */
struct linux_page_cache {
	const struct guest_memory *memory;
	struct address_space space;  /* the kernel's */
	uint64_t page_array;         /* linear address of the struct page of frame 0 */
	uint64_t page_array_address; /* of the variable that says so; 0: it is a constant */
	uint32_t page_size;          /* bytes of a struct page */
	uint32_t chunk_shift;        /* log2 of the slots of a node */
	uint32_t mapping_head;       /* offsets from here on */
	uint32_t node_shift;
	uint32_t node_slots;
	uint32_t page_index;
	uint32_t page_mapping;
};

/* `memory` must outlive `out`. GP_ERR_NOT_SUPPORTED: a kernel without a member or symbol that is
 * needed. Allocates nothing. */
gp_status_t linux_page_cache_init(const struct guest_memory *memory,
				  const struct linux_kernel *kernel,
				  const struct symbol_table *symbols, const struct btf *btf,
				  struct linux_page_cache *out, struct error *error);

/* Reads again what boot changes, through `cache->space`, which may have been replaced. False: not
 * readable. */
bool linux_page_cache_refresh(struct linux_page_cache *cache);

/* Where page number `index` of the file of the struct address_space at `mapping`
 * (linux_file.mapping) is. False, `page` untouched: it is not cached. */
bool linux_page_cache_find(const struct linux_page_cache *cache, uint64_t mapping, uint64_t index,
			   gpa_t *page);

/* A file in the page cache. Reading stops short at the first page that is not cached and at the
 * end of the file. Use it where it stays. */
struct linux_cached_file {
	struct file_source source;
	const struct linux_page_cache *cache;
	uint64_t mapping;
	uint64_t size;
};

void linux_cached_file_init(struct linux_cached_file *self, const struct linux_page_cache *cache,
			    const struct linux_file *file);

#endif
