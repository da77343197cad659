#include "base/hash_table.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	uint32_t key[2];
	uint64_t value;
};

Test(hash_table, gives_each_key_one_number_and_keeps_the_rest_of_the_entry)
{
	struct hash_table table;

	hash_table_init(&table, 8, sizeof(struct entry));
	cr_assert_null(hash_table_find(&table, &(uint64_t){1}));
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 5000; i++) {
			uint32_t key[] = {i % 50, i / 50}, number;
			struct entry *entries;

			cr_assert(hash_table_add(&table, key, &number));
			cr_assert_eq(number, i);
			entries = table.entries;
			cr_assert_eq(entries[i].value, round ? i : 0);
			entries[i].value = i;
			cr_assert_eq(hash_table_find(&table, key), &entries[i]);
		}
	}
	cr_assert_eq(table.count, 5000);
	cr_assert_null(hash_table_find(&table, ((uint32_t[]){50, 0})));
	hash_table_deinit(&table);
	hash_table_deinit(&table);
}

static uint64_t hash_of_text(const struct hash_table *table, const void *key)
{
	const char *text = *(const char *const *)key;

	return hash_bytes(table, text, strlen(text));
}

static bool is_same_text(const void *entry, const void *key)
{
	return !strcmp(*(const char *const *)entry, *(const char *const *)key);
}

Test(hash_table, keys_may_be_compared_by_what_they_point_to)
{
	struct hash_table table;
	uint32_t number;

	hash_table_init(&table, sizeof(char *), sizeof(char *));
	table.hash = hash_of_text;
	table.is_equal = is_same_text;
	for (uint32_t i = 0; i < 1000; i++) {
		char *text = NULL, again[16];

		cr_assert_gt(asprintf(&text, "text %u", i), 0);
		cr_assert(hash_table_add(&table, &text, &number));
		cr_assert_eq(number, i);
		snprintf(again, sizeof(again), "text %u", i / 2);
		cr_assert(hash_table_add(&table, &(char *){again}, &number));
		cr_assert_eq(number, i / 2);
	}
	cr_assert_eq(table.count, 1000);
	for (size_t i = 0; i < table.count; i++)
		free(((char **)table.entries)[i]);
	hash_table_deinit(&table);
}

/* Steps behind the first slot that all keys together take to be found. */
static size_t steps(const struct hash_table *table)
{
	size_t sum = 0;

	for (size_t i = 0; i < table->slot_count; i++)
		if (table->slots[i].number)
			sum += (i - table->slots[i].hash) & (table->slot_count - 1);
	return sum;
}

#define SECRET       \
	{            \
		1, 2 \
	}
#define COLLIDING 2000

/* Keys that collide under a secret that is known are as good as any others under another one. */
Test(hash_table, keys_chosen_to_collide_do_not)
{
	struct hash_table known = {.secret = SECRET}, unknown;
	size_t slots = 4096;
	uint32_t number;

	hash_table_init(&known, 16, 16);
	hash_table_init(&unknown, 16, 16);
	cr_assert(unknown.secret[0] || unknown.secret[1]);
	memcpy(known.secret, (uint64_t[])SECRET, sizeof(known.secret));
	for (uint64_t key[2] = {0}; known.count < COLLIDING; key[0]++) {
		if (hash_bytes(&known, key, sizeof(key)) & (slots - 1))
			continue;
		cr_assert(hash_table_add(&known, key, &number));
		cr_assert(hash_table_add(&unknown, key, &number));
	}
	cr_assert_eq(known.slot_count, slots);
	cr_assert_gt(steps(&known), (size_t)COLLIDING * COLLIDING / 4);
	cr_assert_lt(steps(&unknown), (size_t)COLLIDING * 4);
	hash_table_deinit(&known);
	hash_table_deinit(&unknown);
}

Test(hash_table, hashes_are_siphash_1_3)
{
	/* CPython's hash() of bytes with PYTHONHASHSEED=0: a secret of zeros. */
	struct hash_table table = {0};

	cr_assert_eq(hash_bytes(&table, "a", 1), UINT64_C(0x407448d2b89b1813));
	cr_assert_eq(hash_bytes(&table, "eight by", 8), UINT64_C(0xd54cf3f0e0ee2aad));
	cr_assert_eq(hash_bytes(&table, "[kernel, no symbol]", 19), UINT64_C(0xac5764f418202124));
}
