/* The shares of run_tree()'s leaves (tests/guests/roles.c), as what statistics allow them to be. */
#ifndef TESTS_KVM_SHARES_H
#define TESTS_KVM_SHARES_H

#include <criterion/criterion.h>
#include <stdint.h>

/* Of one round of run_tree(): instructions in the leaves' loops, and bounds on all others, in
 * units of a loop's instructions. A call, a return, a push touch memory, for which an emulator
 * takes several times as long as for a register; ten times is a bound for those seen. */
#define LOOP_INSTRUCTIONS 120000.0L
#define OTHER_INSTRUCTIONS 1200.0L
#define LEAF_FRAME_INSTRUCTIONS 120.0L

enum { LEAVES = 4 };
/* 99.9 % for all shares of a guest together, half on each side. */
#define TAIL (0.0005L / LEAVES)

static const char *const leaf_names[LEAVES] = {"leaf_70", "leaf_20", "leaf_8", "leaf_2"};
static const long double leaf_instructions[LEAVES] = {84000, 24000, 9600, 2400};

/* P(X <= k) of the binomial distribution, by adding up its terms. */
static inline long double at_most(uint64_t k, uint64_t n, long double p)
{
	long double term = 1, sum;

	for (uint64_t i = 0; i < n; i++)
		term *= 1 - p;
	sum = term;
	for (uint64_t i = 1; i <= k; i++) {
		term *= (long double)(n - i + 1) / (long double)i * p / (1 - p);
		sum += term;
	}
	return sum;
}

static inline void check_share(const char *name, uint64_t k, uint64_t n, long double instructions)
{
	long double least = instructions / (LOOP_INSTRUCTIONS + OTHER_INSTRUCTIONS);
	long double most = (instructions + LEAF_FRAME_INSTRUCTIONS) / LOOP_INSTRUCTIONS;

	cr_assert(at_most(k, n, least) > TAIL && (!k || 1 - at_most(k - 1, n, most) > TAIL),
		  "%s: %llu of %llu samples cannot be a share of %.2Lf to %.2Lf %%", name,
		  (unsigned long long)k, (unsigned long long)n, least * 100, most * 100);
}

#endif
