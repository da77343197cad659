/* Hexadecimal numbers in text that is not a string and that nobody vouches for. */
#ifndef BASE_HEXADECIMAL_H
#define BASE_HEXADECIMAL_H

#include <stdbool.h>
#include <stdint.h>

/* The value of a digit, in either case; -1: it is none. */
static inline int hexadecimal_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

/* The number at *at, of 1 to 16 digits, without a prefix; moves *at behind it. False, nothing
 * changed: there is none, or a longer one. */
static inline bool hexadecimal_take(const char **at, const char *end, uint64_t *value)
{
	const char *digit = *at;
	uint64_t number = 0;

	for (; digit < end && hexadecimal_digit(*digit) >= 0; digit++) {
		if (digit - *at == 16)
			return false;
		number = number << 4 | (unsigned)hexadecimal_digit(*digit);
	}
	if (digit == *at)
		return false;
	*value = number;
	*at = digit;
	return true;
}

/* The same for a number in a line of several: a space has to follow. Moves *at behind all spaces
 * there. */
static inline bool hexadecimal_take_column(const char **at, const char *end, uint64_t *value)
{
	const char *behind = *at;

	if (!hexadecimal_take(&behind, end, value) || behind == end || *behind != ' ')
		return false;
	while (behind < end && *behind == ' ')
		behind++;
	*at = behind;
	return true;
}

#endif
