#include "trace/merge.h"

#include <stdlib.h>
#include <string.h>

static bool is_before(const struct merge *merge, size_t a, size_t b)
{
	const struct merge_lane *left = &merge->lanes[a], *right = &merge->lanes[b];

	return left->time_ns != right->time_ns ? left->time_ns < right->time_ns : a < b;
}

/* Puts what is at `at` in its place below, after it became later. */
static void sift_down(struct merge *merge, size_t at)
{
	for (;;) {
		size_t least = at, child = 2 * at + 1, kept;

		for (size_t end = child + 2; child < end && child < merge->heap_count; child++)
			if (is_before(merge, merge->heap[child], merge->heap[least]))
				least = child;
		if (least == at)
			return;
		kept = merge->heap[at];
		merge->heap[at] = merge->heap[least];
		merge->heap[least] = kept;
		at = least;
	}
}

/* Decodes the record at `offset` if it is a sample. What trace_open() went through has sizes that
 * are whole and true. */
static bool decode_at(const struct trace *trace, size_t offset, uint64_t header,
		      struct fxt_sample *sample)
{
	uint64_t words = fxt_header_words(header), name = fxt_bits(header, 16, 31), before = 1;
	struct fxt_blob blob = {
		.type = (uint8_t)fxt_bits(header, 48, 55),
		.size = fxt_bits(header, 32, 46),
	};

	if (name & FXT_STRING_REF_INLINE)
		before += fxt_words(name & FXT_STRING_BYTES_MAX);
	if (!fxt_blob_is_sample(&blob) || before + fxt_words(blob.size) > words)
		return false;
	blob.payload = (const char *)trace->bytes + offset + before * sizeof(uint64_t);
	return fxt_sample_decode(&blob, sample) == NULL;
}

/* The lane's next sample; false: it has none left. */
static bool advance(struct merge *merge, size_t vcpu)
{
	const struct trace *trace = merge->trace;
	struct merge_lane *lane = &merge->lanes[vcpu];
	size_t end = trace->info.good_bytes;

	while (lane->offset < end) {
		struct fxt_sample sample;
		size_t offset = lane->offset;
		uint64_t header, words;

		memcpy(&header, (const char *)trace->bytes + offset, sizeof(header));
		words = fxt_header_words(header);
		if (!words || words > (end - offset) / sizeof(uint64_t))
			break;
		lane->offset += words * sizeof(uint64_t);
		if (fxt_header_type(header) != FXT_TYPE_BLOB ||
		    !decode_at(trace, offset, header, &sample) ||
		    sample.vcpu % TRACE_VCPUS_MAX != vcpu ||
		    !trace_weigh_sample(&lane->open, &sample, &lane->ticks))
			continue;
		/* A record without a time stands where the one before it does. */
		if (sample.timestamp > lane->time_ns)
			lane->time_ns = sample.timestamp;
		lane->sample = sample;
		lane->sample_offset = offset;
		return true;
	}
	lane->offset = end;
	return false;
}

gp_status_t merge_init(struct merge *merge, struct trace *trace, struct error *error)
{
	size_t count = TRACE_VCPUS_MAX;

	while (count > 0 && !trace->lanes[count - 1].used)
		count--;
	*merge = (struct merge){.trace = trace, .lane_count = count};
	merge->lanes = calloc(count ? count : 1, sizeof(*merge->lanes));
	merge->heap = calloc(count ? count : 1, sizeof(*merge->heap));
	if (!merge->lanes || !merge->heap) {
		merge_deinit(merge);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for %zu vCPUs", count);
	}
	for (size_t vcpu = 0; vcpu < count; vcpu++) {
		if (!trace->lanes[vcpu].used)
			continue;
		merge->lanes[vcpu].offset = trace->lanes[vcpu].first;
		merge->lanes[vcpu].time_ns = trace->info.first_ns;
		if (advance(merge, vcpu))
			merge->heap[merge->heap_count++] = vcpu;
	}
	for (size_t i = merge->heap_count; i > 0; i--)
		sift_down(merge, i - 1);
	return GP_OK;
}

void merge_deinit(struct merge *merge)
{
	free(merge->lanes);
	free(merge->heap);
	*merge = (struct merge){0};
}

static void give_lost(struct merge *merge, struct merge_entry *entry)
{
	const struct trace_lost *lost = &merge->trace->lost.items[merge->next_lost++];

	*entry = (struct merge_entry){.time_ns = lost->begin_ns, .lost = lost};
}

static void give_sample(struct merge *merge, struct merge_entry *entry)
{
	size_t vcpu = merge->heap[0];
	const struct merge_lane *lane = &merge->lanes[vcpu];

	*entry = (struct merge_entry){
		.time_ns = lane->time_ns,
		.sample = lane->sample,
		.ticks = lane->ticks,
		.offset = lane->sample_offset,
	};
	merge->trace->position = lane->sample_offset;
	if (!advance(merge, vcpu))
		merge->heap[0] = merge->heap[--merge->heap_count];
	sift_down(merge, 0);
}

bool merge_next(struct merge *merge, struct merge_entry *entry)
{
	struct trace *trace = merge->trace;
	bool lost = merge->next_lost < trace->lost.count;

	if (!merge->heap_count && !lost) {
		trace_tell_end(trace, "reading its samples");
		return false;
	}
	if (lost && (!merge->heap_count || trace->lost.items[merge->next_lost].begin_ns <=
						   merge->lanes[merge->heap[0]].time_ns))
		give_lost(merge, entry);
	else
		give_sample(merge, entry);
	trace_tell(trace, "reading its samples", ++merge->given, trace->info.stacks);
	if (entry->time_ns < merge->last_ns)
		entry->time_ns = merge->last_ns;
	merge->last_ns = entry->time_ns;
	return true;
}
