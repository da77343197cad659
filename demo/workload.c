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
 * (churn), so that the shares follow from the counts alone and not from the speed of the CPU. Only
 *a busy host can change them, by being slow during sort for instance. So the workload prints its
 *own timings, in CPU time by the guest's clock, after every 20 hundreds and at the end:
 *
 *	workload: hash 594031 sort 169912 walk 84870 us
 *
 *	workload [HUNDREDS]
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

#define ROUND_ITERATIONS 100000u
#define WALK_DEPTH 8u
#define HUNDREDS_A_LINE 20u

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

struct times {
	uint64_t hash;
	uint64_t sort;
	uint64_t walk;
};

static NOINLINE uint64_t cpu_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static NOINLINE void tell(struct times *took)
{
	printf("workload: hash %ju sort %ju walk %ju us\n", (uintmax_t)(took->hash / 1000),
	       (uintmax_t)(took->sort / 1000), (uintmax_t)(took->walk / 1000));
	fflush(stdout);
	*took = (struct times){0};
}

/* Every stretch of ten rounds has the same shares. */
static inline __attribute__((always_inline)) void ten_rounds(unsigned round, struct times *took)
{
	uint64_t begin = cpu_time_ns(), hashed, sorted;

	for (unsigned i = 0; i < 7; i++)
		hash(round + i);
	hashed = cpu_time_ns();
	sort(round + 7);
	sort(round + 8);
	sorted = cpu_time_ns();
	walk(round + 9);
	took->hash += hashed - begin;
	took->sort += sorted - hashed;
	took->walk += cpu_time_ns() - sorted;
}

static NOINLINE void work(unsigned hundreds)
{
	struct times took = {0};

	for (unsigned i = 0; i < hundreds; i++) {
		for (unsigned ten = 0; ten < 10; ten++)
			ten_rounds(10 * ten, &took);
		ask_kernel();
		if (i + 1 == hundreds || (i + 1) % HUNDREDS_A_LINE == 0)
			tell(&took);
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
