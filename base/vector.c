#include "base/vector.h"

#define FIRST_BYTES 256 /* of an array that grows one by one */

void *vector_grow(void *items, size_t count, size_t *capacity, size_t more, size_t item_bytes)
{
	size_t wanted, doubled = *capacity < SIZE_MAX / 2 ? *capacity * 2 : SIZE_MAX;
	void *grown;

	if (__builtin_add_overflow(count, more, &wanted))
		return NULL;
	if (wanted < doubled)
		wanted = doubled;
	if (wanted < FIRST_BYTES / item_bytes)
		wanted = FIRST_BYTES / item_bytes;
	if (wanted > PTRDIFF_MAX / item_bytes) /* no object is larger; sanitizers end the program */
		return NULL;
	grown = reallocarray(items, wanted, item_bytes);
	if (grown)
		*capacity = wanted;
	return grown;
}
