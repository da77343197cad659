/* Sampler sessions against threads that play vCPUs, as a program of its own for ThreadSanitizer:
 *
 *     make SAN=thread build/thread/tests/thread/sampler && build/thread/tests/thread/sampler
 */
#include "tests/unit/fake_target.h"

#include <stdio.h>

int main(void)
{
	uint64_t ticks = 0;
	const char *wrong = fake_stress(40, &ticks);

	if (wrong) {
		fprintf(stderr, "sampler: %s\n", wrong);
		return 1;
	}
	printf("sampler: %llu ticks, all accounted for\n", (unsigned long long)ticks);
	return ticks ? 0 : 1;
}
