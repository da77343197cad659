/* Records that grow in memory until they are written. */
#ifndef NAMING_USER_WORDS_H
#define NAMING_USER_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct user_words {
	uint64_t *words;
	size_t count;
	size_t capacity;
};

/* False, nothing changed: no memory. */
static inline bool user_words_add(struct user_words *self, const uint64_t *words, size_t count)
{
	if (self->capacity - self->count < count) {
		size_t capacity = (self->count + count) * 2 + 64;
		uint64_t *larger = realloc(self->words, capacity * sizeof(*larger));

		if (!larger)
			return false;
		self->words = larger;
		self->capacity = capacity;
	}
	if (count)
		memcpy(self->words + self->count, words, count * sizeof(*words));
	self->count += count;
	return true;
}

static inline void user_words_deinit(struct user_words *self)
{
	free(self->words);
	*self = (struct user_words){0};
}

#endif
