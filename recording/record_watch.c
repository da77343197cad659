#include "recording/record_watch.h"

#include "fxt/record.h"
#include "fxt/sample.h"

_Static_assert(RECORD_MODES == FXT_MODE_NOT_STARTED + 1, "a counter for each mode");

static bool see_sample(struct record_watch *watch, const struct fxt_sample *sample)
{
	bool news = namer_see_sample(watch->namer, sample);
	uint64_t mode = sample->mode < RECORD_MODES ? sample->mode : FXT_MODE_UNKNOWN;

	if (!(sample->flags & FXT_SAMPLE_CONTINUATION))
		atomic_fetch_add_explicit(&watch->modes[mode], 1, memory_order_relaxed);
	leaf_code_see(watch->leaves, sample);
	return user_names_see_sample(watch->programs, sample) || news;
}

/* The name of a process, as sampler/task_names.c writes it: inline, before the samples it is of. */
static void see_object(const struct record_watch *watch, const uint64_t *words, size_t count)
{
	uint64_t name = fxt_bits(words[0], 24, 39);
	size_t size = name & ~(uint64_t)FXT_STRING_REF_INLINE;

	if (fxt_bits(words[0], 16, 23) == FXT_OBJECT_PROCESS && (name & FXT_STRING_REF_INLINE) &&
	    count >= 2 + fxt_words(size))
		user_names_see_process(watch->programs, words[1], (const char *)(words + 2), size);
}

bool record_watch_see(struct record_watch *watch, const uint64_t *words, size_t count)
{
	bool news = false;
	size_t size;

	for (size_t at = 0; at < count; at += size) {
		uint64_t header = words[at];
		struct fxt_sample sample;
		struct fxt_blob blob = {
			.type = (uint8_t)fxt_bits(header, 48, 55),
			.payload = &words[at + 1],
			.size = fxt_bits(header, 32, 46),
		};

		size = fxt_header_words(header);
		if (!size || size > count - at)
			break;
		if (fxt_header_type(header) == FXT_TYPE_KERNEL_OBJECT)
			see_object(watch, words + at, size);
		if (fxt_header_type(header) == FXT_TYPE_BLOB && fxt_blob_is_sample(&blob) &&
		    !fxt_sample_decode(&blob, &sample) && see_sample(watch, &sample))
			news = true;
	}
	return news;
}
