/* A table of distinct keys of one fixed size: each gets a number, counted from 0, that stays.
 *
 * An entry is the key followed by whatever else the caller keeps of it, zero at first. Entries lie
 * in one array, in the order in which they came. The padding of a key takes part in comparisons:
 * build keys of whole words, or clear them first. One thread at a time.
 */
#ifndef BASE_INTERN_H
#define BASE_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct intern {
	void *entries;
	size_t count;
	/* Private. */
	size_t capacity;
	size_t key_bytes;
	size_t entry_bytes;
	uint32_t *slots;   /* number + 1; 0: free */
	size_t slot_count; /* a power of two, or 0 */
};

/* `key_bytes` is a multiple of 4 and at most `entry_bytes`. Allocates nothing. */
void intern_init(struct intern *table, size_t key_bytes, size_t entry_bytes);
void intern_deinit(struct intern *table);

/* Finds the key or adds it. False: no memory, or more than 2^31 keys; the table stays as it is. May
 * move the entries. */
bool intern_add(struct intern *table, const void *key, uint32_t *number);

#endif
