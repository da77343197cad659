/* A program whose unwind tables no guest has in memory: without frame pointers, and with so much between
 * its code and its .eh_frame that reading ahead does not reach there. Its stack is known:
 * main > outer > middle > inner. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PADDING (24u << 20)

/* Among what is only read, which comes before .eh_frame. */
static const uint8_t padding[PADDING] = {1};

#define FUNCTION __attribute__((noinline, noclone))

FUNCTION static uint64_t inner(uint64_t seed, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		seed = seed * 6364136223846793005u + (seed >> 33);
	return seed;
}

FUNCTION static uint64_t middle(uint64_t seed, unsigned rounds)
{
	uint64_t words[9];

	for (unsigned i = 0; i < 9; i++)
		words[i] = inner(seed + i, rounds);
	return words[seed % 9] + words[(seed >> 8) % 9];
}

FUNCTION static uint64_t outer(uint64_t seed, unsigned rounds)
{
	return middle(seed, rounds) ^ middle(seed + 1, rounds);
}

int main(int argc, char **argv)
{
	unsigned long times = argc > 1 ? strtoul(argv[1], NULL, 10) : 6000;
	uint64_t seed = *(const volatile uint8_t *)&padding[argc];

	printf("far_tables: start\n");
	for (unsigned long i = 0; i < times; i++)
		seed = outer(seed, 20000);
	printf("far_tables: %llx\n", (unsigned long long)seed);
	return 0;
}
