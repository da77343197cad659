#include "base/intern.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_MAX ((size_t)1 << 31)

void intern_init(struct intern *table, size_t key_bytes, size_t entry_bytes)
{
	*table = (struct intern){.key_bytes = key_bytes, .entry_bytes = entry_bytes};
}

void intern_deinit(struct intern *table)
{
	free(table->entries);
	free(table->slots);
	*table = (struct intern){0};
}

/* The finalizer of MurmurHash3 (public domain) over each word. */
static uint64_t hash_of(const void *key, size_t bytes)
{
	uint64_t hash = bytes;

	for (size_t at = 0; at + 4 <= bytes; at += 4) {
		uint32_t word;

		memcpy(&word, (const char *)key + at, 4);
		hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
		hash ^= hash >> 33;
		hash *= UINT64_C(0xc4ceb9fe1a85ec53);
		hash ^= hash >> 33;
	}
	return hash;
}

static const void *entry(const struct intern *table, size_t number)
{
	return (const char *)table->entries + number * table->entry_bytes;
}

/* The slot that the key is in, or the free one where it belongs. Ends: one slot in four is free. */
static size_t slot_of(const struct intern *table, const void *key)
{
	size_t slot = hash_of(key, table->key_bytes) & (table->slot_count - 1);

	while (table->slots[slot] &&
	       memcmp(entry(table, table->slots[slot] - 1), key, table->key_bytes) != 0)
		slot = (slot + 1) & (table->slot_count - 1);
	return slot;
}

static bool grow_slots(struct intern *table)
{
	size_t count = table->slot_count ? table->slot_count * 2 : 64;
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return false;
	free(table->slots);
	table->slots = slots;
	table->slot_count = count;
	for (size_t i = 0; i < table->count; i++)
		slots[slot_of(table, entry(table, i))] = (uint32_t)i + 1;
	return true;
}

static bool grow_entries(struct intern *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : 64;
	void *entries = realloc(table->entries, capacity * table->entry_bytes);

	if (!entries)
		return false;
	table->entries = entries;
	table->capacity = capacity;
	return true;
}

bool intern_add(struct intern *table, const void *key, uint32_t *number)
{
	size_t slot;
	char *added;

	if (table->count >= table->slot_count / 4 * 3 && !grow_slots(table))
		return false;
	slot = slot_of(table, key);
	if (table->slots[slot]) {
		*number = table->slots[slot] - 1;
		return true;
	}
	if (table->count == COUNT_MAX || (table->count == table->capacity && !grow_entries(table)))
		return false;
	added = (char *)table->entries + table->count * table->entry_bytes;
	memset(added, 0, table->entry_bytes);
	memcpy(added, key, table->key_bytes);
	*number = (uint32_t)table->count;
	table->slots[slot] = (uint32_t)++table->count;
	return true;
}
