/* The ring between two threads, as a program of its own for ThreadSanitizer (Criterion does not run
 * under it):
 *
 *     make SAN=thread build/thread/tests/thread/fxt_ring && build/thread/tests/thread/fxt_ring
 */
#include "tests/unit/fxt_ring_stress.h"

#include <stdio.h>

int main(void)
{
	static struct fxt_ring ring;
	struct fxt_ring_stress stress = {0};
	struct error error;
	const char *wrong;

	if (fxt_ring_init(&ring, FXT_RING_BYTES_MIN, &error) != GP_OK) {
		fprintf(stderr, "fxt_ring: %s\n", error.text);
		return 1;
	}
	wrong = fxt_ring_stress(&ring, 200000, &stress);
	fxt_ring_deinit(&ring);
	if (wrong) {
		fprintf(stderr, "fxt_ring: %s, at record %lu\n", wrong, stress.last);
		return 1;
	}
	printf("fxt_ring: %lu records arrived, %lu were dropped and counted\n", stress.seen,
	       stress.dropped_records);
	return stress.seen != 0 && stress.dropped_records != 0 ? 0 : 1;
}
