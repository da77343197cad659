/* A growing set of addresses, each with a mark. */
#ifndef NAMING_ADDRESS_SET_H
#define NAMING_ADDRESS_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More different addresses than this are not remembered, and so not named: 64 MiB of memory. */
#define ADDRESS_SET_LIMIT (UINT32_C(4) << 20)

struct address_set {
	uint64_t *addresses; /* 0 is an empty place; open addressing */
	uint8_t *marks;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
};

void address_set_deinit(struct address_set *set);

/* The place of `address` (not 0) in the arrays, which may be new with mark 0. False: out of
 * memory or limit. Places change when the set grows. */
bool address_set_place(struct address_set *set, uint64_t address, size_t *place);

#endif
