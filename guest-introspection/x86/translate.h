/* Guest-virtual to guest-physical translation, as the CPU would do it, read-only.
 *
 * All paging modes of x86-64 (Intel SDM vol. 3, chapter 4). Nothing is written: accessed and
 * dirty bits stay as they are. Entries come from guest memory that may change meanwhile and
 * may hold anything: every entry is read once, every walk is at most five reads long.
 *
 * Nothing here allocates, locks or blocks; any thread. A cache belongs to one thread at a time.
 */
#ifndef GUEST_INTROSPECTION_X86_TRANSLATE_H
#define GUEST_INTROSPECTION_X86_TRANSLATE_H

#include "base/address.h"
#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/guest_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The address of a page table, in CR3 and in entries: no PCID, no LAM bits, no rights. MAXPHYADDR
 * is at most 52 (Intel SDM vol. 3, 4.5). */
#define X86_TABLE_ADDRESS UINT64_C(0x000ffffffffff000)
/* With page-table isolation Linux runs programs on tables of their own, one page behind the
 * kernel's (arch/x86/entry/calling.h, PTI_USER_PGTABLE_BIT). */
#define X86_ISOLATION_BIT UINT64_C(0x1000)

enum addressing_mode {
	ADDRESSING_REAL,      /* CR0.PE clear */
	ADDRESSING_PROTECTED, /* no paging */
	ADDRESSING_32_BIT,    /* two levels of 4-byte entries */
	ADDRESSING_PAE,       /* three levels, 32-bit linear addresses */
	ADDRESSING_4_LEVEL,
	ADDRESSING_5_LEVEL,
};

/* Where translation starts. A plain value. */
struct address_space {
	uint64_t root; /* gpa of the top table; unused without paging */
	enum addressing_mode mode;
	bool no_execute; /* EFER.NXE: entry bit 63 means something */
	bool page_size;  /* CR4.PSE; only looked at in 32-bit paging */
};

/* The address space that `cpu` is in now. */
struct address_space address_space_of(const struct guest_cpu *cpu);

/* The address space of a page-table root in the form of CR3: low bits that are no address
 * (PCID, cache control) are dropped. NX and PSE are taken to be enabled. */
struct address_space address_space_at(uint64_t root, enum addressing_mode mode);

/* The width of the code that `cpu` runs: 16, 32 or 64 bits. */
unsigned guest_code_size(const struct guest_cpu *cpu);

enum translate_result {
	TRANSLATE_OK,
	TRANSLATE_NOT_PRESENT,
	TRANSLATE_NON_CANONICAL,  /* no linear address of this mode */
	TRANSLATE_RESERVED,       /* an entry that makes the CPU fault: reserved bits set */
	TRANSLATE_OUTSIDE_MEMORY, /* a table, or (when reading) the page, is not in memory */
};

struct translation {
	gpa_t gpa;          /* of the byte asked for, not of the page */
	uint64_t page_size; /* bytes; 4096 without paging */
	bool writable;
	bool user; /* reachable at CPL 3; true without paging */
	bool executable;
};

/* Translates one address. `out` is untouched unless the result is TRANSLATE_OK. The target
 * itself is not looked at: it may lie outside memory. */
enum translate_result guest_translate(const struct address_space *space,
				      const struct guest_memory *memory, gva_t address,
				      struct translation *out);

/* A software TLB for the time a vCPU is stopped: one address space, cleared before each use.
 * Never kept longer, because the guest's invalidations are not known. */
#define TRANSLATION_CACHE_SMALL 16
#define TRANSLATION_CACHE_LARGE 8
#define TRANSLATION_CACHE_TABLES 8

struct translation_cache_entry {
	uint64_t tag;   /* gva >> 12 (small) or >> 21 (large) */
	uint64_t value; /* gpa of that page or 2 MiB piece; the low bits are flags */
};

struct translation_cache {
	uint32_t small_valid; /* bit per entry, so that clearing costs three stores */
	uint32_t large_valid;
	uint32_t tables_valid;
	struct translation_cache_entry small[TRANSLATION_CACHE_SMALL];
	struct translation_cache_entry large[TRANSLATION_CACHE_LARGE];
	/* The tables of the last level, and the rights above them: a new page near a known one
	 * costs one read. */
	struct translation_cache_entry tables[TRANSLATION_CACHE_TABLES];
};

static inline void translation_cache_clear(struct translation_cache *cache)
{
	cache->small_valid = 0;
	cache->large_valid = 0;
	cache->tables_valid = 0;
}

/* As guest_translate(), looking in `cache` (may be NULL) first. Failures are not cached. */
enum translate_result guest_translate_cached(const struct address_space *space,
					     struct translation_cache *cache,
					     const struct guest_memory *memory, gva_t address,
					     struct translation *out);

/* Copies `size` bytes from `address` on, across pages. `cache` may be NULL. `buffer` is
 * unspecified unless the result is TRANSLATE_OK. */
enum translate_result guest_read_virtual(const struct address_space *space,
					 struct translation_cache *cache,
					 const struct guest_memory *memory, gva_t address,
					 void *buffer, size_t size);

#endif
