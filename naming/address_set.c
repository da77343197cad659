#include "naming/address_set.h"

#include <stdlib.h>

#define CAPACITY_MIN 64

void address_set_deinit(struct address_set *set)
{
	free(set->addresses);
	free(set->marks);
	*set = (struct address_set){0};
}

static size_t find(const struct address_set *set, uint64_t address)
{
	/* Fibonacci hashing spreads neighbouring addresses. */
	size_t place = (address * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (set->capacity - 1);

	while (set->addresses[place] && set->addresses[place] != address)
		place = (place + 1) & (set->capacity - 1);
	return place;
}

static bool grow(struct address_set *set)
{
	struct address_set larger = {.capacity = set->capacity ? set->capacity * 2 : CAPACITY_MIN,
				     .count = set->count};

	larger.addresses = calloc(larger.capacity, sizeof(*larger.addresses));
	larger.marks = calloc(larger.capacity, sizeof(*larger.marks));
	if (!larger.addresses || !larger.marks) {
		address_set_deinit(&larger);
		return false;
	}
	for (size_t i = 0; i < set->capacity; i++) {
		if (set->addresses[i]) {
			size_t place = find(&larger, set->addresses[i]);

			larger.addresses[place] = set->addresses[i];
			larger.marks[place] = set->marks[i];
		}
	}
	address_set_deinit(set);
	*set = larger;
	return true;
}

bool address_set_place(struct address_set *set, uint64_t address, size_t *place)
{
	if (set->count * 2 >= set->capacity) {
		if (set->count >= ADDRESS_SET_LIMIT || !grow(set))
			return false;
	}
	*place = find(set, address);
	if (!set->addresses[*place]) {
		set->addresses[*place] = address;
		set->count++;
	}
	return true;
}
