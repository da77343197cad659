#include "base/vector.h"

#include <criterion/criterion.h>

struct pair {
	uint64_t a, b;
};

Test(vector, keeps_what_was_added_in_order_while_it_grows)
{
	VECTOR(struct pair) pairs = {0};

	for (uint64_t i = 0; i < 10000; i++)
		cr_assert(vector_add(&pairs, (struct pair){i, i * i}));
	cr_assert_eq(pairs.count, 10000);
	cr_assert_geq(pairs.capacity, pairs.count);
	for (uint64_t i = 0; i < pairs.count; i++)
		cr_assert(pairs.items[i].a == i && pairs.items[i].b == i * i);
	vector_deinit(&pairs);
	cr_assert(!pairs.items && !pairs.count && !pairs.capacity);
}

Test(vector, an_item_of_its_own_can_be_added_while_it_grows)
{
	VECTOR(uint64_t) numbers = {0};

	cr_assert(vector_add(&numbers, 7));
	for (size_t i = 1; i < 5000; i++)
		cr_assert(vector_add(&numbers, numbers.items[i - 1]));
	cr_assert_eq(numbers.items[4999], 7);
	vector_deinit(&numbers);
}

Test(vector, texts_and_records_are_put_together_of_pieces)
{
	struct text_vector text = {0};
	struct word_vector words = {0};
	const char *nothing = NULL;

	cr_assert(vector_append(&text, nothing, 0));
	cr_assert_null(text.items, "nothing is allocated for nothing");
	cr_assert(vector_append(&text, "guest", 5));
	cr_assert(vector_append(&text, "prof", 5));
	cr_assert_str_eq(text.items, "guestprof");
	for (uint64_t i = 0; i < 1000; i++)
		cr_assert(vector_append(&words, ((uint64_t[]){i, i + 1, i + 2}), 3));
	cr_assert_eq(words.count, 3000);
	cr_assert_eq(words.items[2999], 1001);
	vector_deinit(&text);
	vector_deinit(&words);
}

Test(vector, more_than_memory_holds_is_refused_and_changes_nothing)
{
	struct word_vector words = {0};

	cr_assert(vector_add(&words, 1));
	/* The sum, the product, and then the allocation would be too large. */
	cr_assert_not(vector_reserve(&words, SIZE_MAX));
	cr_assert_not(vector_reserve(&words, SIZE_MAX / 4));
	cr_assert(words.count == 1 && words.items[0] == 1);
	cr_assert(vector_reserve(&words, 100));
	cr_assert_geq(words.capacity, 101);
	vector_deinit(&words);
}
