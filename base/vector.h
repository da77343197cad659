/* A growing array of one type; also the builder of texts (char) and of records (64-bit words).
 *
 *     VECTOR(struct row) rows = {0};
 *     if (!vector_add(&rows, (struct row){.ticks = 1}))
 *             return no_memory();                      the vector is as it was
 *     for (size_t i = 0; i < rows.count; i++)
 *             use(&rows.items[i]);
 *     vector_deinit(&rows);
 *
 * Zero is empty and owns nothing. Pointers into `items` hold until the next call that may grow it.
 * Growing doubles, checks for overflow and may fail; nothing else allocates. One thread at a time.
 */
#ifndef BASE_VECTOR_H
#define BASE_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VECTOR(type)             \
	struct {                 \
		type *items;     \
		size_t count;    \
		size_t capacity; \
	}

/* What passes from function to function needs a name. */
struct text_vector {
	char *items;
	size_t count;
	size_t capacity;
};

struct word_vector {
	uint64_t *items;
	size_t count;
	size_t capacity;
};

/* Behind the macros: `items` with room for `more` behind `count`. NULL: no memory, nothing has
 * changed. */
void *vector_grow(void *items, size_t count, size_t *capacity, size_t more, size_t item_bytes);

/* Makes room for `more` items. False: no memory. */
#define vector_reserve(vector, more)                                                         \
	({                                                                                   \
		__auto_type reserve_vector_ = (vector);                                      \
		size_t reserve_more_ = (more);                                               \
		bool reserve_done_ =                                                         \
			reserve_more_ <= reserve_vector_->capacity - reserve_vector_->count; \
		if (!reserve_done_) {                                                        \
			void *reserve_items_ =                                               \
				vector_grow(reserve_vector_->items, reserve_vector_->count,  \
					    &reserve_vector_->capacity, reserve_more_,       \
					    sizeof(*reserve_vector_->items));                \
			if (reserve_items_) {                                                \
				reserve_vector_->items = reserve_items_;                     \
				reserve_done_ = true;                                        \
			}                                                                    \
		}                                                                            \
		reserve_done_;                                                               \
	})

/* Adds one item. False: no memory. */
#define vector_add(vector, ...)                                                   \
	({                                                                        \
		__auto_type add_vector_ = (vector);                               \
		bool add_done_ = vector_reserve(add_vector_, 1);                  \
		if (add_done_)                                                    \
			add_vector_->items[add_vector_->count++] = (__VA_ARGS__); \
		add_done_;                                                        \
	})

/* Adds copies of `more` items at `from`, which are not the vector's own; NULL if `more` is 0.
 * False: no memory. */
#define vector_append(vector, from, more)                                             \
	({                                                                            \
		__auto_type append_vector_ = (vector);                                \
		size_t append_more_ = (more);                                         \
		bool append_done_ = vector_reserve(append_vector_, append_more_);     \
		if (append_done_ && append_more_) {                                   \
			memcpy(append_vector_->items + append_vector_->count, (from), \
			       append_more_ * sizeof(*append_vector_->items));        \
			append_vector_->count += append_more_;                        \
		}                                                                     \
		append_done_;                                                         \
	})

/* Makes the vector at least so long; new items are zero. False: no memory. */
#define vector_extend(vector, least)                                                               \
	({                                                                                         \
		__auto_type extend_vector_ = (vector);                                             \
		size_t extend_count_ = extend_vector_->count, extend_least_ = (least);             \
		bool extend_done_ = extend_least_ <= extend_count_ ||                              \
				    vector_reserve(extend_vector_, extend_least_ - extend_count_); \
		if (extend_done_ && extend_least_ > extend_count_) {                               \
			memset(extend_vector_->items + extend_count_, 0,                           \
			       (extend_least_ - extend_count_) * sizeof(*extend_vector_->items));  \
			extend_vector_->count = extend_least_;                                     \
		}                                                                                  \
		extend_done_;                                                                      \
	})

/* Sorts by a comparison as qsort() takes it. */
#define vector_sort(vector, compare)                                    \
	do {                                                            \
		__auto_type sort_vector_ = (vector);                    \
		if (sort_vector_->count)                                \
			qsort(sort_vector_->items, sort_vector_->count, \
			      sizeof(*sort_vector_->items), (compare)); \
	} while (0)

/* Frees the items. The vector is empty again. */
#define vector_deinit(vector)                                       \
	do {                                                        \
		__auto_type deinit_vector_ = (vector);              \
		free(deinit_vector_->items);                        \
		memset(deinit_vector_, 0, sizeof(*deinit_vector_)); \
	} while (0)

#endif
