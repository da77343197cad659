/* Makes bytes of a guest safe to show on the host's terminal.
 *
 * A terminal obeys escape sequences: some answer into its input, some rename windows,
 * write files or leave it unusable. Passed as they are: printable ASCII, valid UTF-8
 * above U+009F, \n \r \t \b BEL, and of the control sequences (ECMA-48 CSI) colours and attributes
 * (m), cursor movement (A to H, d, f) and erasing (J, K). Any other well-formed CSI sequence is
 * left out; every other control byte is made visible: ^X, ^[ and \x9b.
 */
#ifndef VMM_DEVICES_TERMINAL_FILTER_H
#define VMM_DEVICES_TERMINAL_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TERMINAL_FILTER_SEQUENCE_MAX 32

/* Room that `size` bytes need at most. */
#define TERMINAL_FILTER_OUTPUT(size) (4 * ((size) + TERMINAL_FILTER_SEQUENCE_MAX))

/* Zero-initialised. */
struct terminal_filter {
	uint8_t sequence[TERMINAL_FILTER_SEQUENCE_MAX]; /* begun, not complete */
	unsigned sequence_size;
	bool passed_attributes; /* the terminal's colours may have been changed */
};

/* Writes what stands for `bytes` to `out` and returns its size. A sequence that is not
 * complete waits for the next call. */
size_t terminal_filter(struct terminal_filter *filter, const uint8_t *bytes, size_t size,
		       uint8_t *out);

#endif
