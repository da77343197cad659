/* Hexadecimal numbers that may be anything. */
#include "base/hexadecimal.h"

#include <criterion/criterion.h>
#include <string.h>

static bool take(const char *text, size_t *used, uint64_t *value)
{
	const char *at = text;
	bool taken = hexadecimal_take(&at, text + strlen(text), value);

	*used = (size_t)(at - text);
	return taken;
}

Test(hexadecimal, digits_of_either_case)
{
	cr_assert_eq(hexadecimal_digit('0'), 0);
	cr_assert_eq(hexadecimal_digit('9'), 9);
	cr_assert_eq(hexadecimal_digit('a'), 10);
	cr_assert_eq(hexadecimal_digit('F'), 15);
	for (const char *other = "/:@G`g x"; *other; other++)
		cr_assert_eq(hexadecimal_digit(*other), -1, "%c", *other);
	cr_assert_eq(hexadecimal_digit(0), -1);
	cr_assert_eq(hexadecimal_digit((char)0xb1), -1);
}

Test(hexadecimal, a_number_ends_where_its_digits_do)
{
	uint64_t value;
	size_t used;

	cr_assert(take("ffffffff81000000 T _text", &used, &value));
	cr_assert_eq(value, UINT64_C(0xffffffff81000000));
	cr_assert_eq(used, 16);
	cr_assert(take("7Fg", &used, &value));
	cr_assert_eq(value, 0x7f);
	cr_assert_eq(used, 2);
}

Test(hexadecimal, what_is_none_changes_nothing)
{
	static const char *const none[] = {"", " 1", "x", "0ffffffff81000000",
					   "12345678901234567 "};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		uint64_t value = 42;
		size_t used;

		cr_assert(!take(none[i], &used, &value), "%s", none[i]);
		cr_assert_eq(used, 0);
		cr_assert_eq(value, 42);
	}
}
