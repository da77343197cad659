/* Order: comparisons, and finding a place in what is sorted. */
#ifndef BASE_SORTING_H
#define BASE_SORTING_H

#include <stddef.h>
#include <stdint.h>

/* Below 0, 0, above 0: a is less, equal, greater. */
static inline int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* How many of the sorted items are before the key: where the first that is not begins.
 * `compare(item, key)` is as for qsort(). */
static inline size_t count_before(const void *items, size_t count, size_t item_bytes,
				  const void *key, int (*compare)(const void *, const void *))
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare((const char *)items + middle * item_bytes, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The same with those that are equal to the key. */
static inline size_t count_up_to(const void *items, size_t count, size_t item_bytes,
				 const void *key, int (*compare)(const void *, const void *))
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare((const char *)items + middle * item_bytes, key) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

#endif
