#include "guest-introspection/x86/translate.h"

/* Bits of a paging-structure entry: Intel SDM vol. 3, tables 4-4 to 4-20. */
#define ENTRY_PRESENT UINT64_C(0x01)
#define ENTRY_WRITABLE UINT64_C(0x02)
#define ENTRY_USER UINT64_C(0x04)
#define ENTRY_PAGE_SIZE UINT64_C(0x80)
#define ENTRY_NO_EXECUTE (UINT64_C(1) << 63)
/* X86_TABLE_ADDRESS: a guest that sets an address bit that its own CPU lacks gets a page outside
 * memory here instead of a reserved-bit fault, which is the same to a reader. */

#define PAGE_SHIFT 12
#define LARGE_SHIFT 21

struct address_space address_space_of(const struct guest_cpu *cpu)
{
	struct address_space space = {0};
	enum addressing_mode mode;

	if (!(cpu->cr0 & X86_CR0_PROTECTED))
		mode = ADDRESSING_REAL;
	else if (!(cpu->cr0 & X86_CR0_PAGING))
		mode = ADDRESSING_PROTECTED;
	else if (cpu->efer & X86_EFER_LONG_MODE_ACTIVE)
		mode = cpu->cr4 & X86_CR4_LA57 ? ADDRESSING_5_LEVEL : ADDRESSING_4_LEVEL;
	else
		mode = cpu->cr4 & X86_CR4_PAE ? ADDRESSING_PAE : ADDRESSING_32_BIT;
	space = address_space_at(cpu->cr3, mode);
	space.no_execute = cpu->efer & X86_EFER_NO_EXECUTE;
	space.page_size = cpu->cr4 & X86_CR4_PSE;
	return space;
}

struct address_space address_space_at(uint64_t root, enum addressing_mode mode)
{
	struct address_space space = {.mode = mode, .no_execute = true, .page_size = true};

	switch (mode) {
	case ADDRESSING_REAL:
	case ADDRESSING_PROTECTED:
		break;
	case ADDRESSING_32_BIT:
		space.root = root & UINT64_C(0xfffff000);
		break;
	case ADDRESSING_PAE:
		/* The CPU keeps the four top entries in registers from the last load of CR3;
		 * memory is what we have, and systems keep the two the same. */
		space.root = root & UINT64_C(0xffffffe0);
		break;
	case ADDRESSING_4_LEVEL:
	case ADDRESSING_5_LEVEL:
		space.root = root & X86_TABLE_ADDRESS;
		break;
	}
	return space;
}

unsigned guest_code_size(const struct guest_cpu *cpu)
{
	if (cpu->rflags & X86_RFLAGS_VIRTUAL_8086)
		return 16;
	if (cpu->cs.long_mode && (cpu->efer & X86_EFER_LONG_MODE_ACTIVE))
		return 64;
	return cpu->cs.default_size ? 32 : 16;
}

static bool is_canonical(uint64_t address, unsigned bits)
{
	unsigned unused = 64 - bits;

	return (uint64_t)((int64_t)(address << unused) >> unused) == address;
}

static enum translate_result translate_32_bit(const struct address_space *space,
					      const struct guest_memory *memory, uint64_t address,
					      struct translation *out)
{
	uint32_t entry;
	uint64_t table = space->root;
	bool writable = true;
	bool user = true;

	for (unsigned shift = 22; shift >= PAGE_SHIFT; shift -= 10) {
		if (!guest_memory_read(memory, gpa(table + ((address >> shift) & 0x3ff) * 4),
				       &entry, sizeof(entry)))
			return TRANSLATE_OUTSIDE_MEMORY;
		if (!(entry & ENTRY_PRESENT))
			return TRANSLATE_NOT_PRESENT;
		writable &= !!(entry & ENTRY_WRITABLE);
		user &= !!(entry & ENTRY_USER);
		if (shift == 22 && space->page_size && (entry & ENTRY_PAGE_SIZE)) {
			if (entry & (1u << 21))
				return TRANSLATE_RESERVED;
			/* PSE-36: entry bits 20:13 are address bits 39:32. */
			out->gpa = gpa((uint64_t)(entry >> 13 & 0xff) << 32 |
				       (entry & 0xffc00000u) | (address & 0x3fffff));
			out->page_size = UINT64_C(1) << 22;
			goto done;
		}
		table = entry & 0xfffff000u;
	}
	out->gpa = gpa(table | (address & 0xfff));
	out->page_size = UINT64_C(1) << PAGE_SHIFT;
done:
	out->writable = writable;
	out->user = user;
	out->executable = true;
	return TRANSLATE_OK;
}

/* A walk that has come to `level`: the table there and the rights of the entries before. */
struct walk {
	uint64_t table;
	unsigned level;
	bool writable;
	bool user;
	bool executable;
};

static struct walk walk_from(uint64_t root, unsigned levels)
{
	return (struct walk){
		.table = root, .level = levels, .writable = true, .user = true, .executable = true};
}

/* PAE and long mode: `levels` tables of 8-byte entries. `walk` is where to begin, and afterwards
 * where the last entry was read. */
static enum translate_result translate_64_bit_entries(const struct address_space *space,
						      const struct guest_memory *memory,
						      uint64_t address, unsigned levels,
						      struct walk *walk, struct translation *out)
{
	for (;; walk->level--) {
		unsigned level = walk->level;
		unsigned shift = PAGE_SHIFT + 9 * (level - 1);
		uint64_t page_size = UINT64_C(1) << shift;
		uint64_t entry;
		uint64_t next;
		bool writable;
		bool user;
		bool executable;

		if (!guest_memory_read(memory, gpa(walk->table + ((address >> shift) & 0x1ff) * 8),
				       &entry, sizeof(entry)))
			return TRANSLATE_OUTSIDE_MEMORY;
		if (!(entry & ENTRY_PRESENT))
			return TRANSLATE_NOT_PRESENT;
		next = entry & X86_TABLE_ADDRESS;
		/* PAE's four top entries carry no rights, and no large pages. Bit 5 is reserved
		 * as well, but emulated CPUs set it, as "accessed", and do not mind. */
		if (levels == 3 && level == 3) {
			if (entry & UINT64_C(0x1c6))
				return TRANSLATE_RESERVED;
			walk->table = next;
			continue;
		}
		writable = walk->writable && (entry & ENTRY_WRITABLE);
		user = walk->user && (entry & ENTRY_USER);
		executable = walk->executable && !(space->no_execute && (entry & ENTRY_NO_EXECUTE));
		if (level > 1 && !(entry & ENTRY_PAGE_SIZE)) {
			walk->table = next;
			walk->writable = writable;
			walk->user = user;
			walk->executable = executable;
			continue;
		}
		if (level > 3)
			return TRANSLATE_RESERVED;
		if (level > 1) {
			next &= ~(UINT64_C(1) << PAGE_SHIFT); /* PAT of a large page */
			if (next & (page_size - 1))
				return TRANSLATE_RESERVED;
		}
		out->gpa = gpa(next | (address & (page_size - 1)));
		out->page_size = page_size;
		out->writable = writable;
		out->user = user;
		out->executable = executable;
		return TRANSLATE_OK;
	}
}

/* guest_translate(), and in `walk` where it ended; its level is 0 without 8-byte entries. */
static enum translate_result translate(const struct address_space *space,
				       const struct guest_memory *memory, gva_t address,
				       struct walk *walk, struct translation *out)
{
	struct translation found;
	enum translate_result result;
	unsigned levels;

	walk->level = 0;
	if (space->mode < ADDRESSING_4_LEVEL && address.value > UINT32_MAX)
		return TRANSLATE_NON_CANONICAL;
	switch (space->mode) {
	case ADDRESSING_REAL:
	case ADDRESSING_PROTECTED:
		*out = (struct translation){.gpa = gpa(address.value),
					    .page_size = UINT64_C(1) << PAGE_SHIFT,
					    .writable = true,
					    .user = true,
					    .executable = true};
		return TRANSLATE_OK;
	case ADDRESSING_32_BIT:
		result = translate_32_bit(space, memory, address.value, &found);
		if (result == TRANSLATE_OK)
			*out = found;
		return result;
	case ADDRESSING_PAE:
		levels = 3;
		break;
	case ADDRESSING_4_LEVEL:
		if (!is_canonical(address.value, 48))
			return TRANSLATE_NON_CANONICAL;
		levels = 4;
		break;
	case ADDRESSING_5_LEVEL:
		if (!is_canonical(address.value, 57))
			return TRANSLATE_NON_CANONICAL;
		levels = 5;
		break;
	default:
		return TRANSLATE_NON_CANONICAL;
	}
	*walk = walk_from(space->root, levels);
	result = translate_64_bit_entries(space, memory, address.value, levels, walk, &found);
	if (result == TRANSLATE_OK)
		*out = found;
	return result;
}

enum translate_result guest_translate(const struct address_space *space,
				      const struct guest_memory *memory, gva_t address,
				      struct translation *out)
{
	struct walk walk;

	return translate(space, memory, address, &walk, out);
}

/* Flags of a cache entry, in the bits that a page's address leaves free. */
#define CACHED_WRITABLE UINT64_C(1)
#define CACHED_USER UINT64_C(2)
#define CACHED_EXECUTABLE UINT64_C(4)
#define CACHED_SIZE_SHIFT 3 /* log2 of the page size, 6 bits */
#define CACHED_FLAGS UINT64_C(0x1ff)

static bool cache_lookup(const struct translation_cache_entry *entry, bool valid, uint64_t tag,
			 uint64_t offset, struct translation *out)
{
	if (!valid || entry->tag != tag)
		return false;
	out->gpa = gpa((entry->value & ~CACHED_FLAGS) + offset);
	out->page_size = UINT64_C(1) << (entry->value >> CACHED_SIZE_SHIFT & 0x3f);
	out->writable = entry->value & CACHED_WRITABLE;
	out->user = entry->value & CACHED_USER;
	out->executable = entry->value & CACHED_EXECUTABLE;
	return true;
}

static uint64_t cache_value(const struct translation *translation, uint64_t offset)
{
	return (translation->gpa.value - offset) | (translation->writable ? CACHED_WRITABLE : 0) |
	       (translation->user ? CACHED_USER : 0) |
	       (translation->executable ? CACHED_EXECUTABLE : 0) |
	       (uint64_t)__builtin_ctzll(translation->page_size) << CACHED_SIZE_SHIFT;
}

enum translate_result guest_translate_cached(const struct address_space *space,
					     struct translation_cache *cache,
					     const struct guest_memory *memory, gva_t address,
					     struct translation *out)
{
	uint64_t small_tag = address.value >> PAGE_SHIFT;
	uint64_t large_tag = address.value >> LARGE_SHIFT;
	uint64_t small_offset = address.value & ((UINT64_C(1) << PAGE_SHIFT) - 1);
	uint64_t large_offset = address.value & ((UINT64_C(1) << LARGE_SHIFT) - 1);
	unsigned small = small_tag % TRANSLATION_CACHE_SMALL;
	unsigned large = large_tag % TRANSLATION_CACHE_LARGE;
	unsigned table = large_tag % TRANSLATION_CACHE_TABLES;
	struct translation found;
	struct walk walk;
	enum translate_result result;

	if (!cache || space->mode < ADDRESSING_32_BIT)
		return guest_translate(space, memory, address, out);
	if (cache_lookup(&cache->small[small], cache->small_valid >> small & 1, small_tag,
			 small_offset, out) ||
	    cache_lookup(&cache->large[large], cache->large_valid >> large & 1, large_tag,
			 large_offset, out))
		return TRANSLATE_OK;
	if (cache_lookup(&cache->tables[table], cache->tables_valid >> table & 1, large_tag, 0,
			 &found)) {
		walk = (struct walk){.table = found.gpa.value,
				     .level = 1,
				     .writable = found.writable,
				     .user = found.user,
				     .executable = found.executable};
		result = translate_64_bit_entries(space, memory, address.value, 0, &walk, &found);
	} else {
		result = translate(space, memory, address, &walk, &found);
	}
	if (result != TRANSLATE_OK)
		return result;
	*out = found;
	if (found.page_size >= UINT64_C(1) << LARGE_SHIFT) {
		cache->large[large].tag = large_tag;
		cache->large[large].value = cache_value(&found, large_offset);
		cache->large_valid |= 1u << large;
		return TRANSLATE_OK;
	}
	cache->small[small].tag = small_tag;
	cache->small[small].value = cache_value(&found, small_offset);
	cache->small_valid |= 1u << small;
	if (walk.level == 1) {
		found = (struct translation){.gpa = gpa(walk.table),
					     .page_size = UINT64_C(1) << PAGE_SHIFT,
					     .writable = walk.writable,
					     .user = walk.user,
					     .executable = walk.executable};
		cache->tables[table].tag = large_tag;
		cache->tables[table].value = cache_value(&found, 0);
		cache->tables_valid |= 1u << table;
	}
	return TRANSLATE_OK;
}

enum translate_result guest_read_virtual(const struct address_space *space,
					 struct translation_cache *cache,
					 const struct guest_memory *memory, gva_t address,
					 void *buffer, size_t size)
{
	uint8_t *out = buffer;
	uint64_t at = address.value;

	if (size > 0 && at + (size - 1) < at)
		return TRANSLATE_NON_CANONICAL;
	while (size > 0) {
		struct translation translation;
		uint64_t left;
		size_t piece;
		enum translate_result result =
			guest_translate_cached(space, cache, memory, gva(at), &translation);

		if (result != TRANSLATE_OK)
			return result;
		left = translation.page_size - (at & (translation.page_size - 1));
		piece = size < left ? size : (size_t)left;
		if (!guest_memory_read(memory, translation.gpa, out, piece))
			return TRANSLATE_OUTSIDE_MEMORY;
		out += piece;
		at += piece;
		size -= piece;
	}
	return TRANSLATE_OK;
}
