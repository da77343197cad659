#include "base/hash_table.h"

#include "base/vector.h"

#include <sys/auxv.h>

#define COUNT_MAX ((size_t)1 << 31)
#define SLOTS_MIN 64

void hash_table_init(struct hash_table *table, size_t key_bytes, size_t entry_bytes)
{
	const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);

	*table = (struct hash_table){.key_bytes = key_bytes, .entry_bytes = entry_bytes};
	/* 16 bytes, other ones in every process. */
	if (random)
		memcpy(table->secret, random, sizeof(table->secret));
}

void hash_table_deinit(struct hash_table *table)
{
	free(table->entries);
	free(table->slots);
	table->entries = NULL;
	table->slots = NULL;
	table->count = table->capacity = table->slot_count = 0;
}

static uint64_t rotate(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

struct sip {
	uint64_t a, b, c, d;
};

static inline void sip_round(struct sip *sip)
{
	sip->a += sip->b;
	sip->c += sip->d;
	sip->b = rotate(sip->b, 13) ^ sip->a;
	sip->d = rotate(sip->d, 16) ^ sip->c;
	sip->a = rotate(sip->a, 32) + sip->d;
	sip->c += sip->b;
	sip->d = rotate(sip->d, 21) ^ sip->a;
	sip->b = rotate(sip->b, 17) ^ sip->c;
	sip->c = rotate(sip->c, 32);
}

static inline void sip_word(struct sip *sip, uint64_t word)
{
	sip->d ^= word;
	sip_round(sip);
	sip->a ^= word;
}

static inline struct sip sip_begin(const struct hash_table *table)
{
	return (struct sip){
		.a = table->secret[0] ^ UINT64_C(0x736f6d6570736575),
		.b = table->secret[1] ^ UINT64_C(0x646f72616e646f6d),
		.c = table->secret[0] ^ UINT64_C(0x6c7967656e657261),
		.d = table->secret[1] ^ UINT64_C(0x7465646279746573),
	};
}

static inline uint64_t sip_end(struct sip *sip)
{
	sip->c ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(sip);
	return sip->a ^ sip->b ^ sip->c ^ sip->d;
}

uint64_t hash_bytes(const struct hash_table *table, const void *bytes, size_t size)
{
	struct sip sip = sip_begin(table);
	const char *at = bytes;
	uint64_t word, last = (uint64_t)size << 56;
	size_t left = size;

	for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sip_word(&sip, word);
	}
	for (size_t i = 0; i < left; i++)
		last |= (uint64_t)(uint8_t)at[i] << 8 * i;
	sip_word(&sip, last);
	return sip_end(&sip);
}

static uint32_t hash_of(const struct hash_table *table, const void *key)
{
	struct sip sip;
	uint64_t word;

	if (table->hash)
		return (uint32_t)table->hash(table, key);
	if (table->key_bytes != sizeof(word))
		return (uint32_t)hash_bytes(table, key, table->key_bytes);
	/* Keys of one length need no length behind them. */
	sip = sip_begin(table);
	memcpy(&word, key, sizeof(word));
	sip_word(&sip, word);
	return (uint32_t)sip_end(&sip);
}

static void *entry_at(const struct hash_table *table, size_t number)
{
	return (char *)table->entries + number * table->entry_bytes;
}

static bool is_key_of(const struct hash_table *table, size_t number, const void *key)
{
	const void *entry = entry_at(table, number);

	if (table->is_equal)
		return table->is_equal(entry, key);
	/* A size that is known needs no call. */
	return table->key_bytes == sizeof(uint64_t) ? !memcmp(entry, key, sizeof(uint64_t))
						    : !memcmp(entry, key, table->key_bytes);
}

/* The slot that the key is in, or the free one where it belongs. Ends: one slot in four is free. */
static struct hash_slot *slot_of(const struct hash_table *table, uint32_t hash, const void *key)
{
	size_t at = hash & (table->slot_count - 1);

	while (table->slots[at].number && (table->slots[at].hash != hash ||
					   !is_key_of(table, table->slots[at].number - 1, key)))
		at = (at + 1) & (table->slot_count - 1);
	return &table->slots[at];
}

static bool grow_slots(struct hash_table *table)
{
	size_t count = table->slot_count ? table->slot_count * 2 : SLOTS_MIN;
	struct hash_slot *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return false;
	for (size_t i = 0; i < table->slot_count; i++) {
		size_t at = table->slots[i].hash & (count - 1);

		if (!table->slots[i].number)
			continue;
		while (slots[at].number)
			at = (at + 1) & (count - 1);
		slots[at] = table->slots[i];
	}
	free(table->slots);
	table->slots = slots;
	table->slot_count = count;
	return true;
}

static bool grow_entries(struct hash_table *table)
{
	void *entries =
		vector_grow(table->entries, table->count, &table->capacity, 1, table->entry_bytes);

	if (!entries)
		return false;
	table->entries = entries;
	return true;
}

bool hash_table_add(struct hash_table *table, const void *key, uint32_t *number)
{
	uint32_t hash = hash_of(table, key);
	struct hash_slot *slot;
	char *added;

	if (table->count >= table->slot_count / 4 * 3 && !grow_slots(table))
		return false;
	slot = slot_of(table, hash, key);
	if (slot->number) {
		*number = slot->number - 1;
		return true;
	}
	if (table->count == COUNT_MAX || (table->count == table->capacity && !grow_entries(table)))
		return false;
	added = entry_at(table, table->count);
	memcpy(added, key, table->key_bytes);
	memset(added + table->key_bytes, 0, table->entry_bytes - table->key_bytes);
	*number = (uint32_t)table->count++;
	*slot = (struct hash_slot){hash, *number + 1};
	return true;
}

void *hash_table_find(const struct hash_table *table, const void *key)
{
	const struct hash_slot *slot =
		table->slot_count ? slot_of(table, hash_of(table, key), key) : NULL;

	return slot && slot->number ? entry_at(table, slot->number - 1) : NULL;
}
