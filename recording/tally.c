#include "recording/tally.h"

#include "fxt/record.h"
#include "fxt/sample.h"

_Static_assert(TALLY_MODES == FXT_MODE_NOT_STARTED + 1, "a counter for each mode");

void tally_add(struct tally *tally, const uint64_t *words, size_t count)
{
	size_t at = 0, size;

	for (; at < count; at += size) {
		uint64_t header = words[at];
		struct fxt_blob blob = {.type = (uint8_t)fxt_bits(header, 48, 55),
					.payload = &words[at + 1],
					.size = fxt_bits(header, 32, 46)};
		struct fxt_sample sample;

		size = fxt_header_words(header);
		if (!size || size > count - at)
			return;
		if (fxt_header_type(header) != FXT_TYPE_BLOB || !fxt_blob_is_sample(&blob) ||
		    fxt_sample_decode(&blob, &sample) || (sample.flags & FXT_SAMPLE_CONTINUATION))
			continue;
		atomic_fetch_add_explicit(
			&tally->modes[sample.mode < TALLY_MODES ? sample.mode : FXT_MODE_UNKNOWN],
			1, memory_order_relaxed);
	}
}

void tally_read(const struct tally *tally, uint64_t modes[TALLY_MODES])
{
	for (size_t i = 0; i < TALLY_MODES; i++)
		modes[i] = atomic_load_explicit(&tally->modes[i], memory_order_relaxed);
}
