/* What the vCPUs did, counted from the records of a running recording. */
#include "recording/record_watch.h"

#include "fxt/sample.h"

#include <criterion/criterion.h>

static size_t add(uint64_t *words, size_t used, size_t room, uint64_t flags, uint64_t mode)
{
	struct fxt_sample sample = {.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
					     FXT_SAMPLE_MODE | flags,
				    .timestamp = 1,
				    .mode = mode,
				    .continuation = 1};

	return used + fxt_sample_encode(&sample, words + used, room - used);
}

Test(record_watch, counts_full_samples_by_mode_and_stops_at_what_is_cut)
{
	struct namer namer;
	struct record_watch watch = {.namer = &namer,
				     .leaves = leaf_code_create(&namer, NULL, NULL, NULL)};
	uint64_t words[128];
	size_t used = 0, whole;

	namer_init(&namer, &(struct namer_config){0});
	used = add(words, used, 128, 0, FXT_MODE_GUEST_USER);
	used = add(words, used, 128, FXT_SAMPLE_CONTINUATION, FXT_MODE_GUEST_USER);
	used = add(words, used, 128, 0, FXT_MODE_HALTED);
	used = add(words, used, 128, 0, FXT_MODE_HALTED);
	used = add(words, used, 128, 0, 77);
	whole = used;
	used = add(words, used, 128, 0, FXT_MODE_GUEST_KERNEL);
	record_watch_see(&watch, words, used - 1);
	cr_assert_arr_eq(watch.modes, ((uint64_t[RECORD_MODES]){1, 1, 0, 2, 0, 0}),
			 sizeof(watch.modes));
	record_watch_see(&watch, words + whole, used - whole);
	cr_assert_eq(watch.modes[FXT_MODE_GUEST_KERNEL], 1);
	words[0] = 0;
	record_watch_see(&watch, words, used);
	cr_assert_eq(watch.modes[FXT_MODE_GUEST_USER], 1, "a record of no size ends it");
	leaf_code_destroy(watch.leaves);
	namer_deinit(&namer);
}
