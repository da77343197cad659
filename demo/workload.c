/* A workload whose call tree and shares are known, to see whether a profile tells the truth.
 *
 *	main
 *	└─ work
 *	   ├─ hash                70 of 100 rounds
 *	   ├─ sort                20 of 100 rounds
 *	   ├─ walk → walk_down …  10 of 100 rounds, eight levels deep
 *	   └─ ask_kernel          a few system calls in every hundred rounds
 *
 * One round of hash, sort or walk takes the same number of iterations of the same inner loop
 * (churn), so that the shares follow from the counts alone and not from how fast a CPU is.
 * Prints a line when it begins and one when it ends.
 *
 *	workload [HUNDREDS]
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

#define ROUND_ITERATIONS 100000u
#define WALK_DEPTH 8u

static volatile uint64_t sink;

/* The only code that takes time in user mode; always inlined, so that the time is counted
 * where it is spent: in hash, sort or walk_down. */
static inline __attribute__((always_inline)) uint64_t churn(uint64_t state, unsigned iterations)
{
	for (unsigned i = 0; i < iterations; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
	}
	return state;
}

static NOINLINE void hash(uint64_t seed)
{
	sink = churn(seed | 1, ROUND_ITERATIONS);
}

static NOINLINE void sort(uint64_t seed)
{
	sink = churn(seed | 3, ROUND_ITERATIONS);
}

static NOINLINE void walk_down(uint64_t seed, unsigned depth)
{
	if (depth == 0)
		sink = churn(seed | 5, ROUND_ITERATIONS);
	else
		walk_down(seed + depth, depth - 1);
	/* Not a tail call: each level keeps its frame. */
	__asm__ volatile("" ::: "memory");
}

static NOINLINE void walk(uint64_t seed)
{
	walk_down(seed, WALK_DEPTH);
	__asm__ volatile("" ::: "memory");
}

/* The kernel's side: 2 MiB of zeroes, read page by page. */
static NOINLINE void ask_kernel(void)
{
	static char page[4096];
	int zero = open("/dev/zero", O_RDONLY);

	for (int i = 0; i < 512 && zero >= 0; i++) {
		if (read(zero, page, sizeof(page)) != (ssize_t)sizeof(page))
			break;
	}
	if (zero >= 0)
		close(zero);
}

static NOINLINE void work(unsigned hundreds)
{
	for (unsigned i = 0; i < hundreds; i++) {
		for (unsigned round = 0; round < 100; round++) {
			/* Interleaved: every stretch of ten rounds has the same shares. */
			if (round % 10 < 7)
				hash(round);
			else if (round % 10 < 9)
				sort(round);
			else
				walk(round);
		}
		ask_kernel();
	}
	__asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
	unsigned hundreds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20;

	printf("workload: start %u\n", hundreds);
	fflush(stdout);
	work(hundreds);
	printf("workload: finish %u\n", hundreds);
	return 0;
}
