/* What the vCPUs were doing, counted as the records of a session pass by: for whoever shows it
 * while the guest runs. One thread adds; any thread reads.
 */
#ifndef RECORDING_TALLY_H
#define RECORDING_TALLY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TALLY_MODES 6 /* enum fxt_sample_mode; others count as unknown */

struct tally {
	_Atomic uint64_t modes[TALLY_MODES];
};

/* Adds the full samples among `count` words of whole records. */
void tally_add(struct tally *tally, const uint64_t *words, size_t count);

void tally_read(const struct tally *tally, uint64_t modes[TALLY_MODES]);

#endif
