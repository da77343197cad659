/* Whatever a guest prints: the filter keeps within its bound, does not depend on where the
 * output is cut, and lets no control byte through but those it names. */
#include "vmm/devices/terminal_filter.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct terminal_filter whole = {0}, cut = {0};
	uint8_t *once = malloc(TERMINAL_FILTER_OUTPUT(size));
	uint8_t *pieces = malloc(2 * TERMINAL_FILTER_OUTPUT(size));
	size_t middle = size ? data[0] % (size + 1) : 0;
	size_t length = terminal_filter(&whole, data, size, once);
	size_t other = terminal_filter(&cut, data, middle, pieces);

	other += terminal_filter(&cut, data + middle, size - middle, pieces + other);
	if (length > TERMINAL_FILTER_OUTPUT(size) || other != length ||
	    memcmp(once, pieces, length))
		abort();
	for (size_t i = 0; i < length; i++) {
		if (once[i] == 0x7f || (once[i] < 0x20 && !strchr("\n\r\t\b\a\033", once[i])))
			abort();
		if (once[i] == 0x1b && (i + 2 >= length || once[i + 1] != '['))
			abort();
	}
	free(once);
	free(pieces);
	return 0;
}
