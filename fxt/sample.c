#include "fxt/sample.h"

#include "base/container.h"

/* 12 single words would be all flags; the stack's count is one of them. */
_Static_assert(FXT_SAMPLE_WORDS(0) == 2 + 12, "header, flags, one word per known bit");
_Static_assert(FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX) <= FXT_RECORD_WORDS_MAX &&
		       FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX) * 8 <= FXT_STRING_BYTES_MAX,
	       "the deepest sample fits in one record");

/* The word of each bit: a stack's is its depth, and the program counters follow. */
static const uint8_t fields[] = {
	offsetof(struct fxt_sample, continuation), offsetof(struct fxt_sample, completion),
	offsetof(struct fxt_sample, process),      offsetof(struct fxt_sample, thread),
	offsetof(struct fxt_sample, timestamp),    offsetof(struct fxt_sample, depth),
	offsetof(struct fxt_sample, vcpu),         offsetof(struct fxt_sample, mode),
	offsetof(struct fxt_sample, stack_end),    offsetof(struct fxt_sample, address_space),
	offsetof(struct fxt_sample, addressing),   offsetof(struct fxt_sample, kernel_frames),
};
_Static_assert(FXT_SAMPLE_KNOWN_FLAGS + 1 == 1u << ARRAY_SIZE(fields), "in the order of the bits");
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "the depth, too, is a word");

size_t fxt_sample_encode(const struct fxt_sample *sample, uint64_t *words, size_t capacity)
{
	uint64_t flags = sample->flags;
	size_t depth = flags & FXT_SAMPLE_STACK ? sample->depth : 0;
	uint64_t *next = words + 2;
	size_t size;

	if ((flags & ~FXT_SAMPLE_KNOWN_FLAGS) != 0 || depth > FXT_SAMPLE_DEPTH_MAX ||
	    ((flags & FXT_SAMPLE_KERNEL_FRAMES) && sample->kernel_frames > depth))
		return 0;
	/* Every field is one word and the stack's program counters: checked once, here. */
	size = 2 + (size_t)__builtin_popcountll(flags) + depth;
	if (size > capacity)
		return 0;
	words[0] = fxt_blob_header(FXT_STRING_SAMPLE, FXT_BLOB_SAMPLE, size);
	words[1] = flags;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!(flags & 1u << i))
			continue;
		*next++ = *(const uint64_t *)((const char *)sample + fields[i]);
		if (1u << i == FXT_SAMPLE_STACK && depth != 0)
			next = (uint64_t *)memcpy(next, sample->stack, depth * sizeof(uint64_t)) +
			       depth;
	}
	return size;
}

bool fxt_blob_is_sample(const struct fxt_blob *blob)
{
	return blob->type == FXT_BLOB_SAMPLE;
}

const char *fxt_sample_decode(const struct fxt_blob *blob, struct fxt_sample *sample)
{
	const uint64_t *next = blob->payload;
	size_t left = blob->size / sizeof(uint64_t);
	struct fxt_sample result = {0};
	uint64_t flags;

	if (blob->size % sizeof(uint64_t) != 0)
		return "a sample's payload is not whole words";
	if (left == 0)
		return "a sample without flags";
	flags = *next++;
	left--;
	/* The single words first: once they are known to be there, they are taken unchecked. */
	if ((size_t)__builtin_popcountll(flags & FXT_SAMPLE_KNOWN_FLAGS) > left)
		return "a sample's flags promise more fields than there are";
	left -= (size_t)__builtin_popcountll(flags & FXT_SAMPLE_KNOWN_FLAGS);
	result.flags = flags & FXT_SAMPLE_KNOWN_FLAGS;
	result.unknown_flags = flags & ~FXT_SAMPLE_KNOWN_FLAGS;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!(flags & 1u << i))
			continue;
		*(uint64_t *)((char *)&result + fields[i]) = *next++;
		if (1u << i != FXT_SAMPLE_STACK)
			continue;
		if (result.depth > FXT_SAMPLE_DEPTH_MAX)
			return "a sample's call stack is deeper than 1024";
		if (result.depth > left)
			return "a sample's call stack goes beyond its record";
		result.stack = next;
		next += result.depth;
		left -= result.depth;
	}
	if (result.kernel_frames > result.depth)
		return "a sample has more kernel frames than frames";
	if (left != 0 && result.unknown_flags == 0)
		return "a sample's payload goes on behind its last field";
	*sample = result;
	return NULL;
}
