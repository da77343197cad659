/* A table of entries that are found by their keys: a set, a map, or distinct values with numbers.
 *
 *     struct hash_table table;
 *     hash_table_init(&table, sizeof(uint64_t), sizeof(struct entry));   the key is an entry's
 * begin if (hash_table_add(&table, &key, &number))                         found, or added
 *             ((struct entry *)table.entries)[number].ticks++;
 *     hash_table_deinit(&table);
 *
 * Entries lie in one array, in the order in which they came; an entry's number, counted from 0,
 * stays. Behind its key an entry is zero at first. The padding of a key takes part in comparisons.
 * Nothing is ever removed. Hashes are SipHash-1-3 with a random key (J.-P. Aumasson, D. J.
 * Bernstein), so that guests and files cannot choose keys that collide. One thread at a time.
 */
#ifndef BASE_HASH_TABLE_H
#define BASE_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_table {
	void *entries;
	size_t count;
	/* Optional, set behind hash_table_init(): for keys that are not compared as bytes, such as
	 * those that point to a name. Equal keys have equal hashes, by hash_bytes(). */
	uint64_t (*hash)(const struct hash_table *table, const void *key);
	bool (*is_equal)(const void *entry, const void *key);
	/* Private. */
	size_t capacity;
	size_t key_bytes;
	size_t entry_bytes;
	uint64_t secret[2];
	struct hash_slot {
		uint32_t hash;
		uint32_t number; /* plus 1; 0: free */
	} * slots;
	size_t slot_count; /* a power of two, or 0 */
};

/* A table whose entries are called `name` and have a type; a member of a structure, itself without
 * a name. */
#define HASH_TABLE(type, name)           \
	union {                          \
		struct hash_table table; \
		struct {                 \
			type *name;      \
			size_t count;    \
		};                       \
	}

/* `key_bytes` is at most `entry_bytes`. Allocates nothing. */
void hash_table_init(struct hash_table *table, size_t key_bytes, size_t entry_bytes);

/* Allowed on a zeroed one, and twice. */
void hash_table_deinit(struct hash_table *table);

/* Finds the key or adds it. False: no memory, or more than 2^31 keys; the table stays as it is. May
 * move the entries. */
bool hash_table_add(struct hash_table *table, const void *key, uint32_t *number);

/* The entry with that key, or NULL. */
void *hash_table_find(const struct hash_table *table, const void *key);

/* The hash of bytes, with the table's secret. */
uint64_t hash_bytes(const struct hash_table *table, const void *bytes, size_t size);

#endif
