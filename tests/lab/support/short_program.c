/* A program of tests/bench/naming.sh: works for so many milliseconds in functions whose names begin
 * with the program's own, so that a name of another program is seen as wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PASTE(a, b) a##b
#define NAMED(a, b) PASTE(a, b)
#define FUNCTION __attribute__((noinline, noclone))

FUNCTION static unsigned NAMED(PROGRAM, _mix)(unsigned seed)
{
	for (unsigned i = 0; i < 2000; i++)
		seed = seed * 1664525u + (seed >> 15) + PLACE;
	return seed;
}

FUNCTION static unsigned NAMED(PROGRAM, _work)(long milliseconds)
{
	struct timespec now, end;
	unsigned seed = (unsigned)milliseconds;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += milliseconds / 1000;
	end.tv_nsec += milliseconds % 1000 * 1000000;
	do {
		seed = NAMED(PROGRAM, _mix)(seed);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - end.tv_sec) * 1000000000 + now.tv_nsec - end.tv_nsec < 0);
	return seed;
}

int main(int argc, char **argv)
{
	return printf("%u\n", NAMED(PROGRAM, _work)(argc > 1 ? atol(argv[1]) : 5)) < 0;
}
