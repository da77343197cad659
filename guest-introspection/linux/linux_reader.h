/* Reading a Linux kernel's structures: bytes at its linear addresses, through its own page tables,
 * and offsets of members by name.
 *
 * The guest may run meanwhile and may be hostile: what was read is a copy to be checked. Reading
 * allocates nothing and locks nothing: any thread, also while a vCPU is stopped. Finding members is
 * cold.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_READER_H
#define GUEST_INTROSPECTION_LINUX_LINUX_READER_H

#include "base/error.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In long mode the kernel's addresses are in the upper half. */
#define LINUX_KERNEL_HALF (UINT64_C(1) << 63)

/* For one use: guests change their page tables, and the cache must not outlive that. */
struct linux_reader {
	const struct guest_memory *memory;
	const struct address_space *space; /* the kernel's */
	struct translation_cache *shared;  /* the caller's; NULL: the own one */
	struct translation_cache own;
};

static inline struct linux_reader linux_reader_of(const struct guest_memory *memory,
						  const struct address_space *space)
{
	return (struct linux_reader){.memory = memory, .space = space};
}

/* The same for a stopped vCPU, with a cache that the caller has cleared since (NULL: the own one).
 */
static inline void linux_reader_share(struct linux_reader *reader,
				      const struct guest_memory *memory,
				      const struct address_space *space,
				      struct translation_cache *cache)
{
	reader->memory = memory;
	reader->space = space;
	reader->shared = cache;
	translation_cache_clear(&reader->own);
}

static inline bool linux_translate(struct linux_reader *reader, uint64_t address,
				   struct translation *out)
{
	return guest_translate_cached(reader->space, reader->shared ? reader->shared : &reader->own,
				      reader->memory, gva(address), out) == TRANSLATE_OK;
}

/* Copies `size` bytes from `address` on. False: not all of them are there, or it is no address of
 * the kernel; `buffer` is unspecified then. */
bool linux_read(struct linux_reader *reader, uint64_t address, void *buffer, size_t size);

static inline bool linux_read_u64(struct linux_reader *reader, uint64_t address, uint64_t *value)
{
	return linux_read(reader, address, value, sizeof(*value));
}

static inline bool linux_read_u32(struct linux_reader *reader, uint64_t address, uint32_t *value)
{
	return linux_read(reader, address, value, sizeof(*value));
}

/* Reads a terminated string, cut to `size` - 1 bytes and to what is there. Returns its length. */
size_t linux_read_text(struct linux_reader *reader, uint64_t address, char *text, size_t size);

/* Goes through a range of the kernel's addresses, page by page; pages that are not there are left
 * out. `bytes` are what is at `address`: one page, and before it as much of the page before as was
 * asked for, so that what lies across two pages is found. */
#define LINUX_SCAN_OVERLAP 32u
#define LINUX_PAGE_SIZE 4096u

struct linux_scan {
	struct linux_reader reader;
	uint64_t next; /* page */
	uint64_t end;
	unsigned overlap;
	bool constants; /* pages of constants only: not writable, not executable */
	bool joined;    /* to the page before */
	uint64_t address;
	const uint8_t *bytes;
	size_t size;
	uint8_t buffer[LINUX_SCAN_OVERLAP + LINUX_PAGE_SIZE];
};

/* `overlap`: at most LINUX_SCAN_OVERLAP. */
void linux_scan_init(struct linux_scan *scan, const struct guest_memory *memory,
		     const struct address_space *space, uint64_t start, uint64_t end,
		     unsigned overlap);

/* False: that was all. */
bool linux_scan_next(struct linux_scan *scan);

/* What an offset is when the kernel has no such member. */
#define LINUX_MEMBER_MISSING UINT32_MAX

/* A member whose offset is asked for. Lines that follow each other with the same field are
 * alternatives: the first that the kernel has counts, and the last says whether one must be. */
struct linux_member {
	const char *structure;
	const char *path; /* as of btf_find_member() */
	uint32_t size;    /* bytes that it must have; 0: any */
	enum { LINUX_REQUIRED, LINUX_OPTIONAL } need;
	size_t field; /* offset of a uint32_t in the caller's structure */
};

/* Fills in the fields of `out` that `members` name. GP_ERR_NOT_SUPPORTED says which one is missing
 * or of another size; some fields may be written then. */
gp_status_t linux_find_members(const struct btf *btf, const struct linux_member *members,
			       size_t count, void *out, struct error *error);

/* Value at `offset` of a copied structure; 0 when it is not wholly inside. */
uint64_t linux_member_value(const void *bytes, size_t size, uint32_t offset, size_t width);

/* The address of a symbol; 0: there is none. */
uint64_t linux_symbol_address(const struct symbol_table *symbols, const char *name);

#endif
