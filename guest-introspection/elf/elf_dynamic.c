#include "guest-introspection/elf/elf_dynamic.h"

#include "base/container.h"

#include <elf.h>
#include <stddef.h>

#define ENTRY_LIMIT 1024u
#define HASH_LIMIT (1u << 17)

_Static_assert(sizeof(Elf64_Dyn) == 16 && sizeof(Elf32_Dyn) == 8, "System V ABI");

#define FIELD(name) offsetof(struct elf_dynamic, name)

/* Where the values of entries go. */
static const struct {
	uint64_t tag;
	size_t field;
	bool address;
} fields[] = {
	{DT_SYMTAB, FIELD(symbols), true},
	{DT_STRTAB, FIELD(strings), true},
	{DT_HASH, FIELD(hash), true},
	{DT_GNU_HASH, FIELD(gnu_hash), true},
	{DT_RELA, FIELD(relocations), true},
	{DT_JMPREL, FIELD(plt_relocations), true},
	{DT_STRSZ, FIELD(strings_size), false},
	{DT_SYMENT, FIELD(entry_size), false},
	{DT_RELASZ, FIELD(relocations_size), false},
	{DT_PLTRELSZ, FIELD(plt_relocations_size), false},
	{DT_PLTREL, FIELD(plt_type), false},
};

bool elf_dynamic_read(const struct file_source *source, const struct elf_image *image,
		      uint64_t loaded_bias, struct elf_dynamic *out)
{
	size_t size = image->is_64 ? sizeof(Elf64_Dyn) : sizeof(Elf32_Dyn);
	uint64_t count = image->dynamic.size / size;
	struct elf_dynamic dynamic = {0};

	for (uint64_t i = 0; i < count && i < ENTRY_LIMIT; i++) {
		uint8_t bytes[sizeof(Elf64_Dyn)];
		struct cursor cursor = cursor_over(bytes, size);
		uint64_t tag;
		uint64_t value;
		uint64_t offset;

		if (file_source_read(source, image->dynamic.offset + i * size, bytes, size) != size)
			return false;
		tag = elf_take_word(&cursor, image->is_64);
		value = elf_take_word(&cursor, image->is_64);
		if (tag == DT_NULL)
			break;
		for (size_t k = 0; k < ARRAY_SIZE(fields); k++) {
			if (fields[k].tag != tag)
				continue;
			/* The dynamic linker of glibc before 2.36 adds the bias to some. */
			if (fields[k].address && !elf_image_offset(image, value, &offset))
				value -= loaded_bias;
			memcpy((char *)&dynamic + fields[k].field, &value, sizeof(value));
		}
	}
	*out = dynamic;
	return count > 0;
}

static bool read_words(const struct file_source *source, const struct elf_image *image,
		       uint64_t address, uint32_t *words, unsigned count)
{
	uint64_t offset;

	return elf_image_offset(image, address, &offset) &&
	       file_source_read(source, offset, words, count * sizeof(*words)) ==
		       count * sizeof(*words);
}

/* The symbols behind the hash table of DT_GNU_HASH: one more than the end of the last chain. */
static uint64_t count_by_gnu_hash(const struct file_source *source, const struct elf_image *image,
				  uint64_t address)
{
	uint32_t
		header[4]; /* buckets, first symbol in them, words of the bloom filter, its shift */
	uint64_t buckets;
	uint64_t chains;
	uint32_t highest = 0;
	uint32_t hash = 0;

	if (!read_words(source, image, address, header, 4) || header[0] > HASH_LIMIT ||
	    header[2] > HASH_LIMIT)
		return 0;
	buckets = address + 16 + (uint64_t)header[2] * (image->is_64 ? 8 : 4);
	chains = buckets + (uint64_t)header[0] * 4;
	for (uint32_t i = 0; i < header[0]; i++) {
		uint32_t first;

		if (!read_words(source, image, buckets + (uint64_t)i * 4, &first, 1))
			return 0;
		if (first > highest)
			highest = first;
	}
	if (highest < header[1])
		return header[1];
	for (unsigned steps = 0; steps < HASH_LIMIT && highest < UINT32_MAX; steps++) {
		if (!read_words(source, image, chains + (uint64_t)(highest - header[1]) * 4, &hash,
				1))
			return 0;
		highest++;
		if (hash & 1)
			return highest;
	}
	return 0;
}

uint64_t elf_dynamic_symbol_count(const struct file_source *source, const struct elf_image *image,
				  const struct elf_dynamic *dynamic)
{
	uint64_t entry_size = image->is_64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
	uint32_t header[2];
	uint64_t count = 0;

	/* The symbols are those of DT_HASH's chains. */
	if (dynamic->hash && read_words(source, image, dynamic->hash, header, 2))
		return header[1];
	if (dynamic->gnu_hash)
		count = count_by_gnu_hash(source, image, dynamic->gnu_hash);
	/* Without either available: linkers put the names right behind the symbols. */
	if (!count && dynamic->strings > dynamic->symbols)
		count = (dynamic->strings - dynamic->symbols) / entry_size;
	return count < UINT32_MAX ? count : UINT32_MAX;
}
